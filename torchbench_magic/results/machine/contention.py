"""What else wanted the processor while something was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

__all__ = ["Contention", "joined_contention", "load_differences"]

_UNLIKE = {"ext": 0.15, "steal": 0.05, "pressure": 0.1, "throttled": 0.05}
"""Differences from which on the load of two runs is said to be not alike: in cores, and as shares of the time."""
_SAID = {
    "ext": ("other processes used {:.2f} -> {:.2f} cores", 1),
    "steal": ("the hypervisor took {:.2f} -> {:.2f} cores", 1),
    "pressure": ("some task waited for a core {:.0f} % -> {:.0f} % of the time", 100),
    "throttled": ("the CPU quota stopped it {:.0f} % -> {:.0f} % of the time", 100),
}


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


def load_differences(before: Contention | None, now: Contention | None) -> list[str]:
    """In words, what else the machine did in two runs, ``what: before -> now``; nothing where it was much the same, or
    is not known of both."""
    if before is None or now is None:
        return []
    found = []
    for name, least in _UNLIKE.items():
        values = getattr(before, name), getattr(now, name)
        if abs(values[1] - values[0]) >= least:  # never so of NaN
            words, scale = _SAID[name]
            found.append(words.format(*(scale * value for value in values)))
    return found
