"""How a ratio's interval is computed, and when a run may stop: pure functions of arrays, no clock.

Everything here is distribution-free: it looks at signs and ranks only, so heavy tails and preempted blocks
cannot spoil it.

Sources:
    * one look: the exact order-statistic (sign test) interval of a median, e.g. David and Nagaraja, *Order
      Statistics*, 3rd ed., section 7.1;
    * any number of looks: the Beta(a, a) mixture of sign-test martingales with Ville's inequality (Robbins 1970;
      Howard et al., "Time-uniform, nonparametric, nonasymptotic confidence sequences", Ann. Statist. 2021). The
      interval is valid whenever one stops, which a fixed-n interval is not;
    * sides that are far apart, after fewer rounds than either needs: the ranges of their blocks, the extreme case of
      Wilcoxon's rank sum ("Individual comparisons by ranking methods", Biometrics Bulletin 1945). See `far_ratio`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from torchbench_magic.array_types import Floats

ALPHA = 0.05
ORDER_ROUNDS, ORDER_ERRORS = 10, 3.0
ANYTIME = 0.4
"""Share of the error rate that a run which may stop at any time is tested at: 2 % where 5 % is promised. The martingale
holds its level for independent rounds; those of a shared machine are nearly so, and a run stops at the first look
that decides. At 5 %, 18 of 900 comparisons of identical code at 2 threads, idle or beside a busy process, were so."""
APART = 3.0
"""How many times every block of one side takes every block of the other, where their ranges decide. Exchangeable blocks
need no such distance; it is there for what the machine does to some of them."""
LEAST_RANGES = 5
"""Of fewer rounds the interval may hold the ratio with less than 90 %: a side that repeats exactly has no range of its
own, and that of the other holds its median with ``1 - 2**(1 - n)`` only."""
MIXTURE_A = 5.0  # found best of 5, 30, 100: fewest false alarms and the shortest time to a true +2 %

Look = Literal["anytime", "once"]

_LARGEST = math.log(sys.float_info.max)
"""Of what `math.exp` takes: a damaged store may hold times that are farther apart."""


@dataclass(frozen=True)
class Interval:
    """A median with the interval that holds it with probability 1 - alpha. Infinite ends: nothing is known yet."""

    median: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    def ends(self, are_known: bool) -> tuple[float, float, float]:
        """The ratio with its ends; those of no interval where they are not known."""
        return (self.median, self.low, self.high) if are_known else (self.median, 0.0, math.inf)

    def exp(self) -> Interval:
        """Carry an interval of log ratios over to ratios."""
        ends = (self.median, self.low, self.high)
        return Interval(*(math.inf if end > _LARGEST else math.exp(end) for end in ends))


@lru_cache(maxsize=4096)
def order_rank(n: int, alpha: float = ALPHA) -> int:
    """Rank k so that [x_(k), x_(n-1-k)] (from 0) holds the median of n samples with probability >= 1 - alpha.

    Exact binomial up to n = 2000, the normal approximation above. -1 when n is too small for any such interval.
    """
    if n > 2000:
        from statistics import NormalDist

        return math.floor(n / 2 - NormalDist().inv_cdf(1 - alpha / 2) * math.sqrt(n) / 2 - 0.5)
    below, k = 0.0, -1
    for i in range(n // 2 + 1):
        below += math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2))
        if below > alpha / 2:
            break
        k = i
    return k


@lru_cache(maxsize=65536)
def mixture_rank(n: int, alpha: float = ALPHA, a: float = MIXTURE_A) -> int:
    """Rank k of the interval [x_(k), x_(n-1-k)] that stays valid at every look; -1 when none exists yet.

    With s of n samples below a tested value the martingale is ``M = 2**n B(a+s, a+n-s) / B(a, a)``; values with
    ``M >= 1/alpha`` are rejected. The largest such s is found by bisection (M falls as s goes to n/2).
    """
    norm = math.lgamma(2 * a) - 2 * math.lgamma(a) + n * math.log(2) - math.lgamma(2 * a + n)

    def rejects(s: int) -> bool:
        return math.lgamma(a + s) + math.lgamma(a + n - s) + norm >= math.log(1 / alpha)

    if not rejects(0):
        return -1
    low, high = 0, n // 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if rejects(middle) else (low, middle - 1)
    return low


@lru_cache(maxsize=64)
def rounds_for_an_interval(look: Look, alpha: float = ALPHA) -> int:
    """How many rounds `median_interval` needs at least for ends that are not infinite: of one look 6 at 5 %."""
    n = 1
    while (order_rank(n, alpha) if look == "once" else mixture_rank(n, ANYTIME * alpha)) < 0:
        n += 1
    return n


def median_interval(values: Floats, alpha: float = ALPHA, look: Look = "once") -> Interval:
    """Median of ``values`` (any unit) with its interval; infinite ends when there are too few."""
    n = len(values)
    if n == 0:
        return Interval(math.nan, -math.inf, math.inf)
    ordered = np.sort(values)
    median = float(np.median(ordered))
    k = order_rank(n, alpha) if look == "once" else mixture_rank(n, ANYTIME * alpha)
    if k < 0:
        return Interval(median, -math.inf, math.inf)
    return Interval(median, float(ordered[k]), float(ordered[n - 1 - k]))


@lru_cache(maxsize=64)
def rounds_for_ranges(look: Look, alpha: float = ALPHA) -> int:
    """How many rounds `far_ratio` needs at least: 5 at 5 %.

    Of n exchangeable blocks on either side, all of one are longer than all of the other by chance with probability
    ``2 n! n! / (2 n)!``. That may take what the intervals leave of the error rate, since either rule may give the word:
    1 - `ANYTIME` of it where a run may stop at any time; of one look what the smallest interval, by n equal signs, does
    not use: ``alpha - 2**(1 - n)``. More looks at the ranges add nothing: ranges that are apart after n rounds were so
    after every number before. Never more rounds than an interval needs, nor fewer than `LEAST_RANGES`.
    """
    need = rounds_for_an_interval(look, alpha)
    left = (1 - ANYTIME) * alpha if look == "anytime" else alpha - 2.0 ** (1 - need)
    return next((n for n in range(LEAST_RANGES, need) if 2 / math.comb(2 * n, n) <= left), need)


def far_ratio(
    one: Floats, other: Floats, look: Look, alpha: float = ALPHA, at_least: tuple[Floats, Floats] | None = None
) -> Interval | None:
    """The log ratio of two sides whose blocks are far apart, with its interval; None where they are not, or too few.

    The interval is that of the ranges, from the shortest of one over the longest of the other to the opposite. Where a
    factor is all that differs, it holds the factor with probability ``1 - 2 n! n! / (2 n)!``: 99.2 % of 5 rounds. In
    any case it holds the median ratio with ``1 - 2**(1 - n)``, 93.8 %, as the ratios of all rounds lie within.

    Args:
        one, other: the time of a call in each round, one value a round, in one unit.
        at_least: of either, what its times may be short of, where these are too long; None is the times themselves.
    """
    least = [float(np.min(times, initial=math.inf)) for times in at_least or (one, other)]
    if len(one) < rounds_for_ranges(look, alpha) or not min(least) > 0:
        return None
    low, high = math.log(least[0] / float(np.max(other))), math.log(float(np.max(one)) / least[1])
    if low < math.log(APART) and high > -math.log(APART):
        return None
    return Interval(float(np.median(np.log(one) - np.log(other))), low, high)


def confidence_of_ranges(rounds: int) -> float:
    """With which probability the interval of `far_ratio` holds the median ratio, at least."""
    return 1 - 2.0 ** (1 - rounds)


def log_ratio_interval(log_ratios: Floats, comparisons: int, look: Look, alpha: float = ALPHA) -> Interval:
    """Interval of a median log ratio where ``comparisons`` of them share one error rate (Bonferroni)."""
    return median_interval(log_ratios, alpha / max(1, comparisons), look)


def holm_level(excluded: Callable[[float], int], comparisons: int, alpha: float = ALPHA) -> float:
    """The error rate of each interval, so that a whole family of comparisons errs with at most ``alpha``.

    Holm's step-down procedure ("A simple sequentially rejective multiple test procedure", Scand. J. Statist. 1979):
    with r ratios of m known to differ from 1, the others are tested at alpha / (m - r), until no more are found. It
    asks nothing of how the comparisons depend on each other. At the level where it ends, the intervals that exclude 1
    are those that it found, so an interval and its verdict cannot contradict each other. A run that may stop at any
    time is tested by its martingale, an e-value at each stopping time, so Holm's procedure stays valid (Vovk and Wang,
    "E-values: calibration, combination and applications", Ann. Statist. 2021). A lone pair is tested at ``alpha``.

    Args:
        excluded: level -> how many intervals of that level leave 1 out.
        comparisons: how many were asked for in all; those not made yet count as not found.
    """
    found = 0
    while True:
        level = alpha / max(1, comparisons - found)
        now = excluded(level)
        if now <= found:
            return level
        found = now


def without_order_effect(log_ratios: Floats, before: npt.NDArray[np.bool_]) -> Floats:
    """Take out of log ratios what only the order in the round did to them.

    A block that follows another kind of work starts with colder caches: the ratio is +pi where the alternative ran
    before the baseline and -pi where after. The order is random, so pi cancels in the median, but where it is larger
    than the noise the samples fall into two heaps with the median between them, and the interval is as wide as their
    distance. So each order's samples are moved by half the difference of the two medians (post-stratification; the
    sum of the two moves is zero, whatever pi is). In simulations with normal, heavy-tailed and bimodal noise and
    looks at any time the error rate stayed at 1-5 % and the interval became up to ten times narrower.

    A pi that is less than `ORDER_ERRORS` of its own standard errors is not known, and stays: moving the samples by a
    guess adds the guess's own error. In 163 runs of identical code at two threads beside a busy process, their signs
    drawn anew eight times, 2.1 % of the verdicts were false with any pi taken out, 0.8 % with those that are known.
    Medians alone do not tell: those of a body of two speeds jump from one to the other by chance, and each order moved
    onto its own would leave one narrow heap where there is none (half of the verdicts were sure and false in
    simulations). So all the samples have to tell as well, by their ranks (Mann and Whitney, "On a test of whether one
    of two random variables is stochastically larger than the other", Ann. Math. Statist. 1947).

    Args:
        log_ratios: one value a round.
        before: whether the alternative ran before the baseline in it.

    Returns:
        The values moved; unchanged below `ORDER_ROUNDS` rounds of either order, and where pi is not known.
    """
    first, second = log_ratios[before], log_ratios[~before]
    if min(len(first), len(second)) < ORDER_ROUNDS:
        return log_ratios
    between = float(np.median(first)) - float(np.median(second))
    if abs(between) <= ORDER_ERRORS * math.hypot(_error_of_median(first), _error_of_median(second)):
        return log_ratios
    if abs(_rank_sum_score(first, second)) <= ORDER_ERRORS:
        return log_ratios
    return log_ratios - np.where(before, between / 2, -between / 2)


def _rank_sum_score(first: Floats, second: Floats) -> float:
    """Standard scores by which the ranks of ``first`` are higher than if all were alike (ties in any order)."""
    m, n = len(first), len(second)
    ranks = np.argsort(np.argsort(np.concatenate([first, second]), kind="stable"), kind="stable")[:m] + 1.0
    return float((ranks.sum() - m * (m + n + 1) / 2) / math.sqrt(m * n * (m + n + 1) / 12))


def _error_of_median(values: Floats) -> float:
    """The standard error of a median, from the quartiles as if the values were normal."""
    low, high = np.percentile(values, [25, 75])
    return float(1.2533 * (high - low) / 1.349 / math.sqrt(len(values)))
