"""How long threads of this process waited for a core during a stretch of code.

The kernel counts it for each thread in nanoseconds (``/proc/PID/task/TID/schedstat``, see sched-stats.rst of Linux), so
that of a step of a few milliseconds it is known, where the load of others, counted in ticks of 10 ms, is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from .contention import Counters
from .environment import usable_cores
from .proc_files import proc_text, thread_ids, thread_times

__all__ = ["CoreWait", "CoreWatch", "native_io_threads"]

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
    named = ((thread, proc_text(f"/proc/self/task/{thread}/comm")) for thread in thread_ids("self"))
    return frozenset(int(thread) for thread, name in named if name.startswith(_IO_THREADS))
