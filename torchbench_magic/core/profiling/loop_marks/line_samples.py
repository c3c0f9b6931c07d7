"""Which line of the user's code runs, looked at some ten times a second: what a loop does between its phases.

A thread of its own looks at the frames of the one that runs the cell, every 100 ms in the mean. A look takes 1.5 us
besides the change of threads. Waits are not equal, so that they fall into step with no loop (see
`recording.worker_loop`).

A look needs the interpreter's lock. Python code that holds it gives it away after 5 ms, or before that where it comes
to something that waits or computes without it, on which the look would then fall in its stead. So a look that is late
is followed by another: if that is late too, the code before the first held the lock and wanted it back, and its line is
the right one; else the line is not known.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array

from .marks import PlaceBook

__all__ = ["LineSamples"]

_SHORTEST, _SPREAD, _GOLDEN = 0.06, 0.08, 0.6180339887498949
_LATE, _AGAIN = 0.0005, 0.0002  # seconds
_MOST = 2_000_000  # looks: 55 hours


class LineSamples:
    """Looks between `start` and `stop` at the thread that makes this object.

    Attributes:
        record: ``[time, place, ...]``; place -1: not known.
        book: of these places.
    """

    def __init__(self) -> None:
        self.record = array("q")
        self.book = PlaceBook()
        self._wanted = threading.get_ident()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._look, name="torchbench_magic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(1.0)

    def _look(self) -> None:
        looks, book = 0, self.book
        while looks < _MOST:
            late = self._wait(_SHORTEST + _SPREAD * (looks * _GOLDEN % 1.0))
            if late is None:
                return
            looks += 1
            moment = time.time_ns()
            frame = sys._current_frames().get(self._wanted)
            if frame is None:
                continue
            place = book.place_of(frame)
            del frame
            if late > _LATE and (self._wait(_AGAIN) or 0.0) <= _LATE:
                place = -1
            self.record.extend((moment, place))

    def _wait(self, pause: float) -> float | None:
        """Seconds that the wait was too long; None where `stop` ended it."""
        due = time.perf_counter() + pause
        return None if self._ended.wait(pause) else time.perf_counter() - due
