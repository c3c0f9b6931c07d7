"""What several processes measured, in a comparison: each one's ratio as a dot, and how many there were."""

from __future__ import annotations

import math
from typing import Any

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison

from ..built_columns import BuiltColumn
from ..document import Phrase, StyledText
from ..table import Cell, Column

__all__ = ["in_how_many", "process_dots"]

_LEAST_SPAN = math.log(1.02)
"""The least width of the axis, so that dots a thousandth apart do not look far apart."""


def process_dots(comparison: Comparison, *, in_speeds: bool) -> list[BuiltColumn]:
    """A column with a dot for each process at its ratio, on one axis for all rows; none without processes."""
    sign = -1 if in_speeds else 1  # as the column of figures beside it
    rows = range(len(comparison.subjects))
    ratios = {row: [sign * log for log in comparison.ratio_by_process(row).values()] for row in rows}
    logs = [log for of_row in ratios.values() for log in of_row]
    if not logs:
        return []
    low, high = min(logs), max(logs)
    less = max(_LEAST_SPAN - (high - low), 0.0) / 2
    low, high = low - less, high + less

    def dots(at: int, record: Any) -> Cell:
        if not ratios[at]:
            return Cell()
        places = tuple((log - low) / (high - low) for log in sorted(ratios[at]))
        return Cell(picture=(places, -low / (high - low) if low < 0 < high else None))

    unit = units.interval(math.exp(low), math.exp(high))
    return [BuiltColumn(Column("processes", "each process", unit, "dots"), dots)]


def in_how_many(comparison: Comparison) -> StyledText:
    """``, over 6 processes``; ``, in this kernel`` where the next one may well say otherwise; else empty."""
    verdicts = enumerate(comparison.frame["verdict"].fillna(""))
    decided = {row for row, verdict in verdicts if verdict in ("faster", "slower")}
    if decided and decided == {*comparison.of_this_kernel}:
        return (Phrase(", in this kernel"),)
    counts = {len(comparison.ratio_by_process(row)) for row in range(len(comparison.subjects))} - {0}
    if not counts:
        return ()
    low, high = min(counts), max(counts)
    if high == 1:  # nothing is over one
        return ()
    return (Phrase(f", over {high} processes" if low == high else f", each over {low} to {high} processes"),)
