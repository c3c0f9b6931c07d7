"""Time against threads: the table of speed-up and efficiency, and which thread count to use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.scaling import ThreadCurve, ThreadPoint, thread_curves

from ..built_columns import BuiltColumn, cells_of, columns_of, measured_columns
from ..document import Phrase, StyledText, clipped, code
from ..frame_rows import float_or_none
from ..table import Cell, Column, Group, Row, Table
from .comparison_facts import LONGEST_NAME, alternative_name
from .curves import fixed_text

__all__ = ["DEFINITION", "advice", "doubt", "threads_table"]

_MOST_ADVICE = 3
DEFINITION = (
    "“use”: the largest thread count within the usable cores that still gains more than 10 %."
    " Extra CPU: CPU time beyond that of the smallest count."
)
"""Explains the columns of the table, for the footer."""


def threads_table(comparison: Comparison) -> Table | None:
    """One group a curve; None where no alternative was measured at two thread counts."""
    found = thread_curves(comparison)
    if not found:
        return None
    points = [point for curve in found for point in curve.points]
    wall = units.smallest_scale([point.time for point in points])
    spent = units.smallest_scale([point.cpu_seconds for point in points])
    built = (
        measured_columns("num_threads", "threads", units.Scale(places=0), "threads", digits=None),
        BuiltColumn(Column("note", ""), _note),
        measured_columns("time", "time", wall),
        measured_columns("speed_up", "speed-up", units.Scale("×", places=2), digits=None),
        _per_cent("efficiency", "efficiency"),
        measured_columns("cpu_seconds", "CPU time", spent),
        _per_cent("extra_cpu", "extra CPU"),
        measured_columns("outside", "others", units.Scale("cores", places=2), digits=None, tone="quiet"),
    )
    several = len(found) > 1
    groups = tuple(
        Group(
            tuple(Row(cells_of(built, _record(curve, point)), key=str(point.row)) for point in curve.points),
            title=clipped(_name(comparison, curve), LONGEST_NAME) if several else "",
            note=fixed_text(curve.fixed) if several else "",
        )
        for curve in found
    )
    return Table("threads", columns_of(built), groups)


def _record(curve: ThreadCurve, point: ThreadPoint) -> dict[str, Any]:
    note = "use" if point.threads == curve.knee else "oversubscribed" if point.threads > curve.usable_cores else ""
    return vars(point) | {"note": note}


def _note(row: dict[str, Any]) -> Cell:
    return Cell(row["note"], tone="strong" if row["note"] == "use" else "quiet")


def _per_cent(name: str, label: str) -> BuiltColumn:
    """Whole per cents: a thread curve is not known better than that."""

    def cell(record: Any) -> Cell:
        value = record[name] if math.isnan(record[name]) else float(round(100 * record[name]))
        return Cell(units.number(value, units.Scale(places=0), digits=None), record[name])

    return BuiltColumn(Column(name, label, "%", "number"), cell)


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
    worst = max(refused, key=lambda curve: max(float_or_none(point.outside) or 0.0 for point in curve.points))
    return (Phrase(f"No thread count recommended: {worst.refused}."),)


def _gain(found: Sequence[ThreadCurve]) -> str:
    gains = [next(p.speed_up for p in curve.points if p.threads == curve.knee) for curve in found]
    first = found[0].points[0].threads
    low, high = (units.number(gain, units.Scale(places=2), digits=None) for gain in (min(gains), max(gains)))
    if found[0].knee == first:
        return "more threads gain less than 10 %"
    return f"{low if low == high else f'{low} to {high}'} times the speed of {first}"


def _name(comparison: Comparison, curve: ThreadCurve) -> str:
    return curve.description or alternative_name(comparison, 0)
