"""Bytes of recorded calls: what an op has to read and write at least."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchbench_magic.profiling.efficiency.op_bytes import OpWork, moved_by
from torchbench_magic.profiling.op_benchmark import RecordedCall

F = "float"


def call(
    op: str, shapes: list[Any], dtypes: list[str], scalars: list[Any] | None = None, overload: str = "",
    strides: list[Any] | None = None,
) -> RecordedCall:  # fmt: skip
    flat = [shape if all(isinstance(n, int) for n in shape) else [] for shape in shapes]
    laid = strides or [list(torch.empty(shape, device="meta").stride()) if shape else [] for shape in flat]
    return RecordedCall(op, overload, shapes, dtypes, laid, scalars or [None] * len(shapes))


def work(*given: Any, **more: Any) -> OpWork:
    found = moved_by(call(*given, **more))
    assert found is not None
    return found


def test_an_op_with_a_result_of_its_own_reads_its_inputs_and_writes_that() -> None:
    found = work("aten::mm", [[10, 20], [20, 30]], [F, F])
    assert (found.bytes, found.written, found.fresh) == (4 * (200 + 600 + 300), 1200, 1200)
    assert (found.output, found.dtype) == ("[10, 30]", "float32")


def test_what_goes_into_a_given_tensor_is_not_fresh() -> None:
    shapes = [[1000], [], [1000]]
    found = work("aten::div", shapes, [F, "Scalar", F], [None, 8.0, None], overload="out")
    assert (found.bytes, found.written, found.fresh) == (8000, 4000, 0.0)


def test_in_place_is_read_and_written_and_a_fill_is_only_written() -> None:
    found = work("aten::mul_", [[1000], [1000]], [F, F], overload="Tensor")
    assert (found.bytes, found.written, found.fresh) == (12_000, 4000, 0.0)
    found = work("aten::copy_", [[1000], [1000]], [F, "double"], ["", ""])
    assert (found.bytes, found.written) == (12_000, 4000)


def test_an_expanded_input_counts_as_what_is_in_memory() -> None:
    shapes, strides = [[100, 50], [100, 50]], [[50, 1], [0, 1]]
    found = work("aten::add", shapes, [F, F], [None, None, None], overload="Tensor", strides=strides)
    assert found.bytes == 4 * (5000 + 50 + 5000)


def test_a_table_of_which_rows_are_read_counts_as_these_rows() -> None:
    found = work("aten::index_select", [[100_000, 8], [], [10]], [F, "Scalar", "long int"], [None, 0, None])
    assert found.bytes == 2 * 10 * 8 * 4 + 10 * 8


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "scalars"),
    [
        ("aten::t", [[10, 20]], [F], [None]),
        ("aten::view", [[10, 20], []], [F, "ScalarList"], [None, [200]]),
        ("aten::nonzero", [[10]], [F], [None]),
        ("aten::cat", [[[2], [2]], []], ["TensorList", "Scalar"], [None, 0]),
        ("mine::anything", [[10]], [F], [None]),
        ("aten::no_such_op", [[10]], [F], [None]),
        ("aten::mm", [[10, 20], [21, 30]], [F, F], [None, None]),
    ],
)
def test_what_cannot_be_told_is_not(op: str, shapes: list[Any], dtypes: list[str], scalars: list[Any]) -> None:
    assert moved_by(call(op, shapes, dtypes, scalars)) is None
