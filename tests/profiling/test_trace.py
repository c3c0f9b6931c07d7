"""The raw events of a profile: what the columns refuse, on which lines they are, and how little room they take."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from torchbench_magic import load, load_trace, profile
from torchbench_magic.profiling import kineto
from torchbench_magic.profiling import profile as large_profiles
from torchbench_magic.profiling import run as module
from torchbench_magic.profiling.trace import EVENT_COLUMNS, NODE_COLUMNS, SEGMENT_COLUMNS, Trace, compact, line_ranges

from .many_events import calls_of, profile_of_many
from .profiles import MS, trace_of_two_kernels

# ==== trace ===========================================================================================================


def changed(frame: str, column: str, row: int, value: int) -> Trace:
    trace = trace_of_two_kernels()
    table = getattr(trace, frame).copy()
    table.loc[row, column] = value
    return Trace(**{name: getattr(trace, name) for name in trace.__dataclass_fields__} | {frame: table})


def ranges_of(trace: Trace) -> list[tuple[int, int, int]]:
    """(node, start, end)."""
    found = line_ranges(trace)
    return list(zip(found.node.tolist(), found.start.tolist(), found.end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("frame", "column", "row", "value"),
    [
        ("events", "name", 0, 5),
        ("events", "kind", 1, 6),
        ("events", "track", 0, 2),
        ("events", "parent", 2, 6),
        ("events", "launched_by", 4, -2),
        ("events", "node", 0, 4),
        ("nodes", "source", 1, 1),
        ("segments", "node", 0, 9),
    ],
)
def test_an_index_that_points_to_nothing_is_refused(frame: str, column: str, row: int, value: int) -> None:
    with pytest.raises(ValueError, match=f"{column} points to nothing"):
        changed(frame, column, row, value)


def test_a_line_that_calls_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="before the line that calls it"):
        changed("nodes", "parent", 1, 1)


def test_a_number_that_does_not_fit_is_refused() -> None:
    columns = {name: np.zeros(1) for name in EVENT_COLUMNS} | {"name": np.array([2**40])}
    with pytest.raises(ValueError, match="does not fit"):
        compact(EVENT_COLUMNS, columns)


def test_each_stay_on_a_line_is_one_range() -> None:
    assert ranges_of(trace_of_two_kernels()) == [(1, 0, 5 * MS), (2, 5 * MS, 7 * MS), (3, 7 * MS, 10 * MS)]


def test_ranges_of_a_call_lie_in_the_range_of_the_line_that_calls() -> None:
    """Line 2 (0 to 9) calls a function whose line 1 runs from 2 to 4 and from 6 to 8."""
    trace = trace_of_two_kernels()
    nodes = trace.nodes.copy()
    nodes.loc[2, "parent"] = 1
    starts, active = np.array([0, 2, 4, 6, 8, 9]), np.array([1, 2, 1, 2, 1, 0])
    segments = compact(SEGMENT_COLUMNS, {"thread": np.zeros(6), "start": starts, "node": active})
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    trace = Trace(**fields | {"nodes": nodes, "segments": segments})
    assert ranges_of(trace) == [(1, 0, 9), (2, 2, 4), (2, 6, 8)]


def test_the_columns_take_less_than_a_hundred_bytes_an_event() -> None:
    trace = trace_of_two_kernels()
    assert trace.events.memory_usage(index=False).sum() / len(trace) < 60


# ==== line ranges =====================================================================================================
# The stays on lines, against the plain walk along the segments that says what they are.


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


# ==== kept events =====================================================================================================
# What a profile keeps of its events: all of them, on their threads and lines, in little room.


TRAINING = """
for _ in range(100):
    out = model(x)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def training(**options: bool) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    names = {"model": model, "x": torch.ones(4, 8), "optimizer": torch.optim.Adam(model.parameters())}
    return profile(TRAINING, globals=names, **options)


def test_every_op_of_the_table_is_an_event_with_its_line() -> None:
    made = training()
    trace = made.trace
    events = trace.events[trace.is_kind("op", "range")]
    frame = pd.DataFrame(
        {
            "op": [trace.names[n] for n in events["name"]],
            "line": trace.nodes["line"].to_numpy()[events["node"]],
        }
    )
    counted = frame.value_counts().to_dict()
    table = made.ops.groupby(["op", "line"])["calls"].sum().to_dict()
    assert counted == {(op, int(line)): calls for (op, line), calls in table.items()}


