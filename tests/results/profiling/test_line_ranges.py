"""The stays on lines, against the plain walk along the segments that says what they are."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.profiling.trace import NODE_COLUMNS, SEGMENT_COLUMNS, Trace, compact, line_ranges

from ..many_events import calls_of, profile_of_many
from ..profiles import trace_of_two_kernels

Range = tuple[int, int, int, int]


def walked(trace: Trace, deepest: int = 200) -> list[Range]:
    """(thread, start, end, node): open what a segment adds to the lines of the one before, close what it lacks."""
    chains: list[tuple[int, ...]] = []
    for node, above in enumerate(trace.nodes["parent"].tolist()):
        lines = (*chains[above], node) if above >= 0 else ()
        chains.append(lines if len(lines) <= deepest else chains[above])
    found: list[Range] = []
    for thread in sorted(set(trace.segments["thread"].tolist())):
        mine = trace.segments[trace.segments["thread"] == thread]
        opened: list[tuple[int, int]] = []
        ended = [*zip(mine["start"].tolist(), mine["node"].tolist(), strict=True)]
        for now, node in (*ended, (max(trace.duration, int(mine["start"].max())), -1)):
            lines = chains[node] if node >= 0 else ()
            same = 0
            while same < min(len(opened), len(lines)) and opened[same][0] == lines[same]:
                same += 1
            while len(opened) > same:
                line, start = opened.pop()
                if now > start:
                    found.append((thread, start, now, line))
            opened.extend((line, now) for line in lines[same:])
    return found


def random_trace(seed: int, nodes: int, segments: int) -> Trace:
    rng = np.random.default_rng(seed)
    few = trace_of_two_kernels()
    threads = 3
    parent = [-1] * threads + [int(rng.integers(0, n)) for n in range(threads, nodes)]
    if seed % 2:  # a deep recursion
        parent[threads:] = range(threads - 1, nodes - 1)
    root = []
    for node, above in enumerate(parent):
        root.append(node if above < 0 else root[above])
    node = rng.integers(0, nodes, segments)
    columns = {"thread": np.array(root)[node], "start": np.sort(rng.integers(0, 4 * segments, segments)), "node": node}
    order = np.argsort(columns["thread"], kind="stable")
    made = {"parent": np.array(parent), "thread": np.array(root), "line": np.zeros(nodes), "calls": np.ones(nodes)}
    made |= {name: np.where(np.array(parent) < 0, -1, 0) for name in ("source", "function")}
    fields = {name: getattr(few, name) for name in few.__dataclass_fields__}
    fields |= {
        "nodes": compact(NODE_COLUMNS, made),
        "segments": compact(SEGMENT_COLUMNS, {name: column[order] for name, column in columns.items()}),
        "events": few.events.assign(node=-1).astype(few.events.dtypes.to_dict()),
        "duration": 4 * segments,
    }
    return Trace(**fields)


@pytest.mark.parametrize("seed", range(8))
def test_ranges_are_those_of_a_walk_along_the_segments(seed: int) -> None:
    trace = random_trace(seed, nodes=230 if seed < 4 else 20, segments=300)
    made = line_ranges(trace)
    columns = (column.tolist() for column in (made.thread, made.start, made.end, made.node))
    found = list(zip(*columns, strict=True))
    assert sorted(found) == sorted(walked(trace))
    places = [(thread, start, -end) for thread, start, end, _ in found]
    assert places == sorted(places), "the outer range of two comes first"


def test_a_trace_without_segments_has_no_ranges() -> None:
    trace = random_trace(0, nodes=5, segments=3)
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    assert len(line_ranges(Trace(**fields | {"segments": trace.segments.iloc[:0]}))) == 0


def test_no_function_is_called_for_each_segment() -> None:
    few, many = (profile_of_many(steps).trace for steps in (500, 5000))
    assert few is not None
    assert many is not None
    assert calls_of(lambda: line_ranges(many)) <= calls_of(lambda: line_ranges(few)) + 20
