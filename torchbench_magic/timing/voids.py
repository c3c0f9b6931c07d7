"""Whether a ratio can be trusted: causes, found in the run's own numbers, to withdraw its verdict (`verdict.CAUSES`).

Alternatives in adjacent blocks share what else the machine does, so load alone voids nothing. Two things do:

* **Stalls.** The threads of one op wait for each other at its end. Where other processes want the cores too, that end
  waits for a scheduler's slice (4 to 16 ms), and a block measures how often its code waits, not how long it works. That
  is harmless while it happens to few blocks (the median does not see them) and voids the row where its *typical*
  block, those up to its median, is one that waited (`row_void`).
* **Spells.** The machine has states that last (a neighbour on the same processor core, a cache shared with other
  guests), and the ratio may be another in each. Rounds of one spell are not independent, so an interval by signs is too
  sure; it is widened by how unevenly the rounds fall on both sides of their median along the run (`spell_factor`).

The rule was designed on one half of the runs of ``tests/benchmarks/busy.py`` and tested on the other; the error rates
are in docs/method.md. A machine whose state stays the same throughout a run leaves no trace in it.

Sources: the median test along the run is Mood's (Ann. Math. Statist. 1954) with the batches in the place of groups;
dividing the number of samples by the overdispersion is the usual quasi-likelihood correction (McCullagh and Nelder,
*Generalized Linear Models*, 2nd ed., 4.5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchbench_magic.array_types import Floats
from torchbench_magic.process.contention import Contention

from .intervals import Interval, far_ratio, median_interval, rounds_for_an_interval
from .samples import Blocks, Subject, paired_rounds
from .verdict import DRIFT, Void, is_open, verdict

CO_LOAD = 0.15
"""Cores that others take beyond the idle ones, from which on they are said to be in the way."""
SEVERAL = 1.2
"""Mean number of own threads that wanted a core, from which on the code is one of several threads."""
WAITED = 0.1
"""Own threads that waited for a core, on average; a quiet machine has 0.00 to 0.02."""
TYPICAL = 2.0
"""Blocks up to so many times the median share the speed of the typical one. Two speeds of one code were 1.2 to 1.9
times apart, a stall is 20 times and more."""
STALL = 5.0
"""How many times its quiet time a stalled block takes at least; found were 20 to 1700."""
OWN_CORE = 0.9
"""Processor time over wall time, of blocks in which not even one thread kept its core; on its own core it is 0.97 to
1.0 and more."""
OWN_SLEEP = 0.25
"""Of the time without a processor: what is less than that is too little to be its cause."""
SLICE = 1e-3
"""Seconds below which a block holds no wait for a scheduler's slice (Linux: 0.75 to 4 ms at the least)."""
ALIKE = 0.8
"""Blocks of unlike numbers of calls last about as long (their numbers are chosen for that), at least so much of it."""
STARTED = 0.01
"""Seconds of a block in which what starting it costs is nothing."""
MISPLANNED = 0.45
"""As `ALIKE`, whatever else ran: one call of 134 us beside two of 132 is half as long, by rounding to whole calls."""
LEAST_WAIT = 0.02
"""Share of waiting that is put down to what lies between the blocks."""
BATCHES, LEAST_BATCH = 8, 8
_SIGNIFICANT = {2: 13.8, 3: 16.3, 4: 18.5, 5: 20.5, 6: 22.5, 7: 24.3}
"""Degrees of freedom -> chi square that chance exceeds once in a thousand runs."""


class IntervalOfRounds(NamedTuple):
    """What the rounds, or the processes, of a row say of its ratio.

    Attributes:
        interval: of the log ratio.
        number: rounds, or processes.
        void: why it decides nothing where the interval alone would.
        by_ranges: the interval is that of the two sides' ranges (`intervals.far_ratio`).
    """

    interval: Interval
    number: int
    void: Void | None = None
    by_ranges: bool = False


def are_held_up(subject: Subject, cores: int) -> bool:
    """Whether others were in the way of the threads of a row's group: of two or more, be it that the code starts some
    of its own, not above the usable cores (then they wait for each other)."""
    seen = subject.contention
    if seen is None or subject.num_threads > cores or not (subject.num_threads > 1 or seen.wanted > SEVERAL):
        return False
    return seen.ext > CO_LOAD if math.isnan(seen.waiting) else seen.waiting > WAITED


