"""Work on torch's own threads, which nothing records the launch of: parallel regions of ops, and forks.

An op that runs in parallel (OpenMP's threads share its loop) may call ops on these threads. It waits for them: such an
op stands on the line of the one op of another thread that spans it.

Scripted functions fork, and the call may be over before the fork is.

What can be known: a fork was launched by a scripted call that had begun, and that was not one of those that had ended
and leave nothing behind (`scripted_functions`). Where all the calls that remain stand on one line, that line launched
it, whichever of them it was. Where they do not, and where torch's threads were at work as the recording began, the ops
stay on no line, and a doubt says so. Not known from anything, and taken not to happen: that a scripted function failed
between a fork and its wait, and the code went on to call another one that forks.

Assumed of torch (2.13): each scripted call of Python's and each fork, as it begins to run, is an event of scope
TORCHSCRIPT_FUNCTION, the fork's by the name ``<forked function>``. A scripted function that waits goes on where its
fork ended: on a thread of torch's, without an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..recording.scripted_functions import Scripted
from ..torch_events.events import Events, Ints
from .segments import NO_LINE, LineTree
from .thread_join import ThreadJoin

__all__ = ["FORKED", "Forking", "lines_of_forks", "lines_of_parallel_regions"]

FORKED = "<forked function>"
_SCRIPTED = 2  # RecordScope::TORCHSCRIPT_FUNCTION
_Line = tuple[int, int]  # (code, line) of the tree


@dataclass(frozen=True)
class Forking:
    """What is known of the forks of a run.

    Attributes:
        scripted: what the functions leave running.
        busy: native ids of threads that may have been at work as the recording began; None: not known.
        pool: native ids of the threads of torch's pool, as far as known: one that ran a fork is one of them.
    """

    scripted: Scripted
    busy: Collection[int] | None
    pool: Collection[int] = ()


def lines_of_parallel_regions(
    ops: Events, threads: Collection[ThreadJoin], tree: LineTree, node: Ints, apart: Collection[int]
) -> None:
    """Put the ops on no line, in ``node``, of threads without Python on the line of the op that spans them, if only
    one thread has one.

    A thread that ran a fork is left out, with all its ops, and so are those ``apart``, by their native ids: those that
    run Python, and those of the pool that runs forks.
    """
    forked = ops.is_named(FORKED.__eq__)
    without_python = [t for t in threads if t.number and not len(t.segments.start)]
    launching = [t for t in threads if t not in without_python and len(t.ops)]
    for thread in without_python:
        mine = thread.ops[node[thread.ops] == thread.segments.root]
        if not len(mine) or forked[thread.ops].any() or thread.segments.native_id in apart:
            continue
        around = np.stack([_spanning(ops, other, mine) for other in launching] or [np.full(len(mine), -1)])
        only = np.where((around >= 0).sum(axis=0) == 1, around.max(axis=0), -1)
        for line in np.unique(node[only[only >= 0]]).tolist():
            if tree.code[line] != NO_LINE:
                its = (only >= 0) & (node[only] == line)
                node[mine[its]] = tree.child(thread.segments.root, tree.code[line], tree.line[line])


def _spanning(ops: Events, thread: ThreadJoin, inner: Ints) -> Ints:
    """The innermost op of ``thread`` that runs as each of ``inner`` begins and until it has ended; -1 for none."""
    parent, moments = np.append(thread.nesting.parent, -1), thread.nesting.time
    found = np.append(thread.nesting.top, -1)[np.searchsorted(moments, ops.start[inner], side="right") - 1]
    its: Ints = np.append(thread.ops, -1)
    while (further := (found >= 0) & ((ops.end[its[found]] < ops.end[inner]) | ops.is_range[its[found]])).any():
        found = np.where(further, parent[found], found)
    spanning: Ints = its[found]
    return spanning


def lines_of_forks(ops: Events, threads: Collection[ThreadJoin], tree: LineTree, node: Ints, forking: Forking) -> None:
    """Put the ops of forks, in ``node``, on the line of the scripted calls that can have launched them, if one line."""
    is_scripted = (ops.scope == _SCRIPTED) & (ops.seq < 0)
    forked = is_scripted & ops.is_named(FORKED.__eq__)
    without_python = [thread for thread in threads if thread.number and not len(thread.segments.start)]
    pool = [t for t in without_python if forked[t.ops].any() or t.segments.native_id in forking.pool]
    if not forked.any() or forking.busy is None or any(t.segments.native_id in forking.busy for t in pool):
        return
    on_pool = np.isin(ops.native, [thread.segments.native_id for thread in pool])
    calls = np.flatnonzero(is_scripted & ~on_pool)
    times, lines = _lines_over_time(ops, calls, _returned(ops, calls, threads), tree, node, forking.scripted)
    by_fork = _within(ops, is_scripted)
    for thread in pool:
        mine = thread.ops[by_fork[thread.ops]]
        at = np.searchsorted(times, ops.start[mine], side="right") - 1
        for number in np.unique(at[at >= 0]).tolist():
            if (line := lines[number]) is not None:
                node[mine[at == number]] = tree.child(thread.segments.root, *line)


def _returned(ops: Events, calls: Ints, threads: Collection[ThreadJoin]) -> Ints:
    """When each call had returned at the latest, Unix ns.

    The event of a call that waited is ended by the thread that went on with it, which may be after Python has gone on;
    then the next line of the calling thread says so. (Functions that call Python in between are never `waiting`.)
    """
    ends = ops.end[calls]
    for thread in threads:
        mine = ops.native[calls] == thread.segments.native_id
        starts = np.append(thread.segments.start, np.iinfo(np.int64).max)
        after = starts[np.searchsorted(starts[:-1], ops.start[calls[mine]], side="right")]
        ends[mine] = np.minimum(ends[mine], after)
    return ends


def _lines_over_time(
    ops: Events, calls: Ints, ends: Ints, tree: LineTree, node: Ints, scripted: Scripted
) -> tuple[Ints, list[_Line | None]]:
    """From each time on (Unix ns, ascending): the one line of all calls that can have launched what begins then."""
    changes: list[tuple[int, int, _Line]] = []
    for call, end in zip(calls.tolist(), ends.tolist(), strict=True):
        name, line = ops.names[ops.name[call]], (tree.code[node[call]], tree.line[node[call]])
        if name in scripted.without_forks:
            continue
        changes.append((int(ops.start[call]), 1, line))
        if name in scripted.waiting:
            changes.append((end, -1, line))
    times, lines = [], list[_Line | None]()
    open_calls: Counter[_Line] = Counter()
    for time, change, line in sorted(changes):
        open_calls[line] += change
        if not open_calls[line]:
            del open_calls[line]
        only = next(iter(open_calls)) if len(open_calls) == 1 else None
        times.append(time)
        lines.append(only if only is not None and only[0] != NO_LINE else None)
    return np.array(times, dtype=np.int64), lines


def _within(ops: Events, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether one of the ``chosen``, of whatever thread, was open as each op began."""
    starts = ops.start[chosen]  # ascending, as all ops are
    ends = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(ops.end[chosen]))
    return ends[np.searchsorted(starts, ops.start, side="right")] > ops.start
