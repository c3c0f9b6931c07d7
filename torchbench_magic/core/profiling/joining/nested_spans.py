"""What nests on a thread besides the lines: ops, ranges and calls of modules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..recording.module_calls import ModuleRecord
from ..torch_events.events import Ints
from .attribution import Joined
from .nesting import Nesting, Slices, ancestors, lay_over, nest
from .thread_join import ThreadJoin
from .tree_frames import MODULE, OP, RANGE

__all__ = ["Things", "input_count", "things_of"]



@dataclass(frozen=True)
class Things:
    """Ops, ranges and module calls of one thread, by start.

    Attributes:
        op: index in ``Joined.ops``; -1 for a module call.
        kind, label, start: of each.
        node: the line it started on.
        depth: recorded frames entered as it started.
        nesting: which contains which.
        slices: the run cut where the line or the innermost of them changes.
        above: how many of them contain it.
    """

    op: Ints
    kind: Ints
    label: Ints
    start: Ints
    node: Ints
    depth: Ints
    nesting: Nesting
    slices: Slices
    above: Ints

    def levels(self) -> list[Ints]:
        """The things with none above them, with one, ..."""
        order = np.argsort(self.above, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.above[order])) + 1) if len(order) else []


def input_count(joined: Joined) -> int:
    return len(joined.ops.inputs.texts) if joined.ops.inputs is not None else 1


def things_of(joined: Joined, thread: ThreadJoin, modules: ModuleRecord, label_of: Ints) -> Things:
    ops, mine, segments = joined.ops, thread.ops, thread.segments
    began, left, number = modules.calls(segments.native_id, joined.begin, joined.end)
    start = np.concatenate([ops.start[mine], began])
    end = np.concatenate([np.minimum(ops.end[mine], joined.end), left])
    order = np.lexsort((-end, start)) if len(began) else np.arange(len(start))
    label = ops.name[mine] * input_count(joined) + (ops.inputs.index[mine] if ops.inputs is not None else 0)
    kind = np.where(ops.is_range[mine], RANGE, OP)
    at = segments.at(start)
    node = np.append(segments.node, segments.root)[at]
    node[: len(mine)] = joined.node[mine]  # also of a thread without lines of its own
    nesting, slices = thread.nesting, thread.slices
    if len(began):
        nesting = nest(start[order], end[order])
        left_out = () if thread.number else joined.left_out
        slices = lay_over(nesting, segments.start, joined.begin, joined.end, left_out)
    above = np.zeros(len(order), dtype=np.int64)
    for inside, _ in ancestors(nesting.parent):
        above[inside] += 1
    return Things(
        op=np.concatenate([mine, np.full(len(began), -1)])[order].astype(np.int64),
        kind=np.concatenate([kind, np.full(len(began), MODULE)])[order].astype(np.int64),
        label=np.concatenate([label, label_of[number]])[order].astype(np.int64),
        start=start[order],
        node=node[order].astype(np.int64),
        depth=np.append(segments.depth, 0)[at][order],
        nesting=nesting,
        slices=slices,
        above=above,
    )
