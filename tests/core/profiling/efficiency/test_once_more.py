"""An op that is called once more: nothing of the user's moves, and what oneDNN says is read."""

from __future__ import annotations

import pytest
import torch

from torchbench_magic.profiling.efficiency.judge import implementation_in, once_more
from torchbench_magic.profiling.op_benchmark import RecordedCall

SAID = """\
onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd)
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,src:bf16::blocked:ab::f0,,512x512,5.9
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src
"""
PRODUCT = RecordedCall("aten::mm", "", [[64, 64], [64, 64]], ["float", "float"], [[64, 1], [64, 1]], [None, None])


def test_the_implementation_is_what_was_executed() -> None:
    assert implementation_in(SAID) == "matmul by brg_matmul:avx512_core_bf16, reorder by jit:uni"
    assert implementation_in("dnnl_verbose,exec,cpu,convolution,jit:avx2,forward") == "convolution by jit:avx2"
    assert implementation_in("") == ""
    assert implementation_in("exec,cpu,mine,not oneDNN's\nonednn_verbose,v1,primitive,exec,cpu") == ""


def test_random_numbers_threads_and_stdout_go_on_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(3)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    made = once_more(PRODUCT, 1)
    assert made is not None
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert capfd.readouterr().out == ""


def test_one_thread_is_seen_to_work_alone() -> None:
    made = once_more(PRODUCT, 1)
    assert made is not None
    assert not made.worker_share > 0.5


def test_what_cannot_be_rebuilt_is_not_called() -> None:
    indices = RecordedCall(
        "aten::index_select", "", [[10, 2], [], [3]], ["float", "Scalar", "long int"], [[2, 1], [], [1]],
        [None, 0, None],
    )  # fmt: skip
    assert once_more(indices, 1) is None
    assert once_more(RecordedCall("mine::op", "", [], [], [], []), 1) is None
    torch.set_default_dtype(torch.float64)
    try:
        assert once_more(PRODUCT, 1) is None, "inputs would be of another dtype"
    finally:
        torch.set_default_dtype(torch.float32)
    sizes = RecordedCall("aten::mm", "", [[3, 4], [5, 6]], ["float", "float"], [[4, 1], [6, 1]], [None, None])
    assert once_more(sizes, 1) is None
