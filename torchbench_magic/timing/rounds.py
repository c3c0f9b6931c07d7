"""The rounds: how many calls a block has, adjacent blocks of all alternatives in a fresh random order."""

from __future__ import annotations

import math
import random
import statistics
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from torchbench_magic.array_types import Floats, Ints

from .blocks import BlockRequest, Steps, Timeable
from .intervals import (
    ALPHA,
    APART,
    Look,
    far_ratio,
    log_ratio_interval,
    median_interval,
    rounds_for_an_interval,
    rounds_for_ranges,
    without_order_effect,
)
from .plan import Plan
from .samples import Samples
from .verdict import is_open, shortest_call, verdict

# ---- block_plan ------------------------------------------------------------------------------------------------------
# How many calls a block of each alternative has, how many go before it untimed, and whether that plan held.
#
# What starting a block costs (cold caches, threads to wake) is spread over its calls. So alternatives of one speed get
# blocks of one size: a single call beside blocks of seventeen read 1 to 5 % slower than its own copy.

BLOCK_NS, DEVICE_BLOCK_NS = 200_000, 5_000_000
FIRST_LOOK = 12
PRIMED_CALLS = 4
"""From so many calls a block on, an untimed call goes before: a block starts with the caches as the loop's own code and
the other alternative left them, which made the first block of a round up to 3 % slower."""
PRIMED_NS, UNLIKE = 10_000_000, 1.05
"""Beside an alternative that is primed, or that is so many times slower or faster, every one is primed whose call is
shorter than that: what starting a block cold costs (3 to 25 us) is spread over other numbers of calls, or is another
share of another time. Blocks of 12 primed calls beside blocks of one that was not gave ratios 2.5 % too large.
So it is where settings are exchanged between blocks."""
PRIMING_NS = 100_000
"""All are primed for as long as the slowest of them takes a call, up to that: a call of 10 us warms less than one of
100, and one call each made ten times `y + 1` 9.95 times as long (in the median; 10.00 since). Blocks of one alternative
that follow each other find the caches as its last left them, and need one call only."""
WOKEN_NS, WOKEN_CALLS = 1_000_000, 2
"""Where other processes keep threads waiting, alternatives of several threads whose calls are shorter than that are all
primed, and have blocks of so many calls at least: else a block measures how soon the threads that slept since the last
one get a core. bmm against mul and sum (125 us at two threads, quiet 0.92) read 1.05 to 1.9 in 8 of 16 runs of single
calls beside one to three busy processes, in none of 75 with two calls a block."""
ALIKE = 1.25
"""Alternatives whose call times differ by less share one block size, so that what starting a block costs is spread over
equally many calls, however badly their call times are known; others have blocks of equal time."""
CHECKED = (3, 12, 48, 192)
"""Numbers of rounds after which the plan is held against what the rounds took. The warm-up may have met another speed:
torch's threads, woken at a new number of them, share one core for some 10 ms until the system moves one away, and a
call of 12 us was planned as one of 200. A plan made anew is held against more rounds than the last, so that the same
slow spell does not make it again; there are as many plans as numbers here and one more."""
TOO_SHORT, TOO_LONG = 2.0, 4.0
"""Times a block may be shorter and longer than it was to be. Rounding to whole calls alone makes it up to 1.5 times
shorter; a long one costs nothing but more interruptions, and a busy machine has them."""
OTHER, OTHER_BY_COUNT, MATTERS, RAREST = 2.0, 1.15, 0.02, 0.02
"""Times as long, or as short, as the median block, from which on a block is of another kind; the same of code that is
known to count its calls; share of the median by which the mean is apart where that matters; share of the blocks that
are of the rarer kind."""
RARE, ALONE, MATTERS_RARE = 1.5, 4.0, 0.05
"""Of code whose names go on: times as long from which on some blocks void, and a single one; where they make the mean
so much longer than the median."""
OF_EACH, LEAST_OF_EACH, LONG_BLOCK_NS = 16, 8, 500_000_000
"""Calls of the rarer kind that a block is to have, and the fewest, for which it may become longer. A block of few calls
has one of them or none, whatever their share, and the median is that of the more frequent block: a step of an optimizer
in every 16th call made 2.29 times 2.48."""
EMPTY_BLOCKS = 31
"""The last empty blocks whose median is taken from a block that something ran before."""
CLEARLY_ALIKE = 1.1
"""Of so nearly one speed, blocks of unlike numbers of calls are a mistake of the warm-up, and not two at `ALIKE`."""


