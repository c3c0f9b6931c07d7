"""Which engine measures what next. No clock, no cluster.

Two engines of one host that time at once make products on two threads two to three times slower, so a host has one
engine at work at a time. The others of it take over where that one dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["HostQueues", "Share"]

MOST_LOST = 2
"""Engines that one piece of work may lose; then it is the code that ends them."""


@dataclass(frozen=True)
class Share:
    """A piece of work.

    Attributes:
        number: of the point; where all engines measure the same, of the engine.
        engine: the only one that may do it; None: any.
        lost: engines that died over it.
    """

    number: int
    engine: int | None = None
    lost: tuple[int, ...] = ()


@dataclass
class HostQueues:
    """Work for the engines of several hosts.

    Args:
        hosts: engine -> what is the same for all engines of its host.
        jobs: in the order in which they are to be done.

    Attributes:
        at_work: engine -> what it is doing.
        left_over: what nobody can do.
    """

    hosts: Mapping[int, Hashable]
    jobs: Sequence[Share]
    at_work: dict[int, Share] = field(default_factory=dict)
    left_over: list[Share] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._alive = list(self.hosts)
        self._waiting = deque(self.jobs)

    @property
    def is_open(self) -> bool:
        """Whether there is work, or some is being done."""
        return bool(self._waiting or self.at_work)

    def due(self) -> list[tuple[int, Share]]:
        """Begin what can be begun now: (engine, job), at most one for each host without one at work."""
        begun = []
        busy = {self.hosts[engine] for engine in self.at_work}
        for engine in list(self._alive):
            if self.hosts[engine] in busy:
                continue
            job = next((job for job in self._waiting if job.engine in (None, engine) and engine not in job.lost), None)
            if job is not None:
                self._waiting.remove(job)
                self.at_work[engine] = job
                busy.add(self.hosts[engine])
                begun.append((engine, job))
        if not self.at_work:  # nobody is left who could do the rest
            self.left_over += self._waiting
            self._waiting.clear()
        return begun

    def finish(self, engine: int) -> Share:
        """The engine is free again."""
        return self.at_work.pop(engine)

    def lose(self, engine: int, *, dies_over_it: bool = True) -> None:
        """The engine is gone: its work is the next that another one does, of the same host where there is one.

        Args:
            dies_over_it: the work may have ended it; what has ended `MOST_LOST` engines is left over.
        """
        if engine in self._alive:
            self._alive.remove(engine)
        job = self.at_work.pop(engine, None)
        if job is None:
            return
        if dies_over_it:
            job = Share(job.number, job.engine, (*job.lost, engine))
        if job.engine is not None or len(job.lost) >= MOST_LOST:
            self.left_over.append(job)
            return
        self._waiting.appendleft(job)
        host = self.hosts[engine]
        self._alive.sort(key=lambda each: self.hosts[each] != host)  # stable: the others keep their order
