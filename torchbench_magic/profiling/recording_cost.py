"""What recording adds to a run: a table per event, a word, and measured with ``--twice``."""

from __future__ import annotations

import inspect
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.process.device import wait_for_devices
from torchbench_magic.process.interrupts import interrupts_let_through
from torchbench_magic.process.output import CountingSink, dropped_output
from torchbench_magic.result_base import Doubt
from torchbench_magic.units import count, interval, ratio, seconds_text

from .call_tree import MODULE
from .join import JoinedRun
from .profile import Profile, ProfilerCost
from .recorder import SOURCE_MODULES, LineSource, RecordedRun, choose_line_source, torch_threads

# ---- recording_costs -------------------------------------------------------------------------------------------------
# What recording adds to a run, per event: a table, and for lines a measurement in this process.
#
# The costs depend on the processor, on what else it does and on the Python, by a factor of two to three either way. Of
# lines and calls, which dilate plain Python code most, they are measured as a run ends. In processor time: that moved
# by less than a factor of two on a machine whose wall times moved by four; what the run itself waited for a core is
# known.

MICROSECONDS: Mapping[str, float] = {
    "op": 0.6,
    "shapes": 0.5,
    "allocation": 0.8,
    "line": 0.5,
    "entry": 1.2,
    "call": 0.0,
    "module": 6.0,
}
"""What recording adds, per event, in microseconds (2 shared cores, AMD EPYC, Python 3.11, torch 2.13): tiny ops, empty
tensors and a loop of assignments, each run with and without (medians of 5; they moved by a factor of two to three).
An entry is the beginning of a recorded frame; its end costs as much as a line. Modules, measured anew as they are seen
by the interpreter: 200 layers that return their input, 20 times, 7 runs each way on an idle machine; 5.4 a call where
the layers are torch's `Identity` (2.6 ... 8.0), and 7.8 with the one line of layers of one's own (6.3 ... 15.2), of
which the line is 0.5."""
_ON_311 = {"call": 1.2}
"""On Python 3.11 a trace function sees each call of Python code that is not recorded; `sys.monitoring` does not."""


def microseconds_here() -> Mapping[str, float]:
    """The table for this Python."""
    return MICROSECONDS if sys.version_info >= (3, 12) else {**MICROSECONDS, **_ON_311}


_FILE = "<what a line costs>"
_LOOPS = """\
def lines(times):
    total = 0
    for each in range(times):
        total = total + each


def calls(times):
    total = 0
    for each in range(times):
        total = total + called(each)


def called(each):
    return each
"""
_TIMES, _PASSES = 500, 5
"""Of the loops, about 1 ms each; how often each is run both ways. Their lines are as long as lines usually are: on
Python 3.11 each instruction of a traced line takes longer too."""


def measured_microseconds(
    new_source: Callable[[Callable[[str], bool]], LineSource] = choose_line_source,
    clock: Callable[[], float] = time.thread_time,
) -> Mapping[str, float]:
    """The table for this Python, with what a line and an entry take here and now: loops that do nothing else, with
    their lines recorded and without (medians). A clock that is too coarse for them leaves the table as it is.

    Args:
        new_source: makes what records the lines of the files that it is asked about.
        clock: seconds of processor time of this thread.
    """
    names: dict[str, Callable[[int], None]] = {}
    exec(compile(_LOOPS, _FILE, "exec"), names)
    table = microseconds_here()
    found = {name: [_added_by(names[name], new_source, clock) for _ in range(_PASSES)] for name in ("lines", "calls")}
    in_loop, in_calls = (statistics.median(seconds for seconds, _ in each) for each in found.values())
    line = in_loop / max(found["lines"][0][1], 1)
    entry = (in_calls - line * (found["calls"][0][1] - _TIMES)) / _TIMES
    if not line > 0 or not entry > 0:
        return table
    return {**table, "line": line * 1e6, "entry": entry * 1e6}


def _added_by(
    loop: Callable[[int], None], new_source: Callable[[Callable[[str], bool]], LineSource], clock: Callable[[], float]
) -> tuple[float, int]:
    """Seconds that recording its lines adds to a loop, and the number of events."""
    started = clock()
    loop(_TIMES)
    without = clock() - started
    source = new_source(_FILE.__eq__)
    source.start()
    try:
        started = clock()
        loop(_TIMES)
        recorded = clock() - started
    finally:
        events = source.stop().n_events
    return recorded - without, events


# ---- recording_times -------------------------------------------------------------------------------------------------
# What recording added to each line of a run, from the events that the line had.

WORTH_MEASURING, FEWEST = 0.02, 1000
"""Share of the wall time by the table, and number of line events, from which on lines are measured."""
LEAST, MOST_OF = 0.5, 2.5
"""Of what is estimated for a line, what recording has added at least and at most."""
_OF_MEASURED = 1.5
"""The same where it was measured for the whole run: two runs of one body differ, and so do lines."""


@dataclass(frozen=True)
class EventNumbers:
    """What a run had for its observers, as numbers of events.

    Attributes:
        ops: of torch, ranges of `record_function` included.
        allocations: allocations and freeings, 0 without ``--memory``.
        lines: line events.
        calls: calls of Python code whose lines are not recorded, as far as they were seen.
        shapes: whether the shapes of the ops' inputs were recorded.
    """

    ops: int
    allocations: int
    lines: int
    calls: int
    shapes: bool = False


