"""The sum of the cycles of a scheduled profile: a `Profile` of all that was recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ..doubts import Doubt
from ..machine.concurrency import joined_concurrency
from ..machine.contention import joined_contention
from ..machine.load_doubts import LOAD_KINDS
from .columns import LINE_COLUMNS, OP_COLUMNS, frame_of
from .frames.call_trees import sum_of_frames
from .frames.sampled_trees import sum_of_sampled
from .joined_traces import one_after_the_other
from .profile import Profile, ProfileOptions

__all__ = ["highest_cycle", "sum_of_cycles"]

_LINE_KEYS = ("source_id", "line", "thread")
_JUDGED = frozenset({"efficiency_class", "fraction_of_peak"})  # told of the sum, never of a cycle
_OP_KEYS = tuple(
    name
    for name in OP_COLUMNS
    if (OP_COLUMNS[name] == "object" or name in ("cell", "line", "thread")) and name not in _JUDGED
)
_BREAK_KEYS = ("source_id", "file", "line", "reason", "hint")
_HIGHEST = frozenset({"peak", "host_peak"})
_SUMS = ("n_events", "n_line_events", "profiler_time")
_COSTS = (None, "little", "noticeable", "most")


_OF_LONGEST = "device-after"
"""Of these the one is kept that is about the longest time."""


def sum_of_cycles(
    cycles: Sequence[Profile], options: ProfileOptions, warnings: Sequence[Doubt], **known: Any
) -> Profile:
    """Add up cycles: times, calls and bytes are sums, a peak is the highest of them, a doubt is said once.

    ``.memory``, ``.bytes_before`` and ``.holders`` are those of the cycle with the highest peak: what was freed between
    two cycles nobody saw. Without a cycle the tables are empty.

    Args:
        warnings: of the whole run, what the machine did in all cycles together included; they come before those of
            the cycles.
        known: other fields of the sum.
    """
    if not cycles:
        empty = {"lines": frame_of(LINE_COLUMNS, {}), "ops": frame_of(OP_COLUMNS, {})}
        return Profile(**{"wall_time": 0.0, "num_threads": 0, **empty, **known}, options=options, warnings=[*warnings])
    sources = {source_id: source for each in cycles for source_id, source in each.sources.items()}
    ops = _added([each.ops for each in cycles], _OP_KEYS)
    highest = highest_cycle(cycles)
    every = [doubt for each in cycles for doubt in each.warnings if doubt.kind not in LOAD_KINDS]
    every.sort(key=lambda doubt: float(str(doubt.facts.get("seconds", 0))) if doubt.kind == _OF_LONGEST else 0.0)
    of_cycles = {(doubt.kind, doubt.text if doubt.kind != _OF_LONGEST else ""): doubt for doubt in every}
    values: dict[str, Any] = {
        "lines": _in_order(_added([each.lines for each in cycles], _LINE_KEYS), list(sources)),
        "ops": ops.sort_values("self_cpu_time", ascending=False, kind="stable").reset_index(drop=True),
        "wall_time": sum(each.wall_time for each in cycles),
        "num_threads": cycles[-1].num_threads,
        "sources": sources,
        "source_id": cycles[0].source_id,
        "memory": highest.memory,
        "bytes_before": highest.bytes_before,
        "holders": highest.holders,
        "frames": sum_of_frames([each.frames for each in cycles]),
        "compilations": _one_after_the_other([each.compilations for each in cycles]),
        "graph_breaks": _added([each.graph_breaks for each in cycles], _BREAK_KEYS),
        "phases_by_line": pd.concat([each.phases_by_line for each in cycles], ignore_index=True),
        "python": sum_of_sampled([each.python for each in cycles if each.python is not None]),
        "concurrency": joined_concurrency([each.concurrency for each in cycles if each.concurrency is not None]),
        "trace": one_after_the_other([each.trace for each in cycles if each.trace is not None]),
        "calls": _calls(cycles),
        "flops_coverage": _coverage(cycles),
        "profiler_cost": max((each.profiler_cost for each in cycles), key=_COSTS.index),
        "ranges": tuple(sorted({name for each in cycles for name in each.ranges})),
        "threads": max((each.threads for each in cycles), key=len),
        "options": options,
        "contention": joined_contention([each.contention for each in cycles if each.contention is not None]),
        "warnings": [*warnings, *of_cycles.values()],
        "partial": any(each.partial for each in cycles),
        "steps": tuple(number for each in cycles for number in each.steps),
        "cycles": tuple(cycles),
        **{name: sum(getattr(each, name) for each in cycles) for name in _SUMS},
    }
    return replace(cycles[0], **{**values, **known})


def _added(frames: Sequence[pd.DataFrame], keys: Sequence[str]) -> pd.DataFrame:
    """One row for each of ``keys``, its numbers added up; what is NA in all of them stays NA."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return frames[0]
    every = pd.concat(filled, ignore_index=True)
    groups = every.groupby(list(keys), dropna=False, sort=False)
    made = groups.first()[[]]
    for name in every.columns:
        if name in keys:
            continue
        if every[name].dtype == object or name == "cell":
            made[name] = groups[name].first()
        elif name in _HIGHEST:
            made[name] = groups[name].max()
        else:
            made[name] = groups[name].sum(min_count=1)
    columns = list(frames[0].columns)
    return made.reset_index()[columns].astype(frames[0].dtypes.to_dict())


def _one_after_the_other(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows; what one cycle compiled another may run, and each row has the calls of its own cycle."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True).astype(tables[0].dtypes.to_dict()) if filled else tables[0]


def _in_order(lines: pd.DataFrame, sources: list[str]) -> pd.DataFrame:
    order = {source_id: i for i, source_id in enumerate(sources)}
    at = lines["source_id"].map(lambda source_id: order.get(source_id, len(order)))
    ordered = lines.assign(_source=at).sort_values(["_source", "line", "thread"], kind="stable", na_position="last")
    return ordered.drop(columns="_source").reset_index(drop=True)


def highest_cycle(cycles: Sequence[Profile]) -> Profile:
    """The first of those that held the most bytes; where none recorded bytes, the first of all."""
    return max((each for each in cycles if each.memory is not None), key=_peak, default=cycles[0])


def _peak(cycle: Profile) -> int:
    return int(cycle.memory["bytes"].max()) if cycle.memory is not None and len(cycle.memory) else 0


def _calls(cycles: Sequence[Profile]) -> tuple[tuple[str, str, str, str, str, str, int], ...]:
    """Distinct calls, each with how often it was seen in all cycles."""
    seen: dict[tuple[str, str, str, str, str, str], int] = {}
    for *what, count in (call for each in cycles for call in each.calls):
        key = (what[0], what[1], what[2], what[3], what[4], what[5])
        seen[key] = seen.get(key, 0) + count
    return tuple((*what, count) for what, count in seen.items())


def _coverage(cycles: Sequence[Profile]) -> float:
    """Share of all op time that has a formula."""
    times = [float(each.ops.loc[~each.ops["op"].isin(each.ranges), "self_cpu_time"].sum()) for each in cycles]
    covered = [each.flops_coverage * seconds for each, seconds in zip(cycles, times, strict=True) if seconds]
    return sum(covered) / sum(times) if covered else math.nan
