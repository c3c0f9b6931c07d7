"""A product with its narrow size padded: the call that tells what padding would save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torchbench_magic.results.profiling.efficiency import PADDED

from ..tables.call_arguments import RecordedCall

__all__ = ["padded"]


def padded(call: RecordedCall, name: str, size: int) -> RecordedCall | None:
    """The call with its size M, K or N padded to a multiple of `PADDED`; None where it is one.

    Args:
        call: of mm, bmm, addmm or baddbmm, whose last two tensors are multiplied: (..., M, K) by (..., K, N).
    """
    wide = -(-size // PADDED) * PADDED
    at = [at for at, shape in enumerate(call.shapes) if isinstance(shape, list) and len(shape) >= 2]
    if wide == size or len(at) < 2:
        return None
    first, second = at[-2:]
    shapes = [list(shape) if isinstance(shape, list) else shape for shape in call.shapes]
    for operand, dimension in {"M": ((first, -2),), "K": ((first, -1), (second, -2)), "N": ((second, -1),)}[name]:
        shapes[operand][dimension] = wide
    added = shapes[0] if first > 0 else []  # of addmm: what broadcasts to (M, N)
    back = {"M": 2, "N": 1}.get(name, 0)
    if back and isinstance(added, list) and len(added) >= back and added[-back] == size:
        added[-back] = wide
    strides = [
        _laid_out(new, old) if isinstance(new, list) and new else old
        for new, old in zip(shapes, call.strides, strict=True)
    ]
    return replace(call, shapes=shapes, strides=strides)


def _laid_out(shape: Sequence[int], strides: Sequence[Any]) -> list[int]:
    """Dense strides, the dimensions in the order in memory that they had; what was expanded stays so."""
    order = sorted(range(len(shape)), key=lambda at: (strides[at], at < len(shape) - 1), reverse=False)
    found, step = [0] * len(shape), 1
    for at in order:
        if strides[at] or shape[at] == 1:
            found[at] = step
            step *= shape[at]
    return found
