"""How near operations and lines came to what the machine can do: a clause, columns, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.efficiency import Efficiency, OpEfficiency
from torchbench_magic.results.profiling.insights.operators import is_slow_dtype
from torchbench_magic.results.profiling.profile import Profile

from ..built_columns import BuiltColumn, texts
from ..document import Phrase
from ..frame_rows import float_or_none, frame_rows
from ..table import Cell, Column

__all__ = ["efficiency_clause", "efficiency_columns", "efficiency_footer", "line_columns"]

_LEAST = 0.1  # of the time in torch: what the sentence names
_NAMED = 2
_MOST = 0.5  # of a group's time: then it has that class
_WORDS = {
    "compute": "computes near this machine's peak",
    "memory": "is limited by memory bandwidth",
    "page-fault": "is page faults",
    "overhead": "is call overhead",
    "serial": "runs on one thread",
    "below-roof": "is far below what this machine can do",
    "slow-float16": "computes in float16, slow on this machine",
    "slow-bfloat16": "computes in bfloat16, slow on this machine",
}


def efficiency_clause(profile: Profile) -> Iterator[Phrase]:
    """``; of the time in torch 45 % is page faults, 20 % is far below what this machine can do``."""
    found = profile.efficiency
    if found is None:
        return
    every = profile.ops[~profile.ops["op"].isin(profile.ranges)]
    total = float(every["self_cpu_time"].sum())
    if not total or not found.rows:
        return
    by_kind: dict[str, float] = {}
    for row in found.rows:
        for kind, seconds in _parts(row, found):
            by_kind[kind] = by_kind.get(kind, 0.0) + seconds * row.calls
    shares = sorted(((seconds / total, kind) for kind, seconds in by_kind.items()), reverse=True)
    said = [f"{units.percent(min(part, 1.0))} % {_WORDS[kind]}" for part, kind in shares if part >= _LEAST][:_NAMED]
    if said:
        yield Phrase(f"; of the time in torch {', '.join(said)}")
    elif not found.coverage > _LEAST:
        yield Phrase("; how close its operations come to this machine's peaks is unknown")


def _parts(row: OpEfficiency, found: Efficiency) -> Iterator[tuple[str, float]]:
    """(kind of `_WORDS`, seconds of one call): of an op that page faults hold up they are a part."""
    kind = row.kind
    if kind == "page-fault" and 0 < row.fault_seconds < row.seconds:
        rest = row.seconds - row.fault_seconds
        yield kind, row.fault_seconds
        if row.is_bounded and row.roof < _MOST * rest:
            yield "below-roof", rest
    elif kind == "compute" and is_slow_dtype(found.peaks, row.dtype):
        yield f"slow-{row.dtype}", row.seconds
    elif kind:
        yield kind, row.seconds


def efficiency_columns(profile: Profile, ops: pd.DataFrame, by: Sequence[str]) -> list[BuiltColumn]:
    """The class of each group of ``ops`` and the share of the roof that it reached; none without ``--efficiency``."""
    if profile.efficiency is None:
        return []
    found = _reached(ops, by)

    def of(record: Mapping[str, Any]) -> tuple[str, float]:
        return found.get(tuple(_key(record[name]) for name in by), ("", math.nan))

    return [
        texts("efficiency_class", "class", 12, lambda record: of(record)[0], quiet=True),
        BuiltColumn(Column("fraction_of_peak", "of roof", "%", "number"), lambda record: _percent(of(record)[1])),
    ]


def line_columns(profile: Profile) -> list[BuiltColumn]:
    """The same of a line."""
    if profile.efficiency is None:
        return []
    return [
        texts("efficiency_class", "class", 12, lambda record: _text(record["efficiency_class"]), quiet=True),
        BuiltColumn(
            Column("fraction_of_peak", "of roof", "%", "number"), lambda record: _percent(record["fraction_of_peak"])
        ),
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _percent(value: Any) -> Cell:
    share = float_or_none(value)
    return Cell() if share is None else Cell(units.percent(share), share)


def _key(value: Any) -> Any:
    return "" if value is None or value is pd.NA or value != value else value


def _reached(ops: pd.DataFrame, by: Sequence[str]) -> dict[tuple[Any, ...], tuple[str, float]]:
    """Group -> (the class that has half of its time, the share of the roof over that time)."""
    times: dict[tuple[Any, ...], dict[str, float]] = {}
    reached: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for record in frame_rows(ops):
        key = tuple(_key(record[name]) for name in by)
        own, kind = float(record["self_cpu_time"]), _text(record["efficiency_class"])
        by_kind = times.setdefault(key, {})
        by_kind[kind] = by_kind.get(kind, 0.0) + own
        share = float_or_none(record["fraction_of_peak"])
        if share is not None:
            reached.setdefault(key, []).append((share, own))
    found = {}
    for key, by_kind in times.items():
        kind = max(by_kind, key=lambda each: by_kind[each])
        whole, parts = sum(by_kind.values()), reached.get(key, [])
        weight = sum(own for _, own in parts)
        is_told = bool(kind) and by_kind[kind] >= _MOST * whole
        share = sum(part * own for part, own in parts) / weight if is_told and weight > 0 else math.nan
        found[key] = (kind if is_told else "", share)
    return found


def efficiency_footer(profile: Profile) -> str:
    """What the columns say, what the peaks are, and what is not available here; empty without ``--efficiency``."""
    found = profile.efficiency
    if found is None:
        return ""
    peaks, threads = found.peaks, found.peaks.threads
    parts = [
        f"{name} {rate / 1e9:.3g}"
        for name, count, rate in peaks.flops
        if count == threads and not math.isnan(rate)
    ]
    rates = [(size, rate) for size, count, rate in peaks.bandwidth if count == threads and not math.isnan(rate)]
    with_them = f"with {threads} thread{'' if threads == 1 else 's'}"
    told = f"classes are known for {units.percent(found.coverage)} % of the time in torch"
    meant = "the shortest time this machine needs for an operation's FLOP and bytes (each byte once), over its time"
    said = [f"Of roof: {meant}; {told}."]
    if parts:
        said.append(f"Peaks {with_them}, GFLOP/s: {', '.join(parts)}.")
    if rates:
        shown = [f"{rate / 1e9:.3g} at {units.bytes_text(size)}" for size, rate in sorted(rates)]
        said.append(f"Bandwidth, GB/s: {', '.join(shown)}, the last two measured now.")
    return " ".join([*said, *_implementations(found.implementations), *found.notes])


def _implementations(found: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """``Run for aten::mm [64, 64], [64, 64] and 2 other shapes: ...``, each implementation once."""
    by_words: dict[tuple[str, str], list[str]] = {}
    for op, shapes, words in found:
        by_words.setdefault((op, words), []).append(shapes)
    for (op, words), of in by_words.items():
        more = len(of) - 1
        others = f" and {more} other shape{'' if more == 1 else 's'}" if more else ""
        yield f"oneDNN for {op} {of[0]}{others}: {words}."
