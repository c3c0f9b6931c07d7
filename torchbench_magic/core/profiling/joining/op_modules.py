"""The module of each op: the one it ran in or, of a backward pass, the one that caused it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .attribution import Joined
from .gradients import nodes_before_gradients
from .nested_spans import Things
from .nesting import ancestors
from .tree_frames import MODULE

__all__ = ["modules_of_ops"]

Ints = NDArray[np.int64]


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
