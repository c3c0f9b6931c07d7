"""Who made the others wait, and whether that is more than chance.

Blame is the time in which some rank stood in a collective, computing nothing, until the last one came; it is given to
the last one. "Who came last how often" counts a microsecond like a second, and a wait that is hidden behind computation
holds nobody up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..profiling.trace import Ints
from .collectives import ABSENT
from .stretches import Floats, joined_stretches, nanoseconds, without

__all__ = ["FEWEST", "LEAST_SHARE", "Blame", "Guilty", "blame_of", "straggler_of"]

LEAST_SHARE = 0.05
"""Of the span: below it nobody is named, as with every insight."""
FEWEST = 3
"""Waits: with fewer, who came last may be chance, however long it took."""
THAT_COUNT = 0.95
"""Of all blame: the longest waits that make up so much of it are looked at, since many tiny ones say nothing."""
_NOT_CHANCE = (4.85, 3.48, 3.0, 2.76, 2.61, 2.52, 2.45, 2.4, 2.36)
"""Student's t (1908) that chance exceeds in 2 of 100 cases, for 2 to 10 degrees of freedom; `_OF_MANY` bounds more."""
_OF_MANY = 2.36
_BLOCKS = 8
"""Stretches in which many waits are laid together, in the order of time: few, so that each holds a burst whole."""


@dataclass(frozen=True, eq=False)
class Blame:
    """The waits of a job.

    Attributes:
        spans: of each rank, int64 [n, 2], ns: when another one waited for it.
        begin, end: int64 [waits], ns: waits that touch each other are one.
        seconds: float64 [waits, ranks]: what each rank made the others wait in it.
        last: int64 [ranks]: how many collectives each entered last, beyond the error of the clocks.
        of: how many collectives were looked at.
    """

    spans: tuple[Ints, ...]
    begin: Ints
    end: Ints
    seconds: Floats
    last: Ints
    of: int

    @property
    def totals(self) -> Floats:
        """float64 [ranks], seconds."""
        return np.array([nanoseconds(each) / 1e9 for each in self.spans])


@dataclass(frozen=True)
class Guilty:
    """What was found of the rank with the most blame.

    Attributes:
        rank: its place.
        threshold: seconds that its blame had to exceed.
        waits: how many were looked at, see `THAT_COUNT`.
        beyond_chance: it is late again and again, and the others are not as often or as much.
    """

    rank: int
    threshold: float
    waits: int
    beyond_chance: bool


def blame_of(arrival: Ints, error: Ints, compute: Sequence[Ints]) -> Blame:
    """The waits in collectives (int64 [ranks, n], ns, all on one clock); the first collective does not count.

    The first one also waits for ranks whose profiler or process started later (0.2 s on torch 2.13), which ends there;
    so does the first one of each group.

    Args:
        arrival: `collectives.ABSENT` and below where a rank is no member of the group.
        error: int64 [ranks, ranks], ns: what clocks may differ by. Only what a rank waited beyond it counts.
        compute: of each rank, when it computed.
    """
    present = arrival > ABSENT // 2
    arrival = np.delete(arrival, np.unique(present, axis=1, return_index=True)[1] if arrival.size else [], axis=1)
    ranks, count = arrival.shape
    last = arrival.argmax(axis=0) if count else np.zeros(0, dtype=np.int64)
    spans, begins, ends, times = [], [], [], []
    for late in range(ranks):
        mine = arrival[:, last == late]
        parts, times_last = [np.zeros((0, 2), dtype=np.int64)], np.zeros(mine.shape[1], dtype=bool)
        for other in range(ranks):
            since = mine[other] + error[other, late]
            waited = (mine[late] > since) & (mine[other] > ABSENT // 2)
            if other == late or not waited.any():
                continue
            times_last |= waited
            begins.append(since[waited])
            ends.append(mine[late][waited])
            parts.append(without(joined_stretches(since[waited], mine[late][waited]), compute[other]))
        every = np.concatenate(parts)
        spans.append(joined_stretches(every[:, 0], every[:, 1]))
        times.append(int(times_last.sum()))
    waits = joined_stretches(np.concatenate(begins), np.concatenate(ends)) if begins else np.zeros((0, 2), np.int64)
    seconds = np.zeros((len(waits), ranks))
    for rank, each in enumerate(spans):
        at = np.searchsorted(waits[:, 0], each[:, 0], side="right") - 1
        np.add.at(seconds[:, rank], at, (each[:, 1] - each[:, 0]) / 1e9)
    some = seconds.sum(axis=1) > 0
    waits, seconds = waits[some], seconds[some]
    return Blame(tuple(spans), waits[:, 0], waits[:, 1], seconds, np.array(times, dtype=np.int64), count)


def straggler_of(blame: Blame, span: float, error: float) -> Guilty:
    """Whom to name.

    Args:
        span: seconds of the job; ``error``: seconds that the clocks may be off.
    """
    totals = blame.totals
    rank = int(totals.argmax())
    every = blame.seconds.sum(axis=1)
    longest = np.argsort(-every, kind="stable")
    before = np.append(0.0, np.cumsum(every[longest])[:-1])[: len(longest)]
    seconds = blame.seconds[np.sort(longest[before < THAT_COUNT * every.sum()])]  # in the order of time
    lead = 2 * seconds[:, rank] - seconds.sum(axis=1)
    return Guilty(rank, max(LEAST_SHARE * span, error), len(lead), _is_regular(lead))


def _is_regular(lead: Floats) -> bool:
    """Whether the lead over all others is above zero in the mean of the waits: Student's t, at 98 %.

    Waits in a row are alike: another process that takes a core for a while makes one rank late in all steps meanwhile.
    Of many waits the means of `_BLOCKS` stretches in a row are judged (batch means, Conway 1963): a burst that holds up
    another rank for some steps is in one or two of them. Of few, those that are alike count as fewer: so many as
    n (1 - r) / (1 + r) remain, r the correlation of each with the next (Bayley and Hammersley, 1946), if it is above 0,
    but not less than `FEWEST`. Of many this would count a burst twice, as spread and as correlation: three waits of 23
    nearly hid a rank that led in all others.
    """
    if len(lead) < FEWEST or lead.mean() <= 0:
        return False
    count = float(_BLOCKS)
    if len(lead) >= 2 * _BLOCKS:
        lead = np.array([part.mean() for part in np.array_split(lead, _BLOCKS)])
    else:
        around = lead - lead.mean()
        square = float((around**2).sum())
        alike = max(float((around[1:] * around[:-1]).sum() / square), 0.0) if square else 0.0
        count = max(len(lead) * (1 - alike) / (1 + alike), FEWEST)  # a lead far beyond its spread needs no more
    spread = float(lead.std(ddof=1))
    if spread == 0:
        return True
    critical = _NOT_CHANCE[int(count) - FEWEST] if count - FEWEST < len(_NOT_CHANCE) else _OF_MANY
    return float(lead.mean()) / spread * math.sqrt(count) > critical
