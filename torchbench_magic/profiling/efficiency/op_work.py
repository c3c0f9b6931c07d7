"""What an op does: its floating point operations, the bytes that it moves, and the class that follows from both."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Bools, Ints
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.attribution import Joined
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.op_arguments import (
    ArgumentError,
    RecordedCall,
    Tensor,
    arguments_of,
    on_sizes_alone,
    operator_of,
    parsed_call,
    returned,
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
            positional, named = on_sizes_alone(operator, arguments)
            out = operator(*positional, **named)
    except Exception:  # noqa: BLE001  # whatever an op raises that does not run on sizes alone
        return None
    name = recorded.op.removeprefix("aten::")
    every = out if isinstance(out, tuple) else (out,)
    outputs = [each for each, is_own in zip(every, fresh, strict=False) if isinstance(each, torch.Tensor) and is_own]
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
