"""Were the cores used well: one word from what was seen of the threads, each threshold with its reason.

D is the mean number of own threads that ran or waited for a core, C the usable cores. The thresholds were chosen on
planted cells on two cores (`tests/benchmarks/threads.py` runs others, and the same ones again).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["FEWEST", "LEAST_WALL", "OTHERS", "CoreUse", "CoreVerdict", "mean_use", "verdict_of"]

CoreVerdict = Literal[
    "healthy", "oversubscribed", "contended", "gil-bound", "lock-bound", "serial", "waiting", "throttled", "device",
    "not available",
]  # fmt: skip

LEAST_WALL = 0.15
"""Seconds: of less the load of others is not known (it is counted in ticks, see `core.machine.contention.blurred`), and
the samples are too few."""
FEWEST = 10
"""Looks at the threads: of fewer, what they wait for is not known; how many wanted a core is counted by the kernel."""
THROTTLED = 0.05
"""Share of the quota's periods in which it stopped the code: as for timings (`load_doubts.THROTTLED`)."""
MANY = 1.25
"""D / C from which on more threads wanted a core than there are, whoever else ran: a neighbour makes threads wait, and
never makes more of them want one."""
QUEUED = 0.15
"""Waiting per core, beyond what others can have caused (a core-second of theirs makes one thread wait for a second at
the most), from which on own threads are in each other's way though some of them sleep at barriers: 3 threads on 2 cores
made 0.19, as many threads as cores up to 0.03, those with a light loader beside them 0.1."""
BUSY = 0.5
"""Share of the cores that run own threads: with less, threads do not wait for each other."""
OTHERS = 0.15
"""Cores per core that others use, from which on they are in the way: as for timings (`voided_verdicts.CO_LOAD`)."""
TURNS = 0.8
"""Mean number of threads that wait for their turn (at the interpreter's lock, or at another one): two threads that
take turns make 0.9, one that polls at most 0.5 of it."""
ONE_AT_A_TIME = 1.1
"""Mean number of running threads that a lock lets through, with what runs besides it for moments."""
LITTLE = 0.9
"""D below which the code waits: one thread that always computes makes 1.0, and 0.97 at the least in planted cells."""
FEW = 0.65
"""D / C below which cores were left unused."""
ALONE = 0.5
"""Share of the time in which at most one thread computed, from which on the code is called serial: with less it used
several cores most of the time, and more may not help it."""


DEVICE = 0.8
"""Share of the time in which a device worked or was waited for, from which on it is what the code's time depends on:
what the cores could save is less than the rest."""


@dataclass(frozen=True)
class CoreUse:
    """What was seen of the threads of a process and of those below it, over a stretch; NaN where it is not known.

    Attributes:
        wall: seconds.
        cores: that the process may use: affinity, cut by the cgroup's quota.
        run: mean number of threads that ran.
        wait: mean number of threads that waited for a core.
        below: the part of both in processes below (DataLoader workers, pools).
        below_run: the part of ``run`` in processes below.
        ext: cores that other processes used.
        steal: cores that the hypervisor gave to others.
        throttled: share of the quota's periods in which it stopped the code; 0 without a quota.
        threads: threads that wanted a core for at least 5 % of the time.
        most: the most threads that wanted one at once.
        processes: processes below that wanted one.
        alone: share of the time in which one thread or none wanted a core.
        idle: share of the time in which none did.
        gil: mean number of threads that waited for their turn at the interpreter's lock.
        lock: the same at another lock.
        samples: how often the threads were looked at.
        device: share of the time in which a device was at work, or the code's own thread waited for one.
    """

    wall: float = math.nan
    cores: int = 1
    run: float = math.nan
    wait: float = math.nan
    below: float = 0.0
    below_run: float = 0.0
    ext: float = math.nan
    steal: float = math.nan
    throttled: float = math.nan
    threads: int = 0
    most: int = 0
    processes: int = 0
    alone: float = math.nan
    idle: float = math.nan
    gil: float = math.nan
    lock: float = math.nan
    samples: int = 0
    device: float = 0.0

    @property
    def wanted(self) -> float:
        """D: mean number of threads that ran or waited for a core."""
        return self.run + self.wait

    @property
    def outside(self) -> float:
        """Cores that others took, the hypervisor among them, as far as it is known; NaN where nothing is."""
        known = [each for each in (self.ext, self.steal) if not math.isnan(each)]
        return sum(known) if known else math.nan


def verdict_of(use: CoreUse) -> CoreVerdict:
    """The first that holds; what is not known speaks for nothing."""
    cores = max(1, use.cores)
    if use.device >= DEVICE:
        return "device"
    if use.throttled > THROTTLED:
        return "throttled"
    if not use.wall >= LEAST_WALL or math.isnan(use.wanted):
        return "not available"
    others = use.outside >= OTHERS * cores
    crowded = use.threads > cores and not _is_fed(use, cores)
    if use.wanted > MANY * cores and crowded:
        return "oversubscribed"
    waits = use.wanted + _known(use.steal) < LITTLE  # a thread whose core the hypervisor took neither runs nor waits
    if use.samples < FEWEST:
        return "waiting" if waits and not others else "not available"
    if use.gil >= TURNS and use.run < ONE_AT_A_TIME:
        return "gil-bound"
    if use.lock >= TURNS and use.run < ONE_AT_A_TIME:
        return "lock-bound"
    in_own_way = use.wait - use.outside > QUEUED * cores and use.run > BUSY * cores
    if in_own_way and crowded and not others:
        return "oversubscribed"
    if others and use.wait > OTHERS * cores:
        return "contended"
    if waits:
        return "waiting"
    if cores > 1 and use.wanted < FEW * cores and use.alone >= ALONE:
        return "serial"
    return "healthy"


def _is_fed(use: CoreUse, cores: int) -> bool:
    """Whether it is one thread and at most as many processes below as there are cores, each with one thread: workers of
    a DataLoader as they should be. Two on two cores made D 2.6 to 3, and were 1.7 times as fast as one."""
    return 0 < use.processes <= cores and use.threads <= use.processes + 1


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def mean_use(parts: list[CoreUse]) -> CoreUse:
    """Of stretches one after the other: means by their seconds; the fewest cores, the most threads."""
    wall = sum(each.wall for each in parts)
    means: dict[str, float] = {}
    for name in ("run", "wait", "below", "below_run", "ext", "steal", "throttled", "alone", "idle", "gil", "lock",
        "device"):  # fmt: skip
        known = [(each.wall, getattr(each, name)) for each in parts if not math.isnan(getattr(each, name))]
        seconds = sum(lasted for lasted, _ in known)
        means[name] = sum(lasted * value for lasted, value in known) / seconds if seconds else math.nan
    return CoreUse(
        wall=wall,
        cores=min(each.cores for each in parts),
        samples=sum(each.samples for each in parts),
        threads=max(each.threads for each in parts),
        most=max(each.most for each in parts),
        processes=max(each.processes for each in parts),
        **means,
    )
