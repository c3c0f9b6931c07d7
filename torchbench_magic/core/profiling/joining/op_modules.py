"""Of a backward pass: what caused each op and each moment, as modules count and as lines do. Else the module around it.

A backward node can run Python: a checkpoint calls the forward function again, an ``autograd.Function`` has a
``backward`` of the user's, a hook is called. For lines, what has recorded lines of its own stands there and is not
caused by another line besides (`attribution` leaves it out). For modules, a module that the pass calls again has that
time itself, as backward time (`results.profiling.frames.modules`); all else that a node runs, with or without lines, is
caused by the module of its forward op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..torch_events.events import Ints
from .attribution import Joined
from .gradients import nodes_before_gradients
from .nested_spans import Things
from .nesting import ancestors
from .tree_frames import MODULE, Places

__all__ = ["Caused", "caused_frames", "modules_of_ops"]



def modules_of_ops(joined: Joined, threads: Sequence[Things]) -> Ints:
    """int64 [ops], the label of the module; -1 for none."""
    found = np.full(len(joined.ops), -1, dtype=np.int64)
    for things in threads:
        _modules_of_thread(found, joined, things, None)
    forward = found.copy()
    for things in threads:
        _modules_of_thread(found, joined, things, forward)
    _modules_of_gradients(found, joined)
    return found


def _modules_of_thread(op_module: Ints, joined: Joined, things: Things, forward: Ints | None) -> None:
    """The module that each op ran in; with ``forward``, the module of each forward op, also that which caused it.

    What a backward node runs inherits, unless it runs modules itself (a checkpoint does).
    """
    ops, found = joined.ops, np.full(len(things.op), -1, dtype=np.int64)
    for level in things.levels():
        outer = things.nesting.parent[level]
        found[level] = np.where(outer >= 0, found[outer], -1)
        found[level] = np.where(things.kind[level] == MODULE, things.label[level], found[level])
        if forward is not None and len(ops):
            op = things.op[level]
            node = (op >= 0) & (ops.seq[op] >= 0) & (ops.fwd[op] > 0) & (joined.made_by[op] >= 0)
            caused = np.append(forward, -1)[np.where(node, joined.made_by[op], -1)]
            found[level] = np.where(caused >= 0, caused, found[level])
    is_op = things.op >= 0
    op_module[things.op[is_op]] = found[is_op]


def _modules_of_gradients(op_module: Ints, joined: Joined) -> None:
    """Give each gradient that is accumulated to the module whose backward node made it."""
    parent, caused = joined.parent, np.full(len(joined.ops), -1, dtype=np.int64)
    gradients, makers = nodes_before_gradients(joined.ops, parent)
    if not len(gradients):
        return
    op_module[gradients] = np.append(op_module, -1)[makers]
    of_gradients = np.zeros(len(joined.ops), dtype=bool)
    of_gradients[gradients] = True
    for each, outer in ancestors(parent):  # the outermost comes last
        of_gradient = of_gradients[outer]
        caused[each[of_gradient]] = outer[of_gradient]
    op_module[caused >= 0] = op_module[caused[caused >= 0]]


@dataclass(frozen=True)
class Caused:
    """Of each of a thread's things, the frame that caused the backward time in it; -1 for none.

    Attributes:
        for_lines: the frame of the forward op; where a checkpoint calls modules again, the frames of these modules.
        for_modules: the frame of the forward op; -1 in a module that the pass calls, until its own nodes.
    """

    for_lines: Ints
    for_modules: Ints


def caused_frames(joined: Joined, things: Things, frame_of_op: Ints, places: Places) -> Caused:
    """``frame_of_op``: the frame of each op of all threads."""
    count = len(things.op)
    made, lines, modules = (np.full(count + 1, -1, dtype=np.int64) for _ in range(3))  # the last: what is in nothing
    made_by, frames = np.append(joined.made_by, -1), np.append(frame_of_op, -1)
    for level in things.levels():
        outer, is_module = things.nesting.parent[level], things.kind[level] == MODULE
        maker = np.where(is_module, made[outer], made_by[things.op[level]])
        inherits = maker == made[outer]
        made[level] = maker
        lines[level] = np.where(inherits, lines[outer], frames[maker])
        modules[level] = np.where(inherits | (maker < 0), modules[outer], frames[maker])
        modules[level[is_module]] = -1
        for thing in level[is_module & (lines[level] >= 0)].tolist():
            lines[thing] = _called_again(places, int(lines[thing]), int(things.label[thing]))
    return Caused(lines[:-1], modules[:-1])


def _called_again(places: Places, frame: int, label: int) -> int:
    """The frame of the module as it was called forward, around ``frame`` or beside what is around it."""
    around = frame
    while around >= 0:
        if places.kind[around] == MODULE and places.label[around] == label:
            return around
        if (below := places.find(around, MODULE, label)) is not None:
            return below
        around = places.parent[around]
    return frame