@dataclass(frozen=True)
class OwnThread:
    """What the processor did for the thread that ran the body: seconds that it ran, and waited for a core (NaN: not
    known)."""

    ran: float
    waited: float

    @property
    def stretch(self) -> float:
        """How many times as long as its processor time its work took."""
        return 1.0 + self.waited / self.ran if self.ran > 0 and self.waited > 0 else 1.0


def recording_times(
    run: JoinedRun,
    recorded: EventNumbers,
    thread: OwnThread,
    measure: Callable[[], Mapping[str, float]] = measured_microseconds,
) -> NDArray[np.float64]:
    """Seconds that recording added to each node of the lines, as far as an estimate goes.

    What calls that are not recorded cost stands on no line: nobody knows which lines made them. All of it together is
    at most what the thread ran. ``measure`` is asked only where lines may matter.
    """
    found = _by_table(run, recorded, microseconds_here())
    if recorded.lines >= FEWEST and found.sum() > WORTH_MEASURING * run.joined.wall / 1e9:
        found = _by_table(run, recorded, measure())
    own = np.array(run.joined.tree.thread) == 0
    whole = float(found[own].sum())
    if thread.ran > 0 and whole > thread.ran:
        found *= thread.ran / whole
    return found * thread.stretch


def _by_table(run: JoinedRun, recorded: EventNumbers, microseconds: Mapping[str, float]) -> NDArray[np.float64]:
    joined, frames, nodes = run.joined, run.tree, len(run.joined.tree)
    op = microseconds["op"] + (microseconds["shapes"] if recorded.shapes else 0.0)
    op += microseconds["allocation"] * recorded.allocations / max(recorded.ops, 1)
    found = op * np.bincount(joined.node, minlength=nodes).astype(np.float64)
    is_module = frames.kind == MODULE
    found += microseconds["module"] * np.bincount(frames.node[is_module], frames.calls[is_module], minlength=nodes)
    for each in joined.threads:
        lines, entries = each.segments.events_of(nodes)
        found += microseconds["line"] * lines + microseconds["entry"] * entries
    found[joined.threads[0].segments.root] += microseconds["call"] * recorded.calls
    return found / 1e6


def added_factors(profile: Profile) -> tuple[float, float]:
    """What recording added to a line is between so many and so many times its ``recording_time``.

    With ``--twice`` it is measured what recording added to all lines together.
    """
    whole = float(profile.lines.loc[profile.lines["thread"] == 0, "recording_time"].sum())
    if not profile.unprofiled_time or not whole > 0:
        return LEAST, MOST_OF
    measured = max(profile.wall_time - profile.unprofiled_time, 0.0) / whole
    return measured / _OF_MEASURED, measured * _OF_MEASURED


def first_without_recording(
    profile: Profile, costs: Sequence[float], added: Sequence[float], whole: float, on_none: float = 0.0
) -> tuple[int, int, tuple[float, float] | None] | None:
    """Which of these (lines, phases) takes most of the time without what recording added, which other one may (the same
    where it is sure; the likeliest else), and the least and the largest share of the first (None where that of the
    recorded time is among them). None where recording added little.

    It is sure where it is the first with the most that recording may have added to it, and the least to the others.

    Args:
        costs: seconds of each, as recorded.
        added: seconds of these that recording is estimated to have added.
        whole: seconds of which they are parts.
        on_none: seconds that recording added to none of them, or to any.
    """
    if not whole > 0 or sum(added) + on_none <= NOTICEABLE * whole:
        return None
    low, high = added_factors(profile)
    most = [max(cost - low * each, 0.0) for cost, each in zip(costs, added, strict=True)]
    least = [max(cost - high * each - on_none, 0.0) for cost, each in zip(costs, added, strict=True)]
    longest = whole
    if profile.unprofiled_time:  # all together take no longer than that, as far as one run tells
        longest = CLOSE * profile.unprofiled_time
        room = max(longest - sum(least), 0.0)
        most = [min(most_of, least_of + room) for most_of, least_of in zip(most, least, strict=True)]
    recorded = max(range(len(costs)), key=costs.__getitem__)
    first = max(range(len(costs)), key=least.__getitem__)
    second = max((at for at in range(len(costs)) if at != first), key=most.__getitem__, default=first)
    if second != first and most[second] >= least[first]:
        likely = [cost - each for cost, each in zip(costs, added, strict=True)]
        order = sorted({first, second, likely.index(max(likely))} - {recorded}, key=likely.__getitem__)
        return recorded, order[-1], None
    others = max(whole - costs[first], 0.0)
    rest = sum(added) - added[first]
    at_least = max(others - high * rest - on_none, sum(least) - least[first])
    beside = min(others - low * rest, longest - least[first]), at_least
    shares = sorted(  # the bounds are of estimates, and where these are tight they may cross
        seconds / (seconds + max(more, 0.0)) if seconds > 0 else 0.0
        for seconds, more in zip((least[first], most[first]), beside, strict=True)
    )
    is_among = first == recorded and shares[0] <= costs[first] / whole <= shares[1]
    return first, first, None if is_among else (shares[0], shares[1])


# ---- profiler_cost ---------------------------------------------------------------------------------------------------

NOTICEABLE, MOST = 0.08, 0.5
"""Shares of the wall time from which on the cost is noticeable, and most of it: a factor of six apart, since the
estimate is good to a factor of two."""


def profiler_cost(wall_time: float, added: float) -> ProfilerCost:
    """What recording was of the wall time (both in seconds): ``little``, ``noticeable`` or ``most``."""
    share = added / wall_time if wall_time > 0 else 0.0
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
