"""What else wants the processor, and how long threads wait for a core."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from torchbench_magic.result_base import Doubt

from .machine import (
    affinity,
    cgroup_figures,
    children_of,
    proc_text,
    stat_fields,
    thread_names,
    thread_times,
    usable_cores,
)

# ---- contention as a result has it -----------------------------------------------------------------------------------

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
    means = {item.name: mean_over(parts, item.name) for item in fields(Contention) if item.name != "wall"}
    return Contention(wall=sum(part.wall for part in parts), **means)


def mean_over(parts: Sequence[Any], name: str) -> float:
    """Mean of an attribute, weighted by the seconds ``wall``; NaN where the system does not tell."""
    known = [(part.wall, getattr(part, name)) for part in parts if not math.isnan(getattr(part, name))]
    wall = sum(seconds for seconds, _ in known)
    return sum(seconds * value for seconds, value in known) / wall if wall else math.nan


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


# ---- load_doubts -----------------------------------------------------------------------------------------------------
# What is said of a machine that takes processor time away, in the same words for timings and profiles.

STOLEN, THROTTLED, LOW_CLOCK = 0.03, 0.05, 0.8
LOAD_KINDS = frozenset({"busy", "oversubscribed", "steal", "throttled", "clock"})
"""Doubts about the machine during a stretch: of several stretches together they are made anew."""


def machine_doubts(steal: float, throttled: float, clock: float, steal_action: str) -> Iterator[Doubt]:
    """About the hypervisor, the container's quota and the processor's clock.

    Args:
        steal: cores that the hypervisor gave to others.
        throttled: share of the time in which the quota held the process back.
        clock: the processor's clock over its highest.
        steal_action: what to do about ``steal``.

    What is not known is NaN, and nothing is said of it.
    """
    if steal > STOLEN:
        text = f"The hypervisor took {steal:.2f} cores: this lengthens the times."
        yield Doubt("steal", text, steal_action, {"steal": steal})
    if throttled > THROTTLED:
        text = f"The container's CPU quota stopped the process {100 * min(throttled, 1):.0f} % of the time."
        yield Doubt("throttled", text, "Use fewer threads, or raise the quota.", {"throttled": throttled})
    if clock < LOW_CLOCK:
        text = f"The CPU ran at {100 * clock:.0f} % of its highest clock frequency: a rerun may be faster."
        yield Doubt("clock", text, "", {"clock": clock})


def oversubscribed_text(threads: str, cores: int) -> str:
    """``threads``: as they are written, such as ``4`` or ``4 and 8``."""
    return f"Oversubscribed: {threads} threads share {cores} usable cores."


# ---- contention ------------------------------------------------------------------------------------------------------
# Counters of the kernel before and after a measurement; their difference tells what disturbed it.
#
# Everything is read unprivileged from /proc and /sys in about 0.1 ms, and nothing is sampled while blocks run. On
# systems without /proc only the involuntary switches are known.
#
# What other processes took is what was busy less what this process and its children used. Both are counted in ticks of
# 10 ms (/proc/stat, /proc/PID/stat), so of a short time it is not known (`blurred`), and no figure exceeds what the
# machine has.

TICK = 0.01
"""Seconds of a tick, in which /proc counts (USER_HZ is 100 on every Linux there is)."""
MOST_BLUR = 0.15
"""Cores that the load of others must be known to: from so many on it is said to be in the way."""


@dataclass(frozen=True)
class Counters:
    """Running totals at one moment, seconds (switches: a count). Differences of two, and their sums, mean something;
    ``windows`` is how many differences were added up."""

    wall: float
    own_cpu: float
    switches: float
    pressure: float
    steal: float
    busy: float
    ran: float
    waited: float
    throttled: float
    children: float = 0.0  # the part of ``own_cpu`` that processes below this one used
    windows: int = 0

    @classmethod
    def read(cls, threads: Mapping[int, tuple[float, float]] | None = None) -> Counters:
        """Read them now. ``threads``: as `thread_times` gives them, where they were read already."""
        own, reaped, switches = _usage()
        children = reaped + _living_children()
        busy, steal = _stat()
        ran, waited = _schedstat(thread_times() if threads is None else threads)
        pressure, throttled, now = _pressure(), _throttled(), time.perf_counter()
        return cls(now, own + children, switches, pressure, steal, busy, ran, waited, throttled, children)

    def __sub__(self, other: Counters) -> Counters:
        spent = Counters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))
        return replace(spent, windows=max(1, self.windows + other.windows))

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def contention_between(spent: Counters) -> Contention:
    """The contention during the time that a difference (or a sum of differences) of counters covers."""
    wall = max(spent.wall, 1e-9)
    cores, known = float(len(affinity()) or math.inf), not blurred(spent)
    return Contention(
        wall=spent.wall,
        pressure=_within(spent.pressure / wall, 1.0),
        steal=_within(spent.steal / wall, cores) if known else math.nan,
        ext=_within((spent.busy - spent.own_cpu) / wall, cores) if known else math.nan,
        wanted=_within((spent.ran + spent.waited) / wall, math.inf),
        waiting=_within(spent.waited / wall, math.inf),
        involuntary=spent.switches / wall,
        throttled=_within(spent.throttled / wall, 1.0),
        clock=_clock_share(),
    )


def blurred(spent: Counters) -> bool:
    """Whether the time is too short for what is counted in ticks.

    A difference of two readings that are cut to whole ticks is wrong by up to a tick either way. The errors of several
    windows are independent, so those of n add up as sqrt(n); two ticks leave room for what is booked a kernel's tick
    too late. It must not make `MOST_BLUR` cores.
    """
    return 2 * TICK * math.sqrt(max(1, spent.windows)) > MOST_BLUR * spent.wall


def _within(value: float, most: float) -> float:
    """Between 0 and what there is; NaN stays NaN, which ``max`` and ``min`` do not promise."""
    return value if math.isnan(value) else min(max(value, 0.0), most)


def _usage() -> tuple[float, float, float]:
    """CPU seconds of this process and of its reaped children, and its involuntary context switches."""
    try:
        import resource
    except ImportError:  # Windows
        return time.process_time(), 0.0, math.nan
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime, float(own.ru_nivcsw)


def _stat() -> tuple[float, float]:
    """(busy, stolen) CPU seconds since boot of the processors that this process may use: what happens on others of a
    large machine is in nobody's way. /proc/stat counts in ticks of 10 ms."""
    cores, busy, stolen = affinity(), 0, 0
    try:
        with open("/proc/stat") as file:
            for line in file:
                if not line.startswith("cpu"):
                    break
                name, *ticks = line.split()
                if name != "cpu" and int(name[3:]) in cores:
                    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
                    busy, stolen = busy + user + nice + system + irq + softirq, stolen + steal
    except (OSError, ValueError):
        return math.nan, math.nan
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, stolen / tick


