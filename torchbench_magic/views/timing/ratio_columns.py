"""How the alternatives of a comparison stand to their baseline, as columns: picture, ratio, interval, verdict.

A table has one direction, that of the sentence above it: times as fast, or, where nothing is faster and something
slower, times as long. ``.frame`` always has the ratio of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.rows import are_speeds

from ..built_columns import BuiltColumn
from ..table import Axis, Cell, Column, Tone
from .across_processes import process_dots

__all__ = ["ratio_columns", "ratio_definition"]

_MARKS = {"baseline": "baseline", "undecided": "open", "": "open"}
_TONES: dict[str, Tone] = {"faster": "faster", "slower": "slower", "baseline": "quiet"}
_CLOSE_TICKS = ((0.9, "0.90"), (0.95, "0.95"), (1.0, "1"), (1.05, "1.05"), (1.1, "1.10"))


def ratio_columns(comparison: Comparison) -> list[BuiltColumn]:
    """Each process as a dot, where several measured; the picture on an axis round 1; the figures; the verdict."""
    frame = comparison.frame
    in_speeds = are_speeds(frame["verdict"].dropna())
    told = _as_speed if in_speeds else lambda record: record

    def picture(at: int, record: Any) -> Cell:
        record = told(record)
        if math.isnan(record.ratio):
            return Cell()
        tone = _tone(record.verdict)
        mark = _MARKS.get(record.verdict, "decided")
        drawn = (record.ratio, record.ratio_low, record.ratio_high, mark)
        return Cell(_ratio(record), record.ratio, tone if tone != "quiet" else "", picture=drawn)

    def ratio(at: int, record: Any) -> Cell:
        record = told(record)
        if math.isnan(record.ratio):
            return Cell(units.NOT_MEASURED if record.verdict else "")
        return Cell(_ratio(record), record.ratio, "quiet" if record.verdict == "baseline" else "")

    def interval(at: int, record: Any) -> Cell:
        record = told(record)
        if math.isnan(record.ratio) or record.verdict == "baseline":
            return Cell()
        if not (math.isfinite(record.ratio_high) and record.ratio_low > 0):
            return Cell("not known", None, "quiet")
        return Cell(units.interval(record.ratio_low, record.ratio_high), record.ratio_low, "quiet")

    def verdict(at: int, record: Any) -> Cell:
        if not record.verdict:
            return Cell(units.NOT_MEASURED if not math.isnan(record.ratio) else "", None, "quiet")
        return Cell(record.verdict, None, _tone(record.verdict), note=_more(comparison, at))

    return [
        *process_dots(comparison, in_speeds=in_speeds),
        BuiltColumn(Column("interval", "ratio", kind="interval", axes=_axes(frame, comparison.margin, told)), picture),
        BuiltColumn(Column("ratio", "times", "as fast" if in_speeds else "as long", "number"), ratio),
        BuiltColumn(Column("ratio_low", "95 % interval", kind="range"), interval),
        BuiltColumn(Column("verdict", "verdict", kind="verdict", widest=36), verdict),
    ]


def ratio_definition(comparison: Comparison, baseline: str) -> str:
    """What the columns mean; ``baseline`` as it is written."""
    margin = units.number(comparison.margin, units.Scale("%", 0.01), digits=None) if comparison.margin else "0"
    methods = set(comparison.frame["method"].dropna())
    how = ", measured in adjacent blocks" if methods == {"paired"} else ""
    if methods == {"processes"}:
        how = ", measured in adjacent blocks; the ratio is the median over processes, with its interval"
    name, of = ("fast", f"time of {baseline} / time")
    if not are_speeds(comparison.frame["verdict"].dropna()):
        name, of = ("long", f"time / time of {baseline}")
    return f"Times as {name} = {of} at the same point{how}. “same” means within ±{margin} %."


def _as_speed(record: Any) -> Any:
    """The record with its ratio of times turned over."""
    turned = (1 / end if end else math.inf for end in (record.ratio, record.ratio_high, record.ratio_low))
    return SimpleNamespace(**{**vars(record), **dict(zip(("ratio", "ratio_low", "ratio_high"), turned, strict=True))})


def _ratio(record: Any) -> str:
    if record.verdict == "baseline":
        return "1"
    known = math.isfinite(record.ratio_high) and record.ratio_low > 0
    return units.ratio(record.ratio, *((record.ratio_low, record.ratio_high) if known else (None, None)))


def _tone(verdict: str) -> Tone:
    return _TONES.get(verdict, "")


def _more(comparison: Comparison, row: int) -> str:
    if row in comparison.voids:
        return "see below"
    seconds = comparison.undecided_seconds.get(row)
    if seconds is None:
        return ""
    if math.isnan(seconds):
        return "needs more time"
    if math.isinf(seconds):
        return "at the margin"
    if seconds > 3600:
        return "needs over an hour more"
    digits = 1 if seconds < 10 else 2
    return f"needs ~{units.number(max(seconds, 0.1), units.Scale('s', 1.0, 1), digits=digits)} s more"


def _axes(frame: pd.DataFrame, margin: float, told: Callable[[Any], Any]) -> tuple[Axis, ...]:
    """The axis that holds all ratios and the close view of ±10 %, the useful one first."""
    known = [float(r) for r in frame["ratio"] if math.isfinite(r) and r > 0]
    ratios = [told(SimpleNamespace(ratio=r, ratio_low=r, ratio_high=r)).ratio for r in known]
    low, high = min([1.0, *ratios]), max([1.0, *ratios])
    close = Axis("zoom to ±10 %", 0.886, 1.12, _CLOSE_TICKS, margin)
    wide = _log_axis(low, high, margin)
    if low >= 0.9 and high <= 1.1:
        return close, wide
    return wide, close


def _log_axis(low: float, high: float, margin: float) -> Axis:
    """Powers of two round 1, at most six ticks; powers of ten where the ratios are further apart."""
    first, last = min(-1, math.floor(math.log2(low) + 0.1)), max(1, math.ceil(math.log2(high) - 0.1))
    names = {-3: "⅛", -2: "¼", -1: "½"}
    step = 1 if last - first <= 6 else 2 if last - first <= 12 else 4
    powers = [p for p in range(first, last + 1) if p % step == 0]
    ticks = tuple((2.0**p, names.get(p) or (f"1/{2**-p}" if p < 0 else str(2**p))) for p in powers)
    return Axis("full axis", min(low, 2.0**first) / 1.12, max(high, 2.0**last) * 1.12, ticks, margin)
