"""Timing on a GPU. These need torch, numpy, pandas and pytest only: neither IPython nor widgets."""

from __future__ import annotations

import pytest
import torch

from torchbench_magic import compare
from torchbench_magic.cell_body import Body
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is available"),
]


def test_work_on_the_gpu_is_waited_for_and_the_device_is_named() -> None:
    """A matmul of 4096 takes milliseconds; a timer that did not wait would tell microseconds."""
    big = torch.randn(4096, 4096, device="cuda")
    frame = compare({"": "big @ big"}, globals={"big": big}, threads=1).frame
    assert frame["device"][0] == f"cuda:{torch.cuda.current_device()}"
    assert frame["median"][0] > 1e-4


def test_the_times_agree_with_torchs_own_timer() -> None:
    from torch.utils.benchmark import Timer

    big = torch.randn(4096, 4096, device="cuda")
    ours = compare({"": "big @ big"}, globals={"big": big}, threads=1).frame["median"][0]
    theirs = Timer("big @ big", globals={"big": big}).blocked_autorange(min_run_time=0.2).median
    assert ours == pytest.approx(theirs, rel=0.2)


def test_the_device_clock_is_time_between_events() -> None:
    big = torch.randn(4096, 4096, device="cuda")
    result = compare_bodies(Task(
        {"": Body("big @ big")}, namespace={"big": big}, plan=Plan(threads=(1,), clock="device", min_run_time=0.1)
    ))
    assert "device" in result.samples
    assert result.frame["median"][0] <= 1.05 * (result.samples["wall"] / result.samples["number"]).median()


def test_small_kernels_are_said_to_be_launch_bound_and_large_ones_are_not() -> None:
    small, big = torch.randn(16, device="cuda"), torch.randn(8192, 8192, device="cuda")
    kinds = [
        {doubt.kind for doubt in compare({"": body}, globals={"s": small, "b": big}, threads=1).warnings}
        for body in ("s * s", "b @ b")
    ]
    assert "launch-bound" in kinds[0]
    assert "launch-bound" not in kinds[1]


def test_inputs_on_the_gpu_are_restored() -> None:
    x = torch.zeros(8, device="cuda")
    plan = Plan(threads=(1,), restore=True, min_run_time=0.02)
    compare_bodies(Task({"": Body("x += 1")}, namespace={"x": x}, plan=plan))
    assert x.sum().item() == 0


def test_the_gpus_generator_is_put_back() -> None:
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    compare({"": "torch.rand(8, device='cuda')"}, threads=1, min_run_time=0.02)
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_what_an_alternative_sets_of_cudnn_is_put_back() -> None:
    torch.backends.cudnn.allow_tf32 = True
    compare({"a": "torch.backends.cudnn.allow_tf32 = False", "b": "1 + 1"}, threads=1, min_run_time=0.01)
    assert torch.backends.cudnn.allow_tf32
