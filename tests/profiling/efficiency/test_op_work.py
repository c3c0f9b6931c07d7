"""What an op has to do at least, in bytes and FLOPs, and the class that this gives it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.profiling.profiling_text import profiled
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.efficiency.op_work import OpWork, accounts_for, class_of, moved_by
from torchbench_magic.profiling.efficiency.table import CLASSES
from torchbench_magic.profiling.op_arguments import RecordedCall

# ==== op bytes ========================================================================================================
# Bytes of recorded calls: what an op has to read and write at least.


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


def test_an_expanded_input_counts_as_what_is_in_memory_and_a_table_as_the_rows_that_are_read() -> None:
    shapes, strides = [[100, 50], [100, 50]], [[50, 1], [0, 1]]
    found = work("aten::add", shapes, [F, F], [None, None, None], overload="Tensor", strides=strides)
    assert found.bytes == 4 * (5000 + 50 + 5000)
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


# ==== flops ===========================================================================================================
# FLOPs of ops whose count is known by hand.


def flops(text: str) -> dict[str, int]:
    ops = profiled(text, flops=True).profile.ops
    counted = ops[ops["flops"].notna()]
    return {op: int(value) for op, value in counted.groupby("op")["flops"].sum().items()}


def test_a_matrix_product_has_two_operations_a_term() -> None:
    assert flops("a = torch.ones(30, 50)\nfor _ in range(3): a @ a.t()\n") == {"aten::mm": 3 * 2 * 30 * 50 * 30}
    assert flops("torch.ones(4, 30, 50) @ torch.ones(4, 50, 7)\n") == {"aten::bmm": 4 * 2 * 30 * 50 * 7}


def test_a_convolution_is_counted_once_although_it_runs_inside_another() -> None:
    text = "torch.nn.functional.conv2d(torch.ones(2, 3, 10, 10), torch.ones(5, 3, 3, 3), padding=1, stride=2)\n"
    assert flops(text) == {"aten::convolution": 2 * 2 * 5 * 5 * 5 * 3 * 3 * 3}


def test_the_backward_pass_is_counted_too() -> None:
    found = flops("w = torch.ones(20, 30, requires_grad=True)\n(torch.ones(10, 20) @ w).sum().backward()\n")
    assert found == {"aten::mm": 2 * (2 * 10 * 20 * 30)}, "the product, and that for the gradient of w"


def test_calls_of_other_sizes_are_counted_apart() -> None:
    profile = profiled("torch.ones(2, 3) @ torch.ones(3, 4)\ntorch.ones(5, 6) @ torch.ones(6, 7)\n", flops=True).profile
    mm = profile.ops[profile.ops["op"] == "aten::mm"].set_index("line")["flops"]
    assert mm.to_dict() == {1: 2 * 2 * 3 * 4, 2: 2 * 5 * 6 * 7}
    assert profile.ops[profile.ops["op"] == "aten::ones"]["flops"].isna().all()


def test_coverage_is_the_share_of_op_time_that_has_a_formula() -> None:
    assert profiled("x = torch.ones(500, 500)\nx.sin()\n", flops=True).profile.flops_coverage == 0
    share = profiled("x = torch.ones(700, 700)\nfor _ in range(9): x @ x\n", flops=True).profile.flops_coverage
    assert 0.5 < share <= 1


def test_without_the_option_nothing_is_counted() -> None:
    profile = profiled("torch.ones(3, 3) @ torch.ones(3, 3)\n", shapes=True).profile
    assert profile.ops["flops"].isna().all()
    assert profile.flops_coverage != profile.flops_coverage


_CHECKPOINT = """from torch.utils.checkpoint import checkpoint
def f(x):
    return {body}
