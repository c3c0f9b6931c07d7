"""What else wanted the processor while something was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Contention"]


@dataclass(frozen=True)
class Contention:
    """Load on the machine during a measurement; NaN where the system does not tell.

    Attributes:
        wall: seconds that were observed.
        pressure: share of that time in which some runnable task waited for a core (Linux PSI, the whole machine).
        steal: processor time the hypervisor gave to others, in cores.
        ext: processor time of other processes, in cores.
        wanted: mean number of own threads that ran or waited for a core.
        waiting: mean number of own threads that waited for a core.
        involuntary: own involuntary context switches a second.
        throttled: share of the time in which the cgroup's quota held this process back.
        clock: mean processor clock over its nominal maximum.
    """

    wall: float = 0.0
    pressure: float = math.nan
    steal: float = math.nan
    ext: float = math.nan
    wanted: float = math.nan
    waiting: float = math.nan
    involuntary: float = math.nan
    throttled: float = math.nan
    clock: float = math.nan
