"""What else uses the processors now: watched for half a second, in which this process sleeps."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torchbench_magic.results.machine.contention import Contention
from torchbench_magic.results.machine.diagnosis import Finding
from torchbench_magic.results.machine.load_doubts import machine_doubts

from ..machine.contention import TICK, Counters, contention_between
from ..machine.facts.system_files import THIS_MACHINE, SystemFiles

__all__ = ["BusyProcess", "WatchedLoad", "load_findings", "watch_load"]

SECONDS = 0.5
"""Long enough that ticks of 10 ms tell a twentieth of a core."""
_BUSY = 0.15
"""Cores of others from which on it is said; as many are known to `contention.MOST_BLUR`."""
_OWN = 0.15
_WAITING = 0.1
_NAMED = 3
_LEAST_NAMED = 0.05
_WAIT = "Wait until they end, or stop them; until then, compare alternatives in one `%%timer` cell, with `-t 1`."
_KINDS = {"steal": "steal", "throttled": "throttling"}


@dataclass(frozen=True)
class BusyProcess:
    """A process that ran: its name, its id, and the cores that it used."""

    name: str
    pid: int
    cores: float

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) {self.cores:.2f}"


@dataclass(frozen=True)
class WatchedLoad:
    """What was seen.

    Attributes:
        contention: what else wanted the processors; NaN where the system does not tell.
        own: cores that this process used, which slept, and its children.
        busiest: other processes that ran, from a twentieth of a core on, those with the most time first; None
            where they cannot be listed.
        average: the load average of a minute; NaN where there is none.
    """

    contention: Contention
    own: float
    busiest: tuple[BusyProcess, ...] | None
    average: float = math.nan


def watch_load(
    files: SystemFiles = THIS_MACHINE,
    seconds: float = SECONDS,
    sleep: Callable[[float], object] = time.sleep,
    counters: Callable[[], Counters] = Counters.read,
) -> WatchedLoad:
    """Sleep for some time and see what ran meanwhile."""
    before, ticks = counters(), _ticks(files)
    sleep(seconds)
    ran, spent = _ticks(files), counters() - before
    busiest = None
    if ticks is not None and ran is not None:
        own = _family(ran, os.getpid())
        before_it = {pid: ticks[pid][1] if pid in ticks else 0 for pid in ran}
        found = [
            BusyProcess(name, pid, (after - before_it[pid]) * TICK / spent.wall)
            for pid, (name, after, _) in ran.items()
            if pid not in own
        ]
        busiest = tuple(sorted((one for one in found if one.cores >= _LEAST_NAMED), key=lambda one: -one.cores))
    try:
        average = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows
        average = math.nan
    return WatchedLoad(contention_between(spent), spent.own_cpu / spent.wall, busiest, average)


def _ticks(files: SystemFiles) -> dict[int, tuple[str, int, int]] | None:
    """Process id -> (name, ticks of 10 ms that it ran, id of its parent); None where processes are hidden."""
    found = {}
    for entry in files.names("/proc"):
        text = files.text(f"/proc/{entry}/stat") if entry.isdigit() else None
        if text is None:
            continue
        head, _, rest = text.rpartition(")")  # the name may hold spaces and brackets
        figures = rest.split()
        try:
            found[int(entry)] = head.partition("(")[2], int(figures[11]) + int(figures[12]), int(figures[1])
        except (ValueError, IndexError):
            continue
    return found or None


def _family(processes: dict[int, tuple[str, int, int]], root: int) -> set[int]:
    """``root`` and all processes below it."""
    family, grown = {root}, True
    while grown:
        more = {pid for pid, (_, _, parent) in processes.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return family


def load_findings(seen: WatchedLoad, cores: int) -> Iterator[Finding]:
    """What the load does to measurements.

    Args:
        cores: processors that this process may use.
    """
    yield _of_others(seen, cores)
    if seen.own > _OWN:
        text = f"This process, or one that it started, is using the CPU: {seen.own:.2f} cores."
        fix = "Stop its other threads and workers."
        yield Finding("own load", "warn", text, "processor time while this thread slept", fix)
    yield _of_waiting(seen.contention)
    yield from _of_machine(seen.contention)


def _of_others(seen: WatchedLoad, cores: int) -> Finding:
    ext, wall = seen.contention.ext, seen.contention.wall
    if math.isnan(ext):
        average = f"load average over one minute: {seen.average:.2f}" if not math.isnan(seen.average) else ""
        text = "The load of other processes is unknown: /proc/stat cannot be read."
        return Finding("outside load", "not available", text, average)
    window = f"in {wall:.1f} s"
    if ext <= _BUSY:
        text = f"Other processes use {ext:.2f} of {_cores(cores)}."
        return Finding("outside load", "ok", text, f"{window}; {_named(seen.busiest)}" if seen.busiest else window)
    top = f", mostly {seen.busiest[0].name} (pid {seen.busiest[0].pid})" if seen.busiest else ""
    text = f"Other processes use {ext:.2f} of {_cores(cores)}{top}: absolute times are unreliable."
    known = sum(one.cores for one in seen.busiest or ())
    told = f"{window}; {_named(seen.busiest)}" if seen.busiest else window
    if known < ext / 2:
        told += "; the rest by processes that are not visible here (of another container or user)"
    return Finding("outside load", "warn", text, told, _WAIT)


def _named(busiest: Sequence[BusyProcess] | None) -> str:
    return "most used by " + ", ".join(map(str, (busiest or ())[:_NAMED]))


def _of_waiting(seen: Contention) -> Finding:
    """Pressure stall information: of the whole machine, this process aside, as it slept."""
    if math.isnan(seen.pressure):
        text = "How long tasks wait for a core is unknown."
        return Finding("waiting", "not available", text, "/proc/pressure/cpu cannot be read")
    said = f"/proc/pressure/cpu, {seen.wall:.1f} s"
    text = f"Some task waited for a core {100 * seen.pressure:.0f} % of the time"
    if seen.pressure > _WAITING:
        return Finding("waiting", "warn", f"{text}: the cores are overloaded.", said, _WAIT)
    return Finding("waiting", "ok", f"{text}.", said)


def _of_machine(seen: Contention) -> Iterator[Finding]:
    """Hypervisor, quota and clock, in the words of timings."""
    said = f"in {seen.wall:.1f} s"
    doubts = {doubt.kind: doubt for doubt in machine_doubts(seen.steal, seen.throttled, seen.clock, "")}
    fixes = {"steal": "Measure at another time, or on a machine with dedicated cores."}
    for kind, doubt in doubts.items():
        if kind in _KINDS:  # the clock of a processor that sleeps is low: this says nothing of one that works
            yield Finding(_KINDS[kind], "warn", doubt.text, said, doubt.action or fixes.get(kind, ""))
    if math.isnan(seen.steal):
        yield Finding("steal", "not available", "What the hypervisor takes is unknown: /proc/stat cannot be read.")
    elif "steal" not in doubts:
        yield Finding("steal", "ok", f"The hypervisor took {seen.steal:.2f} cores.", f"/proc/stat, {said}")


def _cores(cores: int) -> str:
    return f"{cores} core{'' if cores == 1 else 's'}"
