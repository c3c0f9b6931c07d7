"""Counters of the kernel before and after a measurement; their difference tells what disturbed it.

Everything is read unprivileged from /proc and /sys in about 0.1 ms, and nothing is sampled while blocks run. On
systems without /proc only the involuntary switches are known.

What other processes took is what was busy less what this process and its children used. Both are counted in ticks of
10 ms (/proc/stat, /proc/PID/stat), so of a short time it is not known (`blurred`), and no figure exceeds what the
machine has.
"""

from __future__ import annotations

import glob
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from torchbench_magic.results.machine.contention import Contention

from .proc_files import proc_text, thread_ids, thread_times

__all__ = ["Counters", "blurred", "contention_between"]

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
    windows: int = 0

    @classmethod
    def read(cls, threads: Mapping[int, tuple[float, float]] | None = None) -> Counters:
        """Read them now. ``threads``: as `thread_times` gives them, where they were read already."""
        own, switches = _usage()
        own += _living_children()
        busy, steal = _stat()
        ran, waited = _schedstat(thread_times() if threads is None else threads)
        return cls(time.perf_counter(), own, switches, _pressure(), steal, busy, ran, waited, _throttled())

    def __sub__(self, other: Counters) -> Counters:
        spent = Counters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))
        return replace(spent, windows=max(1, self.windows + other.windows))

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def contention_between(spent: Counters) -> Contention:
    """The contention during the time that a difference (or a sum of differences) of counters covers."""
    wall = max(spent.wall, 1e-9)
    cores, known = float(len(_cores()) or math.inf), not blurred(spent)
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


def _cores() -> frozenset[int]:
    """Numbers of the processors that this process may run on; empty where the system does not tell."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return frozenset()


def _usage() -> tuple[float, float]:
    """CPU seconds of this process and its reaped children, and its involuntary context switches."""
    try:
        import resource
    except ImportError:  # Windows
        return time.process_time(), math.nan
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, float(own.ru_nivcsw)


def _stat() -> tuple[float, float]:
    """(busy, stolen) CPU seconds since boot of the processors that this process may use: what happens on others of a
    large machine is in nobody's way. /proc/stat counts in ticks of 10 ms."""
    cores, busy, stolen = _cores(), 0, 0
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
    waiting = _children("self")
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        try:
            figures = proc_text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name may hold spaces and brackets
            total += sum(map(int, figures[11:15]))  # utime stime cutime cstime, see proc(5); none: ended in between
        except ValueError:
            continue
        waiting += _children(pid)
    return total / tick


def _children(pid: str) -> list[str]:
    """Process ids of the children of every thread; none where the kernel does not list them."""
    found = (proc_text(f"/proc/{pid}/task/{thread}/children").split() for thread in thread_ids(pid))
    return [child for children in found for child in children]


def _pressure() -> float:
    """Seconds since boot in which some task waited for a core (pressure stall information)."""
    try:
        with open("/proc/pressure/cpu") as file:
            return int(file.readline().rsplit("total=", 1)[1]) / 1e6
    except (OSError, ValueError, IndexError):
        return math.nan


def _schedstat(threads: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """(run, run-queue wait) seconds of these threads; NaN where none is known."""
    if not threads:
        return math.nan, math.nan
    ran, waited = zip(*threads.values(), strict=True)
    return sum(ran), sum(waited)


def _throttled() -> float:
    """Seconds for which the quota of the cgroup stopped this process's tasks; 0 where there is none."""
    try:
        for line in Path("/sys/fs/cgroup/cpu.stat").read_text().splitlines():
            if line.startswith("throttled_usec"):
                return int(line.split()[1]) / 1e6
    except (OSError, ValueError):
        pass
    return 0.0


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
