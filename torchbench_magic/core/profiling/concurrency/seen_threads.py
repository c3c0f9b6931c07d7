"""What was seen of the threads, as a `CoreUse` and a timeline; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.results.machine.concurrency import TIMELINE_COLUMNS
from torchbench_magic.results.machine.core_verdicts import CoreUse

__all__ = ["ENDED_UNSEEN", "core_use", "timeline_of"]

ACTIVE = 0.05
"""Share of the time that a thread ran or waited for a core, from which on it counts as one that wanted one."""
ROWS = 256
"""Of the timeline: as many as are told apart in a picture; of a longer run each is longer."""
SHORTEST = 0.02
"""Seconds of a row: the kernel books the time of a running thread by its tick, 1 to 4 ms (10 ms at the most)."""
ENDED_UNSEEN = 0.1
"""Cores: how much more the process may have used, as it counts itself, than was seen of its threads. Threads that live
shorter than it takes to look for new ones are not seen."""


def core_use(seen: Mapping[str, Any], root: int, begin: int, end: int) -> CoreUse:
    """The figures of the threads between two moments; cores and the load of others are not among them.

    Args:
        seen: what `side_process` reports.
        root: id of the process; those below it have others.
        begin, end: ns of the clock that the samples have.
    """
    rows = _within(seen["points"], begin, end)
    if len(rows) < 2:
        return CoreUse(samples=len(rows))
    wall = (rows[-1, 0] - rows[0, 0]) / 1e9
    run, wait, below = (rows[-1, column] - rows[0, column] for column in (1, 2, 3))
    counts = rows[1:, 4:].sum(axis=0)
    threads = [_Row(*row) for row in seen["threads"]]
    wanted = [thread for thread in threads if thread.wants >= ACTIVE * wall]
    looked = max(1, int(seen["looked"])) / 1e9
    own = [thread for thread in threads if thread.process == root]
    gil, lock = (math.nan, math.nan) if not seen["sees_waits"] else _turns(own, looked, wall)
    return CoreUse(
        wall=float(wall),
        run=float(run / 1e9 / wall),
        wait=float(wait / 1e9 / wall),
        below=float(below / 1e9 / wall),
        below_run=sum(thread.run for thread in threads if thread.process != root) / float(wall),
        threads=len(wanted),
        most=int(seen["most"]),
        processes=len({thread.process for thread in wanted if thread.process != root}),
        alone=float((counts[2] + counts[3]) / counts[1]) if counts[1] else math.nan,
        idle=float(counts[2] / counts[1]) if counts[1] else math.nan,
        gil=gil,
        lock=lock,
        samples=int(counts[0]),
    )


class _Row:
    """A thread as it is reported, in seconds."""

    def __init__(self, process: int, run: int, wait: int, runnable: int, timed: int, untimed: int) -> None:
        self.process = process
        self.runnable, self.timed, self.untimed = runnable / 1e9, timed / 1e9, untimed / 1e9
        self.run = run / 1e9
        self.wants = (run + wait) / 1e9


def _turns(threads: Sequence[_Row], looked: float, wall: float) -> tuple[float, float]:
    """Mean numbers of threads that waited for their turn: with a limit of time, and without one.

    Looks are not equally far apart, so each counts for the time since the one before (``looked`` in all).

    Only of threads that used a fair part of what is to be shared: one that polls, or waits for work, uses next to
    nothing.
    """
    sharing = [thread for thread in threads if thread.timed + thread.untimed > 0.1 * looked]
    least = min(ACTIVE, 0.3 / max(1, len(sharing))) * wall
    taking = [thread for thread in sharing if thread.run >= least]
    return sum(thread.timed for thread in taking) / looked, sum(thread.untimed for thread in taking) / looked


def _within(points: Sequence[Sequence[int]], begin: int, end: int) -> Any:
    """The points in that time, as floats; totals at both ends are put between their neighbours."""
    rows = np.array(points, dtype=np.float64).reshape(-1, 8)
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    inside = rows[(rows[:, 0] > begin) & (rows[:, 0] < end)]
    edges: list[Any] = []
    for at in (begin, end):
        if rows[0, 0] <= at <= rows[-1, 0]:
            totals = [np.interp(at, rows[:, 0], rows[:, column]) for column in (1, 2, 3)]
            edges.append(np.array([at, *totals, 0, 0, 0, 0]))
        else:
            edges.append(None)
    parts = [edges[0], *inside, edges[1]]
    return np.array([part for part in parts if part is not None]).reshape(-1, 8)


def timeline_of(seen: Mapping[str, Any], begin: int, end: int) -> pd.DataFrame:
    """Columns of `TIMELINE_COLUMNS`; empty where too little was seen."""
    rows = _within(seen["points"], begin, end)
    lasted = (end - begin) / 1e9
    count = max(1, min(ROWS, len(rows) - 1, int(lasted / SHORTEST)))
    if len(rows) < 3 or count < 2:
        return pd.DataFrame({name: np.zeros(0) for name in TIMELINE_COLUMNS})
    edges = np.linspace(rows[0, 0], rows[-1, 0], count + 1)
    totals = [np.diff(np.interp(edges, rows[:, 0], rows[:, column])) / np.diff(edges) for column in (1, 2, 3)]
    return pd.DataFrame(
        dict(zip(TIMELINE_COLUMNS, [(edges[1:] - begin) / 1e9, *totals], strict=True)), dtype=np.float64
    )
