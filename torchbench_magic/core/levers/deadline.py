"""A bound on how long code of the user's may run, where the system has a timer for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TooLong", "deadline"]


class TooLong(BaseException):
    """The time is up. No Exception: a compiler that goes on without what fails would go on without this too."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the block when that many seconds have passed.

    Within `interrupts_let_through`, where handlers of signals have their place. Without effect outside of the main
    thread, on systems without timers, and where the user's own alarm is set.
    """
    may = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not may or signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
