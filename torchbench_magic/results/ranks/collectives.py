"""The collectives of a job: which call on one rank is which on the others.

Those in which every rank waits for every other (all-reduce, all-gather, reduce-scatter, all-to-all, barrier) count as
they are. In the others (broadcast, send and receive, gather, scatter, reduce) some ranks wait for nobody. Between two
ranks times tell it: one that comes first and is still there when the other comes waits for it, and a root that leaves
before that waits for nobody. Among more, a rank may still be there because of a third one, so these do not count. A
collective of some of the ranks is matched within its group. NCCL's
traces tell the group. gloo's do not: where only some ranks make calls of a kind and shape, these are a group if each
of the calls overlaps on all of them, as calls of one collective must.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..profiling.trace import Ints
from .stretches import FOREVER

__all__ = ["ABSENT", "CollectiveCalls", "MatchedCollectives", "kind_of_collective", "match_collectives"]

_KIND = re.compile("allreduce|allgather|reducescatter|alltoall|barrier|broadcast|gather|scatter|reduce|send|recv")
_ONE_KIND = {"send": "sendrecv", "recv": "sendrecv"}
"""What one side calls by another name than the other."""
_GROUP_SIZE = re.compile(r", '?(\d+)'?\)$")
ABSENT = -FOREVER
"""Arrival and begin at a collective of which a rank is no member; its end is `FOREVER`."""
_ALL_WAIT = frozenset({"allreduce", "allgather", "reducescatter", "alltoall", "barrier"})


def kind_of_collective(name: str) -> str:
    """``allreduce`` of ``c10d::allreduce_``, ``gloo:all_reduce``, ``ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)``;
    empty for what is no collective."""
    letters = re.sub("[^a-z]", "", re.split(r"[(<]", name, maxsplit=1)[0].lower())
    found = _KIND.search(letters)
    return _ONE_KIND.get(found[0], found[0]) if found is not None else ""


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
        kind: of each.
        index: int64 [ranks, n]: which call of each rank it is; -1 where the rank is no member of the group.
        arrival, begin, end: int64 [ranks, n], ns, each rank by its own clock; `ABSENT` and `FOREVER` where it is no
            member. Those of all ranks first, in the order of the first rank's time, then those of groups.
        left_out: calls in which all wait for all, without a counterpart on some rank.
    """

    kind: tuple[str, ...]
    index: Ints
    arrival: Ints
    begin: Ints
    end: Ints
    left_out: int

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def sure(self) -> NDArray[np.bool_]:
        """[n]: in which no rank can leave before all have come."""
        return np.array([kind in _ALL_WAIT for kind in self.kind], dtype=bool)

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
        size = _told_size(key)
        if size is not None and size != len(members):
            continue  # the trace of a member is missing
        found = [places[at][key] for at in members]
        if size is None and grouped and len(members) == len(calls):
            continue
        if not _all_wait(key) and not (len(members) == 2 and one_clock):
            continue
        mine = [calls[at] for at in members]
        if len(members) < len(calls):
            made = _of_a_group(mine, found, told=size is not None, one_clock=one_clock)
            if size is None:  # a rank that has ended makes no calls either
                until = min(int(each.end.max(initial=ABSENT)) for at, each in enumerate(calls) if at not in members)
                made = [row for row in made if max(int(c.arrival[n]) for c, n in zip(mine, row, strict=True)) < until]
            some += [_spread(row, members, len(calls)) for row in made]
        elif len({len(each) for each in found}) == 1:
            made = list(zip(*found, strict=True))
            rows += made if _all_wait(key) else [row for row in made if _overlap(calls, row)]
        elif one_clock:
            rows += _overlapping(calls, found)
    rows.sort(key=lambda row: int(calls[0].arrival[row[0]]))
    some.sort(key=lambda row: max(int(calls[at].arrival[n]) for at, n in enumerate(row) if n >= 0))
    rows += some
    index = np.array(rows, dtype=np.int64).reshape(-1, len(calls)).T
    arrival, begin, end = (
        np.array([_taken(getattr(each, name), index[at], absent) for at, each in enumerate(calls)], dtype=np.int64)
        for name, absent in (("arrival", ABSENT), ("begin", ABSENT), ("end", FOREVER))
    )
    kinds = tuple(next(calls[at].key[n] for at, n in enumerate(row) if n >= 0).split(" ")[0] for row in rows)
    every = sum(_all_wait(key) for each in calls for key in each.key) if len(calls) > 1 else 0
    left = every - sum(kind in _ALL_WAIT for kind, row in zip(kinds, rows, strict=True) for n in row if n >= 0)
    return MatchedCollectives(kinds, index, arrival, begin, end, left)


def _told_size(key: str) -> int | None:
    """Of the group, where a key ends with it."""
    found = _GROUP_SIZE.search(key)
    return int(found[1]) if found is not None else None


def _spread(row: tuple[int, ...], members: Sequence[int], ranks: int) -> tuple[int, ...]:
    found = dict(zip(members, row, strict=True))
    return tuple(found.get(at, -1) for at in range(ranks))


def _taken(values: Ints, index: Ints, absent: int) -> Ints:
    if not len(values):
        return np.full(len(index), absent, dtype=np.int64)
    taken: Ints = np.where(index >= 0, values[index], absent)
    return taken


def _of_a_group(
    calls: Sequence[CollectiveCalls], found: Sequence[list[int]], *, told: bool, one_clock: bool
) -> list[tuple[int, ...]]:
    """The collectives of a part of the ranks: by their order if the group is ``told``, else only if times prove it."""
    if len(calls) < 2:
        return []
    if len({len(each) for each in found}) == 1 and (told or not _all_wait(calls[0].key[found[0][0]])):
        made = list(zip(*found, strict=True))
        return made if _all_wait(calls[0].key[found[0][0]]) else [row for row in made if _overlap(calls, row)]
    if not one_clock:
        return []
    rows = _overlapping(calls, found)
    return rows if told or all(len(rows) == len(each) for each in found) else []


def _places(keys: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return found


def _overlap(calls: Sequence[CollectiveCalls], row: Sequence[int]) -> bool:
    """Whether none ends before all have come."""
    come = max(int(call.arrival[n]) for call, n in zip(calls, row, strict=True))
    return min(int(call.end[n]) for call, n in zip(calls, row, strict=True)) >= come


def _overlapping(calls: Sequence[CollectiveCalls], found: Sequence[list[int]]) -> list[tuple[int, ...]]:
    """Calls that overlap on all ranks, as those of one collective must: it ends nowhere before all have come."""
    at, rows = [0] * len(found), []
    while all(n < len(each) for n, each in zip(at, found, strict=True)):
        row = tuple(each[n] for n, each in zip(at, found, strict=True))
        if _overlap(calls, row):
            rows.append(row)
            at = [n + 1 for n in at]
        else:
            ends = [int(call.end[n]) for call, n in zip(calls, row, strict=True)]
            at[ends.index(min(ends))] += 1
    return rows
