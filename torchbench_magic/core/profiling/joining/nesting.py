"""Ops of one thread as a stack over time, laid over the thread's lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..torch_events.events import Ints

__all__ = ["Nesting", "Slices", "ancestors", "lay_over", "nest", "repeats"]



@dataclass(frozen=True)
class Nesting:
    """Which op contains which, and which is the innermost at any moment.

    Attributes:
        parent: int64 [n], the op that each op runs in; -1 for a top-level one.
        time: int64 [m], the moments at which the innermost op changes, ascending.
        top: int64 [m], the innermost op from ``time[i]`` on; -1 where no op runs.
    """

    parent: Ints
    time: Ints
    top: Ints


def nest(start: Ints, end: Ints) -> Nesting:
    """Nest intervals of one thread that are sorted by (start, -end).

    Ops of a thread nest properly, and then numpy does it: the innermost op after any start or end is the one that
    started last at the depth then reached. Ranges of interleaved tasks need not; they are nested one by one, and
    one that ends after the one it started in ends with it.
    """
    lasting = np.flatnonzero(end > start)
    count = len(lasting)
    if not count:
        return Nesting(np.full(len(start), -1, dtype=np.int64), lasting, lasting)
    # at one moment ends come before starts, inner ends before outer ones, outer starts before inner ones
    moments = np.concatenate([end[lasting][::-1], start[lasting]])
    order = np.argsort(moments, kind="stable")
    starts = order >= count
    depth = np.cumsum(np.where(starts, 1, -1))
    by_depth = np.argsort(depth.astype(np.int16) if depth.max() < 2**15 else depth, kind="stable")  # radix sort
    latest = np.maximum.accumulate(np.where(starts[by_depth], np.arange(2 * count), 0))
    top = np.empty(2 * count, dtype=np.int64)
    top[by_depth] = (order - count)[by_depth][latest]  # a depth above 0 is first reached by a start
    top[depth == 0] = -1
    before = np.append(-1, top[:-1])
    if (before[~starts] != (count - 1 - order)[~starts]).any():
        return _nest_one_by_one(start, end)
    time, running = moments[order], np.append(lasting, -1)[top]
    parent = np.append(running, -1)[
        np.searchsorted(time, start, side="right") - 1
    ]  # right for those of no length
    parent[lasting[(order - count)[starts]]] = np.append(lasting, -1)[before[starts]]
    return Nesting(parent, time, running)


def _nest_one_by_one(start: Ints, end: Ints) -> Nesting:
    parents: list[int] = []
    times: list[int] = []
    tops: list[int] = []
    running: list[tuple[int, int]] = []  # (end, op)
    for op, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while running and running[-1][0] <= begin:
            ended, _ = running.pop()
            times.append(ended)
            tops.append(running[-1][1] if running else -1)
        parents.append(running[-1][1] if running else -1)
        times.append(begin)
        tops.append(op)
        running.append((min(finish, running[-1][0]) if running else finish, op))
    while running:
        ended, _ = running.pop()
        times.append(ended)
        tops.append(running[-1][1] if running else -1)
    return Nesting(*(np.array(values, dtype=np.int64) for values in (parents, times, tops)))


def ancestors(parent: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(ops, of each the op that it runs in), then the same with the one round that, until none is left."""
    each = np.flatnonzero(parent >= 0)
    above = parent[each]
    while len(each):
        yield each, above
        further = parent[above]
        inside = further >= 0
        each, above = each[inside], further[inside]


def repeats(parent: Ints, name: Ints) -> NDArray[np.bool_]:
    """Ops that are the only one in an op of their own name: one call, of two overloads.

    ``aten::sum()`` runs ``aten::sum(dim)``, for one; torch's tables take such a pair as one
    (``EventList._remove_dup_nodes``).
    """
    found = np.zeros(len(parent), dtype=bool)
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    stands_for: dict[int, int] = {}
    for op in np.flatnonzero((parent >= 0) & (name[parent] == name)).tolist():  # outer ones come first
        outer = stands_for.get(int(parent[op]), int(parent[op]))
        if children[outer] == 1:
            found[op] = True
            stands_for[op] = outer
            children[outer] = children[op]
    return found


@dataclass(frozen=True)
class Slices:
    """The stretch from ``begin`` to ``end`` cut wherever the line or the innermost op changes.

    Attributes:
        length: int64 [k], ns; they add up to ``end - begin``, without what is left out.
        end: int64 [k], the moment at which each ends.
        op: int64 [k], innermost op; -1 for none.
        segment: int64 [k], segment of the thread's lines; -1 before the first.
    """

    length: Ints
    op: Ints
    segment: Ints
    end: Ints


def lay_over(
    nesting: Nesting, segment_start: Ints, begin: int, end: int, left_out: Sequence[tuple[int, int]] = ()
) -> Slices:
    """Cut [begin, end) at the changes of the innermost op and of the line.

    Args:
        left_out: stretches that are nobody's, (from, to) in the order of time, none in another.
    """
    op_moments, line_moments = len(nesting.time), len(segment_start)
    times = np.concatenate([nesting.time, segment_start, np.array([begin], dtype=np.int64)])
    order = np.argsort(times, kind="stable")
    times = times[order]
    # how many op changes, and how many line changes, have come by each cut
    ops = np.cumsum(order < op_moments) - 1
    segments = np.cumsum((order >= op_moments) & (order < op_moments + line_moments)) - 1
    inside = np.clip(np.append(times, end), begin, end)
    length = np.diff(inside - _out_before(inside, left_out))
    kept = length > 0
    top = np.append(nesting.top, -1)[ops[kept]] if op_moments else np.full(int(kept.sum()), -1)
    return Slices(length[kept], top.astype(np.int64), segments[kept].astype(np.int64), inside[1:][kept])


def _out_before(moments: Ints, left_out: Sequence[tuple[int, int]]) -> Ints:
    """How much of the stretches comes before each moment."""
    if not left_out:
        return np.zeros(len(moments), dtype=np.int64)
    begins, ends = np.array(left_out, dtype=np.int64).T
    whole = np.append(0, np.cumsum(ends - begins))
    at = np.searchsorted(begins, moments, side="right") - 1
    inside = np.minimum(moments, ends[at]) - begins[at]
    return np.where(at >= 0, whole[at] + inside, 0)
