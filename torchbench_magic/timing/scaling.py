"""How times grow: along a sweep axis, with the places where two alternatives swap, and with the thread count.

Pure functions of a `Comparison`. Curves of one comparison belong together when only the axis looked along differs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .comparison import Comparison

MARGINAL_GAIN = 1.1
"""How much faster more threads must be to be worth their cores."""
MOST_OUTSIDE = 0.15
"""Cores that other processes may use while a thread count is measured; above, the curve says nothing about the code."""

MOST_EFFICIENCY = 2.0
"""Speed-up a thread above which it is not believed. More than 1 is possible: each core brings its own cache, and the
batched dot product of the README, whose 2.5 MB just fit into two, gains 2.7 on two threads, so 1.35. A speed-up of 131
on two threads is that of a smallest count which was held up."""

THREADS = "num_threads"
_IDENTITY = ("label", "env", "num_threads", "device")


# ---- along an axis ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CurvePoint:
    """One measurement on a curve: ``at`` on the axis; seconds, with the 95 % interval of this run (NaN: not known)."""

    at: float
    median: float
    low: float
    high: float
    row: int


@dataclass(frozen=True)
class Curve:
    """One alternative along an axis.

    Attributes:
        description: name of the alternative, None for a lone statement.
        fixed: what tells this curve from others of the same alternative: (name, value) of other axes, thread counts
            or environments that vary in the comparison.
        points: ascending along the axis.
    """

    description: str | None
    fixed: tuple[tuple[str, Any], ...]
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class Crossover:
    """Where an alternative and the baseline swap places.

    Attributes:
        axis: name of the sweep axis.
        faster_below, faster_above: which of the two is faster on which side.
        at: the estimated place, between ``low`` and ``high``.
        low, high: the nearest values on both sides at which the verdict is decided.
        fixed: as in `Curve`.
    """

    axis: str
    faster_below: str
    faster_above: str
    at: float
    low: float
    high: float
    fixed: tuple[tuple[str, Any], ...] = ()


def main_axis(comparison: Comparison) -> str | None:
    """The axis to draw along: numeric, with the most values (two or more), the first among equals."""
    found: dict[str, int] = {}
    for name in comparison.axes:
        values = [dict(subject.axes).get(name) for subject in comparison.subjects]
        if all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values):
            found[name] = len(set(values))
    best = max(found, key=lambda name: found[name], default=None)
    return best if best is not None and found[best] > 1 else None


def times_along(comparison: Comparison, axis: str) -> list[Curve]:
    """Times of each alternative along ``axis``: a sweep axis, or ``num_threads``."""
    places, medians = (comparison.frame[name].tolist() for name in (axis, "median"))
    lows, highs = (comparison.details[f"precision_{end}"].tolist() for end in ("low", "high"))
    made = []
    for (description, fixed), rows in _lines(comparison, axis).items():
        points = tuple(CurvePoint(float(places[i]), medians[i], lows[i], highs[i], i) for i in rows if medians[i] > 0)
        if points:
            made.append(Curve(description, fixed, points))
    return made


def crossovers(comparison: Comparison, axis: str | None = None) -> list[Crossover]:
    """The places along ``axis`` (None: `main_axis`) where an alternative and the baseline swap.

    A swap is a ``faster`` next to a ``slower``, with nothing but undecided points or ``same`` between. The place is
    read off the ratio, straight between two points on logarithmic axes (linear where the axis holds values <= 0).
    """
    axis = axis if axis is not None else main_axis(comparison)
    if axis is None:
        return []
    frame = comparison.frame.fillna({"verdict": ""})
    logarithmic = bool((frame[axis] > 0).all())
    verdicts, ratios, along = (frame[name].tolist() for name in ("verdict", "ratio", axis))
    bases = {s.group: s.description for s, v in zip(comparison.subjects, verdicts, strict=True) if v == "baseline"}
    found = []
    for (description, fixed), rows in _lines(comparison, axis).items():
        baseline = next((name for i in rows if (name := bases.get(comparison.subjects[i].group)) is not None), None)
        if description is None or baseline is None or baseline == description:
            continue
        said = [verdicts[i] for i in rows]
        decided = [k for k, verdict in enumerate(said) if verdict in ("faster", "slower")]
        for first, last in pairwise(decided):
            if said[first] == said[last]:
                continue
            between = rows[first : last + 1]
            places = [float(along[i]) for i in between]
            at = _root(places, [math.log(ratios[i]) for i in between], logarithmic)
            names = (description, baseline) if said[first] == "faster" else (baseline, description)
            found.append(Crossover(axis, *names, at, places[0], places[-1], fixed))
    return found


def _root(places: Sequence[float], values: Sequence[float], logarithmic: bool) -> float:
    """Where the line through (place, value) first leaves the sign of its first value."""
    for (x0, y0), (x1, y1) in pairwise(zip(places, values, strict=True)):
        if y0 * y1 <= 0 and y0 != y1:
            share = y0 / (y0 - y1)
            if logarithmic:
                return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
            return x0 + share * (x1 - x0)
    raise ValueError("the values at both ends have one sign")


def _lines(comparison: Comparison, axis: str) -> dict[tuple[str | None, tuple[tuple[str, Any], ...]], list[int]]:
    """(alternative, what is fixed) -> rows, ascending along ``axis``; only what varies is named as fixed."""
    frame = comparison.frame
    others = [name for name in (*_IDENTITY, *comparison.axes) if name != axis]
    if axis == THREADS and not comparison.axes:
        others.append("sub_label")
    varying = [name for name in others if len({_key(v) for v in frame[name]}) > 1]
    known = ["description", axis, *varying]
    again = bool(frame.duplicated(known).any())  # several inputs, or runs, at one value of the axis: a line for each
    what = "run" if frame.duplicated([*known, "sub_label"]).any() else "input"
    columns = {name: frame[name].tolist() for name in (axis, *varying)}
    found: dict[Any, list[int]] = {}
    met: Counter[Any] = Counter()
    for i, subject in enumerate(comparison.subjects):
        fixed = tuple((name, _key(columns[name][i])) for name in varying)
        if again:
            place = (subject.description, fixed, _key(columns[axis][i]))
            met[place] += 1
            fixed += ((what, met[place]),)
        found.setdefault((subject.description, fixed), []).append(i)
    for rows in found.values():
        rows.sort(key=lambda i: columns[axis][i])
    return found


def _key(value: Any) -> Any:
    """A value that equals itself, also where it is missing."""
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else value


# ---- along the thread count ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreadPoint:
    """One thread count of a curve.

    Attributes:
        threads: torch's intra-op threads.
        time: seconds of a call, the median.
        speed_up: against the smallest count of the curve; NaN, as efficiency and extra_cpu, where one of the two was
            held up by other processes or the efficiency is above `MOST_EFFICIENCY`.
        efficiency: speed-up a thread, 1 where twice the threads halve the time.
        cpu_seconds: processor time of a call, all threads.
        extra_cpu: processor time beyond that of the smallest count, as a share of it.
        row: of the measurement in the comparison's frame.
        outside: cores that others (processes, and guests of the same host) used meanwhile; NaN where it was not read.
    """

    threads: int
    time: float
    speed_up: float
    efficiency: float
    cpu_seconds: float
    extra_cpu: float
    row: int
    outside: float


@dataclass(frozen=True)
class ThreadCurve:
    """Time against threads, for one alternative on one input.

    Attributes:
        description, fixed: as in `Curve`.
        points: ascending thread counts.
        usable_cores: of the process.
        knee: the thread count to use: the largest within the usable cores that still gains more than 10 % over the
            best smaller one. None where the curve refuses to name one.
        refused: why there is no knee; empty where there is one.
    """

    description: str | None
    fixed: tuple[tuple[str, Any], ...]
    points: tuple[ThreadPoint, ...]
    usable_cores: int
    knee: int | None
    refused: str = ""


def thread_curves(comparison: Comparison) -> list[ThreadCurve]:
    """The curve of each alternative on each input that was measured at two or more thread counts.

    The rule for the knee was calibrated on matmul (1.93 x at 2 threads on 2 cores), a training step (1.79), a stream
    (1.26) and ``index_add_`` (1.02).
    """
    if len({subject.num_threads for subject in comparison.subjects}) < 2:
        return []
    cores = comparison.environment.usable_cores
    made = []
    for curve in times_along(comparison, THREADS):
        if len({point.at for point in curve.points}) < 2:
            continue
        first = curve.points[0]
        cpu = [_cpu_seconds(comparison, point.row) for point in curve.points]
        known = [_is_believed(comparison, first, point) for point in curve.points]
        points = tuple(
            ThreadPoint(
                threads=int(point.at),
                time=point.median,
                speed_up=first.median / point.median if believed else math.nan,
                efficiency=first.median / point.median * first.at / point.at if believed else math.nan,
                cpu_seconds=spent,
                extra_cpu=spent / cpu[0] - 1 if believed and cpu[0] > 0 else math.nan,
                row=point.row,
                outside=_outside(comparison, point.row),
            )
            for point, spent, believed in zip(curve.points, cpu, known, strict=True)
        )
        knee, refused = _knee(points, cores)
        made.append(ThreadCurve(curve.description, curve.fixed, points, cores, knee, refused))
    return made


def _is_believed(comparison: Comparison, first: CurvePoint, point: CurvePoint) -> bool:
    """Whether a speed-up is that of the code, as far as the run can know."""
    rough = any(p.row in comparison.stalled or p.high > MARGINAL_GAIN**2 * p.low for p in (first, point))
    return not rough and first.median / point.median <= MOST_EFFICIENCY * max(point.at / first.at, 1.0)


def _cpu_seconds(comparison: Comparison, row: int) -> float:
    """Processor time of a call, all threads. The mean over all blocks: the kernel books that of a thread which runs on
    another core only at its tick, every few milliseconds, so most blocks of 200 us see one thread's alone."""
    rows = comparison.samples[comparison.samples["measurement"] == row]
    calls = int(rows["number"].sum())
    return float(rows["cpu"].sum()) / calls if calls else math.nan


def _outside(comparison: Comparison, row: int) -> float:
    seen = comparison.subjects[row].contention
    if seen is None:
        return math.nan
    return seen.ext + (seen.steal if seen.steal > 0 else 0.0)


def _knee(points: Sequence[ThreadPoint], cores: int) -> tuple[int | None, str]:
    """The thread count to use, or why none can be named."""
    busy = max((point.outside for point in points if point.outside > MOST_OUTSIDE), default=None)
    if busy is not None:
        return None, f"other processes used up to {busy:.2g} cores"
    odd = [str(point.threads) for point in points if math.isnan(point.speed_up)]
    if odd:
        return None, f"the times at {', '.join(odd)} threads contradict the time at {points[0].threads}, or are rough"
    best = None
    for point in points:
        if point.threads <= cores and (best is None or best.time / point.time > MARGINAL_GAIN):
            best = point
    if best is None:
        return None, f"every count is above the {cores} usable cores"
    return best.threads, ""
