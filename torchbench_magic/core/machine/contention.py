"""Counters of the kernel before and after a measurement; their difference tells what disturbed it.

Everything is read unprivileged from /proc and /sys in about 0.1 ms, and nothing is sampled while blocks run. On
systems without /proc only the involuntary switches are known.
"""

from __future__ import annotations

import glob
import math
import os
import time
from dataclasses import dataclass, fields
from pathlib import Path

from torchbench_magic.results.contention import Contention

__all__ = ["Counters", "contention_between"]


@dataclass(frozen=True)
class Counters:
    """Running totals at one moment, seconds (switches: a count). Differences of two, and their sums, mean something."""

    wall: float
    own_cpu: float
    switches: float
    pressure: float
    steal: float
    busy: float
    ran: float
    waited: float
    throttled: float

    @classmethod
    def read(cls) -> Counters:
        """Read them now."""
        own, switches = _usage()
        busy, steal = _stat()
        ran, waited = _schedstat()
        return cls(time.perf_counter(), own, switches, _pressure(), steal, busy, ran, waited, _throttled())

    def __sub__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def contention_between(spent: Counters) -> Contention:
    """The contention during the time that a difference (or a sum of differences) of counters covers."""
    wall = max(spent.wall, 1e-9)
    return Contention(
        wall=spent.wall,
        pressure=spent.pressure / wall,
        steal=spent.steal / wall,
        ext=max(0.0, (spent.busy - spent.own_cpu) / wall),
        wanted=(spent.ran + spent.waited) / wall,
        waiting=spent.waited / wall,
        involuntary=spent.switches / wall,
        throttled=spent.throttled / wall,
        clock=_clock_share(),
    )


def _usage() -> tuple[float, float]:
    """CPU seconds of this process and its reaped children, and its involuntary context switches."""
    try:
        import resource
    except ImportError:  # Windows
        return time.process_time(), math.nan
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, float(own.ru_nivcsw)


def _stat() -> tuple[float, float]:
    """(busy, stolen) CPU seconds of the whole machine since boot. /proc/stat counts in ticks of 10 ms."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return math.nan, math.nan
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


def _pressure() -> float:
    """Seconds since boot in which some task waited for a core (pressure stall information)."""
    try:
        with open("/proc/pressure/cpu") as file:
            return int(file.readline().rsplit("total=", 1)[1]) / 1e6
    except (OSError, ValueError, IndexError):
        return math.nan


def _schedstat() -> tuple[float, float]:
    """(run, run-queue wait) seconds of the threads of this process that live now."""
    ran = waited = 0
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return math.nan, math.nan
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/schedstat") as file:
                run, wait = file.read().split()[:2]
        except (OSError, ValueError):
            continue  # ended in between
        ran, waited = ran + int(run), waited + int(wait)
    return ran / 1e9, waited / 1e9


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