def row_void(row: int, blocks: Blocks, subject: Subject, cores: int) -> Void | None:
    """Whether the typical block of a row waited for a core; if so, its ratio decides nothing.

    Any of three shows it, where own threads are known to have waited:

    * the blocks up to the median had less processor time than a single thread on a core of its own (`OWN_CORE`), and
      not by the code's own doing: all that own threads waited in the run is `OWN_SLEEP` of what they did without in
      these blocks, or more (code that sleeps has no processor time on a quiet machine either);
    * it is long enough to hold a wait (`SLICE`), and the waiting does not fit into the other blocks: the share of the
      time in which own threads waited is above the share of the sampled time that lies in blocks longer than `TYPICAL`
      medians. Where the others stalled and the typical ones did not, nearly all the time lies in the others;
    * the typical block takes `STALL` times as long as the shortest (the 5 % point).

    Code of one thread is not held up by these: see `by_processor_time`.
    """
    seen = subject.contention
    if len(blocks) < 2 or not are_held_up(subject, cores) or seen is None:
        return None
    calls = blocks.wall / blocks.number
    middle, short = np.percentile(calls, [50, 5])
    busy = _typical_use(blocks)
    void = Void("stalled", row, busy, seen.waiting if not math.isnan(seen.waiting) else seen.ext)
    slow = 1 - float(blocks.wall[calls <= TYPICAL * middle].sum() / max(blocks.wall.sum(), 1e-12))
    several = seen.wanted > SEVERAL
    long = float(np.median(blocks.wall)) > SLICE
    waits = several and long and seen.waiting / seen.wanted > slow + LEAST_WAIT
    without = float(np.clip(blocks.wall - blocks.cpu, 0, None).sum())
    sleeps = seen.waiting * seen.wall < OWN_SLEEP * without
    return void if (busy < OWN_CORE and not sleeps) or waits or (middle > STALL * short and several) else None


def _typical_use(blocks: Blocks) -> float:
    """Processor time over wall time, of the blocks up to the median."""
    calls = blocks.wall / blocks.number
    typical = calls <= np.median(calls)
    return float(blocks.cpu[typical].sum() / max(blocks.wall[typical].sum(), 1e-12))


def by_processor_time(blocks: Sequence[Blocks], subject: Subject) -> bool:
    """Whether rows that were sampled side by side are compared by processor time: one thread wanted a core all along,
    and of a row the typical block was without one.

    Blocks that fit into a scheduler's slice mostly keep their core, and their ratio is right beside six busy processes
    on two cores. Of two that are longer, or unlike, one waits more often: 2 and 6 ms were 5.3 times apart. As a thread
    that sleeps wants no core, what the wall clock adds is waiting for one.
    """
    seen, worked = subject.contention, min(float(one.cpu.sum()) for one in blocks)
    return seen is not None and bool(_without_core(blocks, subject)) and _slept(seen) <= (1 - OWN_CORE) * worked


def held_up_alone(rows: Mapping[int, Blocks], subject: Subject) -> list[Void]:
    """Of rows of one thread that also sleeps (a file that is synced), and are not compared by processor time, those
    whose typical block waited for a core: typical blocks were without one for longer than the thread slept in all."""
    blocks, seen = list(rows.values()), subject.contention
    without = _without_core(blocks, subject)
    lost = sum(len(one) * float(np.median(one.wall - one.cpu)) for one in blocks if len(one))
    if seen is None or by_processor_time(blocks, subject) or not lost > (1 + OWN_SLEEP) * _slept(seen):
        return []
    return [Void("stalled", row, _typical_use(one), seen.waiting) for row, one in rows.items() if one in without]


def _without_core(blocks: Sequence[Blocks], subject: Subject) -> list[Blocks]:
    """Of one thread, which others kept waiting, the rows whose typical block had no core of its own."""
    seen = subject.contention
    if seen is None or subject.num_threads > 1 or subject.device != "cpu":
        return []
    is_one = seen.wanted <= SEVERAL and seen.waiting > WAITED
    return [one for one in blocks if is_one and len(one) > 1 and _typical_use(one) < OWN_CORE]


