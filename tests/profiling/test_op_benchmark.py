"""A row of a profile as a micro-benchmark: the same op, sizes, strides, dtypes and scalars."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchbench_magic  # noqa: E402
from torchbench_magic.errors import InputError  # noqa: E402
from torchbench_magic.profiling.op_arguments import ArgumentError, parsed_call  # noqa: E402
from torchbench_magic.profiling.op_benchmark import code_of  # noqa: E402

from .profiling_text import profiled  # noqa: E402

CALLS = {
    "aten::mm": "torch.ones(3, 4) @ torch.ones(4, 5)",
    "aten::bmm": "torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))",
    "aten::addmm": "torch.nn.functional.linear(torch.ones(3, 4), torch.ones(5, 4), torch.ones(5))",
    "aten::add": "torch.add(torch.ones(3), torch.ones(3), alpha=2)",
    "aten::clamp": "torch.ones(3).clamp(float('-inf'), float('inf'))",
    "aten::sum": "torch.ones(3, 4).sum(0, keepdim=True)",
    "aten::softmax": "torch.softmax(torch.ones(3, 4), 1)",
    "aten::to": "torch.ones(3).to(torch.float64)",
    "aten::clamp_min": "torch.ones(3).relu()",
    "aten::convolution": "torch.nn.functional.conv2d(torch.ones(1, 2, 9, 9), torch.ones(3, 2, 3, 3), stride=2)",
    "aten::clone": "torch.ones(3, 4).t().clone(memory_format=torch.contiguous_format)",
    "aten::masked_fill": "torch.ones(3).masked_fill(torch.ones(3) > 0, 2.5)",
    "aten::empty": "torch.empty(3, 4)",
    "aten::native_layer_norm": "torch.nn.functional.layer_norm(torch.ones(3, 4), (4,))",
    "aten::uniform_": "torch.rand(5)",
    "aten::expand": "torch.ones(3, 1).expand(3, 4)",
}


def profile_of(text: str) -> Any:
    return profiled(f"{text}\n", shapes=True).profile


@pytest.mark.parametrize("op", CALLS)
def test_the_op_is_called_again_with_what_was_recorded(op: str) -> None:
    """A second profile, of the code that was made, records the same call."""
    first = profile_of(CALLS[op]).arguments
    recorded = first[first["op"] == op].iloc[0]
    given = recorded[["op", "overload", "input_shapes", "input_dtypes", "input_strides", "scalars"]].tolist()
    setup, stmt = code_of(parsed_call(*given))
    names: dict[str, Any] = {}
    exec(setup, names)
    again = profiled(f"{stmt}\n", names, shapes=True).profile.arguments
    again = again[again["op"] == op]
    assert given in again.drop(columns="seen").to_numpy().tolist()


def test_strides_and_dtypes_are_kept() -> None:
    profile = profile_of("x = torch.ones(6, 8, dtype=torch.float64).t()[::2]\nx.expand(2, 4, 6).sum()")
    found = torchbench_magic.benchmark_op(profile, "sum", [[2, 4, 6]], min_run_time=0.01)
    assert "torch.as_strided(torch.randn((47,), dtype=torch.float64), (2, 4, 6), (0, 2, 8))" in found.code


def test_the_result_is_a_comparison_with_the_code_that_ran() -> None:
    profile = profile_of("a = torch.ones(64, 32)\nfor _ in range(3): a @ a.t()")
    found = torchbench_magic.benchmark_op(profile, "mm", "[[64, 32], [32, 64]]", min_run_time=0.02, threads=1)
    (frame,) = found.frame.to_dict("records")
    assert frame["label"] == "aten::mm"
    assert frame["sub_label"] == "[[64, 32], [32, 64]]"
    assert frame["num_threads"] == 1
    assert frame["median"] > 0
    assert found.code.splitlines() == [
        "%%timer -t 1",
        "# --- setup",
        "import torch",
        "input = torch.randn((64, 32,))",
        "mat2 = torch.as_strided(torch.randn((2048,)), (32, 64), (1, 32))",
        "# --- aten::mm",
        "torch.ops.aten.mm.default(input, mat2)",
    ]
    assert "torch.ops.aten.mm.default(input, mat2)" in repr(found)


@pytest.mark.parametrize(
    ("op", "text", "named"),
    [
        ("cat", "torch.cat([torch.ones(3), torch.ones(3)])", "tensors"),
        ("embedding", "torch.embedding(torch.ones(5, 2), torch.tensor([0, 1]))", "indices"),
        ("index_select", "torch.ones(5).index_select(0, torch.tensor([1]))", "index"),
        ("nonzero", "torch.ones(5).nonzero()", "self"),
        ("index", "torch.ones(5)[torch.tensor([1])]", "indices"),
        ("masked_select", "torch.ones(5).masked_select(torch.ones(5) > 0)", "self"),
    ],
)
def test_an_argument_that_cannot_be_rebuilt_is_named_in_one_line(op: str, text: str, named: str) -> None:
    profile = profile_of(text)
    shapes = profile.arguments.set_index("op").loc[f"aten::{op}", "input_shapes"]
    with pytest.raises(ArgumentError, match=rf"aten::{op}: .*\b{named}\b") as caught:
        torchbench_magic.benchmark_op(profile, op, shapes)
    assert "\n" not in str(caught.value)


def test_what_is_no_operator_is_refused() -> None:
    profile = profile_of("with torch.autograd.profiler.record_function('mine'): torch.ones(1)")
    with pytest.raises(InputError, match="not an operator"):
        torchbench_magic.benchmark_op(profile, "mine")


def test_scalars_that_are_not_finite_cost_no_profile() -> None:
    text = "x = torch.rand(9, 9).masked_fill(torch.eye(9) > 0, float('-inf'))\nx.clamp(max=float('inf')) @ x"
    found = profiled(f"{text}\n", flops=True).profile
    assert found.ops["flops"].sum() == 2 * 9**3


def test_a_profile_without_shapes_an_unknown_op_and_unknown_shapes_are_one_line_errors() -> None:
    with pytest.raises(InputError, match="--shapes"):
        torchbench_magic.benchmark_op(profiled("torch.ones(3)\n").profile, "ones")
    profile = profile_of("x = torch.ones(3)\nx.sin()\ntorch.ones(4).sin()")
    with pytest.raises(InputError, match=r"no op 'sinn'.*similar names: sin"):
        torchbench_magic.benchmark_op(profile, "sinn", [[3]])
    with pytest.raises(InputError, match=r"did not run with .*\[\[3\]\], \[\[4\]\]"):
        torchbench_magic.benchmark_op(profile, "sin", [[5]])
    with pytest.raises(InputError, match="2 kinds of input shapes"):
        torchbench_magic.benchmark_op(profile, "sin")
    with pytest.raises(InputError, match="give them as"):
        torchbench_magic.benchmark_op(profile, "sin", "[[5]")


def test_of_several_kinds_of_calls_the_most_frequent_is_taken_and_said() -> None:
    profile = profile_of("x = torch.ones(4, 4)\nfor _ in range(3): x.sum(1)\nx.sum(0)")
    found = torchbench_magic.benchmark_op(profile, "sum", "[[4, 4]]", min_run_time=0.01)
    assert "torch.ops.aten.sum.dim_IntList(input, [1], False)" in found.code
    assert next(d.kind for d in found.warnings) == "one-of-several"
