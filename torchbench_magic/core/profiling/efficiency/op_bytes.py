"""Bytes that an op has to move, from the recorded sizes, strides and dtypes: a lower bound.

Each byte of an input that the op reads and each byte of an output that it writes counts once; an input that was
expanded (stride 0) counts as what there is in memory. Not counted: what is read twice, write-allocation, temporaries.
That one tensor was given twice (``x + x``) is not recorded: it counts twice.
What an op returns is asked of torch itself, on tensors without memory (``meta``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..tables.call_arguments import (
    RecordedCall,
    Tensor,
    arguments_of,
    given_arguments,
    operator_of,
    returned,
)

__all__ = ["MOVES_ONLY", "OpWork", "moved_by"]

_MOVING = (
    "abs add add_ addcdiv addcdiv_ addcmul addcmul_ amax amin bitwise_and bitwise_not bitwise_or clamp clamp_ clone"
    " copy_ div div_ eq fill_ ge gt le lerp lerp_ logical_and logical_not lt masked_fill_ max maximum mean min minimum"
    " mul mul_ ne neg reciprocal relu relu_ rsub sign sqrt sub sub_ sum threshold threshold_backward where zero_"
)
MOVES_ONLY = frozenset(_MOVING.split())
"""Ops of aten whose arithmetic is so little that moving bytes is all they do; for others (`exp`, `sort`, random
numbers) the roof of bandwidth is none, and being below it says nothing."""
_OVERWRITES = frozenset({"copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_"})
_ROWS_OF = {"embedding": "weight", "index_select": "self", "gather": "self", "take": "self", "take_along_dim": "self"}
"""Ops that read some of an argument's rows: not more than they return."""
_ADDS_ROWS = frozenset({"index_add_", "scatter_add_", "index_copy_", "scatter_"})
"""Ops that write some of the rows of ``self``: not more than the source has."""
_SIZES = {"float64": 8, "complex64": 8, "int64": 8, "complex128": 16, "float16": 2, "bfloat16": 2, "int16": 2}
_SIZES |= {"int8": 1, "uint8": 1, "bool": 1, "int32": 4, "float32": 4}


@dataclass(frozen=True)
class OpWork:
    """What one call has to move.

    Attributes:
        bytes: read and written.
        written: of these, written.
        fresh: of these, into memory that the op took for it.
        output: shape of the first output as text; empty without one.
        dtype: of the widest input that is a tensor of numbers.
    """

    bytes: float
    written: float
    fresh: float
    output: str
    dtype: str


def moved_by(recorded: RecordedCall) -> OpWork | None:
    """Of one call; None where it cannot be told: an argument is a list of tensors, the op is none of aten's, it returns
    views or sizes that depend on values."""
    import torch

    if not recorded.op.startswith("aten::"):
        return None  # what others registered may do anything, even on tensors without memory
    try:
        operator = operator_of(recorded.op, recorded.overload)
        arguments = arguments_of(recorded, operator, values_matter=False)
        written, fresh = returned(operator)
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        if not tensors or not (written or any(fresh)):
            return None  # a view, or nothing is returned
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            out = _run_on_sizes(operator, arguments)
    except Exception:  # noqa: BLE001  # whatever an op raises that does not run on sizes alone
        return None
    name = recorded.op.removeprefix("aten::")
    outputs = [
        each for each, is_own in zip(out, fresh, strict=False) if isinstance(each, torch.Tensor) and is_own
    ]
    made = float(sum(each.numel() * each.element_size() for each in outputs))
    read, put = _arguments(name, tensors, written, made)
    shape = outputs[0].shape if outputs else next((tensors[each].shape for each in tensors if each in written), None)
    dtypes = [tensor.dtype for tensor in tensors.values()]
    return OpWork(
        bytes=read + put + made,
        written=put + made,
        fresh=made,
        output="" if shape is None else str(list(shape)),
        dtype=next((dtype for dtype in dtypes if "float" in dtype), dtypes[0]),
    )


def _run_on_sizes(operator: Any, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    import torch

    def bare(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device="meta")

    by_name = dict(given_arguments(operator, arguments))
    positional = [bare(arguments[name]) for name in by_name if not by_name[name]]
    named = {name: bare(arguments[name]) for name in by_name if by_name[name]}
    out = operator(*positional, **named)
    return out if isinstance(out, tuple) else (out,)


def _arguments(name: str, tensors: Mapping[str, Tensor], written: frozenset[str], made: float) -> tuple[float, float]:
    """(bytes read, bytes written) of what was given."""
    read = put = 0.0
    for each, tensor in tensors.items():
        size = _in_memory(tensor)
        if name in _ADDS_ROWS and each == "self":
            source = tensors.get("source") or tensors.get("src")
            size = min(size, _in_memory(source)) if source is not None else size
        if _ROWS_OF.get(name) == each:
            size = min(size, made)
        if each in written:
            put += size
        if each not in written or not (name in _OVERWRITES or each == "out"):
            read += size
    return read, put


def _in_memory(tensor: Tensor) -> float:
    """Bytes of its elements, those of expanded dimensions once."""
    counts = (n for n, stride in zip(tensor.shape, tensor.strides, strict=True) if stride or not n)
    return float(math.prod(counts) * _SIZES.get(tensor.dtype, 4))
