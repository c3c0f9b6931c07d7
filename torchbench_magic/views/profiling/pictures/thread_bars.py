"""Threads over time as a track of the timeline, with ``--concurrency``: so many rows as threads wanted a core.

The upper rows ran, those below them waited for a core; there are at most four times as many rows as cores. A stretch is
of some ms, and its mean number of threads is rounded; `Profile.concurrency.timeline` has the means.
"""

from __future__ import annotations

import numpy as np

from torchbench_magic import units
from torchbench_magic.results.machine.concurrency import Concurrency
from torchbench_magic.results.profiling.trace import Ints

from ...drawing.bars import HUES, Bars

__all__ = ["RUNNING", "WAITING", "thread_bars", "thread_track"]

RUNNING, WAITING = "a thread that runs", "a thread that waits for a core"
_HUES = {RUNNING: HUES.index("torch"), WAITING: HUES.index("other")}


_TALLEST = 4  # times the cores


def thread_track(seen: Concurrency) -> str:
    """``threads on 2 cores``, and of how many is drawn where there were more."""
    most = _TALLEST * seen.use.cores
    cut = f", {units.count(most)} at most drawn" if int(_wanted(seen).max(initial=0)) > most else ""
    return f"threads on {units.count(seen.use.cores)} core{'' if seen.use.cores == 1 else 's'}{cut}"


def _wanted(seen: Concurrency) -> Ints:
    table = seen.timeline
    return np.round((table["running"] + table["waiting"]).to_numpy(np.float64)).astype(np.int64)


def thread_bars(seen: Concurrency, track: int, names: dict[str, int]) -> Bars:
    """Neighbours of one row that show the same are one bar.

    Args:
        track: number of the track that is drawn on.
        names: of all bars so far; what is new is added.
    """
    ends = np.round(seen.timeline["time"].to_numpy(np.float64) * 1e9).astype(np.int64)
    starts = np.append(0, ends[:-1])
    running = np.round(seen.timeline["running"].to_numpy(np.float64)).astype(np.int64)
    wanted = np.minimum(_wanted(seen), _TALLEST * seen.use.cores)
    rows: list[tuple[int, int, int, str]] = []  # depth, start, end, word
    for depth in range(int(wanted.max(initial=0))):
        word_of = np.where(depth < running, RUNNING, np.where(depth < wanted, WAITING, ""))
        changes = np.flatnonzero(np.append(True, word_of[1:] != word_of[:-1]))
        for first, after in zip(changes.tolist(), [*changes[1:].tolist(), len(word_of)], strict=True):
            if word_of[first]:
                rows.append((depth, int(starts[first]), int(ends[after - 1]), str(word_of[first])))
    columns = np.array(
        [
            (track, depth, start, end - start, names.setdefault(word, len(names)), _HUES[word], -1, 1)
            for depth, start, end, word in rows
        ],
        dtype=np.int64,
    ).reshape(-1, 8)
    return Bars(*(columns[:, at] for at in range(8)))
