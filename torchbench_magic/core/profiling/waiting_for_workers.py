"""The sentence on a line that waits for DataLoader workers: how long, and what keeps them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.units import seconds_text

from .recording.workers import WorkerRecord, is_starting, is_waiting

__all__ = ["waits_for_workers"]

_RANGE = "enumerate(DataLoader)#_MultiProcessing"  # torch's range round fetching a batch from workers
_LEAST = 0.2  # of the wall time: below that, no advice


def waits_for_workers(
    ops: pd.DataFrame, workers: pd.DataFrame, record: WorkerRecord, wall_time: float, *, only_steps: bool = False
) -> Doubt | None:
    """None where no line waits for workers, or not for long.

    Args:
        only_steps: the recording began in the middle of the body, where its workers may have been started already.
    """
    ranges = ops[ops["op"].str.startswith(_RANGE) & ops["line"].notna()]
    if ranges.empty:
        return None
    waited = ranges.groupby(["file", "line"], sort=False)["cpu_time"].sum()
    seconds = float(waited.max())
    if seconds < _LEAST * wall_time:
        return None
    place: Any = waited.idxmax()
    file, line = place
    top = ranges[(ranges["file"] == file) & (ranges["line"] == line)].iloc[0]
    label = _label(top["cell"], str(file), int(line))
    said = f"{label} waits {seconds_text(seconds)} of {seconds_text(wall_time)} for DataLoader workers"
    facts = {"waited": seconds}
    work = workers[~workers["function"].map(is_waiting)] if len(workers) else workers
    if len(work):
        sums = work.groupby(["file", "line", "function"], dropna=False, sort=False)["seconds"].sum()
        whole = float(workers["seconds"].sum())  # idle and starting included, as in the table
        share = float(sums.max() / whole) if whole else 0.0
        most: Any = sums.idxmax()
        where, at, function = most
        if is_starting(function):
            said += f"; {100 * share:.0f} % of these workers' time was spent starting them."
            action = "Keep them between epochs (`persistent_workers=True`), or start fewer."
            return Doubt("workers", said, action, facts | {"share": share})
        cell = work[(work["file"] == where) & (work["line"] == at)].iloc[0]["cell"]
        there = _label(cell, str(where), int(at))
        said += f"; they spend {100 * share:.0f} % of their time at {there}, in `{function}`."
        return Doubt("workers", said, "Speed up that line, or increase `num_workers`.", facts | {"share": share})
    if record.older:
        cpu = sum(record.older.values())
        since, action = "this cell", "Create the iterator in the profiled cell to see where they spend it."
        if only_steps:
            since, action = "the recorded steps", "Profile the whole cell, without steps, to see where they spend it."
        said += f", which were started before {since} and used {seconds_text(cpu)} of processor time."
        return Doubt("workers", said, action, facts)
    return Doubt("workers", f"{said}; where they spend it is unknown.", facts=facts)


def _label(cell: Any, file: str, line: int) -> str:
    return f"In[{cell}]:{line}" if pd.notna(cell) else f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}"
