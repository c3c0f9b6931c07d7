"""The collectives of a job: which call on one rank is which on the others.

Only those in which every rank waits for every other (all-reduce, all-gather, reduce-scatter, all-to-all, barrier)
count: in a broadcast the root waits for nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..profiling.trace import Ints

__all__ = ["CollectiveCalls", "MatchedCollectives", "kind_of_collective", "match_collectives"]

_KIND = re.compile("allreduce|allgather|reducescatter|alltoall|barrier|broadcast|sendrecv|gather|scatter|reduce")
_ALL_WAIT = frozenset({"allreduce", "allgather", "reducescatter", "alltoall", "barrier"})


def kind_of_collective(name: str) -> str:
    """``allreduce`` of ``c10d::allreduce_``, ``gloo:all_reduce``, ``ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)``;
    empty where not every rank waits for every other."""
    letters = re.sub("[^a-z]", "", re.split(r"[(<]", name, maxsplit=1)[0].lower())
    found = _KIND.search(letters)
    return found[0] if found is not None and found[0] in _ALL_WAIT else ""


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
    """The collectives that every rank took part in.

    Attributes:
        kind: of each.
        arrival, begin, end: int64 [ranks, n], ns, each rank by its own clock; in the order of the first rank's time.
        left_out: calls that had no counterpart on some rank.
    """

    kind: tuple[str, ...]
    arrival: Ints
    begin: Ints
    end: Ints
    left_out: int

    def __len__(self) -> int:
        return len(self.kind)


def match_collectives(calls: Sequence[CollectiveCalls], *, one_clock: bool) -> MatchedCollectives:
    """The k-th call of a key on one rank is the k-th on the others: torch requires the same order of all.

    Where ranks hold different numbers of a key (recorded from different moments on, or one broke off), which is which
    is read from the times, if all are of ``one_clock``; else those are left out: a step further on would look the same.
    """
    places = [_places(each.key) for each in calls]
    rows: list[tuple[int, ...]] = []
    for key in places[0] if len(places) > 1 else ():
        found = [each.get(key, []) for each in places]
        if len({len(each) for each in found}) == 1:
            rows += zip(*found, strict=True)
        elif one_clock:
            rows += _overlapping(calls, found)
    rows.sort(key=lambda row: int(calls[0].arrival[row[0]]))
    index = np.array(rows, dtype=np.int64).reshape(-1, len(calls)).T
    arrival, begin, end = (
        np.array([getattr(each, name)[index[at]] for at, each in enumerate(calls)], dtype=np.int64)
        for name in ("arrival", "begin", "end")
    )
    left = sum(map(len, calls)) - len(rows) * len(calls) if len(calls) > 1 else 0
    kinds = tuple(calls[0].key[row[0]].split(" ")[0] for row in rows)
    return MatchedCollectives(kinds, arrival, begin, end, left)


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
