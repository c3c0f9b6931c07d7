"""What Python and numpy hold: tracemalloc read at every line event of the cell's own thread.

tracemalloc sees every block that Python's allocators give out, and numpy's arrays. It knows totals at a moment and the
highest since it was last asked; asked whenever the line changes, it says what each line took and how high it went.
The records of the line events are Python memory themselves and are taken out.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from array import array
from collections.abc import Callable

import numpy as np

from torchbench_magic.array_types import Ints


class HostMemory:
    """Takes the clock's place in a line source: each time it is asked for, the totals are written down too.

    Attributes:
        was_running: tracemalloc ran already; it goes on afterwards, only its peak starts anew.
    """

    def __init__(self) -> None:
        self.was_running = tracemalloc.is_tracing()
        self._samples = array("q")  # current, peak at each event
        self._times = array("q")
        self._last: tuple[int, int] | None = None
        self._held: Callable[[], int] = lambda: 0
        self.clock = self._clock()

    def start(self, held: Callable[[], int]) -> None:
        """Start tracemalloc; before the line source, whose clock this is and whose record takes ``held()`` bytes."""
        self._held = held
        if not self.was_running:
            tracemalloc.start(1)
        tracemalloc.reset_peak()

    def stop(self) -> None:
        """Read the end, and leave tracemalloc as it was found. Safe to call twice."""
        if self._last is None and tracemalloc.is_tracing():
            current, peak = tracemalloc.get_traced_memory()
            own = self._own_size()
            self._last = current - own, peak - own
        if not self.was_running:
            tracemalloc.stop()

    def _clock(self) -> Callable[[], int]:
        owner, whose = threading.get_ident(), threading.get_ident
        read, start_anew, now = tracemalloc.get_traced_memory, tracemalloc.reset_peak, time.time_ns
        put, note, own_size = self._samples.append, self._times.append, self._own_size

        def clock() -> int:
            if whose() != owner:
                return now()
            current, peak = read()
            own = own_size()
            put(current - own)
            put(peak - own)
            moment = now()
            note(moment)
            start_anew()
            return moment

        return clock

    def _own_size(self) -> int:
        """Bytes of this record and of that of the line events."""
        return self._samples.__sizeof__() + self._times.__sizeof__() + self._held()

    def readings(self) -> tuple[Ints, Ints, Ints]:
        """Unix ns of each event; totals at each and at the end; highest totals from one to the next."""
        last = self._last if self._last is not None else (0, 0)
        both = np.array([*self._samples, *last], dtype=np.int64).reshape(-1, 2)
        return np.array(self._times, dtype=np.int64), both[:, 0], both[1:, 1]
