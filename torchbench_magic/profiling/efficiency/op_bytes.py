"""Of an op: its class, and the bytes that it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchbench_magic.process.peaks import Peaks
from torchbench_magic.profiling.op_arguments import (
    RecordedCall,
    Tensor,
    arguments_of,
    on_sizes_alone,
    operator_of,
    returned,
)

# ---- op_classes ------------------------------------------------------------------------------------------------------
# The class of an op: a rule of thresholds, each with its reason. Pure: figures in, a word out.

DISPATCHES = 4.0
"""Times the call of the smallest op: what takes less is the call rather than what it computes (design notes on threads:
0.8 to 0.95 us an op; three quarters of four times that may be work, and still a faster op would not be seen)."""
NEAR = 0.5
"""Of the roof: from there on an op does what the machine can. Products of usual sizes reach 50 to 95 % of the peak of
n = 512, sums and copies as much of the bandwidth at their size (design notes on threads, 17 ops by hand)."""
IMPOSSIBLE = 2.0
"""Of the roof: what reaches more shows that the roof is wrong, so nothing is told. Some more than 1 is usual: a cache
that holds more than its size says, one tensor given twice (which counts twice)."""
LONG = 1e-4
"""Seconds of a call from which on it should have used several threads: torch starts them from 32,768 elements on, and
starting them takes some microseconds."""
SERIAL = 0.15
"""Processor time of the other threads over that of the calling one: below, an op ran on one thread (the same notes)."""
PAGE = 4096
FAULTED = 0.3
"""Of the fresh bytes that page faults account for: below, they are not what takes the time (the same notes)."""
FAULTED_TIME = 0.25
"""Of an op's time that its page faults take: from there on they hold it up. One that is far below its roof for another
reason too (a transposed input: 0.4) is held up by both, and both are told."""
FASTER = 0.67
"""Of the time in the run: an op that takes so much less where its memory is there may have waited for it."""
LARGE_FRESH = 1 << 20
"""Bytes of a fresh output from which on page faults are looked for: a smaller one comes from memory that is kept."""


def class_of(
    seconds: float,
    roof: tuple[float, str],
    peaks: Peaks,
    *,
    is_bounded: bool,
    is_faulting: bool = False,
    is_serial: bool = False,
) -> str:
    """One of `CLASSES`, or empty where it cannot be told.

    Args:
        seconds: of a call, without what recording added.
        roof: (seconds at the peaks of all threads, which side).
        is_bounded: the roof is one for this op: its FLOPs are counted, or moving bytes is all it does. Of another one
            only is said that it is near the roof, never that it is far below.
        is_faulting: page faults account for its fresh bytes and take much of its time.
        is_serial: the other threads were seen to do nothing meanwhile.
    """
    if not seconds > 0 or math.isnan(peaks.dispatch):
        return ""
    if seconds < DISPATCHES * peaks.dispatch:
        return "overhead"
    least, side = roof
    if is_bounded and least < peaks.dispatch:  # less work than a call, however long others held it up
        return "overhead"
    fraction = least / seconds
    if fraction >= NEAR:
        return side if fraction <= IMPOSSIBLE else ""
    if is_faulting:
        return "page-fault"
    if is_serial and peaks.threads > 1 and seconds >= LONG:
        return "serial"
    return "below-roof" if is_bounded and fraction > 0 else ""


def accounts_for(faults: float, fresh: float) -> bool:
    """Whether so many minor faults of a call account for the bytes that it writes into fresh memory."""
    return fresh >= LARGE_FRESH and faults * PAGE >= FAULTED * fresh


# ---- op_bytes --------------------------------------------------------------------------------------------------------
# Bytes that an op has to move, from the recorded sizes, strides and dtypes: a lower bound.
#
# Each byte of an input that the op reads and each byte of an output that it writes counts once; an input that was
# expanded (stride 0) counts as what there is in memory. Not counted: what is read twice, write-allocation, temporaries.
# That one tensor was given twice (``x + x``) is not recorded: it counts twice.
# What an op returns is asked of torch itself, on tensors without memory (``meta``).

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
    outputs = [each for each, is_own in zip(out, fresh, strict=False) if isinstance(each, torch.Tensor) and is_own]
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
    positional, named = on_sizes_alone(operator, arguments)
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
