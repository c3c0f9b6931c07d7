"""The clocks and counters of a run, injected so that tests can supply their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torchbench_magic.core.machine.contention import Counters

__all__ = ["Clocks"]


@dataclass(frozen=True)
class Clocks:
    """Two clocks that return integer nanoseconds, and the kernel's counters.

    Attributes:
        wall: monotonic wall clock.
        cpu: processor time used by the whole process, all threads added up.
        counters: what else wanted the processor, as running totals.
    """

    wall: Callable[[], int] = time.perf_counter_ns
    cpu: Callable[[], int] = time.process_time_ns
    counters: Callable[[], Counters] = Counters.read
