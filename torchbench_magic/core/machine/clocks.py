"""The clocks and counters of a run, injected so that tests can supply their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torchbench_magic.core.machine.contention import Counters

__all__ = ["Clocks", "minor_faults"]


def minor_faults() -> int:
    """Page faults of this process that needed no disk; 0 where the system does not count them."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@dataclass(frozen=True)
class Clocks:
    """Two clocks that return integer nanoseconds, and the kernel's counters.

    Attributes:
        wall: monotonic wall clock.
        cpu: processor time used by the whole process, all threads added up.
        counters: what else wanted the processor, as running totals.
        faults: page faults of this process, as a running total.
    """

    wall: Callable[[], int] = time.perf_counter_ns
    cpu: Callable[[], int] = time.process_time_ns
    counters: Callable[[], Counters] = Counters.read
    faults: Callable[[], int] = minor_faults
