"""What the workers of a DataLoader were doing, by line."""

from __future__ import annotations

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.profile import Profile

from ..frame_rows import records
from ..name_in_notebook import of_result
from ..table import Cell, Column, Group, Row, Table

__all__ = ["workers_table"]

_MOST_ROWS = 8


def workers_table(profile: Profile) -> Table | None:
    """A row per line, over all workers, the most time first; None where no worker was seen."""
    workers = profile.workers
    if workers.empty:
        return None
    keys = ["cell", "file", "line", "function"]
    sums = workers.groupby(keys, dropna=False, sort=False)
    by_line = sums.agg(seconds=("seconds", "sum"), workers=("worker", "nunique")).reset_index()
    by_line = by_line.sort_values("seconds", ascending=False, kind="stable")
    whole, time = float(by_line["seconds"].sum()), units.spread_scale(list(by_line["seconds"]))
    rows = []
    for record in records(by_line.head(_MOST_ROWS)):
        seconds, place = float(record["seconds"]), _place(record)
        share = seconds / whole if whole else 0.0
        cells = (
            Cell(place),
            Cell(str(record["function"])),
            Cell(units.count(record["workers"]), float(record["workers"])),
            Cell(units.number(seconds, time), seconds),
            Cell(units.number(share * 100, units.Scale("%", 1.0, 1)), share),
        )
        rows.append(Row(cells, key=f"{place} {record['function']}"))
    columns = (
        Column("place", "workers of the DataLoader", kind="code", widest=60),
        Column("function", "function", kind="code"),
        Column("workers", "workers", kind="number"),
        Column("time", "time", time.unit, "number"),
        Column("share", "share", "%", "number"),
    )
    left = len(by_line) - len(rows)
    shown = f"{units.count(len(rows))} of {units.count(len(by_line))} lines"
    hidden = f"{shown}. All rows: {of_result('.workers')}" if left else ""
    return Table("workers", columns, (Group(tuple(rows)),), hidden=hidden)


def _place(record: dict[str, object]) -> str:
    if pd.isna(record["line"]):  # type: ignore[call-overload]
        return "(idle)"
    name = str(record["file"]).replace("\\", "/").rpartition("/")[2]
    return f"In[{record['cell']}]:{record['line']}" if pd.notna(record["cell"]) else f"{name}:{record['line']}"  # type: ignore[call-overload]
