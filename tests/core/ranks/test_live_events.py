"""A rank that was profiled here, as the analysis of ranks has it."""

from __future__ import annotations

import time

import pytest
import torch

from torchbench_magic import profile
from torchbench_magic.cluster.rank_clocks import RankClock
from torchbench_magic.cluster.rank_traces import RankFacts, run_of_profile

FACTS = RankFacts(rank=0, clock=RankClock("here", None, 0), world_size=2, backend="gloo")


def test_its_times_are_those_of_the_clock_and_not_from_when_it_entered_the_cell() -> None:
    before = time.time_ns()
    made = profile(lambda: torch.ones(10).sum(), shapes=True)
    after = time.time_ns()
    run = run_of_profile(made, FACTS)
    assert run is not None
    assert before <= run.begin < run.end <= after


def test_a_rank_that_ran_nothing_of_torch_is_none() -> None:
    assert run_of_profile(profile(lambda: time.sleep(0), shapes=True), FACTS) is None


@pytest.mark.parametrize("grouped", [False, True])
def test_groups_are_told(grouped: bool) -> None:
    made = profile(lambda: torch.ones(10).sum(), shapes=True)
    run = run_of_profile(made, RankFacts(**{**vars(FACTS), "grouped": grouped}))
    assert run is not None
    assert run.grouped is grouped
