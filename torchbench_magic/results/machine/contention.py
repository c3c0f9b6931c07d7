"""What else wanted the processor while something was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

__all__ = ["Contention", "joined_contention"]


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


def joined_contention(parts: Sequence[Contention]) -> Contention | None:
    """The load over several measurements one after the other: means weighted by their seconds; None of none."""
    if not parts:
        return None
    means = {}
    for name in [item.name for item in fields(Contention) if item.name != "wall"]:
        known = [(part.wall, getattr(part, name)) for part in parts if not math.isnan(getattr(part, name))]
        wall = sum(seconds for seconds, _ in known)
        means[name] = sum(seconds * value for seconds, value in known) / wall if wall else math.nan
    return Contention(wall=sum(part.wall for part in parts), **means)