def test_events_of_other_threads_are_on_tracks_of_their_own() -> None:
    code = "t = threading.Thread(target=x.sin, name='worker')\nt.start()\nt.join()\nx.cos()"
    trace = profile(code, globals={"threading": threading, "x": torch.ones(4)}).trace
    assert trace is not None
    track = {trace.names[name]: trace.tracks[track] for name, track in trace.events[["name", "track"]].to_numpy()}
    assert track["aten::cos"].name == "MainThread"
    assert track["aten::sin"].thread == 1
    assert track["aten::sin"].ident != track["aten::cos"].ident


def test_a_trace_with_any_name_of_a_range_is_valid(tmp_path: Path) -> None:
    name = 'a "b"\n</script> \\ é'
    code = "with torch.profiler.record_function(name):\n    x.sin()"
    profile(code, globals={"torch": torch, "x": torch.ones(4), "name": name}).export_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    (kept,) = (event for event in events if event.get("cat") == "user_annotation")
    assert "".join(kept["name"].split()) == "".join(name.split())  # torch makes one space of a line end


def test_an_event_takes_less_than_a_kilobyte_in_memory_and_a_hundred_bytes_on_disk(tmp_path: Path) -> None:
    made = training(memory=True, shapes=True)
    assert made.n_events > 10_000
    tables = [getattr(made, item.name) for item in fields(made)]
    tables += [made.trace.events, made.trace.nodes, made.trace.segments]
    held = sum(t.memory_usage(deep=True).sum() for t in tables if isinstance(t, pd.DataFrame))
    assert held / made.n_events < 1000
    made.save(tmp_path / "runs.sqlite")
    assert (tmp_path / "runs.sqlite").stat().st_size / made.n_events < 100
    made.export_trace(tmp_path / "t.json.gz")
    assert (tmp_path / "t.json.gz").stat().st_size / made.n_events < 100  # 300 steps stay far below 30 MB
    (kept,) = load(tmp_path / "runs.sqlite")
    pd.testing.assert_frame_equal(kept.trace.events, made.trace.events)


# ==== large profiles ==================================================================================================
# A large profile lets go of what it was made from, and holds little of each event itself.


LOOP = "for i in range({n}):\n    y = x + 1\n    z = y * 2\n"


def made(n: int, **options: Any) -> Any:
    return profile(LOOP.format(n=n), globals={"x": torch.ones(4)}, **options)


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is large is smaller here; each time that memory is given back."""
    calls: list[str] = []
    monkeypatch.setattr(large_profiles, "LARGE", 1000)
    monkeypatch.setattr(large_profiles, "give_back", lambda: calls.append("given back"))
    return calls


def test_memory_is_given_back_once_for_a_large_profile_and_never_for_a_small_one(given_back: list[str]) -> None:
    made(10)
    assert given_back == []
    made(600)
    assert given_back == ["given back"]


def test_a_trace_that_is_read_is_no_smaller_than_one_that_was_made(given_back: list[str], tmp_path: Any) -> None:
    made(600).export_trace(tmp_path / "trace.json")
    given_back.clear()
    load_trace(tmp_path / "trace.json")
    assert given_back == ["given back"]


def test_torchs_events_and_the_run_are_gone_before_memory_is_given_back_without_a_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[weakref.ref[Any]] = []
    held: list[object] = []
    profilers: list[Any] = []
    report, new = module.report, kineto.new_profiler

    def noted(run: Any, *given: Any, **named: Any) -> Any:
        runs.append(weakref.ref(run))
        return report(run, *given, **named)

    def kept(**options: bool) -> Any:
        profilers.append(new(**options))  # torch's own refers to itself, and stays as long
        return profilers[-1]

    monkeypatch.setattr(module, "report", noted)
    monkeypatch.setattr(kineto, "new_profiler", kept)
    monkeypatch.setattr(large_profiles, "LARGE", 0)
    monkeypatch.setattr(
        large_profiles,
        "give_back",
        lambda: held.extend([runs[-1](), profilers[-1].profiler.kineto_results]),
    )
    made(3)  # what is set up once
    gc.disable()
    try:
        made(100, memory=True)
    finally:
        gc.enable()
    assert held[-2:] == [None, None]


@pytest.mark.parametrize("options", [{}, {"memory": True, "shapes": True}], ids=["plain", "memory and shapes"])
def test_it_holds_less_than_two_hundred_bytes_an_event_and_no_object_for_each(options: dict[str, bool]) -> None:
    found = made(1000, **options)
    trace = found.trace
    tables = [trace.events, trace.nodes, trace.segments, found.lines, found.ops, found.frames]
    tables += [] if found.memory is None else [found.memory]
    in_columns = sum(int(table.memory_usage(index=False).sum()) for table in tables)
    assert in_columns < 200 * found.n_events
    texts = [table[name] for table in tables for name in table.columns if table[name].dtype == object]
    assert len({id(value) for column in texts for value in column}) < 300, "equal texts are one object"
