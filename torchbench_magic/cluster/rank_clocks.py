"""How the clocks of ranks stand to each other, as bounds that hold, not as estimates.

A collective in which all wait for all ends on no rank before the last has come. So, with o the offset of a clock,
``end_i - o_i >= arrival_j - o_j`` for every collective and every two ranks, and the least of ``end_i - arrival_j`` over
all collectives is an upper bound of ``o_i - o_j``: the difference constraints of Lamport's ordering of events (1978).
Bounds over a third rank are at times the closer ones (Floyd and Warshall, 1962).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchbench_magic.array_types import Ints

from .job_profile import FOREVER

ONE_CLOCK = 20_000
"""ns by which two processes of one host may differ: torch's profiler turns the processor's counter into time once in
each process, and the system corrects its clock meanwhile. An allowance, not a measurement."""


@dataclass(frozen=True)
class RankClock:
    """What is known of the clock of a rank beforehand.

    Attributes:
        host: ranks of one host have one clock; empty: not known.
        offset, error: ns, this clock minus rank 0's and how far off that may be; None where nobody measured it.
    """

    host: str = ""
    offset: int | None = None
    error: int = 0


@dataclass(frozen=True, eq=False)
class ClockBounds:
    """Where the clocks of all ranks can stand.

    Attributes:
        upper: int64 [ranks, ranks], ns: clock i minus clock j is at most ``upper[i, j]``.
        is_contradiction: the collectives contradict each other.
    """

    upper: Ints
    is_contradiction: bool = False

    @property
    def high(self) -> Ints:
        """[ranks], ns: each clock minus the first rank's is at most this, `FOREVER` where nothing is known."""
        return self.upper[:, 0]

    @property
    def low(self) -> Ints:
        low: Ints = -self.upper[0]
        return low

    @property
    def offset(self) -> Ints:
        """[ranks], ns: the middle of the bounds; 0 where nothing is known."""
        known = (self.high < FOREVER // 2) & (self.low > -FOREVER // 2)
        middle: Ints = np.where(known, (np.where(known, self.high, 0) + np.where(known, self.low, 0)) // 2, 0)
        return middle

    @property
    def error(self) -> Ints:
        """[ranks, ranks], ns: how far the difference of two clocks may be off when each has its `offset`."""
        between = self.offset[:, None] - self.offset[None, :]
        return np.maximum(self.upper - between, self.upper.T + between)


def bounds_of_clocks(arrival: Ints, end: Ints, clocks: Sequence[RankClock]) -> ClockBounds:
    """The bounds from collectives (int64 [ranks, n], ns, each rank by its own clock) and from what is known besides.

    What is known beforehand and cannot be is not used: of hosts of one name first, then what was measured. Where the
    collectives contradict each other (a clock that was set meanwhile), nothing is known.
    """
    ranks = len(clocks)
    seen = np.full((ranks, ranks), FOREVER, dtype=np.int64)
    for i in range(ranks):
        if arrival.shape[1]:
            both = (end[i] < FOREVER) & (arrival > -FOREVER)  # no member of the group else
            seen[i] = np.where(both, end[i] - arrival, FOREVER).min(axis=1)
    np.fill_diagonal(seen, 0)
    host, measured = _of_hosts(clocks), _measured(clocks)
    for known in ((host, measured), (measured,), ()):
        closed = _closed(np.minimum.reduce([seen, *known]))
        if (np.diagonal(closed) >= 0).all():
            return ClockBounds(closed)
    nothing = np.full((ranks, ranks), FOREVER, dtype=np.int64)
    np.fill_diagonal(nothing, 0)
    return ClockBounds(nothing, is_contradiction=True)


def _closed(upper: Ints) -> Ints:
    """The closest bounds that follow."""
    upper = upper.copy()
    for k in range(len(upper)):
        upper = np.minimum(upper, upper[:, k : k + 1] + upper[k : k + 1])
        upper = np.minimum(upper, FOREVER)
    return upper


def _of_hosts(clocks: Sequence[RankClock]) -> Ints:
    hosts = np.array([clock.host for clock in clocks], dtype=object)
    one = (hosts[:, None] == hosts[None, :]) & (hosts != "")[:, None]
    np.fill_diagonal(one, val=False)
    return np.where(one, ONE_CLOCK, FOREVER).astype(np.int64)


def _measured(clocks: Sequence[RankClock]) -> Ints:
    upper = np.full((len(clocks), len(clocks)), FOREVER, dtype=np.int64)
    for i, one in enumerate(clocks):
        for j, other in enumerate(clocks):
            if i != j and one.offset is not None and other.offset is not None:
                upper[i, j] = one.offset - other.offset + one.error + other.error
    return upper
