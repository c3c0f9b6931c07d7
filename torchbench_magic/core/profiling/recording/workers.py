"""DataLoader workers that start during a run: where they spend their time, sampled from within (see `worker_loop`).

torch starts a worker as a process whose target it reads from its own module at that moment. During a run that name
holds `observed_loop`, with a file to write to; the loader and the data set are not touched. Workers that ran before
(``persistent_workers``) are not looked into: of these the processor time is known, from ``/proc``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from torchbench_magic.results.profiling.columns import WORKER_COLUMNS, frame_of

from .worker_loop import STARTING, WAITING, observed_loop, original_loop, replace_loop
from .worker_notes import WorkerNotes, WorkerPlace

__all__ = ["WorkerRecord", "Workers", "worker_table"]

_NAME = "pt_data_worker"  # torch's name of a worker's main thread, which /proc shows as the command


@dataclass(frozen=True)
class WorkerRecord:
    """What was seen of the workers.

    Attributes:
        seconds: process id -> seconds by place, of the workers that started during the run.
        older: process id -> seconds of processor time during the run, of those that ran before.
    """

    seconds: dict[int, dict[WorkerPlace, float]]
    older: dict[int, float]


class Workers:
    """Looks between ``start`` and ``stop``; afterwards torch's name holds what it held."""

    def __init__(self) -> None:
        self._notes: WorkerNotes | None = None
        self._put: Any = None
        self._cpu: dict[int, float] = {}

    def start(self) -> None:
        from torch.utils.data._utils import worker

        self._cpu = {pid: seconds for pid in _living() if (seconds := _cpu_of(pid)) is not None}
        # assumed of torch 2.13 and newer: dataloader.py reads `_utils.worker._worker_loop` as it starts a worker
        loop = getattr(worker, "_worker_loop", None)
        if loop is None or isinstance(loop, partial):
            return
        replace_loop(loop)
        self._notes = WorkerNotes()
        self._put = partial(observed_loop, self._notes.place)
        worker._worker_loop = self._put

    def stop(self) -> WorkerRecord:
        """Put everything back. Safe to call twice."""
        from torch.utils.data._utils import worker

        older = {pid: max(now - then, 0.0) for pid, then in self._cpu.items() if (now := _cpu_of(pid)) is not None}
        if self._put is not None and worker._worker_loop is self._put:
            worker._worker_loop = original_loop()
        seconds = {} if self._notes is None else self._notes.close()
        self._notes, self._put = None, None
        replace_loop(None)
        return WorkerRecord(seconds, older)


def worker_table(record: WorkerRecord, shown: Callable[[str, int], tuple[int | None, int]]) -> pd.DataFrame:
    """`WORKER_COLUMNS`, most time first. ``shown``: (file, line) -> (cell, line as the user sees it)."""
    rows: list[dict[str, Any]] = []
    for number, (_, places) in enumerate(sorted(record.seconds.items())):
        whole = sum(places.values())
        for (file, line, function), took in Counter(places).most_common():
            cell, visible = shown(file, line) if line else (None, 0)
            row = {"worker": number, "cell": cell, "line": visible or None, "file": file or None, "function": function}
            rows.append({**row, "seconds": took, "share": took / whole if whole else 0.0})
    rows.sort(key=lambda row: -row["seconds"])
    return frame_of(WORKER_COLUMNS, {name: [row[name] for row in rows] for name in WORKER_COLUMNS})


def is_waiting(function: object) -> bool:
    """Whether a row of the table is no work: the worker had nothing to do, its loop was busy."""
    return function == WAITING


def is_starting(function: object) -> bool:
    """Whether it is the start of the worker: of no line of the user's."""
    return function == STARTING


def _living() -> list[int]:
    """Process ids of this process's children that are workers; empty where there is no ``/proc``."""
    children = (pid for task in Path("/proc/self/task").glob("*/children") for pid in _text(task).split())
    return [int(pid) for pid in children if _text(Path("/proc", pid, "comm")).strip() == _NAME]


def _cpu_of(pid: int) -> float | None:
    """Seconds of processor time that a process used (user and system, fields 14 and 15 of proc(5)'s stat)."""
    fields = _text(Path("/proc", str(pid), "stat")).rpartition(")")[2].split()
    if len(fields) < 13:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
