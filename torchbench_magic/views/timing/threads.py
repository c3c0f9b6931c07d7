"""Time against threads: the table of speed-up and efficiency, and which thread count to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.scaling import ThreadCurve, ThreadPoint, thread_curves

from ..document import Phrase, StyledText, clipped, code
from ..table import Cell, Column, Group, Row, Table
from .comparison_facts import LONGEST_NAME, alternative_name
from .curves import fixed_text

__all__ = ["advice", "threads_definition", "doubt", "threads_table"]

_MOST_ADVICE = 3


def threads_table(comparison: Comparison) -> Table | None:
    """One group a curve; None where no alternative was measured at two thread counts."""
    found = thread_curves(comparison)
    if not found:
        return None
    points = [point for curve in found for point in curve.points]
    wall = units.smallest_scale([point.time for point in points])
    spent = units.smallest_scale([point.cpu_seconds for point in points])
    columns = (
        Column("num_threads", "threads", kind="number"),
        Column("note", ""),
        Column("time", "time", wall.unit, "number"),
        Column("speed_up", "speed-up", "×", "number"),
        Column("efficiency", "efficiency", "%", "number"),
        Column("cpu_seconds", "CPU time", spent.unit, "number"),
        Column("extra_cpu", "extra CPU", "%", "number"),
        Column("outside", "others", "cores", "number"),
    )
    several = len(found) > 1
    groups = tuple(
        Group(
            tuple(_row(curve, point, wall, spent) for point in curve.points),
            title=clipped(_name(comparison, curve), LONGEST_NAME) if several else "",
            note=fixed_text(curve.fixed) if several else "",
        )
        for curve in found
    )
    return Table("threads", columns, groups)


def _row(curve: ThreadCurve, point: ThreadPoint, wall: units.Scale, spent: units.Scale) -> Row:
    note = "use" if point.threads == curve.knee else "oversubscribed" if point.threads > curve.usable_cores else ""
    cells = (
        Cell(units.count(point.threads), float(point.threads)),
        Cell(note, tone="strong" if note == "use" else "quiet"),
        Cell(units.number(point.time, wall), point.time),
        Cell(units.number(point.speed_up, units.Scale(places=2), digits=None), point.speed_up),
        Cell(_percent(point.efficiency), point.efficiency),
        Cell(units.number(point.cpu_seconds, spent), point.cpu_seconds),
        Cell(_percent(point.extra_cpu), point.extra_cpu),
        Cell(units.number(point.outside, units.Scale(places=2), digits=None), _known(point.outside), "quiet"),
    )
    return Row(cells, key=str(point.row))


def advice(comparison: Comparison) -> StyledText:
    """``Use -t 2: 1.93 times the speed of 1``, one by one where alternatives differ; empty where none is named."""
    named = [(curve, curve.knee) for curve in thread_curves(comparison) if curve.knee is not None]
    if not named:
        return ()
    if len({knee for _, knee in named}) == 1:
        return (Phrase("Use "), code(f"-t {named[0][1]}"), Phrase(f": {_gain([curve for curve, _ in named])}."))
    runs: list[Phrase] = [Phrase("Use ")]
    for nth, (curve, knee) in enumerate(named[:_MOST_ADVICE]):
        runs += [Phrase(", ")] if nth else []
        runs += [code(f"-t {knee}"), Phrase(" for "), code(clipped(_name(comparison, curve), LONGEST_NAME))]
        runs += [Phrase(f" ({fixed_text(curve.fixed)})")] if curve.fixed else []
    left = len(named) - _MOST_ADVICE
    return (*runs, Phrase(f", {left} more in the table." if left > 0 else "."))


def doubt(comparison: Comparison) -> StyledText:
    """Why no thread count is named, where that is so."""
    refused = [curve for curve in thread_curves(comparison) if curve.refused]
    if not refused:
        return ()
    worst = max(refused, key=lambda curve: max(_known(point.outside) or 0.0 for point in curve.points))
    return (Phrase(f"No thread count is recommended: {worst.refused}."),)


def threads_definition() -> str:
    """Explains the columns of the table, for the footer."""
    return (
        "Threads to use: the largest count within the usable cores that still gains more than 10 %."
        " Extra CPU: processor time beyond that of the smallest count."
    )


def _gain(found: Sequence[ThreadCurve]) -> str:
    gains = [next(p.speed_up for p in curve.points if p.threads == curve.knee) for curve in found]
    first = found[0].points[0].threads
    low, high = (units.number(gain, units.Scale(places=2), digits=None) for gain in (min(gains), max(gains)))
    if found[0].knee == first:
        return "more threads gain less than 10 %"
    return f"{low if low == high else f'{low} to {high}'} times the speed of {first}"


def _name(comparison: Comparison, curve: ThreadCurve) -> str:
    return curve.description or alternative_name(comparison, 0)


def _percent(share: float) -> str:
    """Whole per cents: a thread curve is not known better than that."""
    return units.number(share if share != share else float(round(100 * share)), units.Scale(places=0), digits=None)


def _known(value: Any) -> float | None:
    return None if value != value else float(value)