x, w, b = (torch.ones(20, 30, 40)[0].requires_grad_(), torch.ones(50, 40, requires_grad=True), torch.ones(4, 40, 30))
checkpoint(f, x, use_reentrant={reentrant}).sum().backward()
"""
_PRODUCT = 2 * 30 * 40 * 50  # of x with w: forward, and for the gradient of each


@pytest.mark.parametrize(
    ("body", "reentrant", "products"),
    [
        ("torch.nn.functional.linear(x, w)", False, 3),  # the second call is stopped as it saves its inputs
        ("torch.nn.functional.linear(x, w).sin()", False, 4),  # needed again, for the sine
        ("torch.nn.functional.linear(x, w)", True, 4),
        ("checkpoint(lambda y: torch.nn.functional.linear(y, w), x, use_reentrant=False)", False, 3),
    ],
)
def test_a_product_that_a_checkpoint_stops_before_it_began_is_no_work(
    body: str, reentrant: bool, products: int
) -> None:
    found = flops(_CHECKPOINT.format(body=body, reentrant=reentrant))
    assert sum(found.values()) == products * _PRODUCT


def test_the_counts_of_a_checkpoint_are_those_of_torchs_own_counter() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    text = _CHECKPOINT.format(
        body="torch.nn.functional.conv2d(x[None, None], w[None, None, :3, :3]) @ b[0, :38, :7]", reentrant=False
    )
    with FlopCounterMode(display=False) as counter:
        exec(text, {"torch": torch})
    assert sum(flops(text).values()) == counter.get_total_flops()


def test_under_vmap_all_examples_are_counted() -> None:
    """The outer op is told the sizes of one of them."""
    text = "x = torch.ones(7, 30, 50)\ntorch.func.vmap(lambda a: a @ a.t())(x)\n"
    assert sum(flops(text).values()) == 7 * 2 * 30 * 50 * 30


# ==== op classes ======================================================================================================
# The rule that gives an op its class: each threshold from both sides.


TWO = Peaks(threads=2, dispatch=1e-6)
ONE = Peaks(threads=1, dispatch=1e-6)


@pytest.mark.parametrize(
    ("seconds", "roof", "told"),
    [
        (3.9e-6, (3e-6, "memory"), "overhead"),
        (4.1e-6, (3e-6, "memory"), "memory"),
        (1e-3, (0.51e-3, "compute"), "compute"),
        (1e-3, (0.51e-3, "memory"), "memory"),
        (1e-3, (0.49e-3, "memory"), "below-roof"),
        (1e-3, (0.9e-6, "memory"), "overhead"),
        (1e-3, (1.9e-3, "memory"), "memory"),
        (1e-3, (2.1e-3, "memory"), ""),  # the peak must be wrong
        (0.0, (1e-3, "memory"), ""),
        (1e-3, (math.nan, ""), ""),
    ],
)
def test_time_against_the_call_and_the_roof(seconds: float, roof: tuple[float, str], told: str) -> None:
    assert class_of(seconds, roof, TWO, is_bounded=True) == told
    assert told in (*CLASSES, "")


def test_an_op_whose_arithmetic_is_not_counted_is_never_called_far_below() -> None:
    assert class_of(1e-3, (1e-5, "memory"), TWO, is_bounded=False) == ""
    assert class_of(1e-3, (0.6e-3, "memory"), TWO, is_bounded=False) == "memory"


def test_one_thread_is_a_reason_only_where_there_could_be_more() -> None:
    roof = (1e-5, "memory")
    assert class_of(1e-3, roof, TWO, is_bounded=False, is_serial=True) == "serial"
    assert class_of(1e-3, roof, ONE, is_bounded=True, is_serial=True) == "below-roof"
    assert class_of(5e-5, roof, TWO, is_bounded=True, is_serial=True) == "below-roof"


def test_page_faults_come_before_one_thread_and_after_the_roof() -> None:
    told = {"is_bounded": True, "is_faulting": True, "is_serial": True}
    assert class_of(1e-3, (1e-5, "memory"), TWO, **told) == "page-fault"
    assert class_of(1e-3, (6e-4, "memory"), TWO, **told) == "memory"


def test_without_peaks_nothing_is_told() -> None:
    assert class_of(1e-3, (math.nan, ""), Peaks(threads=2), is_bounded=True) == ""


@pytest.mark.parametrize(
    ("faults", "fresh", "told"),
    [(16384, 64 << 20, True), (4000, 64 << 20, False), (200, 512 << 10, False), (math.nan, 64 << 20, False)],
)
def test_page_faults_must_account_for_the_fresh_bytes(faults: float, fresh: float, told: bool) -> None:
    assert accounts_for(faults, fresh) is told
