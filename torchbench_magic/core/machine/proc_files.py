"""Small files of /proc, read without Python's text files and globbing: in a third of the time, about 6 us each."""

from __future__ import annotations

import math
import os

__all__ = ["proc_text", "thread_ids", "thread_times", "waited_for_core"]

_MOST = 65536  # bytes: a page holds what is read here, but for the children of a process that has thousands


def proc_text(path: str) -> str:
    """The text of a file; empty where there is none, or where its process has ended in between."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, _MOST).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def thread_ids(process: str = "self") -> list[str]:
    """Native ids of the threads of a process that live now; none where the system does not tell."""
    try:
        return os.listdir(f"/proc/{process}/task")
    except OSError:
        return []


def waited_for_core() -> float:
    """Seconds for which the calling thread has waited for a core since it began; NaN where the kernel does not count
    it. A wait is booked when it ends."""
    figures = proc_text("/proc/thread-self/schedstat").split()
    return int(figures[1]) / 1e9 if len(figures) >= 2 else math.nan


def thread_times(process: str = "self") -> dict[int, tuple[float, float]]:
    """Native id -> seconds for which the thread ran, and for which it waited for a core, since it began.

    Of the threads that live now; empty where the kernel does not count it.
    """
    found = {}
    for thread in thread_ids(process):
        figures = proc_text(f"/proc/{process}/task/{thread}/schedstat").split()
        if len(figures) >= 2:
            found[int(thread)] = int(figures[0]) / 1e9, int(figures[1]) / 1e9
    return found
