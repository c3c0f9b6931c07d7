"""Floating point operations of ops, also of those that were stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.arrays import Bools, Ints
from torchbench_magic.profiling.attribution import Joined
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.op_arguments import (
    ArgumentError,
    RecordedCall,
    arguments_of,
    on_sizes_alone,
    operator_of,
    parsed_call,
)
from torchbench_magic.profiling.segments import ancestors

# ---- stopped_ops -----------------------------------------------------------------------------------------------------
# Ops that a checkpoint stopped before they did anything.
#
# A checkpoint without reentrance (``torch/utils/checkpoint.py``, "early stop") runs its function again until the last
# tensor that the backward pass needs is saved, and then raises an exception out of the hook that saves it. An op saves
# its inputs before its kernel runs: the last op was called and has an event, but did no work. What tells is that it
# called nothing but ``aten::detach`` (the hook's, of a saved tensor that needs a gradient), where the same call
# elsewhere in the run called, launched or took more. Of an op whose kernel calls no other, the time decides; of one
# that the run has no other call of, that such a hook ran in it, and that it was the last.

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


# ---- flops -----------------------------------------------------------------------------------------------------------
# Floating point operations of ops, by torch's own formulas (``torch.utils.flop_counter``) and the recorded sizes.
#
# There are formulas for matrix products, convolutions and attention, forward and backward; of element-wise work, of
# reductions and of copies none is counted. A multiplication and an addition are two operations. An op that runs inside
# one that is counted (``aten::_convolution`` in ``aten::convolution``) is counted with that one; under
# ``torch.func.vmap``, where the outer op has the sizes of a single example, the inner one is.

_OUTDONE = 1.5  # times what an op counts: what runs inside it is then of more examples than it was told of
Call = tuple[str, str, str, str, str, str, int]  # op, overload, shapes, dtypes, strides, scalars, how often seen


@dataclass(frozen=True)
class Flops:
    """Operations by op.

    Attributes:
        op: float64 [ops], NaN where there is no formula, or where the op runs inside one that is counted; 0 of an op
            that a checkpoint stopped before it did anything.
        coverage: share of the time in ops that is spent in ops that are counted, with all that they call.
    """

    op: NDArray[np.float64]
    coverage: float


def flops_of(recorded: RecordedCall) -> int | None:
    """Of one call; None without a formula, or where its arguments cannot be rebuilt."""
    import torch
    from torch.utils.flop_counter import flop_registry

    try:
        operator = operator_of(recorded.op, recorded.overload)
        formula = flop_registry.get(operator.overloadpacket)
        if formula is None:
            return None
        positional, named = on_sizes_alone(operator, arguments_of(recorded, operator, values_matter=False))
        with torch.no_grad():
            out = operator(*positional, **named)
        return int(formula(*positional, **named, out_val=out))
    except (ArgumentError, RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError, IndexError):
        return None  # an op that does not run on sizes alone


def recorded_calls(ops: Events) -> tuple[Call, ...]:
    """What was recorded of each distinct call; empty without shapes."""
    if ops.inputs is None:
        return ()
    texts = ops.inputs.texts
    there = set(np.unique(ops.name).tolist())
    return tuple(
        (ops.names[name], overload, *texts[text], scalars, seen)
        for name, text, overload, scalars, seen in ops.inputs.calls
        if name in there
    )


def attribute_flops(joined: Joined, calls: Sequence[Call], on_device: NDArray[np.int64] | None = None) -> Flops:
    """Count the ops of a run, of which ``calls`` were recorded.

    Args:
        on_device: int64 [ops], ns of kernels that each op launched itself; None where nothing ran on a device.
    """
    ops = joined.ops
    values = np.full(len(ops), np.nan)
    if ops.inputs is not None and calls:
        by_call: dict[tuple[str, tuple[str, str, str]], float] = {}
        known: dict[tuple[str, ...], float] = {}
        for op, overload, shapes, dtypes, strides, scalars, _ in calls:
            key = (op, overload, shapes, dtypes, strides, scalars)
            if key not in known:
                found = flops_of(parsed_call(*key))
                known[key] = np.nan if found is None else float(found)
            # the same sizes with other scalars (a stride): the call that came first stands for them
            by_call.setdefault((op, (shapes, dtypes, strides)), known[key])
        size = len(ops.inputs.texts)
        pairs, index = np.unique(ops.name * size + ops.inputs.index, return_inverse=True)
        each = [
            by_call.get((ops.names[pair // size], ops.inputs.texts[pair % size]), np.nan) for pair in pairs.tolist()
        ]
        values = np.array(each, dtype=np.float64)[index] if len(each) else values
    values[_are_outdone(values, joined.parent)] = np.nan
    covered = ~np.isnan(values)
    values[covered & stopped_ops(joined, on_device)] = 0.0
    inside = np.zeros(len(ops), dtype=bool)
    for each_op, parent in enumerate(joined.parent.tolist()):  # a parent comes before its children
        if parent >= 0 and covered[parent]:
            inside[each_op] = covered[each_op] = True
    values[inside] = np.nan
    is_op = ~ops.is_range
    total = int(joined.self_time[is_op].sum())
    share = float(joined.self_time[is_op & covered].sum()) / total if total else 0.0
    return Flops(values, share)


def _are_outdone(values: NDArray[np.float64], parent: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool [ops]: whether the counted ops inside one come to clearly more than it does itself."""
    inner = [0.0] * len(values)
    own = np.nan_to_num(values).tolist()
    above = parent.tolist()
    for at in range(len(own) - 1, -1, -1):  # a parent comes before its children
        if above[at] >= 0:
            inner[above[at]] += max(own[at], inner[at])
    return np.asarray(inner) > _OUTDONE * values  # False where a value is NaN
