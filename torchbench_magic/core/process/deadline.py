"""A bound on how long code of the user's may run, where the system has a timer for it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TooLong", "deadline"]


class TooLong(BaseException):
    """The time is up. No Exception: a compiler that goes on without what fails would go on without this too."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the block when that many seconds have passed.

    Within `interrupts_let_through`, where handlers of signals have their place. An alarm of the user's goes on after
    the block with the rest of its time. Without effect outside of the main thread, on systems without timers, and where
    the user's own alarm comes first.
    """
    may = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    rest, again = signal.getitimer(signal.ITIMER_REAL) if may else (0.0, 0.0)
    if not may or 0 < rest <= seconds:
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise TooLong

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        if rest > 0:
            signal.setitimer(signal.ITIMER_REAL, max(rest - (time.monotonic() - began), 1e-3), again)
