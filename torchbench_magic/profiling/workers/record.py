"""DataLoader workers that start during a run: where they spend their time, and the line that waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from torchbench_magic.profiling.schema import WORKER_COLUMNS, frame_of
from torchbench_magic.profiling.sources import Cells
from torchbench_magic.result_base import Doubt
from torchbench_magic.units import seconds_text

from .loop import STARTING, WAITING, WorkerNotes, WorkerPlace, observed_loop, original_loop, replace_loop

# ---- workers ---------------------------------------------------------------------------------------------------------
# torch starts a worker as a process whose target it reads from its own module at that moment. During a run that name
# holds `observed_loop`, with a file to write to; the loader and the data set are not touched. Workers that ran before
# (``persistent_workers``) are not looked into.


WorkerSeconds = Mapping[int, Mapping[WorkerPlace, float]]
"""Process id -> seconds by place, of the workers that started during a run."""


class Workers:
    """Looks between ``start`` and ``stop``; afterwards torch's name holds what it held."""

    def __init__(self) -> None:
        self._notes: WorkerNotes | None = None
        self._put: Any = None

    def start(self) -> None:
        from torch.utils.data._utils import worker

        # assumed of torch 2.13 and newer: dataloader.py reads `_utils.worker._worker_loop` as it starts a worker
        loop = getattr(worker, "_worker_loop", None)
        if loop is None or isinstance(loop, partial):
            return
        try:
            self._notes = WorkerNotes()
        except OSError:  # no place for a file
            return
        replace_loop(loop)
        self._put = partial(observed_loop, self._notes.path)
        worker._worker_loop = self._put

    def stop(self) -> WorkerSeconds:
        """Put everything back. Safe to call twice."""
        from torch.utils.data._utils import worker

        if self._put is not None and worker._worker_loop is self._put:
            worker._worker_loop = original_loop()
        seconds: WorkerSeconds = {} if self._notes is None else self._notes.close()
        self._notes, self._put = None, None
        replace_loop(None)
        return seconds


def worker_table(
    seconds: WorkerSeconds,
    started: Mapping[int, tuple[int, int]],
    cells: Cells,
) -> pd.DataFrame:
    """`WORKER_COLUMNS`, most time first.

    Args:
        started: process id -> (loader, start), where that was seen.
    """
    rows: list[dict[str, Any]] = []
    for number, (pid, places) in enumerate(sorted(seconds.items())):
        whole = sum(places.values())
        loader, start = started.get(pid, (None, None))
        for (file, line, function), took in Counter(places).most_common():
            cell = cells(file) if line else None
            number_of, visible = (None, line) if cell is None else (cell.number, cell.visible_line(line))
            place = {"cell": number_of, "line": visible or None, "file": file or None, "function": function}
            row = {"worker": number, "loader": loader, "start": start, **place}
            rows.append({**row, "seconds": took, "share": took / whole if whole else 0.0})
    rows.sort(key=lambda row: -row["seconds"])
    return frame_of(WORKER_COLUMNS, {name: [row[name] for row in rows] for name in WORKER_COLUMNS})


def starts_again(workers: pd.DataFrame) -> int:
    """How often a loader started workers that it had had before in this run, by the table."""
    return int(workers.groupby("loader")["start"].max().sum())


# ---- waiting_for_workers ---------------------------------------------------------------------------------------------

_RANGE = "enumerate(DataLoader)#_MultiProcessing"  # torch's range round fetching a batch from workers
_LEAST = 0.2  # of the wall time: below that, no advice


def waits_for_workers(
    ops: pd.DataFrame, workers: pd.DataFrame, wall_time: float, *, only_steps: bool = False
) -> Doubt | None:
    """None where no line waits for workers, or not for long.

    Args:
        only_steps: the recording began in the middle of the body, where its workers may have been started already.
    """
    if not any(op.startswith(_RANGE) for op in ops["op"].tolist()):
        return None
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
    work = workers[workers["function"] != WAITING]
    if len(work):
        sums = work.groupby(["file", "line", "function"], dropna=False, sort=False)["seconds"].sum()
        whole = float(workers["seconds"].sum())  # idle and starting included, as in the table
        share = float(sums.max() / whole) if whole else 0.0
        most: Any = sums.idxmax()
        where, at, function = most
        if function == STARTING:
            said += f"; {100 * share:.0f} % of these workers' time was spent starting them."
            action = "Loop over more batches, or start fewer."
            if starts_again(workers):
                action = "Keep them between epochs (`persistent_workers=True`), or start fewer."
            return Doubt("workers", said, action, facts | {"share": share})
        cell = work[(work["file"] == where) & (work["line"] == at)].iloc[0]["cell"]
        there = _label(cell, str(where), int(at))
        said += f"; they spend {100 * share:.0f} % of their time at {there}, in `{function}`."
        return Doubt("workers", said, "Speed up that line, or increase `num_workers`.", facts | {"share": share})
    since, action = "this cell", "Create the iterator in the profiled cell to see where they spend it."
    if only_steps:
        since, action = "the recorded steps", "Profile the whole cell, without steps, to see where they spend it."
    said += f"; where they spend it is unknown: they started before {since}, or ended at once."
    return Doubt("workers", said, action, facts)


def _label(cell: Any, file: str, line: int) -> str:
    return f"In[{cell}]:{line}" if pd.notna(cell) else f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}"
