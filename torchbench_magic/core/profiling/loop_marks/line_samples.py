"""Which line of the user's code runs, looked at some ten times a second: what a loop does between its phases.

A thread of its own looks at the frames of the one that runs the cell, every 100 ms in the mean. A look takes 1.5 us
besides the change of threads. Waits are not equal, so that they fall into step with no loop (see
`recording.worker_loop`).
"""

from __future__ import annotations

import sys
import threading
import time
from array import array

from .marks import PlaceBook

__all__ = ["LineSamples"]

_SHORTEST, _SPREAD, _GOLDEN = 0.06, 0.08, 0.6180339887498949
_MOST = 2_000_000  # looks: 55 hours


class LineSamples:
    """Looks between `start` and `stop` at the thread that makes this object.

    Attributes:
        record: ``[time, place, ...]``.
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
        looks, wanted, book = 0, self._wanted, self.book
        while not self._ended.wait(_SHORTEST + _SPREAD * (looks * _GOLDEN % 1.0)) and looks < _MOST:
            looks += 1
            frame = sys._current_frames().get(wanted)
            if frame is not None:
                self.record.extend((time.time_ns(), book.place_of(frame)))
            del frame
