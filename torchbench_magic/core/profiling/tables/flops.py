"""Floating point operations of ops, by torch's own formulas (``torch.utils.flop_counter``) and the recorded sizes.

There are formulas for matrix products, convolutions and attention, forward and backward; of element-wise work, of
reductions and of copies none is counted. A multiplication and an addition are two operations. An op that runs inside
one that is counted (``aten::_convolution`` in ``aten::convolution``) is counted with that one; under
``torch.func.vmap``, where the outer op has the sizes of a single example, the inner one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..joining.attribution import Joined
from ..torch_events.events import Events
from .call_arguments import (
    ArgumentError,
    RecordedCall,
    Tensor,
    arguments_of,
    given_arguments,
    operator_of,
    parsed_call,
)
from .stopped_ops import stopped_ops

__all__ = ["Call", "Flops", "attribute_flops", "flops_of", "recorded_calls"]

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
        arguments = arguments_of(recorded, operator, values_matter=False)
        given = {name: _meta(value) for name, value in arguments.items()}
        by_name = dict(given_arguments(operator, given))
        positional = [given[name] for name in by_name if not by_name[name]]
        named = {name: given[name] for name in by_name if by_name[name]}
        with torch.no_grad():
            out = operator(*positional, **named)
        return int(formula(*positional, **named, out_val=out))
    except (ArgumentError, RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError, IndexError):
        return None  # an op that does not run on sizes alone


def _meta(value: Any) -> Any:
    import torch

    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device="meta")


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
