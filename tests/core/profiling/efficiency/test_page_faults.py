"""What page faults take: counted by their measured cost, or by what the memory that was there saved."""

from __future__ import annotations

import math

import pytest
import torch

from torchbench_magic.process.contention import ProcessUse
from torchbench_magic.profiling.efficiency import judge
from torchbench_magic.profiling.efficiency.judge import MoreCalls, cost_of_fault, faults_in_call
from torchbench_magic.profiling.efficiency.table import OpEfficiency

ROW = OpEfficiency("aten::add", "", "", "ab", 3, 0, 10, seconds=0.02, fresh=float(32 << 20))
FAULTS = 8192.0


@pytest.mark.skipif(math.isnan(judge.read_use().faults), reason="the system counts no page faults")
def test_the_cost_of_a_fault_is_some_time_and_leaves_the_threads() -> None:
    threads = torch.get_num_threads()
    assert 0 <= cost_of_fault(1) < 1e-3
    assert torch.get_num_threads() == threads


def test_without_a_count_or_memory_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()

    def full() -> None:
        raise OSError("no memory left")

    monkeypatch.setattr(judge, "_fill_fresh", full)
    assert math.isnan(cost_of_fault(1))
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(judge, "_fill_fresh", lambda: None)
    monkeypatch.setattr(judge, "read_use", ProcessUse)
    assert math.isnan(cost_of_fault(1))
    monkeypatch.setattr(judge, "read_use", lambda: ProcessUse(faults=3.0))
    assert math.isnan(cost_of_fault(1)), "none was counted"


@pytest.mark.parametrize(
    ("more", "cost", "of_run", "told"),
    [
        (MoreCalls(FAULTS, 0.0, 1.0, "", 0.02), 1e-6, 0.0, (FAULTS, 8.192e-3, 0.4096)),
        (MoreCalls(FAULTS, 0.9, 1.0, "", 0.02), 1e-6, 0.0, (FAULTS, 8.192e-3, 0.4096)),
        (MoreCalls(FAULTS, 0.0, 1.0, "", 0.02), 1e-3, 0.0, (FAULTS, 0.02, 1.0)),  # never more than the op takes
        (MoreCalls(FAULTS, 0.5, 1.0, "", 0.02), math.nan, 0.0, (FAULTS, 0.01, 0.5)),
        (MoreCalls(0.0, 0.5, 1.0, "", 0.02), 1e-6, 0.0, (0.0, 0.0, 0.0)),
        (MoreCalls(0.0, 0.0, 1.0, "", 0.005), 1e-6, 1.0, (FAULTS, 0.015, 1.0)),  # the run's own faults
        (MoreCalls(0.0, 0.0, 1.0, "", 0.005), 2e-6, 1.0, (FAULTS, 16.384e-3, 1.0)),
        (MoreCalls(0.0, 0.0, 1.0, "", 0.019), 2e-6, 1.0, (0.0, 0.0, 0.0)),  # as fast with memory that was there
    ],
)
def test_faults_their_seconds_and_their_share(
    more: MoreCalls, cost: float, of_run: float, told: tuple[float, float, float]
) -> None:
    assert faults_in_call(ROW, more, cost, of_run) == pytest.approx(told)


def test_of_an_op_that_was_not_called_none_are_known() -> None:
    faults, seconds, share = faults_in_call(ROW, None, 1e-6, 1.0)
    assert math.isnan(faults)
    assert (seconds, share) == (0.0, 0.0)
