"""A rank that was profiled on an engine as a `RankRun`: from the columns of its profile, without a file between."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torchbench_magic.results.profiling.line_ranges import line_ranges
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.profiling.source_texts import node_sources
from torchbench_magic.results.profiling.trace import KINDS, Trace
from torchbench_magic.results.ranks.analysis import RankRun
from torchbench_magic.results.ranks.collectives import kind_of_collective

from .rank_events import RankColumns, RankFacts, run_of_columns

__all__ = ["run_of_profile"]

_CATEGORIES = {
    "op": "cpu_op",
    "range": "user_annotation",
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}


def run_of_profile(profile: Profile, facts: RankFacts) -> RankRun | None:
    """The rank of ``profile``, which was recorded with ``shapes``; None where it ran no operation of torch."""
    if profile.trace is None:
        return None
    facts = replace(facts, base=profile.trace.begin)  # each rank's times count from when it entered the cell itself
    columns = RankColumns()
    events = list(_events(profile.trace))
    _give_shapes(events)
    columns.take(events)
    columns.take(_lines(profile, profile.trace))
    return run_of_columns(columns, facts)


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    """As in a Chrome trace of torch's."""
    shapes = [_shapes(each[0]) for each in trace.inputs]
    names = ("name", "kind", "start", "duration", "track", "inputs")
    for name, kind, start, duration, track, inputs in zip(
        *(trace.events[each].tolist() for each in names), strict=True
    ):
        category = _CATEGORIES.get(KINDS[kind])
        if category is not None:
            yield {
                "ph": "X", "cat": category, "name": trace.names[name], "tid": track, "ts": start / 1000,
                "dur": duration / 1000, "args": {"Input Dims": shapes[inputs]} if inputs >= 0 else {},
            }  # fmt: skip


def _shapes(text: str) -> list[Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    return value if isinstance(value, list) else []


def _give_shapes(events: list[dict[str, Any]]) -> None:
    """gloo's work has the shapes of the call that it is of: the k-th of a kind begun is the k-th called, since its
    threads take from one queue."""
    calls, works = defaultdict(list), defaultdict(list)
    for event in sorted(events, key=lambda each: each["ts"]):
        name = event["name"]
        if name.startswith("c10d::"):
            calls[kind_of_collective(name)].append(event)
        elif name.startswith("gloo:"):
            works[kind_of_collective(name)].append(event)
    for kind, mine in works.items():
        if kind and len(mine) == len(calls[kind]):
            for work, call in zip(mine, calls[kind], strict=True):
                work["args"] = call["args"]


def _lines(profile: Profile, trace: Trace) -> Iterator[dict[str, Any]]:
    sources = node_sources(trace, profile.sources)
    labels = [
        f"{source.label}:{line}" if source is not None else ""
        for source, line in zip(sources, trace.nodes["line"].tolist(), strict=True)
    ]
    stays = line_ranges(trace)
    for thread, node, start, end in zip(
        stays.thread.tolist(), stays.node.tolist(), stays.start.tolist(), stays.end.tolist(), strict=True
    ):
        if labels[node]:
            yield {
                "ph": "X", "cat": "cell_line", "name": labels[node], "tid": thread, "ts": start / 1000,
                "dur": (end - start) / 1000,
            }  # fmt: skip
