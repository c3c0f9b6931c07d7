"""The sentence of a comparison: which alternative is faster than the baseline, where, and by how much; and where two
alternatives swap places along a sweep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.rows import are_speeds
from torchbench_magic.results.timing.scaling import Crossover, crossovers

from ..document import Phrase, Style, StyledText, clipped, clipped_apart, code
from .curves import fixed_text

__all__ = ["WHY", "Judged", "sentence", "speed_text", "swaps_clause"]

_LONGEST_NAME = 60
_MOST_NAMED = 4
_MOST_SWAPS = 3

WHY = {
    "stalled": "threads waited for other processes",
    "unlike-blocks": "the warm-up was disturbed",
    "few-rounds": "there are too few rounds",
    "unsteady": "the ratio changed during the run",
    "few-processes": "too few processes gave a ratio",
}
"""Cause of a void -> why more samples would not decide, in the words of the sentence; the doubts have the rest."""


@dataclass(frozen=True)
class Judged:
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


def sentence(judged: Sequence[Judged], baseline: str | None, places: str = "points") -> StyledText:
    """The answer first: ``mul_sum is 1.65 to 6.8 times as fast as bmm at all 6 points; einsum: 3 slower, 1 same``; of
    one point with its interval: ``mul_sum is 2.5 times as fast as bmm (2.4 … 2.6)``.

    ``judged`` holds every alternative but the baseline, at every point. Without a ``baseline`` that all have, each is
    said to be compared with its own. ``places``: what the points are, "points" or "engines".
    """
    in_speeds = are_speeds(one.verdict for one in judged)
    short = clipped_apart([*(n for one in judged for n in (one.name, one.base)), baseline or ""], _LONGEST_NAME)
    judged = [replace(one, name=short[one.name], base=short[one.base]) for one in judged]
    baseline = baseline and short[baseline]
    by_name: dict[str, list[Judged]] = {}
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


def _together(ordered: Sequence[list[Judged]]) -> list[list[list[Judged]]]:
    """The alternatives; as one clause those that take the same time, or are undecided for the same reason, at equally
    many points."""
    clauses: list[list[list[Judged]]] = []
    for points in ordered:
        last = clauses[-1][0] if clauses else []
        if last and _common(points) in ("same", "undecided") and _alike(points) == _alike(last):
            clauses[-1].append(points)
        else:
            clauses.append([points])
    return clauses


def _alike(points: Sequence[Judged]) -> tuple[object, ...]:
    return _common(points), _base(points), len(points), _reasons(points)


def _reasons(points: Sequence[Judged]) -> list[str]:
    """Why they are undecided, each reason once."""
    return list(dict.fromkeys(point.why for point in points if point.why))


def _base(points: Sequence[Judged]) -> str | None:
    """What all of them are compared with; None where that differs."""
    bases = {point.base for point in points}
    return bases.pop() or None if len(bases) == 1 else None


def _subjects(alike: Sequence[Sequence[Judged]], style: Style) -> list[Phrase]:
    """``a``; ``a, b and c``; ``a, b, c and 5 more``."""
    most = _MOST_NAMED if len(alike) <= _MOST_NAMED else _MOST_NAMED - 1
    names = [Phrase(clipped(points[0].name, _LONGEST_NAME), style) for points in alike[:most]]
    names += [Phrase(f"{len(alike) - most} more")] if len(alike) > most else []
    runs = names[:1]
    for nth, name in enumerate(names[1:], 2):
        runs += [Phrase(" and " if nth == len(names) else ", "), name]
    return runs


_ORDER = {"faster": 0, "slower": 1, "same": 2, "mixed": 3, "undecided": 4}


def _common(points: Sequence[Judged]) -> str:
    verdicts = {point.verdict for point in points}
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def _weight(points: Sequence[Judged]) -> tuple[int, float]:
    """Unanimous verdicts first, faster before slower, the larger effect first."""
    known = [abs(math.log(p.ratio)) for p in points if p.ratio > 0 and math.isfinite(p.ratio)]
    return _ORDER.get(_common(points), 5), -min(known, default=0.0)


def _clause(
    points: Sequence[Judged], baseline: str | None, places: str, *, is_plural: bool, in_speeds: bool
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


def _everywhere(points: Sequence[Judged], places: str) -> str:
    if len(points) == 1:
        return ""
    word = "at" if places == "points" else "on"
    return f" {word} both {places}" if len(points) == 2 else f" {word} all {units.count(len(points))} {places}"


def _times(points: Sequence[Judged], in_speeds: bool) -> str:
    factors = []
    for point in points:
        value, low, high = _factor(point, in_speeds)
        factors.append((value, _written(value, low, high)))
    least, most = min(factors)[1], max(factors)[1]
    return least if least == most else f"{least} to {most}"


def _ends(points: Sequence[Judged], in_speeds: bool) -> str:
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


def _factor(point: Judged, in_speeds: bool) -> tuple[float, float, float]:
    """(value, low, high) of how many times as fast, or as long."""
    if in_speeds:
        return _inverse(point.ratio), _inverse(point.high), _inverse(point.low)
    return point.ratio, point.low, point.high


def speed_text(faster: Judged) -> str:
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
