"""What the workers of a DataLoader were doing, by line."""

from __future__ import annotations

from typing import Any

from torchbench_magic import units
from torchbench_magic.profiling.ops_view import place_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.document import of_result
from torchbench_magic.show.table import Table, built_table, counted, frame_rows, measured_columns, share, texts

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
    built = (
        texts("place", "workers of the DataLoader", 60, _place),
        texts("function", "function", 40, lambda record: str(record["function"])),
        counted("workers", "workers"),
        measured_columns("time", "time", time, "seconds"),
        share("share", lambda record: float(record["seconds"]) / whole if whole else 0.0),
    )
    shown = by_line.head(_MOST_ROWS)
    said = f"{units.count(len(shown))} of {units.count(len(by_line))} lines. All rows: {of_result('.workers')}"
    hidden = said if len(shown) < len(by_line) else ""
    key = lambda record: f"{_place(record)} {record['function']}"
    return built_table("workers", built, frame_rows(shown), key, hidden=hidden)


def _place(record: dict[str, Any]) -> str:
    there = place_of(record | {"file": str(record["file"]).replace("\\", "/")})
    return there or ("(start)" if str(record["function"]).startswith("starting") else "(idle)")
