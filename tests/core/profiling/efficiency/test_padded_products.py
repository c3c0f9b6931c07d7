"""A product that is called with its narrow size padded runs, and has the other sizes and the layout that it had."""

from __future__ import annotations

from typing import Any

import pytest

from torchbench_magic.profiling.efficiency.judge import once_more
from torchbench_magic.profiling.efficiency.op_bytes import padded
from torchbench_magic.profiling.op_benchmark import RecordedCall


def call(op: str, *tensors: tuple[list[int], list[int]]) -> RecordedCall:
    shapes, strides = [list(shape) for shape, _ in tensors], [list(stride) for _, stride in tensors]
    scalars: list[Any] = [None] * len(tensors)
    dtypes = ["float"] * len(tensors)
    if op in ("aten::addmm", "aten::baddbmm"):
        shapes, strides, dtypes, scalars = (
            [*shapes, [], []], [*strides, [], []], [*dtypes, "Scalar", "Scalar"], [*scalars, 1, 1],
        )  # fmt: skip
    return RecordedCall(op, "", shapes, dtypes, strides, scalars)


@pytest.mark.parametrize(
    ("made", "narrow", "shapes", "strides"),
    [
        (call("aten::mm", ([40, 50], [50, 1]), ([50, 2], [2, 1])), ("N", 2),
         [[40, 50], [50, 16]], [[50, 1], [16, 1]]),
        (call("aten::mm", ([40, 50], [50, 1]), ([50, 2], [1, 50])), ("N", 2),
         [[40, 50], [50, 16]], [[50, 1], [1, 50]]),
        (call("aten::mm", ([13, 50], [50, 1]), ([50, 60], [60, 1])), ("M", 13),
         [[16, 50], [50, 60]], [[50, 1], [60, 1]]),
        (call("aten::bmm", ([3, 40, 17], [680, 17, 1]), ([3, 17, 60], [1020, 60, 1])), ("K", 17),
         [[3, 40, 32], [3, 32, 60]], [[1280, 32, 1], [1920, 60, 1]]),
        (call("aten::bmm", ([3, 40, 50], [0, 50, 1]), ([3, 50, 13], [650, 13, 1])), ("N", 13),
         [[3, 40, 50], [3, 50, 16]], [[0, 50, 1], [800, 16, 1]]),
        (call("aten::addmm", ([2], [1]), ([40, 50], [50, 1]), ([50, 2], [1, 50])), ("N", 2),
         [[16], [40, 50], [50, 16], [], []], [[1], [50, 1], [1, 50], [], []]),
        (call("aten::addmm", ([60], [1]), ([2, 50], [50, 1]), ([50, 60], [60, 1])), ("M", 2),
         [[60], [16, 50], [50, 60], [], []], [[1], [50, 1], [60, 1], [], []]),
    ],
)  # fmt: skip
def test_the_narrow_size_is_padded_in_both_operands(
    made: RecordedCall, narrow: tuple[str, int], shapes: list[list[int]], strides: list[list[int]]
) -> None:
    wide = padded(made, *narrow)
    assert wide is not None
    assert (wide.shapes, wide.strides) == (shapes, strides)
    more = once_more(wide, 1)
    assert more is not None
    assert more.seconds > 0


def test_what_is_a_multiple_of_16_or_no_product_is_not_padded() -> None:
    assert padded(call("aten::mm", ([40, 50], [50, 1]), ([50, 16], [16, 1])), "N", 16) is None
    assert padded(call("aten::mm", ([40, 50], [50, 1])), "N", 2) is None