def _living_children() -> float:
    """CPU seconds of the processes below this one that live now, with what they reaped; 0 where there are none.

    `_usage` knows a child only from the moment it is reaped, with all that it used in its life: until then its work
    looked like another process's, and then that of minutes was taken out of a window of a second.
    """
    tick, total = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100, 0
    seen: set[str] = set()
    waiting = children_of()
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        try:
            total += sum(map(int, stat_fields(pid)[11:15]))  # utime stime cutime cstime; none: it has ended
        except ValueError:
            continue
        waiting += children_of(pid)
    return total / tick


def _pressure() -> float:
    """Seconds since boot in which some task waited for a core (pressure stall information)."""
    total = proc_text("/proc/pressure/cpu").partition("total=")[2].split()
    return int(total[0]) / 1e6 if total else math.nan


def _schedstat(threads: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """(run, run-queue wait) seconds of these threads; NaN where none is known."""
    if not threads:
        return math.nan, math.nan
    ran, waited = zip(*threads.values(), strict=True)
    return sum(ran), sum(waited)


def _throttled() -> float:
    """Seconds for which the quota of the cgroup stopped this process's tasks; 0 where there is none."""
    return cgroup_figures("/sys/fs/cgroup/cpu.stat").get("throttled_usec", 0) / 1e6


def _clock_share() -> float:
    """Mean of current over maximal clock of the processors, where the system tells them (most guests do not)."""
    shares = []
    for current in glob.glob("/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"):
        try:
            most = Path(current).with_name("cpuinfo_max_freq")
            shares.append(int(Path(current).read_text()) / int(most.read_text()))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return sum(shares) / len(shares) if shares else math.nan


# ---- waiting_for_cores -----------------------------------------------------------------------------------------------
# How long threads of this process waited for a core during a stretch of code.
#
# The kernel counts it for each thread in nanoseconds (``/proc/PID/task/TID/schedstat``, see sched-stats.rst of Linux),
# so that of a step of a few milliseconds it is known, where the load of others, counted in ticks of 10 ms, is not.

_ACTIVE = 0.05
"""Share of the time that a thread ran or waited for a core, from which on it wanted one."""
_IO_THREADS = "ZMQbg"
"""What libzmq calls its threads (src/thread.cpp), which carry a kernel's messages and run no Python."""


@dataclass(frozen=True)
class CoreWait:
    """What threads of this process wanted of the cores; added up, that of several stretches.

    Attributes:
        wall: seconds of the stretches.
        spent: the kernel's counters over them; ``ran`` and ``waited`` are of the threads that count.
        active: the most threads that wanted a core in one of them.
        cores: processors that this process may use.
    """

    wall: float
    spent: Counters
    active: int
    cores: int

    def __add__(self, other: CoreWait) -> CoreWait:
        most = max(self.active, other.active)
        return CoreWait(self.wall + other.wall, self.spent + other.spent, most, other.cores)


class CoreWatch:
    """Reads the counters before and after a stretch; a reading takes 0.2 to 0.3 ms with 15 threads.

    Args:
        ignored: native ids of threads whose waiting is nobody's, such as those that carry a kernel's messages.
    """

    def __init__(self, ignored: Collection[int] = ()) -> None:
        self._ignored = ignored
        self._counters: Counters | None = None
        self._threads: Mapping[int, tuple[float, float]] = {}

    def start(self) -> None:
        """Right before the stretch: the threads last, so that as little as can be lies between."""
        self._counters = Counters.read({})
        self._threads = thread_times()

    def stop(self, wall: float) -> CoreWait | None:
        """Right after the stretch, which took ``wall`` seconds. None where the system does not tell.

        Threads that ended in it are not known any more; what they waited is left out.
        """
        threads = thread_times()
        if self._counters is None or not threads or not self._threads:
            return None
        spent = Counters.read({}) - self._counters
        times = [
            (ran - before[0], min(waited - before[1], wall))  # booked when the wait ends, whenever it began
            for thread, (ran, waited) in threads.items()
            if thread not in self._ignored
            for before in [self._threads.get(thread, (0.0, 0.0))]
        ]
        active = sum(ran + waited >= _ACTIVE * wall for ran, waited in times)
        ran, waited = (sum(column) for column in zip(*times, strict=True)) if times else (0.0, 0.0)
        return CoreWait(wall, replace(spent, ran=ran, waited=waited), active, usable_cores())


def native_io_threads() -> frozenset[int]:
    """Native ids of the threads of libzmq, by the name that it gives them; empty where unknown."""
    return frozenset(thread for thread, name in thread_names().items() if name.startswith(_IO_THREADS))


# ---- process_use -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessUse:
    """Totals of the process at one moment, or between two.

    Attributes:
        faults: minor page faults: pages that the system gave, mostly zeroed ones; NaN where not known.
        user, system: seconds of processor time; NaN where not known.
        own: seconds of the calling thread's processor time.
    """

    faults: float = math.nan
    user: float = math.nan
    system: float = math.nan
    own: float = math.nan

    def __sub__(self, other: ProcessUse) -> ProcessUse:
        return ProcessUse(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    @property
    def worker_share(self) -> float:
        """Processor time of the other threads over that of the calling one; NaN where not known."""
        return max(self.user + self.system - self.own, 0.0) / self.own if self.own > 0 else math.nan


def read_use() -> ProcessUse:
    """Takes 1 to 2 us."""
    try:
        import resource
    except ImportError:  # Windows
        return ProcessUse(own=time.thread_time())
    used = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUse(float(used.ru_minflt), used.ru_utime, used.ru_stime, time.thread_time())


# ---- wanted_clock ----------------------------------------------------------------------------------------------------

_SCHEDSTAT = "/proc/thread-self/schedstat"  # "ran waited times", in ns (sched-stats.rst of Linux)


class WantedClock:
    """Nanoseconds that the thread which makes it has run or waited for a core; read on that thread, until `close`.

    What a wall clock moved and this one did not, the thread slept, or waited for a lock, a file, another thread. Where
    the system does not count the waiting for a core (outside Linux), this is the time that the thread ran. A reading
    takes 2.5 us.
    """

    def __init__(self, path: str = _SCHEDSTAT) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # Windows has no `os.pread`
            self._file = os.open(path, os.O_RDONLY)
            self._waited()

    def __call__(self) -> int:
        return time.thread_time_ns() + self._waited()  # what the file says of running is as old as the last tick

    def _waited(self) -> int:
        if self._file is None:
            return 0
        try:
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError, AttributeError):
            self.close()
            return 0

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


# ---- clocks ----------------------------------------------------------------------------------------------------------
# The clocks and counters of a run, injected so that tests can supply their own.


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