def _floats() -> array[float]:
    return array("d")


@dataclass
class Entry:
    """One alternative at one thread count, while it is measured. Times in nanoseconds.

    Attributes:
        measurement: its row in the result.
        block: its compiled code.
        call_ns: a warm call, by the warm-up, or by the rounds of a plan that did not hold.
        calls: calls in a block.
        fixed_ns, loop_ns: (wall, cpu) that an empty block costs, and that the loop adds a call.
        target_ns: what a block is to take; 0 where the number of its calls is given.
        paired: the time of a call and that of the baseline's, of each round that both took part in.
        look: free to stop at any time, or one look at the end.
        rounds_wanted: rounds of a one-look interval, fixed before the first sample.
        empty_ns: of the last empty blocks of one call, each right before one that is timed.
        rounds_needed: the fewest that give an interval.
        counts: its calls are known to count: what a few of them do may be another thing than the rest.
        rare: of code whose names go on, which blocks took far longer than most, as a clause.
        min_ns, max_ns: bounds of ``spent_ns``.
        stretched_max_ns: the bound in place of ``max_ns`` until it has had the rounds that it needs.
        spent_ns: wall time that its user has waited for it: its warm-up, its blocks with what is around them (priming,
            what runs before a block, Python's own work), and its share of what goes on between rounds.
    """

    measurement: int
    block: Timeable
    call_ns: float
    calls: int
    fixed_ns: tuple[float, float]
    loop_ns: tuple[float, float]
    target_ns: float = 0.0
    look: Look = "anytime"
    rounds_wanted: int = 0
    rounds_needed: int = 0
    counts: bool = False
    rare: str = ""
    min_ns: float = 0.0
    max_ns: float = 0.0
    stretched_max_ns: float = 0.0
    spent_ns: float = 0.0
    rounds: int = 0
    calls_made: int = 0
    untimed_calls: int = 0
    faults: int = 0
    compiled: int = 0
    wall_ns: float = 0.0
    waited_ns: float = 0.0
    settled: bool = False
    next_look: int = FIRST_LOOK
    paired: tuple[array[float], array[float]] = field(default_factory=lambda: (_floats(), _floats()))
    before_base: list[bool] = field(default_factory=list)
    times: array[float] = field(default_factory=_floats)
    empty_ns: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=EMPTY_BLOCKS))

    @property
    def block_ns(self) -> float:
        return max(self.call_ns * self.calls, 1.0)

    @property
    def max_ns_now(self) -> float:
        """The bound of ``spent_ns`` as things stand."""
        return self.stretched_max_ns if not self.settled and self.rounds < self.rounds_needed else self.max_ns

    @property
    def seen_ns(self) -> float:
        """A call by its rounds so far, by the warm-up before them; that may have met a stall and the rounds none."""
        return min(self.call_ns, statistics.median(self.times)) if self.times else self.call_ns

    def net(self, wall: int, cpu: int, n: int) -> tuple[float, float]:
        """Take clock cost and empty loop of n calls out of a reading; never below zero."""
        fixed = self.fixed_ns
        if self.empty_ns:
            n -= 1  # it is in the empty block
            fixed = (statistics.median(w for w, _ in self.empty_ns), statistics.median(c for _, c in self.empty_ns))
        return (
            max(0.0, wall - fixed[0] - n * self.loop_ns[0]),
            max(0.0, cpu - fixed[1] - n * self.loop_ns[1]),
        )

    def again(self, call_ns: float) -> Entry:
        """The same alternative before its first sample, planned by another call time."""
        calls = planned_calls(self.target_ns, call_ns) if self.target_ns else self.calls
        planned = (self.measurement, self.block, call_ns, calls, self.fixed_ns, self.loop_ns, self.target_ns)
        return Entry(*planned, counts=self.counts)


