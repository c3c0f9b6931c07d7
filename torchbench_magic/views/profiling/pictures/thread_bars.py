"""Threads over time as a track of the timeline, with ``--concurrency``: so many rows as threads wanted a core.

The lower rows ran, those below them in the picture waited for a core. A stretch is of some ms, and its mean number of
threads is rounded; `Profile.concurrency.timeline` has the means.
"""

from __future__ import annotations

import numpy as np

from torchbench_magic import units
from torchbench_magic.results.machine.concurrency import Concurrency

from ...drawing.bars import HUES, Bars

__all__ = ["RUNNING", "WAITING", "thread_bars", "thread_track"]

RUNNING, WAITING = "a thread that runs", "a thread that waits for a core"
_HUES = {RUNNING: HUES.index("torch"), WAITING: HUES.index("other")}


def thread_track(seen: Concurrency) -> str:
    """``threads on 2 cores``."""
    return f"threads on {units.count(seen.use.cores)} core{'' if seen.use.cores == 1 else 's'}"


def thread_bars(seen: Concurrency, track: int, names: dict[str, int]) -> Bars:
    """Neighbours of one row that show the same are one bar.

    Args:
        track: number of the track that is drawn on.
        names: of all bars so far; what is new is added.
    """
    ends = np.round(seen.timeline["time"].to_numpy(np.float64) * 1e9).astype(np.int64)
    starts = np.append(0, ends[:-1])
    running = np.round(seen.timeline["running"].to_numpy(np.float64)).astype(np.int64)
    wanted = np.round((seen.timeline["running"] + seen.timeline["waiting"]).to_numpy(np.float64)).astype(np.int64)
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
