"""``--twice``: measures what recording costs by running the body again, with the profiler and without.

A short body runs several times each way, in pairs whose order is drawn anew, since the speed of a machine drifts and
the first run of a cell also pays for what later ones find ready. A long one runs once without: that has no interval.
"""

from __future__ import annotations

import inspect
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torchbench_magic.core.machine.devices_in_use import wait_for_devices
from torchbench_magic.core.process.held_interrupts import interrupts_let_through
from torchbench_magic.core.process.run_settings import CountingSink, output_to
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.units import interval, ratio, seconds_text

from .recording.line_sources import SOURCE_MODULES
from .recording.recorded_run import RecordedRun, torch_threads

__all__ = ["Repeats", "with_repeats"]

SHORT = 0.25
"""Seconds of a run below which it is repeated."""
PAIRS = 8
LEAST_PAIRS = 6
"""From so many pairs on the range of the inner ones is an exact 95 % interval of their median (sign test)."""
BUDGET = 4.0
"""Seconds after which no pair above the least is begun."""
CLOSE = 1.25
"""Of one pair a smaller ratio says nothing: two runs of one body differ by as much on a shared machine."""


@dataclass
class Repeats:
    """Runs of a body with and without recording.

    Args:
        body: runs it once; what it returns is awaited if it can be.
        record: a new recording, as the first run had it.
        threads: torch's thread count of the runs; None: as it is.
        clock: seconds.

    Attributes:
        pairs: (seconds with, seconds without), in the order taken.
        error: what ended them early, the user's to see.
    """

    body: Callable[[], object]
    record: Callable[[], RecordedRun]
    threads: int | None
    clock: Callable[[], float] = time.perf_counter
    pairs: list[tuple[float, float]] = field(default_factory=list)
    error: BaseException | None = None

    async def measure(self, first: float) -> None:
        """Fill ``pairs``; ``first`` is how long the run that was recorded before took, in seconds."""
        try:
            with output_to(CountingSink(), CountingSink()):
                if first >= SHORT:
                    self.pairs.append((first, await self._plain()))
                else:
                    await self._in_turns()
        except BaseException as caught:  # noqa: BLE001  # Ctrl-C too: the caller raises it
            self.error = caught

    async def _in_turns(self) -> None:
        order, started = random.Random(), self.clock()
        while len(self.pairs) < PAIRS:
            if len(self.pairs) >= LEAST_PAIRS and self.clock() - started > BUDGET:
                return
            if order.random() < 0.5:
                recorded = await self._recorded()
                self.pairs.append((recorded, await self._plain()))
            else:
                plain = await self._plain()
                self.pairs.append((await self._recorded(), plain))

    async def _plain(self) -> float:
        with torch_threads(self.threads):
            wait_for_devices()
            started = self.clock()
            await self._once()
            return self.clock() - started

    async def _recorded(self) -> float:
        with self.record() as run:
            run.enter()
            started = self.clock()
            await self._once()
            took = self.clock() - started
            run.leave()
        return took

    async def _once(self) -> None:
        with interrupts_let_through(SOURCE_MODULES):
            value = self._called()
            if inspect.isawaitable(value):
                await value
        wait_for_devices()

    def _called(self) -> object:
        """From a frame of its own: in the one that lets interrupts through none is heard."""
        return self.body()


def with_repeats(profile: Profile, repeats: Repeats) -> Profile:
    """The profile with what was measured, and what that says in place of the estimate in words."""
    others = [doubt for doubt in profile.warnings if doubt.kind != "profiler-cost"]
    if not repeats.pairs:
        said = Doubt("twice-failed", "The code ended early in the second run: the profiler's overhead is unknown.")
        return replace(profile, warnings=[*profile.warnings, said])
    made = replace(
        profile,
        repeats=tuple(repeats.pairs),
        unprofiled_time=statistics.median(without for _, without in repeats.pairs),
    )
    return replace(made, warnings=[*others, measured_doubt(made)])


def measured_doubt(profile: Profile) -> Doubt:
    """How much slower recording made the body, with the interval; or that the runs cannot tell."""
    times, (low, high) = 1 + profile.dilation, profile.dilation_interval
    with_it = statistics.median(recorded for recorded, _ in profile.repeats)
    without = profile.unprofiled_time or 0.0
    runs = f"{seconds_text(with_it)} with, {seconds_text(without)} without"
    facts: dict[str, object] = {"ratio": times, "low": 1 + low, "high": 1 + high, "pairs": len(profile.repeats)}
    if len(profile.repeats) < LEAST_PAIRS:
        runs = f"one run each: {runs}" if len(profile.repeats) == 1 else f"{len(profile.repeats)} runs each: {runs}"
        text = (
            f"The profiler's overhead cannot be resolved ({runs})."
            if times < CLOSE
            else f"With the profiler this cell takes about {times:.2g} times as long ({runs}; no interval)."
        )
    elif low <= 0 <= high:
        text = (
            "Whether recording slows this cell cannot be resolved: with it the cell takes"
            f" {interval(1 + low, 1 + high).replace(' … ', ' to ')} times as long"
            f" ({len(profile.repeats)} runs each: {runs})."
        )
    else:
        text = (
            f"With the profiler this cell takes {ratio(times, 1 + low, 1 + high, digits=3)} times as long"
            f" ({interval(1 + low, 1 + high)}; {len(profile.repeats)} runs each: {runs})."
        )
    return Doubt("dilation", text, "", facts)
