"""The sentence of a comparison: which alternative is faster than the baseline, where, and by how much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .. import units
from .document import Line, Run, clipped, code

__all__ = ["Judged", "sentence"]

_LONGEST_NAME = 60
_MOST_NAMED = 4


@dataclass(frozen=True)
class Judged:
    """One alternative at one point: its ratio to the baseline there, with the interval, and the verdict."""

    name: str
    ratio: float
    low: float
    high: float
    verdict: str


def sentence(judged: Sequence[Judged], baseline: str) -> Line:
    """The answer first: ``mul_sum is faster than bmm at all 6 points, 1.65 to 6.8 times; einsum: 3 slower, 1 same``.

    ``judged`` holds every alternative but the baseline, at every point.
    """
    by_name: dict[str, list[Judged]] = {}
    for one in judged:
        by_name.setdefault(one.name, []).append(one)
    ordered = sorted(by_name.values(), key=_weight)
    runs: list[Run] = []
    for nth, points in enumerate(ordered[:_MOST_NAMED]):
        name = clipped(points[0].name, _LONGEST_NAME)
        if nth:
            runs.append(Run("; "))
        runs.append(Run(name, "code" if nth else "subject"))
        runs += _clause(points, None if nth else baseline)
    if len(ordered) > _MOST_NAMED:
        runs.append(Run(f"; {len(ordered) - _MOST_NAMED} more below"))
    return tuple(runs)


_ORDER = {"faster": 0, "slower": 1, "same": 2, "mixed": 3, "undecided": 4}


def _common(points: Sequence[Judged]) -> str:
    verdicts = {point.verdict for point in points}
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def _weight(points: Sequence[Judged]) -> tuple[int, float]:
    """Unanimous verdicts first, faster before slower, the larger effect first."""
    known = [abs(math.log(p.ratio)) for p in points if p.ratio > 0 and math.isfinite(p.ratio)]
    return _ORDER.get(_common(points), 5), -min(known, default=0.0)


def _clause(points: Sequence[Judged], baseline: str | None) -> list[Run]:
    common = _common(points)
    against = [code(clipped(baseline, _LONGEST_NAME))] if baseline is not None else []
    if common in ("faster", "slower"):
        than = [Run(" than "), *against] if against else []
        return [Run(f" is {common}"), *than, Run(f"{_everywhere(points)}, {_times(points, common)}")]
    if common == "same":
        to = [Run(" as "), *against] if against else []
        return [Run(" takes the same time"), *to, Run(_everywhere(points))]
    if common == "mixed":
        to = [Run(" against "), *against] if against else []
        counts = Counter(point.verdict or "not judged" for point in points)
        words = sorted(counts, key=lambda word: _ORDER.get(word, 5))
        return [*to, Run(": " + ", ".join(f"{counts[word]} {word}" for word in words))]
    to = [Run(" against "), *against] if against else []
    return [*to, Run(f" is {common or 'not judged'}{_everywhere(points)}")]


def _everywhere(points: Sequence[Judged]) -> str:
    if len(points) == 1:
        return ""
    return " at both points" if len(points) == 2 else f" at all {units.count(len(points))} points"


def _times(points: Sequence[Judged], verdict: str) -> str:
    factors = []
    for point in points:
        low, high = point.low, point.high
        if verdict == "faster":
            ends = (_inverse(point.ratio), _inverse(high), _inverse(low))
        else:
            ends = (point.ratio, low, high)
        factors.append((ends[0], units.ratio(*ends, digits=3)))
    least, most = min(factors)[1], max(factors)[1]
    return f"{least} times" if least == most else f"{least} to {most} times"


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf
