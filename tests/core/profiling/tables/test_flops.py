"""FLOPs of ops whose count is known by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from ..profiling_text import profiled  # noqa: E402


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