def planned_calls(target_ns: float, call_ns: float) -> int:
    """How many calls take about that long; at least one."""
    return max(1, round(target_ns / call_ns))


def size_alike(entries: Sequence[Entry], base: Entry | None) -> None:
    """Give alternatives of about one speed one number of calls a block: that of the baseline, or of the first."""
    leaders: list[Entry] = []
    for entry in sorted(entries, key=lambda e: e is not base):
        leader = next((x for x in leaders if 1 / ALIKE < entry.call_ns / x.call_ns < ALIKE), None)
        if leader is None:
            leaders.append(entry)
        else:
            entry.calls = leader.calls


def priming_anew(entries: Sequence[Entry]) -> dict[int, int]:
    """As `priming`, where state is put back before the untimed call and after it: a single one. Else a block would
    start with the caches that the rounds' own code leaves: `t.add_(1)` took 28 us so, and 17 after a call."""
    return {e.measurement: 1 for e in entries if e.call_ns < PRIMED_NS}


def is_woken(entry: Entry) -> bool:
    """Whether its blocks are so short that they measure the waking of threads, and may be of other sizes."""
    return bool(entry.target_ns) and entry.seen_ns < WOKEN_NS


def priming(entries: Sequence[Entry], *, held_up: bool = False, exchanged: bool = False) -> dict[int, int]:
    """Untimed calls before a block, by measurement: of about as long a time for all that are primed.

    Args:
        held_up: other processes keep their threads waiting.
        exchanged: see `Around`.
    """
    times = [e.call_ns for e in entries]
    is_unequal = max(times) > UNLIKE * min(times) or any(e.calls >= PRIMED_CALLS for e in entries)
    is_unequal |= exchanged or (held_up and all(map(is_woken, entries)))
    primed = [e for e in entries if e.calls >= PRIMED_CALLS or (is_unequal and e.call_ns < PRIMED_NS)]
    warm_ns = min(max((e.call_ns for e in primed), default=0.0), PRIMING_NS)
    return {e.measurement: max(1, round(warm_ns / e.call_ns)) for e in primed}


def is_misplanned(entries: Sequence[Entry], call_ns: Mapping[int, float]) -> bool:
    """Whether blocks would be of other sizes, had the warm-up found these call times (nanoseconds, by measurement)."""
    sized = [(e, call_ns[e.measurement]) for e in entries if e.target_ns and e.measurement in call_ns]
    if any(ns * e.calls < e.target_ns / TOO_SHORT for e, ns in sized):
        return True
    if any(e.calls > 1 and ns * e.calls > TOO_LONG * e.target_ns for e, ns in sized):
        return True
    return any(
        one.calls != other.calls and max(ns, other_ns) < CLEARLY_ALIKE * min(ns, other_ns)
        for i, (one, ns) in enumerate(sized)
        for other, other_ns in sized[:i]
    )


def share_of_others(wall: Floats, cpu: Floats, calls: Ints, *, counts: bool = False) -> float:
    """Share of the blocks that are of the rarer of two kinds, as those with a step that every 16th call takes; 0 where
    they are of one kind, or the mean is the median. By both clocks: where others hold it up, a block takes longer by
    one.

    Args:
        wall, cpu: nanoseconds of each block, shape (blocks,).
        calls: in each, shape (blocks,).
        counts: the code counts its calls.
    """
    times, most = OTHER_BY_COUNT if counts else OTHER, 0.0
    low, high, mean = _by_median(wall, cpu, calls)
    if abs(mean - 1) < MATTERS:
        return most
    for other in (low > times, high < 1 / times):
        halves = [part.sum() for part in np.array_split(other, 2)]  # of what grows, one has the short, one the long
        if min(halves) > (not counts) and other.mean() > RAREST:
            most = max(most, float(other.mean()))
    return most


def _by_median(wall: Floats, cpu: Floats, calls: Ints) -> tuple[Floats, Floats, float]:
    """Of each block how many times the median it takes, by the clock that says less and by the one that says more; and
    of the mean, by the wall's."""
    ratios = [taken / calls / max(float(np.median(taken / calls)), 1e-10) for taken in (wall, cpu)]
    return np.minimum(*ratios), np.maximum(*ratios), float(ratios[0] @ calls / calls.sum())


