"""Collectives of ranks that belong together, and who made the others wait."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from torchbench_magic.array_types import Floats, Ints

from .job_profile import FOREVER, joined_stretches, nanoseconds, without

# ---- collectives -----------------------------------------------------------------------------------------------------
# The collectives of a job: which call on one rank is which on the others.
#
# Those in which every rank waits for every other (all-reduce, all-gather, reduce-scatter, all-to-all, barrier) count.
# In the others (broadcast, send and receive, gather, scatter, reduce) some ranks wait for nobody, and times do not tell
# which. A collective of some ranks is matched within its group where the trace tells that: NCCL's do, gloo's do not.

_KIND = re.compile("allreduce|allgather|reducescatter|alltoall|barrier|broadcast|gather|scatter|reduce|send|recv")
_GROUP_SIZE = re.compile(r", '?(\d+)'?\)$")
ABSENT = -FOREVER
"""Arrival and begin at a collective of which a rank is no member; its end is `FOREVER`."""
_ALL_WAIT = frozenset({"allreduce", "allgather", "reducescatter", "alltoall", "barrier"})


def kind_of_collective(name: str) -> str:
    """``allreduce`` of ``c10d::allreduce_``, ``gloo:all_reduce``, ``ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)``;
    empty for what is no collective."""
    letters = re.sub("[^a-z]", "", re.split(r"[(<]", name, maxsplit=1)[0].lower())
    found = _KIND.search(letters)
    return found[0] if found is not None else ""


def _all_wait(key: str) -> bool:
    return key.split(" ")[0] in _ALL_WAIT


@dataclass(frozen=True, eq=False)
class CollectiveCalls:
    """What one rank called, in the order of time.

    Attributes:
        key: what must be the same on every rank: kind, shapes, group.
        arrival: int64 [n], ns, when the rank came to the collective.
        begin, end: int64 [n], ns, of the work itself, on the thread or stream that does it.
    """

    key: tuple[str, ...]
    arrival: Ints
    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.key)

    def moved(self, ns: int) -> CollectiveCalls:
        return CollectiveCalls(self.key, self.arrival + ns, self.begin + ns, self.end + ns)


@dataclass(frozen=True, eq=False)
class MatchedCollectives:
    """The collectives that every rank of their group took part in.

    Attributes:
        index: int64 [ranks, n]: which call of each rank it is; -1 where the rank is no member of the group.
        arrival, begin, end: int64 [ranks, n], ns, each rank by its own clock; `ABSENT` and `FOREVER` where it is no
            member. Those of all ranks first, in the order of the first rank's time, then those of groups.
        left_out: calls in which all wait for all, without a counterpart on some rank.
    """

    index: Ints
    arrival: Ints
    begin: Ints
    end: Ints
    left_out: int

    def __len__(self) -> int:
        return int(self.index.shape[1])

    def unmatched(self, rank: int, calls: CollectiveCalls) -> Ints:
        """int64 [n, 2], ns: begin and end of the ``calls`` of a rank that are none of these."""
        alone = np.ones(len(calls), dtype=bool)
        alone[self.index[rank][self.index[rank] >= 0]] = False
        return np.stack([calls.begin[alone], calls.end[alone]], axis=1)


def match_collectives(
    calls: Sequence[CollectiveCalls], *, one_clock: bool, grouped: bool = False
) -> MatchedCollectives:
    """The k-th call of a key on one rank is the k-th on the others: torch requires the same order of all.

    Where ranks hold different numbers of a key (recorded from different moments on, or one broke off), which is which
    is read from the times, if all are of ``one_clock``; else those are left out: a step further on would look the same.
    Where there are groups (``grouped``) and calls do not tell theirs, those that all ranks make are left out as well:
    they may be of two groups.
    """
    places = [_places(each.key) for each in calls]
    rows: list[tuple[int, ...]] = []
    some: list[tuple[int, ...]] = []
    for key in dict.fromkeys(key for each in places for key in each) if len(places) > 1 else ():
        members = [at for at, each in enumerate(places) if key in each]
        said = _GROUP_SIZE.search(key)
        size = int(said[1]) if said is not None else None
        is_whole = len(members) == len(calls)
        if not _all_wait(key) or (size is None and (grouped or not is_whole)):
            continue
        if size not in (None, len(members)):
            continue  # the trace of a member is missing
        made = _matched([calls[at] for at in members], [places[at][key] for at in members], one_clock=one_clock)
        if is_whole:
            rows += made
        else:
            some += [_spread(row, members, len(calls)) for row in made]
    rows.sort(key=lambda row: int(calls[0].arrival[row[0]]))
    some.sort(key=lambda row: max(int(calls[at].arrival[n]) for at, n in enumerate(row) if n >= 0))
    rows += some
    index = np.array(rows, dtype=np.int64).reshape(-1, len(calls)).T
    arrival, begin, end = (
        np.array([_taken(getattr(each, name), index[at], absent) for at, each in enumerate(calls)], dtype=np.int64)
        for name, absent in (("arrival", ABSENT), ("begin", ABSENT), ("end", FOREVER))
    )
    every = sum(_all_wait(key) for each in calls for key in each.key) if len(calls) > 1 else 0
    return MatchedCollectives(index, arrival, begin, end, every - int((index >= 0).sum()))


def _spread(row: tuple[int, ...], members: Sequence[int], ranks: int) -> tuple[int, ...]:
    found = dict(zip(members, row, strict=True))
    return tuple(found.get(at, -1) for at in range(ranks))


def _taken(values: Ints, index: Ints, absent: int) -> Ints:
    if not len(values):
        return np.full(len(index), absent, dtype=np.int64)
    taken: Ints = np.where(index >= 0, values[index], absent)
    return taken


def _matched(calls: Sequence[CollectiveCalls], found: Sequence[list[int]], *, one_clock: bool) -> list[tuple[int, ...]]:
    """The collectives of a key on the members of its group: by their order, else by their times."""
    if len({len(each) for each in found}) == 1:
        return list(zip(*found, strict=True))
    return _overlapping(calls, found) if one_clock else []


def _places(keys: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return found


def _overlapping(calls: Sequence[CollectiveCalls], found: Sequence[list[int]]) -> list[tuple[int, ...]]:
    """Calls that overlap on all ranks, as those of one collective must: it ends nowhere before all have come."""
    at, rows = [0] * len(found), []
    while all(n < len(each) for n, each in zip(at, found, strict=True)):
        row = tuple(each[n] for n, each in zip(at, found, strict=True))
        ends = [int(call.end[n]) for call, n in zip(calls, row, strict=True)]
        if min(ends) >= max(int(call.arrival[n]) for call, n in zip(calls, row, strict=True)):
            rows.append(row)
            at = [n + 1 for n in at]
        else:
            at[ends.index(min(ends))] += 1
    return rows


# ---- blame -----------------------------------------------------------------------------------------------------------
# Who made the others wait, and whether that is more than chance.
#
# Blame is the time in which some rank stood in a collective, computing nothing, until the last one came; it is given to
# the last one. "Who came last how often" counts a microsecond like a second, and a wait that is hidden behind
# computation holds nobody up.

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
        beyond_chance: it is late again and again, and the others are not as often or as much.
    """

    rank: int
    threshold: float
    beyond_chance: bool


def blame_of(arrival: Ints, error: Ints, compute: Sequence[Ints]) -> Blame:
    """The waits in collectives (int64 [ranks, n], ns, all on one clock); the first collective does not count.

    The first one also waits for ranks whose profiler or process started later (0.2 s on torch 2.13), which ends there;
    so does the first one of each group.

    Args:
        arrival: `ABSENT` and below where a rank is no member of the group.
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
    """Whom to name; the ``span`` of the job and the ``error`` of the clocks are in seconds."""
    totals = blame.totals
    rank = int(totals.argmax())
    every = blame.seconds.sum(axis=1)
    longest = np.argsort(-every, kind="stable")
    before = np.append(0.0, np.cumsum(every[longest])[:-1])[: len(longest)]
    seconds = blame.seconds[np.sort(longest[before < THAT_COUNT * every.sum()])]  # in the order of time
    lead = 2 * seconds[:, rank] - seconds.sum(axis=1)
    return Guilty(rank, max(LEAST_SHARE * span, error), _is_regular(lead))


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