def _slept(seen: Contention) -> float:
    """Seconds in which no thread wanted a core."""
    return max(1 - seen.wanted, 0.0) * seen.wall


def unlike_blocks(row: int, blocks: Blocks, base: Blocks, subject: Subject, cores: int) -> Void | None:
    """Whether one side's blocks hold fewer calls and are shorter all the same.

    The number of calls is chosen by the warm-up. A stall there gives one side single calls, each with the cost of
    waking the threads, and the other a dozen that share it: 48 against 17 us of the same code. Where others were in the
    way, blocks need to be only a little shorter; else so much as no rounding to whole calls makes them.
    """
    if not len(blocks) or not len(base):
        return None
    shorter = ALIKE if are_held_up(subject, cores) else MISPLANNED
    mine, other = int(blocks.number[0]), int(base.number[0])
    wall, base_wall = float(np.median(blocks.wall)), float(np.median(base.wall))
    fewer, more = (wall, base_wall) if mine < other else (base_wall, wall)
    is_told = mine != other and fewer < shorter * more and fewer < STARTED
    return Void("unlike-blocks", row, mine, other) if is_told else None


def spell_factor(log_ratios: Floats) -> float:
    """How many rounds count as one, at least 1: the overdispersion of the signs along the run.

    The rounds, in the order taken, are cut into batches; in each the rounds below the median of all are counted. Of
    independent rounds the counts scatter as a binomial, and the factor is chi square over its degrees of freedom. It
    is 1 where chance alone exceeds that once in a thousand runs, and where there are too few rounds to tell (below 24).
    """
    n = len(log_ratios)
    batches = min(BATCHES, n // LEAST_BATCH)
    if batches < 3:
        return 1.0
    middle = np.median(log_ratios)
    chi = 0.0
    for part in np.array_split(log_ratios, batches):
        below = float((part < middle).sum() + (part == middle).sum() / 2)
        chi += (below - len(part) / 2) ** 2 / (len(part) / 4)
    return chi / (batches - 1) if chi > _SIGNIFICANT[batches - 1] else 1.0


def range_of_parts(log_ratios: Floats) -> tuple[float, float]:
    """The smallest and the largest median ratio of the parts of a run."""
    parts = _of_parts(log_ratios)
    with np.errstate(over="ignore"):  # of a damaged store
        return float(np.exp(min(parts))), float(np.exp(max(parts)))


def _of_parts(log_ratios: Floats) -> list[float]:
    parts = np.array_split(log_ratios, max(1, min(BATCHES, len(log_ratios) // LEAST_BATCH)))
    return [float(np.median(part)) for part in parts]


def goes_one_way(log_ratios: Floats) -> bool:
    """Whether the parts of the run go one way, farther than equal code was ever seen apart (`DRIFT`), and not in a
    leap at an end: of eight parts that differ so much once in 20,000 runs by chance, of five once in 60."""
    parts, far = _of_parts(log_ratios), math.log(DRIFT)
    goes = len(parts) >= 5 and parts in (sorted(parts), sorted(parts, reverse=True))
    return goes and abs(parts[-1] - parts[0]) > far and abs(parts[-2] - parts[1]) > far / 2


def stalled_rounds(rounds: Sequence[Floats], subject: Subject, cores: int) -> npt.NDArray[np.bool_]:
    """Marks the rounds in which a block of either side stalled; none where no others were in the way. Shape (rounds,).

    Args:
        rounds: for each side the seconds of a call in each round that both took part in, shape (rounds,).
    """
    if not are_held_up(subject, cores) or not len(rounds[0]):
        return np.zeros(len(rounds[0]), dtype=bool)
    stalled: npt.NDArray[np.bool_] = np.any([times > STALL * np.median(times) for times in rounds], axis=0)
    return stalled


def both(one: Interval, other: Interval) -> Interval:
    """The interval that holds both, round the median of the first: a verdict that stands on it stands on either."""
    return Interval(one.median, min(one.low, other.low), max(one.high, other.high))


def widened(interval: Interval, log_ratios: Floats, factor: float) -> Interval:
    """An interval of ranks for rounds of which ``factor`` count as one: its ends lie sqrt(factor) times as far from the
    median, in ranks."""
    n = len(log_ratios)
    if not math.isfinite(interval.width) or factor <= 1:
        return interval
    ordered = np.sort(log_ratios)
    below = int(np.searchsorted(ordered, interval.low, "left"))
    above = n - int(np.searchsorted(ordered, interval.high, "right"))
    ranks = [math.floor(n / 2 - (n / 2 - k) * math.sqrt(factor)) for k in (below, above)]
    low = float(ordered[ranks[0]]) if ranks[0] >= 0 else -math.inf
    high = float(ordered[n - 1 - ranks[1]]) if ranks[1] >= 0 else math.inf
    return Interval(interval.median, min(low, interval.low), max(high, interval.high))


def far_apart(log_ratios: Floats) -> Interval | None:
    """From the smallest to the largest median of the parts of a run, where all are farther from 1, on one side, than
    equal code was ever seen apart (`DRIFT`). A single round may say anything: others took the processor in it."""
    far, parts = math.log(DRIFT), _of_parts(log_ratios)
    low, high = min(parts), max(parts)
    return Interval(float(np.median(log_ratios)), low, high) if low > far or high < -far else None


def apart_by_work(blocks: Blocks, base: Blocks, subject: Subject, alpha: float) -> Interval | None:
    """Two sides so far apart that no waiting explains it, though their typical blocks waited for a core; else None.

    Waiting only adds to a time. Where one thread works, undisturbed a block takes its processor time at least and its
    wall time at most. So the slow side's processor time is held against the wall time of the fast one. Not where
    several threads do: one that spins at the end of a parallel region for another that waits uses its core for nothing.
    """
    if subject.contention is None or not subject.contention.wanted <= SEVERAL:
        return None
    wall, cpu = (
        paired_rounds(*(replace(one, time=getattr(one, clock)) for one in (blocks, base))).seconds
        for clock in ("wall", "cpu")
    )
    if len(wall[0]) != len(cpu[0]):
        return None
    return far_ratio(wall[0], wall[1], subject.look, alpha, at_least=cpu)


def interval_of_rounds(
    log_ratios: Floats,
    sides: Sequence[Floats],
    subject: Subject,
    cores: int,
    margin: float,
    row: int,
    alpha: float,
    *,
    compiled: int = 0,
) -> IntervalOfRounds:
    """The interval of a log ratio that its rounds can answer for, and why it decides nothing where the rounds alone
    would decide. Of too few rounds for it the interval of the ranges, where these are far apart.

    Args:
        log_ratios: of each round, shape (rounds,).
        sides: the seconds of a call of either side in each round, shape (rounds,).
        alpha: the error rate of the interval.
        compiled: compilations among the rounds: without theirs there are to be rounds enough for an interval.
    """
    narrow = median_interval(log_ratios, alpha, subject.look)
    stalled = stalled_rounds(sides, subject, cores)
    clean = median_interval(log_ratios[~stalled], alpha, subject.look)
    interval = widened(both(narrow, clean) if stalled.any() else narrow, log_ratios, spell_factor(log_ratios))
    need, plain = rounds_for_an_interval(subject.look, alpha), max(len(log_ratios) - compiled, 0)
    if not math.isfinite(narrow.width) or (compiled and plain < need):
        ranges = far_ratio(sides[0], sides[1], subject.look, alpha) if not compiled else None
        if ranges is not None:
            return IntervalOfRounds(ranges, len(log_ratios), by_ranges=True)
        return IntervalOfRounds(interval, len(log_ratios), Void("few-rounds", row, plain, need))
    if goes_one_way(log_ratios):
        return IntervalOfRounds(interval, len(log_ratios), Void("one-way", row, *range_of_parts(log_ratios)))
    if not math.isfinite(interval.width) and not are_held_up(subject, cores):
        # in spells there is no interval by ranks, and none is needed: no state of the machine makes 1 of 17
        interval = far_apart(log_ratios) or interval
    word = verdict(interval, margin)
    unknown = is_open(word) and not math.isfinite(interval.width)
    stands = word == verdict(narrow, margin) and not unknown
    void = None if stands else Void("unsteady", row, *range_of_parts(log_ratios))
    return IntervalOfRounds(interval, len(log_ratios), void)
