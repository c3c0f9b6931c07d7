"""Clocks of ranks that are known to be off, and of a rank that was profiled here."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from torchbench_magic import profile
from torchbench_magic.cluster.job_profile import FOREVER
from torchbench_magic.cluster.rank_analysis import RankFacts
from torchbench_magic.cluster.rank_clocks import ONE_CLOCK, RankClock, bounds_of_clocks
from torchbench_magic.cluster.rank_traces import run_of_profile

# ==== clock bounds ====================================================================================================
# Clocks that are known to be off: the bounds hold the truth, and are no wider than need be.


MS = 1_000_000


def job(seed: int, ranks: int, late: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals and ends of 40 collectives on a true clock."""
    numbers = np.random.default_rng(seed)
    arrival = np.arange(40)[None] * 50 * MS + numbers.exponential(MS, (ranks, 40)).astype(np.int64)
    if late >= 0:
        arrival[late] += 10 * MS
    return arrival, arrival.max(axis=0) + numbers.exponential(MS / 5, (ranks, 40)).astype(np.int64) + 1000


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("skew", [3.7, -3.7, 30.0, -30.0])
def test_the_true_offset_lies_within_the_bounds(seed: int, skew: float) -> None:
    ranks, at = 2 + seed % 3, seed % (2 + seed % 3)
    arrival, end = job(seed, ranks, late=seed % ranks if seed % 2 else -1)
    offsets = np.zeros(ranks, dtype=np.int64)
    offsets[at] = int(skew * MS)
    found = bounds_of_clocks(arrival + offsets[:, None], end + offsets[:, None], [RankClock("")] * ranks)
    true = offsets - offsets[0]
    assert (found.low <= true).all()
    assert (true <= found.high).all()
    assert not found.is_contradiction
    assert (found.high - found.low < 24 * MS).all(), "a lateness of 10 ms at most twice, and the noise"
    difference = true[:, None] - true[None] - (found.offset[:, None] - found.offset[None])
    assert (np.abs(difference) <= found.error).all()


def test_ranks_of_one_host_have_one_clock() -> None:
    arrival, end = job(1, 3, late=1)
    found = bounds_of_clocks(arrival, end, [RankClock("a"), RankClock("a"), RankClock("b")])
    assert -ONE_CLOCK <= found.low[1] <= 0 <= found.high[1] == ONE_CLOCK
    assert found.high[2] - found.low[2] > ONE_CLOCK
    tied = bounds_of_clocks(arrival, end, [RankClock("b"), RankClock("a"), RankClock("a")])
    assert max(tied.upper[1, 2], tied.upper[2, 1]) <= ONE_CLOCK


def test_a_host_name_that_two_machines_share_is_not_believed() -> None:
    arrival, end = job(2, 2)
    moved = np.array([[0], [70 * MS]])
    found = bounds_of_clocks(arrival + moved, end + moved, [RankClock("a"), RankClock("a")])
    assert not found.is_contradiction
    assert found.low[1] <= 70 * MS <= found.high[1]


def test_measured_clocks_are_used_unless_the_collectives_contradict_them() -> None:
    arrival, end = job(3, 2, late=1)
    moved = np.array([[0], [5 * MS]])
    measured = [RankClock("a", 0, 0), RankClock("b", 5 * MS + 1000, 4000)]
    found = bounds_of_clocks(arrival + moved, end + moved, measured)
    assert (found.low[1], found.high[1]) == (5 * MS - 3000, 5 * MS + 5000)
    wrong = [RankClock("a", 0, 0), RankClock("b", 90 * MS, 4000)]
    assert not bounds_of_clocks(arrival + moved, end + moved, wrong).is_contradiction


def test_without_collectives_nothing_is_known_and_a_clock_that_was_set_is_found() -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    found = bounds_of_clocks(none, none, [RankClock("")] * 2)
    assert found.high[1] >= FOREVER // 2
    assert found.offset.tolist() == [0, 0]
    arrival, end = job(4, 2)
    arrival[1, 20:] += 500 * MS
    end[1, 20:] += 500 * MS
    assert bounds_of_clocks(arrival, end, [RankClock("")] * 2).is_contradiction


def test_bounds_over_a_third_rank_are_used() -> None:
    arrival = np.array([[0], [100], [0]])
    end = np.array([[110], [110], [110]])
    found = bounds_of_clocks(arrival, end, [RankClock("x"), RankClock("y"), RankClock("y")])
    # rank 2 and rank 1 have one clock, so what holds rank 2 holds rank 1 too
    assert found.high[1] <= min(found.high[2] + ONE_CLOCK, 110)


# ==== live events =====================================================================================================
# A rank that was profiled here, as the analysis of ranks has it.


FACTS = RankFacts(rank=0, clock=RankClock("here", None, 0), world_size=2, backend="gloo")


def test_its_times_are_those_of_the_clock_and_not_from_when_it_entered_the_cell() -> None:
    before = time.time_ns()
    made = profile(lambda: torch.ones(10).sum())
    after = time.time_ns()
    run = run_of_profile(made, FACTS)
    assert run is not None
    assert before <= run.begin < run.end <= after


def test_a_rank_that_ran_nothing_of_torch_is_none() -> None:
    assert run_of_profile(profile(lambda: time.sleep(0)), FACTS) is None


@pytest.mark.parametrize("grouped", [False, True])
def test_groups_are_told(grouped: bool) -> None:
    made = profile(lambda: torch.ones(10).sum())
    run = run_of_profile(made, RankFacts(**{**vars(FACTS), "grouped": grouped}))
    assert run is not None
    assert run.grouped is grouped