def rare_blocks(wall: Floats, cpu: Floats, calls: Ints) -> str:
    """How many blocks took far longer than most, where that moves the mean, as a clause; else empty."""
    low, _, mean = _by_median(wall, cpu, calls)
    rare = low > RARE
    if len(rare) < FIRST_LOOK or mean < 1 + MATTERS_RARE or not (rare.sum() > 1 or (low > ALONE).any()):
        return ""
    return f"{rare.sum()} of {len(rare)} blocks took {np.median(low[rare]):.3g} times as long as most"


# ---- rounds ----------------------------------------------------------------------------------------------------------
# The rounds of one thread count: adjacent small blocks of all alternatives, in a fresh random order each round.
#
# Why: the speed of a shared machine drifts by per cents within a second, and what ran before matters. Blocks a few
# hundred microseconds apart, in random order, on the same objects, see the same machine; their ratio is right to
# 0.1 % where two runs one after the other are wrong by 16 % in the median. Blocks are 200 us, since a longer one is
# more often preempted.
#
# Time is shared fairly among alternatives of very different speed: one takes part in a round only while it has not
# had more time than the others, and beside a slow one a fast one runs several blocks in that round.
#
# Where calls are slow, rounds are scarce, and the slow side sets how many there are. Every alternative takes part until
# it has had the rounds without which there is no interval, whatever time they take, up to `STRETCH_S`. A fast one is
# given no more time in such a round than makes up its minimum over the fewest rounds: in one block, since many short
# ones beside a call of a second cost as much again, and each holds less of what disturbs that call.

LOOK_GROWTH = 1.1
FEW_ROUNDS = 20
STRETCH_S = 30.0
"""Seconds of an alternative's rounds, for as long as there are too few of them."""
SLACK = 1.1
"""A block that is to make up a part of the minimum is so much longer: calls become faster than the warm-up found."""
LONE_ROUNDS = 3
MOST_BLOCKS = 128
LEAST = 0.1
"""Share of its planned time that a block counts for at least: a C++ statement that was compiled to nothing takes none,
however often it is called, and its run must end."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What lies round a block, outside its clocks.

    Attributes:
        wall: the clock, in nanoseconds.
        faults: page faults until now.
        rng: draws the order.
        before: run before each block.
        empty: runs an empty block of one call.
        device_ns: nanoseconds the last block took between two events on the accelerator.
        waited_ns: nanoseconds the host waited for the accelerator at the end of the last block.
        enter: run before each block with the entry's ``measurement``: it has the process as that alternative left it,
            and tells whether torch's threads had to be set for that.
        compiled: how many compilations of torch.compile have ended until now, and how many frames it was given: those
            that it refuses, at a limit, are among the latter only.
        held_up: other processes keep torch's threads waiting for a core.
        exchanged: before blocks settings are exchanged, or a mode is entered, which may cost one side more than the
            other: an untimed call comes between that and the clock.
    """

    wall: Callable[[], int]
    faults: Callable[[], int]
    rng: random.Random
    before: Callable[[], None] | None = None
    empty: Callable[[Timeable], tuple[int, int]] = lambda block: (0, 0)
    device_ns: Callable[[], float] | None = None
    waited_ns: Callable[[], float] | None = None
    enter: Callable[[int], bool] = lambda measurement: False
    compiled: Callable[[], tuple[int, int]] = lambda: (0, 0)
    held_up: bool = False
    exchanged: bool = False


class _Part(NamedTuple):
    """What an alternative has in a round: so many blocks of so many calls."""

    entry: Entry
    blocks: int
    calls: int


