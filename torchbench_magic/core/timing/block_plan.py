"""How many calls a block of each alternative has, how many go before it untimed, and whether that plan held.

What starting a block costs (cold caches, threads to wake) is spread over its calls. So alternatives of one speed get
blocks of one size: a single call beside blocks of seventeen read 1 to 5 % slower than its own copy.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchbench_magic.results.timing.intervals import Look

from ..code.timed_loop import Timeable

__all__ = [
    "BLOCK_NS",
    "CHECKED",
    "DEVICE_BLOCK_NS",
    "WOKEN_CALLS",
    "Entry",
    "is_misplanned",
    "is_woken",
    "planned_calls",
    "priming",
    "size_alike",
]

BLOCK_NS, DEVICE_BLOCK_NS = 200_000, 5_000_000
FIRST_LOOK = 12
PRIMED_CALLS = 4
"""From so many calls a block on, an untimed call goes before: a block starts with the caches as the loop's own code and
the other alternative left them, which made the first block of a round up to 3 % slower."""
PRIMED_NS, UNLIKE = 10_000_000, 1.05
"""Beside an alternative that is primed, or that is so many times slower or faster, every one is primed whose call is
shorter than that: what starting a block cold costs (3 to 25 us) is spread over other numbers of calls, or is another
share of another time. Blocks of 12 primed calls beside blocks of one that was not gave ratios 2.5 % too large."""
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
        look: free to stop at any time, or one look at the end.
        rounds_wanted: rounds of a one-look interval, fixed before the first sample.
        min_ns, max_ns: bounds of ``spent_ns``.
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
    min_ns: float = 0.0
    max_ns: float = 0.0
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
    log_ratios: array[float] = field(default_factory=_floats)
    before_base: list[bool] = field(default_factory=list)
    times: array[float] = field(default_factory=_floats)

    @property
    def block_ns(self) -> float:
        return max(self.call_ns * self.calls, 1.0)

    @property
    def seen_ns(self) -> float:
        """A call by its rounds so far, by the warm-up before them; that may have met a stall and the rounds none."""
        return min(self.call_ns, statistics.median(self.times)) if self.times else self.call_ns

    def net(self, wall: int, cpu: int) -> tuple[float, float]:
        """Take clock cost and empty loop out of a reading; never below zero."""
        n = self.calls
        return (
            max(0.0, wall - self.fixed_ns[0] - n * self.loop_ns[0]),
            max(0.0, cpu - self.fixed_ns[1] - n * self.loop_ns[1]),
        )

    def again(self, call_ns: float) -> Entry:
        """The same alternative before its first sample, planned by another call time."""
        calls = planned_calls(self.target_ns, call_ns) if self.target_ns else self.calls
        return Entry(self.measurement, self.block, call_ns, calls, self.fixed_ns, self.loop_ns, self.target_ns)


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


def is_woken(entry: Entry) -> bool:
    """Whether its blocks are so short that they measure the waking of threads, and may be of other sizes."""
    return bool(entry.target_ns) and entry.seen_ns < WOKEN_NS


def priming(entries: Sequence[Entry], *, held_up: bool = False) -> dict[int, int]:
    """Untimed calls before a block, by measurement: of about as long a time for all that are primed.

    Args:
        held_up: other processes keep their threads waiting.
    """
    times = [e.call_ns for e in entries]
    is_unequal = max(times) > UNLIKE * min(times) or any(e.calls >= PRIMED_CALLS for e in entries)
    is_unequal |= held_up and all(map(is_woken, entries))
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
