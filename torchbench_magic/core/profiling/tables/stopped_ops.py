"""Ops that a checkpoint stopped before they did anything.

A checkpoint without reentrance (``torch/utils/checkpoint.py``, "early stop") runs its function again until the last
tensor that the backward pass needs is saved, and then raises an exception out of the hook that saves it. An op saves
its inputs before its kernel runs: the last op was called and has an event, but did no work. What tells is that it
called nothing but ``aten::detach`` (the hook's, of a saved tensor that needs a gradient), where the same call elsewhere
in the run called, launched or took more. Of an op whose kernel calls no other, the time decides; of one that the run
has no other call of, that such a hook ran in it, and that it was the last.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ..joining.attribution import Joined
from ..joining.nesting import ancestors

__all__ = ["stopped_ops"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_SAVED = "aten::detach"
_MUCH_LESS = 0.5  # of the quickest of the same calls: an op that is stopped takes the time of an exception


def stopped_ops(joined: Joined, on_device: Ints | None = None) -> Bools:
    """bool [ops], of a run whose inputs were recorded.

    Args:
        on_device: int64 [ops], ns of kernels that each op launched itself; None where nothing ran on a device.
    """
    ops, found = joined.ops, np.zeros(len(joined.ops), dtype=bool)
    if ops.inputs is None:
        return found
    calls_more, saves = _children(joined)
    around, is_last = _in_node(joined)
    forward = (ops.seq >= 0) & (ops.fwd == 0)
    asked = np.flatnonzero(~calls_more & forward & (around >= 0))
    if not len(asked):
        return found
    same: defaultdict[int, list[int]] = defaultdict(list)
    call = ops.name * len(ops.inputs.texts) + ops.inputs.index
    of_interest = np.isin(call, call[asked])
    of_interest[asked] = False
    for op in np.flatnonzero(of_interest).tolist():
        same[int(call[op])].append(op)
    length = ops.end - ops.start
    for op in asked.tolist():
        others = same[int(call[op])]
        launches = on_device is not None and not on_device[op] and any(on_device[other] for other in others)
        if launches or any(calls_more[other] for other in others):
            found[op] = True
        elif is_last[op] and saves[op]:
            found[op] = not others or length[op] < _MUCH_LESS * length[others].min()
    return found


def _children(joined: Joined) -> tuple[Bools, Bools]:
    """Of each op, whether it calls anything but ``aten::detach``, and whether it calls that."""
    parent, size = joined.parent, len(joined.ops)
    inner = np.flatnonzero(parent >= 0)
    saved = joined.ops.is_named(_SAVED.__eq__)[inner]
    calls_more, saves = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    calls_more[parent[inner[~saved]]] = True
    saves[parent[inner[saved]]] = True
    return calls_more, saves


def _in_node(joined: Joined) -> tuple[Ints, Bools]:
    """(int64 [ops], the backward node that each runs in, -1: none; whether no forward op follows it there)."""
    ops = joined.ops
    node = (ops.seq >= 0) & (ops.fwd > 0)
    around = np.full(len(ops), -1, dtype=np.int64)
    for op, outer in ancestors(joined.parent):  # the innermost comes first
        mine = node[outer] & (around[op] < 0)
        around[op[mine]] = outer[mine]
    latest: dict[int, int] = {}
    inside = np.flatnonzero((around >= 0) & (ops.seq >= 0) & (ops.fwd == 0))
    for within in inside.tolist():  # by start
        latest[int(around[within])] = within
    is_last = np.zeros(len(ops), dtype=bool)
    is_last[list(latest.values())] = True
    return around, is_last
