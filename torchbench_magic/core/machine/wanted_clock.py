"""A clock of what one thread wanted of the processors: the time that it ran, and that it waited for a free core."""

from __future__ import annotations

import contextlib
import os
import time

__all__ = ["WantedClock"]

_SCHEDSTAT = "/proc/thread-self/schedstat"  # "ran waited times", in ns (sched-stats.rst of Linux)


class WantedClock:
    """Nanoseconds that the thread which makes it has run or waited for a core; read on that thread, until `close`.

    What a wall clock moved and this one did not, the thread slept, or waited for a lock, a file, another thread. Where
    the system does not count the waiting for a core (outside Linux), this is the time that the thread ran. A reading
    takes 2.5 us.
    """

    def __init__(self, path: str = _SCHEDSTAT) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # Windows has no `os.pread`
            self._file = os.open(path, os.O_RDONLY)
            self._waited()

    def __call__(self) -> int:
        return time.thread_time_ns() + self._waited()  # what the file says of running is as old as the last tick

    def _waited(self) -> int:
        if self._file is None:
            return 0
        try:
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError, AttributeError):
            self.close()
            return 0

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
