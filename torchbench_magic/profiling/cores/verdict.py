"""What was seen of the cores, thread by thread, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import pandas as pd

from torchbench_magic.process.contention import mean_over
from torchbench_magic.result_base import Doubt

# ---- core_verdicts ---------------------------------------------------------------------------------------------------
# Were the cores used well: one word from what was seen of the threads, each threshold with its reason.
#
# D is the mean number of own threads that ran or waited for a core, C the usable cores. The thresholds were chosen on
# planted cells on two cores (`tests/benchmarks/threads.py` runs others, and the same ones again).

CoreVerdict = Literal[
    "healthy", "oversubscribed", "contended", "gil-bound", "lock-bound", "serial", "waiting", "throttled", "device",
    "not available",
]  # fmt: skip

LEAST_WALL = 0.15
"""Seconds: of less the load of others is not known (it is counted in ticks, see `process.contention.blurred`), and
the samples are too few."""
FEWEST = 10
"""Looks at the threads: of fewer, what they wait for is not known; how many wanted a core is counted by the kernel."""
THROTTLED = 0.05
"""Share of the quota's periods in which it stopped the code: as for timings (`process.contention.THROTTLED`)."""
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
"""Cores per core that others use, from which on they are in the way: as for timings (`timing.voids.CO_LOAD`)."""
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
    means = ("run", "wait", "below", "below_run", "ext", "steal", "throttled", "alone", "idle", "gil", "lock", "device")
    return CoreUse(
        wall=sum(each.wall for each in parts),
        cores=min(each.cores for each in parts),
        samples=sum(each.samples for each in parts),
        threads=max(each.threads for each in parts),
        most=max(each.most for each in parts),
        processes=max(each.processes for each in parts),
        **{name: mean_over(parts, name) for name in means},
    )


# ---- concurrency -----------------------------------------------------------------------------------------------------

TIMELINE_COLUMNS = {
    "time": "float64",  # seconds since the code began: the end of the stretch that a row is of
    "running": "float64",  # mean number of threads that ran in it
    "waiting": "float64",  # mean number of threads that waited for a core
    "workers": "float64",  # the part of both in processes below: DataLoader workers, pools
}
"""Waiting is booked when it ends: a row may have that of rows before it."""


@dataclass(frozen=True, eq=False)
class Concurrency:
    """How one run used the cores.

    Attributes:
        verdict: ``healthy``, or what kept the cores from the code; ``not available`` where too little is known, with
            the reason in ``missing``.
        use: what was seen.
        timeline: threads over time, columns of `TIMELINE_COLUMNS`.
        torch_threads: torch's intra-op threads.
        missing: what was not available, a sentence each.
        proof: a cell to paste: the same code at several thread counts, side by side.
    """

    verdict: CoreVerdict = "not available"
    use: CoreUse = CoreUse()
    timeline: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(TIMELINE_COLUMNS), dtype=float))
    torch_threads: int = 0
    missing: tuple[str, ...] = ()
    proof: str = ""

    def __post_init__(self) -> None:
        if list(self.timeline.columns) != list(TIMELINE_COLUMNS):
            raise ValueError(f"columns of .timeline must be {' '.join(TIMELINE_COLUMNS)}")

    def __str__(self) -> str:
        use = self.use
        if math.isnan(use.wanted):
            return self.verdict
        return f"{self.verdict}: {use.wanted:.2f} threads wanted one of {use.cores} cores"

    @property
    def evidence(self) -> Mapping[str, float]:
        """The facts behind the verdict: what begins with ``seconds`` is in seconds, with ``share`` a share of 1; the
        others are counts of threads or cores, means over the run. What is not known is left out."""
        use = self.use
        facts = {
            "seconds_observed": use.wall,
            "usable_cores": use.cores,
            "torch_threads": self.torch_threads,
            "threads_wanted": use.wanted,
            "threads_running": use.run,
            "threads_waiting_for_a_core": use.wait,
            "threads_in_other_processes": use.below,
            "threads_active": use.threads,
            "threads_at_once_at_most": use.most,
            "processes_active": use.processes,
            "cores_used_by_others": use.ext,
            "cores_taken_by_the_hypervisor": use.steal,
            "share_throttled": use.throttled,
            "share_with_one_thread_or_none": use.alone,
            "share_with_no_thread": use.idle,
            "threads_waiting_for_the_gil": use.gil,
            "threads_waiting_for_locks": use.lock,
        }
        if use.device:
            facts["share_of_a_device"] = use.device
        return MappingProxyType({name: value for name, value in facts.items() if not math.isnan(value)})

    @property
    def proof_line(self) -> str:
        """The first line of ``proof``: the magic and the thread counts."""
        return self.proof.partition("\n")[0]


def joined_concurrency(parts: Sequence[Concurrency]) -> Concurrency | None:
    """Of several stretches one after the other, judged together; None of none."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    known = [each.use for each in parts if not math.isnan(each.use.wall)]
    use = mean_use(known) if known else CoreUse()
    timelines, began = [], 0.0
    for each in parts:
        timelines.append(each.timeline.assign(time=each.timeline["time"] + began))
        began += 0.0 if math.isnan(each.use.wall) else each.use.wall
    filled = [frame for frame in timelines if len(frame)]
    return Concurrency(
        verdict=verdict_of(use),
        use=use,
        timeline=pd.concat(filled, ignore_index=True) if filled else parts[0].timeline,
        torch_threads=max(each.torch_threads for each in parts),
        missing=_once(text for each in parts for text in each.missing),
        proof=parts[0].proof,
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


# ---- proof_cell ------------------------------------------------------------------------------------------------------

_MOST = 5  # counts side by side: each takes a second or more


def counts_to_compare(cores: int, current: int) -> tuple[int, ...]:
    """Counts worth comparing: 1, the powers of two below the cores, the cores, and the current one."""
    powers = [1 << bit for bit in range(cores.bit_length()) if 1 << bit <= cores]
    while len(powers) > _MOST - 2:
        powers = [powers[0], *powers[2:]]
    counts = {1, *powers, max(1, cores), max(1, current)}
    return tuple(sorted(counts if len(counts) > 1 else {1, 2}))


def proof_of(text: str | None, cores: int, current: int) -> str:
    """A cell to paste: the profiled one under ``%%timer`` at several thread counts; without a cell the magic alone."""
    magic = f"%%timer --threads {','.join(map(str, counts_to_compare(cores, current)))}"
    lines = (text or "").strip("\n").splitlines()
    if lines and lines[0].lstrip().startswith("%%"):
        lines = lines[1:]
    elif any(line.lstrip().startswith("%tprofile") for line in lines):
        return magic  # a line of a cell: which part of it was profiled is not known here
    return "\n".join([magic, *lines])


def doubts_of_concurrency(seen: Concurrency | None) -> Iterator[Doubt]:
    """That nothing can be said, and why."""
    if seen is not None and seen.verdict == "not available" and seen.missing:
        yield Doubt("concurrency-unknown", f"How the cores were used is unknown. {seen.missing[0]}")
