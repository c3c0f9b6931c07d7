"""Callers and callees of one function, as the table that opens under its row."""

from __future__ import annotations

from torchbench_magic import units
from torchbench_magic.results.counting.differences import CountsDiff

from ..document import clipped
from ..frame_rows import frame_rows
from ..table import Cell, Column, Group, Row, Table
from .counts import exact_text, signed_text

__all__ = ["neighbours_table"]

_MOST = 12  # of each


def neighbours_table(diff: CountsDiff, function: str) -> Table:
    """Who called ``function`` and what it called, in both statements.

    Args:
        diff: a difference whose calls are known.
        function: the whole text of one of its rows.
    """
    base, other = (clipped(name, 16) for name in diff.names)
    columns = (
        Column("function", "function", kind="code", widest=44),
        Column("baseline_calls", "calls", base, "number"),
        Column("calls", "calls", other, "number"),
        Column("baseline_count", base, "instructions", "number"),
        Column("count", other, "instructions", "number"),
        Column("delta", "difference", "instructions", "number"),
    )
    groups, hidden = [], []
    for title, frame in (("called by", diff.callers(function)), ("calls", diff.callees(function))):
        if frame.empty:
            continue
        groups.append(Group(tuple(_row(record) for record in frame_rows(frame.head(_MOST))), title))
        if len(frame) > _MOST:
            verb = "callers" if title == "called by" else "callees"
            hidden.append(f"{units.count(len(frame) - _MOST)} more: .{verb}({clipped(repr(function), 60)})")
    if any(row.cells[at].text == units.NOT_MEASURED for group in groups for row in group.rows for at in (1, 2)):
        hidden.append(f"{units.NOT_MEASURED}: how often is not known")
    said = "; ".join(hidden) if groups else "no calls to it or from it were counted"
    return Table("callers and callees", columns, tuple(groups), hidden=said)


def _row(record: dict[str, float]) -> Row:
    numbers = ("baseline_calls", "calls", "baseline_count", "count")
    cells = [Cell(exact_text(float(record[name])), float(record[name])) for name in numbers]
    for at in (0, 1):  # how often a function was called is not always known
        if record[numbers[at]] == 0 and record[numbers[at + 2]] != 0:
            cells[at] = Cell(units.NOT_MEASURED)
    change = Cell(signed_text(float(record["delta"])), float(record["delta"]))
    return Row((Cell(str(record["function"])), *cells, change))
