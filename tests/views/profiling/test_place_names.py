"""How operations are named where a reader sees them."""

from __future__ import annotations

import pytest

from torchbench_magic.profiling.ops_view import op_text

NAMES = (
    ("graph_0_cpp_fused_add_sin_0", "fused add, sin"),
    ("cpp_fused_mm_0", "fused mm"),
    ("triton_poi_fused_add_relu_3", "fused add, relu"),
    ("triton_per_fused__to_copy_native_layer_norm_1", "fused _to_copy, native_layer_norm"),
    ("triton_red_fused__log_softmax_sum_2", "fused _log_softmax, sum"),
    ("aten::add", "aten::add"),
    ("aten::_fused_adam_", "aten::_fused_adam_"),
    ("autograd::engine::evaluate_function: SinBackward0", "engine: SinBackward0"),
    ("## Call CompiledFxGraph foreopgxgcvoa44o3nsreul5mfal ##", "compiled graph foreop"),
)


@pytest.mark.parametrize(("op", "shown"), NAMES)
def test_a_fused_kernel_is_named_by_the_operations_in_it_and_others_stay(op: str, shown: str) -> None:
    assert op_text(op) == shown
