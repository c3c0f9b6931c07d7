"""What recording adds to a run: a table per event, a word, and measured with ``--twice``."""

from __future__ import annotations

import inspect
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torchbench_magic.process.device import wait_for_devices
from torchbench_magic.process.interrupts import interrupts_let_through
from torchbench_magic.process.output import CountingSink, dropped_output
from torchbench_magic.results import Doubt
from torchbench_magic.units import count, interval, ratio, seconds_text

from .profile import Profile, ProfilerCost
from .recording import SOURCE_MODULES, RecordedRun, torch_threads

# ---- recording_costs -------------------------------------------------------------------------------------------------
# What recording adds to a run, per event: a small table, and what it comes to for a profile.
#
# The costs depend on the processor, on what else it does and on the code around, by a factor of two to three either
# way: good for words and for taking the bulk of it off an upper bound, not for a figure to show.

MICROSECONDS: Mapping[str, float] = {
    "op": 0.6,
    "shapes": 0.5,
    "allocation": 0.8,
    "line": 0.5,
    "call": 0.0,
    "module": 6.0,
}
"""What recording adds, per event, in microseconds (2 shared cores, AMD EPYC, Python 3.11, torch 2.13): tiny ops, empty
tensors and a loop of assignments, each run with and without (medians of 5; they moved by a factor of two to three).
Modules, measured anew as they are seen by the interpreter: 200 layers that return their input, 20 times, 7 runs each
way on an idle machine; 5.4 a call where the layers are torch's `Identity` (2.6 ... 8.0), and 7.8 with the one line of
layers of one's own (6.3 ... 15.2), of which the line is 0.5."""
_ON_311 = {"call": 1.2}
"""On Python 3.11 a trace function sees each call of Python code that is not recorded; `sys.monitoring` does not."""


def microseconds_here() -> Mapping[str, float]:
    """The table for this Python."""
    return MICROSECONDS if sys.version_info >= (3, 12) else {**MICROSECONDS, **_ON_311}


# ---- profiler_cost ---------------------------------------------------------------------------------------------------
# What recording a run cost, in one word: from what was recorded, and a small table of what each of it costs.
#
# The costs depend on the processor, on what else it does and on the code around, by a factor of two to three either
# way; no calibration in the process was steadier than that. So no figure is made of them, only one of three words whose
# borders lie a factor of six apart. ``--twice`` measures.

NOTICEABLE, MOST = 0.08, 0.5
"""Shares of the wall time from which on the cost is noticeable, and most of it."""


@dataclass(frozen=True)
class EventNumbers:
    """What a run had for its observers, as numbers of events.

    Attributes:
        ops: of torch, ranges of `record_function` included.
        allocations: allocations and freeings, 0 without ``--memory``.
        lines: line events.
        calls: calls of Python code whose lines are not recorded, as far as they were seen.
        modules: calls of nn.Modules.
        shapes: whether the shapes of the ops' inputs were recorded.
    """

    ops: int
    allocations: int
    lines: int
    calls: int
    modules: int
    shapes: bool = False

    @property
    def seconds(self) -> float:
        """What recording them takes by the table, good to a factor of two or three."""
        cost = microseconds_here()
        op = cost["op"] + (cost["shapes"] if self.shapes else 0.0)
        kinds = (
            self.ops * op,
            self.allocations * cost["allocation"],
            self.lines * cost["line"],
            self.calls * cost["call"],
            self.modules * cost["module"],
        )
        return sum(kinds) / 1e6


def profiler_cost(wall_time: float, recorded: EventNumbers) -> ProfilerCost:
    """What recording was of the wall time (seconds): ``little``, ``noticeable`` or ``most``."""
    share = recorded.seconds / wall_time if wall_time > 0 else 0.0
    return "most" if share > MOST else "noticeable" if share > NOTICEABLE else "little"


def cost_doubt(cost: ProfilerCost, recorded: EventNumbers) -> Doubt | None:
    """What is to be said of it; nothing where it is little."""
    if cost == "little":
        return None
    kinds = [(recorded.ops, "operations"), (recorded.lines, "lines"), (recorded.calls, "calls")]
    seen = ", ".join(f"{count(number)} {what}" for number, what in sorted(kinds, reverse=True)[:2] if number)
    most, some = "The profiler took most of this cell's time", "The profiler slowed this cell noticeably"
    took = most if cost == "most" else some
    facts = {"cost": cost, "ops": recorded.ops, "lines": recorded.lines, "calls": recorded.calls}
    action = "`--twice` measures how much; to measure the time itself, use `%%timer`."
    return Doubt("profiler-cost", f"{took} ({seen}).", action, facts)


# ---- measured_cost ---------------------------------------------------------------------------------------------------
# ``--twice``: measures what recording costs by running the body again, with the profiler and without.
#
# A short body runs several times each way, in pairs whose order is drawn anew, since the speed of a machine drifts and
# the first run of a cell also pays for what later ones find ready. A long one runs once without: that has no interval.

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
            with dropped_output(CountingSink()):
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
