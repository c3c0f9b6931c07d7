"""Verdicts in words: the sentence of a comparison, which alternative is faster and by how much, and the ratios'
columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.show.document import Phrase, Style, StyledText, clipped, clipped_apart, code
from torchbench_magic.show.table import Axis, BuiltColumn, Cell, Column, Tone

from .columns_view import fixed_text, process_dots
from .comparison import Comparison
from .intervals import APART, confidence_of_ranges
from .samples import are_speeds
from .scaling import Crossover, crossovers

# ---- verdicts --------------------------------------------------------------------------------------------------------
# The sentence of a comparison: which alternative is faster than the baseline, where, and by how much; and where two
# alternatives swap places along a sweep.

_LONGEST_NAME = 60
_MOST_NAMED = 4
_MOST_SWAPS = 3


@dataclass(frozen=True)
class SaidRow:
    """One alternative at one point: its ratio to the baseline there, with the interval, and the verdict; ``why`` it
    is undecided where more samples would not decide it; ``base`` names what it is compared with, where that is not the
    same for all."""

    name: str
    ratio: float
    low: float
    high: float
    verdict: str
    why: str = ""
    base: str = ""


def sentence(judged: Sequence[SaidRow], baseline: str | None, places: str = "points") -> StyledText:
    """The answer first: ``mul_sum is 1.65 to 6.8 times as fast as bmm at all 6 points; einsum: 3 slower, 1 same``; of
    one point with its interval: ``mul_sum is 2.5 times as fast as bmm (2.4 … 2.6)``.

    ``judged`` holds every alternative but the baseline, at every point. Without a ``baseline`` that all have, each is
    said to be compared with its own. ``places``: what the points are, "points" or "engines".
    """
    in_speeds = are_speeds(one.verdict for one in judged)
    short = clipped_apart([*(n for one in judged for n in (one.name, one.base)), baseline or ""], _LONGEST_NAME)
    judged = [replace(one, name=short[one.name], base=short[one.base]) for one in judged]
    baseline = baseline and short[baseline]
    by_name: dict[str, list[SaidRow]] = {}
    for one in judged:
        by_name.setdefault(one.name, []).append(one)
    clauses = _together(sorted(by_name.values(), key=_weight))
    runs: list[Phrase] = []
    for nth, alike in enumerate(clauses[:_MOST_NAMED]):
        if nth:
            runs.append(Phrase("; "))
        runs += _subjects(alike, "code" if nth else "subject")
        against = _base(alike[0]) if baseline is None else None if nth else baseline
        runs += _clause(alike[0], against, places, is_plural=len(alike) > 1, in_speeds=in_speeds)
    left = sum(len(alike) for alike in clauses[_MOST_NAMED:])
    if left:
        runs.append(Phrase(f"; {left} more below"))
    return tuple(runs)


def _together(ordered: Sequence[list[SaidRow]]) -> list[list[list[SaidRow]]]:
    """The alternatives; as one clause those that take the same time, or are undecided for the same reason, at equally
    many points."""
    clauses: list[list[list[SaidRow]]] = []
    for points in ordered:
        last = clauses[-1][0] if clauses else []
        if last and _common(points) in ("same", "undecided") and _alike(points) == _alike(last):
            clauses[-1].append(points)
        else:
            clauses.append([points])
    return clauses


def _alike(points: Sequence[SaidRow]) -> tuple[object, ...]:
    return _common(points), _base(points), len(points), _reasons(points)


def _reasons(points: Sequence[SaidRow]) -> list[str]:
    """Why they are undecided, each reason once."""
    return list(dict.fromkeys(point.why for point in points if point.why))


def _base(points: Sequence[SaidRow]) -> str | None:
    """What all of them are compared with; None where that differs."""
    bases = {point.base for point in points}
    return bases.pop() or None if len(bases) == 1 else None


def _subjects(alike: Sequence[Sequence[SaidRow]], style: Style) -> list[Phrase]:
    """``a``; ``a, b and c``; ``a, b, c and 5 more``."""
    most = _MOST_NAMED if len(alike) <= _MOST_NAMED else _MOST_NAMED - 1
    names = [Phrase(clipped(points[0].name, _LONGEST_NAME), style) for points in alike[:most]]
    names += [Phrase(f"{len(alike) - most} more")] if len(alike) > most else []
    runs = names[:1]
    for nth, name in enumerate(names[1:], 2):
        runs += [Phrase(" and " if nth == len(names) else ", "), name]
    return runs


_ORDER = {"faster": 0, "slower": 1, "same": 2, "mixed": 3, "undecided": 4}


def _common(points: Sequence[SaidRow]) -> str:
    verdicts = {point.verdict for point in points}
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def _weight(points: Sequence[SaidRow]) -> tuple[int, float]:
    """Unanimous verdicts first, faster before slower, the larger effect first."""
    known = [abs(math.log(p.ratio)) for p in points if p.ratio > 0 and math.isfinite(p.ratio)]
    return _ORDER.get(_common(points), 5), -min(known, default=0.0)


def _clause(
    points: Sequence[SaidRow], baseline: str | None, places: str, *, is_plural: bool, in_speeds: bool
) -> list[Phrase]:
    common = _common(points)
    as_it, against = (
        [Phrase(word), code(clipped(baseline, _LONGEST_NAME))] if baseline is not None else []
        for word in (" as ", " against ")
    )
    if common in ("faster", "slower"):
        verb, adverb = ("is", "fast") if in_speeds else ("takes", "long")
        return [
            Phrase(f" {verb} {_times(points, in_speeds)} times as {adverb}"),
            *as_it,
            Phrase(_everywhere(points, places) + _ends(points, in_speeds)),
        ]
    if common == "same":
        return [Phrase(f" take{'' if is_plural else 's'} the same time"), *as_it, Phrase(_everywhere(points, places))]
    if common == "mixed":
        counts = Counter(point.verdict or "not judged" for point in points)
        words = sorted(counts, key=lambda word: _ORDER.get(word, 5))
        return [*against, Phrase(": " + ", ".join(f"{counts[word]} {word}" for word in words))]
    why = f": {', '.join(reasons)}" if (reasons := _reasons(points)) else ""
    verb = "are" if is_plural else "is"
    return [*against, Phrase(f" {verb} {common or 'not judged'}{_everywhere(points, places)}{why}")]


def _everywhere(points: Sequence[SaidRow], places: str) -> str:
    if len(points) == 1:
        return ""
    word = "at" if places == "points" else "on"
    return f" {word} both {places}" if len(points) == 2 else f" {word} all {units.count(len(points))} {places}"


def _times(points: Sequence[SaidRow], in_speeds: bool) -> str:
    factors = []
    for point in points:
        value, low, high = _factor(point, in_speeds)
        factors.append((value, _written(value, low, high)))
    least, most = min(factors)[1], max(factors)[1]
    return least if least == most else f"{least} to {most}"


def _ends(points: Sequence[SaidRow], in_speeds: bool) -> str:
    """The interval of a single point."""
    _, low, high = _factor(points[0], in_speeds)
    if not (len(points) == 1 and 0 < low < high < math.inf):
        return ""
    return f" ({_interval(low, high)})"


def _interval(low: float, high: float) -> str:
    """As short as its ends still differ from each other, and from 1."""
    ends = [_short(end, low, high) for end in (low, high)]
    tells = ends[0] != ends[1] and not {"1.0", "1.00"} & {*ends}
    return " … ".join(ends) if tells else units.interval(low, high)


def _written(value: float, low: float, high: float) -> str:
    """Short, unless it then seems to lie outside of the interval beside it."""
    short = _short(value, low, high)
    if not (0 < low <= value <= high < math.inf and low < high) or units.reads_within(short, _interval(low, high)):
        return short
    return units.ratio(value, low, high)


def _short(value: float, low: float, high: float) -> str:
    """Two digits at least: "1 times as long" says nothing, however wide the interval; three at most."""
    return max(units.ratio(value, low, high, digits=3), units.number(value, digits=2), key=len)


def _factor(point: SaidRow, in_speeds: bool) -> tuple[float, float, float]:
    """(value, low, high) of how many times as fast, or as long."""
    if in_speeds:
        return _inverse(point.ratio), _inverse(point.high), _inverse(point.low)
    return point.ratio, point.low, point.high


def speed_text(faster: SaidRow) -> str:
    """``2.3 times as fast (2.2 … 2.4)``, of one that is faster."""
    return f"{_times([faster], True)} times as fast{_ends([faster], True)}"


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def swaps_clause(comparison: Comparison) -> StyledText:
    """``bmm is faster than mul_sum below n ≈ 320, slower above``; empty where nothing swaps.

    Several are parted by semicolons, the ones beyond three counted.
    """
    found = crossovers(comparison)
    runs = [phrase for swap in found[:_MOST_SWAPS] for phrase in (Phrase("; "), *_said(swap))][1:]
    if len(found) > _MOST_SWAPS:
        runs.append(Phrase(f"; {len(found) - _MOST_SWAPS} more swaps"))
    return tuple(runs)


def _said(swap: Crossover) -> list[Phrase]:
    where = f" ({fixed_text(swap.fixed)})" if swap.fixed else ""
    return [
        code(clipped(swap.faster_below, _LONGEST_NAME)),
        Phrase(" is faster than "),
        code(clipped(swap.faster_above, _LONGEST_NAME)),
        Phrase(f" below {swap.axis} ≈ {units.number(swap.at, digits=2)}, slower above{where}"),
    ]


# ---- ratio_columns ---------------------------------------------------------------------------------------------------
# How the alternatives of a comparison stand to their baseline, as columns: picture, ratio, interval, verdict.
#
# A table has one direction, that of the sentence above it: times as fast, or, where nothing is faster and something
# slower, times as long. ``.frame`` always has the ratio of times.

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

    confidence = "interval" if comparison.by_ranges else "95 % interval"  # the definition below has that of ranges
    return [
        *process_dots(comparison, in_speeds=in_speeds),
        BuiltColumn(Column("interval", "ratio", kind="interval", axes=_axes(frame, comparison.margin, told)), picture),
        BuiltColumn(Column("ratio", "times", "as fast" if in_speeds else "as long", "number"), ratio),
        BuiltColumn(Column("ratio_low", confidence, kind="range"), interval),
        BuiltColumn(Column("verdict", "verdict", kind="verdict", widest=36), verdict),
    ]


def ratio_definition(comparison: Comparison, baseline: str) -> str:
    """What the columns mean; ``baseline`` as it is written."""
    margin = units.number(comparison.margin, units.Scale("%", 0.01), digits=None) if comparison.margin else "0"
    frame = comparison.frame[comparison.frame["verdict"] != "baseline"]
    methods = set(comparison.frame["method"].dropna())
    how = ", measured in adjacent blocks" if methods == {"paired"} else ""
    if methods == {"processes"}:
        how = ", measured in adjacent blocks; the ratio is the median over processes, with its interval"
    how_few = ""
    if comparison.by_ranges:
        few = sorted({*comparison.by_ranges.values()})
        rounds = f"{few[0]} to {few[-1]}" if len(few) > 1 else f"{few[0]}"
        how_few = (
            f" “By ranges”: decided by {rounds} rounds because every block of one took at least {APART:g} times as long"
            " as every block of the other; the interval holds the ratios of any two blocks, and the median ratio with"
            f" {min(99.9, 100 * confidence_of_ranges(few[0])):.3g} % or more."
        )
        if len(comparison.by_ranges) < frame["ratio_low"].notna().sum():
            how_few += " Other intervals are of 95 %."
    time = "processor time" if len(comparison.by_processor_time) == len(comparison.subjects) else "time"
    name, of = ("fast", f"{time} of {baseline} / {time}")
    if not are_speeds(comparison.frame["verdict"].dropna()):
        name, of = ("long", f"{time} / {time} of {baseline}")
    return f"Times as {name} = {of} at the same point{how}. “same” means within ±{margin} %.{how_few}"


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
    if comparison.rulings[row].told.said:
        return "see below"
    if row in comparison.by_ranges:
        return "by ranges"
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
