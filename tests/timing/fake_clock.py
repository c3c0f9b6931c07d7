"""A clock that only the code under test moves: times come out exact, and nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchbench_magic import Comparison
from torchbench_magic.cell_body import Body
from torchbench_magic.process.contention import Clocks, Counters
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task


class FakeClock:
    """``work(us)`` takes that many microseconds of wall and CPU time; ``wait(us)`` of wall time only.

    What it counts is no state of the code under test: it is a library's class, whose attributes nobody looks for.
    """

    __module__ = "time"

    def __init__(self) -> None:
        self.wall_ns = 0
        self.cpu_ns = 0
        self.count_faults: Callable[[], int] = lambda: 0
        self.load = dict.fromkeys(("pressure", "steal", "busy", "ran", "waited", "throttled", "switches"), 0.0)

    def work(self, us: float) -> None:
        self.wall_ns += round(us * 1000)
        self.cpu_ns += round(us * 1000)

    def wait(self, us: float) -> None:
        self.wall_ns += round(us * 1000)

    def sequence(self, values: list[float]) -> Iterator[float]:
        """Microseconds to work, one value a call, the last one for ever."""
        yield from values
        while True:
            yield values[-1]

    @property
    def counters(self) -> Counters:
        """The kernel's counters of a machine whose load (rates, a second) is ``load``; quiet by default."""
        now, own = self.wall_ns / 1e9, self.cpu_ns / 1e9
        of = {name: rate * now for name, rate in self.load.items()}
        ran, others = own + of["ran"], own + of["busy"]
        return Counters(
            now, own, of["switches"], of["pressure"], of["steal"], others, ran, of["waited"], of["throttled"]
        )

    @property
    def clocks(self) -> Clocks:
        return Clocks(
            wall=lambda: self.wall_ns,
            cpu=lambda: self.cpu_ns,
            counters=lambda: self.counters,
            faults=self.count_faults,
        )


def timed(
    clock: FakeClock,
    bodies: dict[str, str],
    setup: list[str] | None = None,
    names: dict[str, Any] | None = None,
    **plan: Any,
) -> Comparison:
    """Compare bodies that move the fake clock (as ``clock``), for 5 ms where nothing else is asked for."""
    plan.setdefault("min_run_time", 0.005)
    plan.setdefault("threads", (1,))
    plan.setdefault("seed", 0)
    return compare_bodies(Task(
        {name: Body(text, f"<{name}>") for name, text in bodies.items()},
        setup=[Body(text, "<setup>") for text in setup or []],
        namespace={"clock": clock} if names is None else {"clock": clock, **names},
        plan=Plan(**plan),
        clocks=clock.clocks,
    ))