class Rounds:
    """The state of one thread count's rounds; `turn` runs some of them.

    Args:
        entries: the alternatives.
        baseline: index into ``entries``, or None for a lone statement.
        family: comparisons that share one error rate, other thread counts and points included.

    Attributes:
        replanned: how many times these alternatives were planned before.
        wanted_ns: what a block should take, where calls take turns and blocks are too short to have some of each kind;
            mean_ns, a call of each measurement then.
        other_speeds: nanoseconds of a call, by measurement, where the rounds took others than were planned with: they
            are done then, and are to be made anew.
    """

    def __init__(
        self,
        entries: list[Entry],
        baseline: int | None,
        plan: Plan,
        samples: Samples,
        around: Around,
        *,
        family: int = 0,
    ) -> None:
        self.replanned, self.held_up = 0, around.held_up
        self.family = max(family, len(entries) - 1)
        self.enter, self.before, self.rng, self.wall = around.enter, around.before, around.rng, around.wall
        self.faults, self._empty = around.faults, around.empty
        self._untimed = random.Random(self.rng.random())  # apart: how many blocks are primed depends on times
        self.device_ns, self.waited_ns, self.compiled = around.device_ns, around.waited_ns, around.compiled
        self.entries, self.plan, self.samples = entries, plan, samples
        self.base = entries[baseline] if baseline is not None else None
        self.count = 0
        self.done = False
        self.started_ns: int | None = None
        self.ended_ns = 0
        self.other_speeds: dict[int, float] = {}
        self.wanted_ns, self.mean_ns = 0.0, dict[int, float]()
        for entry in filter(is_woken, entries) if self.held_up else ():
            entry.calls = max(entry.calls, WOKEN_CALLS)
        size_alike(entries, self.base)
        exchanged = around.exchanged or any(entry.block.within is not None for entry in entries)
        self._primed: dict[int, int] = {}
        if self.before is None:
            self._primed = priming(entries, held_up=self.held_up, exchanged=exchanged)
        elif not plan.cold:
            self._primed = priming_anew(entries)
        for entry in entries:
            self._budget(entry)
        others = [e for e in entries if e is not self.base]
        self._scarce_ns = SLACK * plan.min_run_time * 1e9 / max(1, min(e.rounds_needed for e in others))
        self._fewest = max(1, min(map(self._fewest_of, others)))

    def _cost_ns(self, entry: Entry) -> float:
        """What a block is planned to take, priming included."""
        primed = self._primed.get(entry.measurement, 0)
        return entry.block_ns + (primed + 0.5 if primed else 0.0) * entry.call_ns  # see `_round` for the half

    def _budget(self, entry: Entry) -> None:
        """Fix how long an entry is sampled, and whether it is looked at once or at any time."""
        plan = self.plan
        entry.min_ns = entry.spent_ns + plan.min_run_time * 1e9  # of rounds: warming up alone decides nothing
        if plan.max_run_time is not None:
            entry.max_ns = entry.stretched_max_ns = plan.max_run_time * 1e9
        else:
            entry.max_ns = max(5e9 * plan.min_run_time, entry.min_ns)
            entry.stretched_max_ns = max(entry.max_ns, entry.spent_ns + STRETCH_S * 1e9)
            if plan.goes_on:
                entry.max_ns = entry.stretched_max_ns = max(entry.max_ns, STRETCH_S * 1e9)
        if plan.rounds_asked is not None:
            entry.look, entry.rounds_wanted = "once", plan.rounds_asked
            return
        if entry.max_ns / self._pair_ns(entry) < FEW_ROUNDS and not plan.goes_on:
            entry.look = "once"
        entry.rounds_needed = LONE_ROUNDS
        if len(self.entries) > 1:
            entry.rounds_needed = rounds_for_an_interval(entry.look, self._level)
        if entry.look == "once":
            planned = math.floor(plan.min_run_time * 1e9 / self._pair_ns(entry))
            entry.rounds_wanted = max(entry.rounds_needed, planned)

    @property
    def _level(self) -> float:
        """The error rate of one comparison, at its strictest."""
        return ALPHA / max(1, self.family)

    def _fewest_of(self, entry: Entry) -> int:
        """Rounds after which it is likely to be judged at the earliest."""
        times = [e.call_ns for e in (entry, self.base) if e is not None]
        is_far = max(times) > 1.5 * APART * min(times)  # their ranges are nearer than their medians
        return min(entry.rounds_needed, rounds_for_ranges(entry.look, self._level)) if is_far else entry.rounds_needed

    def _pair_ns(self, entry: Entry) -> float:
        """The block time that bounds how many rounds an entry can have: its own or the baseline's."""
        return max(map(self._cost_ns, (entry,) if self.base is None else (entry, self.base)))

    @property
    def time_ns(self) -> float:
        """Wall nanoseconds spent so far, all alternatives, their warm-up included."""
        return sum(entry.spent_ns for entry in self.entries)

    @property
    def expected_ns(self) -> float:
        """What is planned now: the minimum, or the maximum once the minimum has passed."""
        least = sum(max(e.min_ns, max(e.rounds_wanted, e.rounds_needed) * e.block_ns) for e in self.entries)
        return least if self.time_ns < least else max(self.time_ns, sum(entry.max_ns for entry in self.entries))

    def turn(self, until_ns: float, between: Callable[[], None]) -> Steps[None]:
        """Run rounds for at least ``until_ns`` nanoseconds (at least one), or until all is done."""
        start = last = self.wall()
        if self.started_ns is None:
            self.started_ns = start
        while not self.done:
            known = self.time_ns
            order = yield from self._round()
            self.ended_ns = self.wall()
            self._check_plan()
            self._judge()
            self._check_kinds()
            between()
            now = self.wall()
            rest = max(0.0, (now - last) - (self.time_ns - known))
            for part in order:
                part.entry.spent_ns += rest / len(order)
            last = now
            if self.ended_ns - start >= until_ns:
                break

    def switch(self) -> Steps[None]:
        """One untimed call of each live alternative, after the thread count changed."""
        for entry in self._live():
            began = self.wall()
            self.enter(entry.measurement)
            entry.untimed_calls += 1
            yield BlockRequest(entry.block, 0, 1)
            entry.spent_ns += self.wall() - began

    def _live(self) -> list[Entry]:
        return [e for e in self.entries if not e.settled or e is self.base]

    def _fill_ns(self, entry: Entry) -> float:
        """What an entry is given of a round where rounds are scarce: what makes up its minimum over those to come. So
        it is never the fast side that asks for one more call of the slow one."""
        missing = (entry.min_ns - entry.spent_ns) / max(1, self._fewest - entry.rounds)
        return SLACK * max(missing, self.plan.min_run_time * 1e9 / self._fewest)

    def _participants(self) -> list[_Part]:
        """Who takes part in the next round."""
        if self.plan.rounds_asked is not None:
            return [_Part(e, 1, e.calls) for e in self.entries]
        live = self._live()
        behind = min(e.spent_ns for e in live if e is not self.base or len(live) == 1)
        chosen = [
            e for e in live if e is self.base or e.rounds < e.rounds_needed or e.spent_ns <= behind + 0.5 * e.block_ns
        ]
        longest = max(e.block_ns for e in chosen)
        is_scarce, made = longest > self._scarce_ns, []
        for e in chosen:
            block_ns = max(e.seen_ns * e.calls, LEAST * e.block_ns) if is_scarce else e.block_ns
            times = max(1, int(longest / block_ns + 0.01))
            if is_scarce:
                times = max(1, min(times, round(self._fill_ns(e) / block_ns)))
            whole = is_scarce and e.target_ns > 0  # else the number of its calls was given
            made.append(_Part(e, 1, times * e.calls) if whole else _Part(e, min(MOST_BLOCKS, times), e.calls))
        return made

    def _round(self) -> Steps[list[_Part]]:
        """Run one round; who took part in it."""
        order = self._participants()
        self.rng.shuffle(order)
        position, rows = 0, self.samples
        seen: dict[int, float] = {}
        for entry, blocks, calls in order:
            figures: list[float] = []
            for _ in range(blocks):
                if figures and self._is_over:
                    break
                began = self.wall()
                has_new_team = self.enter(entry.measurement)
                replica = self.rng.randrange(len(entry.block.replicas))
                faults, compiled = self.faults(), self.compiled()
                primed = self._primed.get(entry.measurement, int(has_new_team and self.before is None))
                primed = min(primed, 1) if figures else primed
                if self.before is None:
                    # one more at random: code whose calls differ in turns (a step for every second batch) would show
                    # each block the same ones of them, a block of one primed call only every second
                    primed += self._untimed.randrange(2) if primed else 0
                    wall, cpu = yield BlockRequest(entry.block, replica, calls, primed)
                else:
                    if primed:
                        self.before()
                    ready = partial(self._make_ready, entry)
                    wall, cpu = yield BlockRequest(entry.block, replica, calls, primed, ready=ready)
                    faults = self._faults_before
                entry.faults += self.faults() - faults
                entry.compiled += max(now - then for now, then in zip(self.compiled(), compiled, strict=True))
                entry.wall_ns += wall
                entry.waited_ns += self.waited_ns() if self.waited_ns is not None else 0.0
                net_wall, net_cpu = entry.net(wall, cpu, calls)
                rows.round.append(self.count)
                rows.measurement.append(entry.measurement)
                rows.wall.append(net_wall)
                rows.cpu.append(net_cpu)
                rows.number.append(calls)
                rows.position.append(position)
                figure = net_cpu if self.plan.clock == "cpu" else net_wall
                if self.device_ns is not None:
                    figure = self.device_ns()
                    rows.device.append(figure)
                position += 1
                figures.append(figure / calls)
                entry.calls_made += calls
                entry.untimed_calls += primed
                entry.spent_ns += max(self.wall() - began, LEAST * entry.block_ns)
            entry.rounds += 1
            entry.times.extend(figures)
            seen[id(entry)] = sum(figures) / len(figures)  # of as long a time as the other's: as `Blocks.by_round`
        self.count += 1
        self._pair(order, seen)
        return order

    def _make_ready(self, entry: Entry) -> None:
        """What runs before a block, and an empty block, so that the clocks are as warm as they are for that."""
        assert self.before is not None
        self.before()
        if not self.plan.cold:
            self._empty(entry.block)
            entry.empty_ns.append(self._empty(entry.block))
        self._faults_before = self.faults()

    @property
    def _is_over(self) -> bool:
        """All the time is used up that the alternatives may take together. Alone, an alternative's own maximum does not
        bound a run: a baseline whose calls are far slower, by themselves or for a neighbour, takes its time in each
        round that the others still need."""
        if self.plan.rounds_asked is not None:
            return False
        is_given = self.plan.max_run_time is not None or self.plan.goes_on
        if not is_given and self.base is not None and self.base.spent_ns >= self.base.stretched_max_ns:
            return True
        return self.time_ns >= sum(entry.max_ns_now for entry in self.entries)

    def _pair(self, order: list[_Part], seen: dict[int, float]) -> None:
        base = seen.get(id(self.base)) if self.base is not None else None
        if not base:
            return
        passed = False
        for entry, *_ in order:
            if entry is self.base:
                passed = True
            elif seen[id(entry)] > 0:
                entry.paired[0].append(seen[id(entry)])
                entry.paired[1].append(base)
                entry.before_base.append(not passed)

    def _check_plan(self) -> None:
        """End where the blocks are of sizes that their speeds do not ask for, with time left for others."""
        most = sum(entry.max_ns for entry in self.entries)
        if self.count not in CHECKED[self.replanned :] or self.time_ns > most / 2:
            return
        rows = self.samples
        measurement, call_ns = np.array(rows.measurement), np.array(rows.wall) / np.array(rows.number)
        seen = {e.measurement: call_ns[measurement == e.measurement] + e.loop_ns[0] for e in self.entries}  # as planned
        found = {row: max(float(np.median(ns)), 0.1) for row, ns in seen.items() if len(ns) >= CHECKED[0]}
        if is_misplanned(self.entries, found):
            self.other_speeds, self.done = found, True

    def _check_kinds(self) -> None:
        """Look whether blocks are too short for calls that take turns, where plans are looked at and in the end."""
        self.wanted_ns, self.mean_ns = 0.0, {}
        if self.other_speeds or not (self.done or self.count in CHECKED):
            return
        has_time = self.time_ns <= sum(entry.max_ns for entry in self.entries) / 2
        rows = self.samples
        measurement, *figures = map(np.array, (rows.measurement, rows.wall, rows.cpu, rows.number))
        for entry in self.entries:
            wall, cpu, calls = (each[measurement == entry.measurement] for each in figures)
            is_loop = bool(getattr(entry.block, "going_on", ()))
            entry.rare = rare_blocks(wall, cpu, calls) if is_loop and self.done else ""
            share = share_of_others(wall, cpu, calls, counts=entry.counts)
            self.mean_ns[entry.measurement] = mean = max(float(wall.sum() / calls.sum()), 0.1)
            once_ns = mean * calls.mean() / share if share and has_time and entry.target_ns else math.inf
            longest = entry.max_ns / FEW_ROUNDS, min(LONG_BLOCK_NS, entry.stretched_max_ns / FEW_ROUNDS)
            blocks = zip((OF_EACH * once_ns, LEAST_OF_EACH * once_ns), longest, strict=True)
            wanted = next((block_ns for block_ns, most in blocks if block_ns <= most), 0.0)
            if wanted > OTHER * mean * entry.calls:
                self.wanted_ns = max(self.wanted_ns, wanted)

    @property
    def is_asleep(self) -> bool:
        """Whether blocks may start with threads that other processes keep from waking; looked at where plans are."""
        may = not self.held_up and self.before is None and self.count in CHECKED
        return may and not self.done and any(is_woken(e) and not self._primed.get(e.measurement) for e in self.entries)

    def _judge(self) -> None:
        """Let alternatives leave whose verdict is settled, and end when nobody is left."""
        if self.other_speeds:
            return
        if self.plan.rounds_asked is not None:
            self.done = self.count >= self.plan.rounds_asked
            return
        if self._is_over:
            self.done = True
            return
        for entry in self.entries:
            if not entry.settled and entry is not self.base:
                entry.settled = self._leaves(entry)
        self.done = all(e.settled for e in self.entries if e is not self.base)

    def _leaves(self, entry: Entry) -> bool:
        if entry.spent_ns >= entry.max_ns_now:
            return True
        if entry.spent_ns < entry.min_ns or (self.base is not None and self.base.spent_ns < self.base.min_ns):
            return False
        if self._is_apart(entry):
            return True
        if entry.look == "once":
            return entry.rounds >= entry.rounds_wanted
        if self.plan.adaptive is not None:
            return all(_relative_iqr(e.times) < self.plan.adaptive for e in (entry, self.base) if e is not None)
        if self.plan.until is None and (self.base is None or self._near_loop(entry)):
            return True
        n = len(entry.times) if self.base is None else len(entry.paired[0]) - entry.compiled - self.base.compiled
        if n < entry.next_look:
            return False
        entry.next_look = max(n + 1, int(n * LOOK_GROWTH))
        if self.base is None:
            interval = median_interval(np.log(np.maximum(np.array(entry.times), 1e-3)), look="anytime")
        else:
            log_ratios = np.log(np.divide(*map(np.array, entry.paired)))
            paired = without_order_effect(log_ratios, np.array(entry.before_base))
            interval = log_ratio_interval(paired, self.family, "anytime")
        if self.plan.until is not None:
            return interval.width <= math.log1p(self.plan.until)
        return not is_open(verdict(interval, self.plan.margin))

    def _is_apart(self, entry: Entry) -> bool:
        """Whether the ranges of the two sides decide, before there are rounds enough for an interval."""
        few = 0 < len(entry.paired[0]) < entry.rounds_needed and entry.rounds_wanted <= entry.rounds_needed
        if not few or self.plan.goes_on or entry.compiled or (self.base is not None and self.base.compiled):
            return False
        own, base = map(np.array, entry.paired)
        found = far_ratio(own, base, entry.look, self._level)
        # not at the limit itself, where the seconds of the result may round to the other side of it
        return found is not None and max(found.low, -found.high) > math.log(APART) + 1e-9

    def _near_loop(self, entry: Entry) -> bool:
        """Near the loop's own cost no verdict will ever be given: do not wait for one."""
        beside = [entry] if self.base is None else [entry, self.base]
        is_given = not self.plan.cold and (self.plan.restore or self.plan.number is not None)
        return any(e.call_ns < shortest_call(e.block.near_loop, e.calls if is_given else None) * 1e9 for e in beside)


def _relative_iqr(times: array[float]) -> float:
    """IQR / median; infinite below three values, which is also where torch asks for more."""
    if len(times) < 3:
        return math.inf
    low, middle, high = np.percentile(times, [25, 50, 75])
    return float((high - low) / middle) if middle > 0 else math.inf
