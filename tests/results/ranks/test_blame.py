"""Planted waits: who is named, from how much on, and that chance names nobody."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.cluster.rank_blame import ABSENT, LEAST_SHARE, blame_of, straggler_of
from torchbench_magic.cluster.ranks import joined_stretches

MS = 1_000_000


def arrivals(ranks: int, count: int, noise: float, seed: int, late: int = -1, by: float = 0.0) -> np.ndarray:
    """[ranks, count] ns: a collective each 50 ms."""
    numbers = np.random.default_rng(seed)
    made = np.arange(count)[None] * 50 * MS + numbers.exponential(noise * MS, (ranks, count)).astype(np.int64)
    if late >= 0:
        made[late] += int(by * MS)
    return made


def named(arrival: np.ndarray, error: int = 0) -> int | None:
    ranks, count = arrival.shape
    nothing = [np.zeros((0, 2), dtype=np.int64)] * ranks
    blame = blame_of(arrival, np.full((ranks, ranks), error), nothing)
    found = straggler_of(blame, 0.05 * count, error / 1e9)
    return found.rank if found.beyond_chance and blame.totals[found.rank] > found.threshold else None


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_a_planted_straggler_is_named_in_every_run(late: int, seed: int) -> None:
    assert named(arrivals(3, 12, 2.0, seed, late, by=20.0)) == late


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("noise", [0.5, 5.0, 20.0])
def test_chance_names_nobody_in_nine_of_ten_runs(ranks: int, noise: float) -> None:
    """Of 300 runs of 2 ranks at most 8 name one, of 3 ranks 2, of 8 none: those of many ranks, which take long, need
    no more than 60 (had each run 1 % of it, more than 6 would name one in 6 of ten million)."""
    runs = {2: 300, 3: 150, 8: 60}[ranks]
    wrong = sum(named(arrivals(ranks, 13, noise, seed)) is not None for seed in range(runs))
    assert wrong <= runs // 10


def test_noise_that_lasts_names_nobody_in_eight_of_ten_runs() -> None:
    """Another process takes the core of one rank for some steps on end."""
    wrong = 0
    for seed in range(300):
        numbers, arrival = np.random.default_rng(seed), arrivals(2, 33, 2.0, seed)
        hit = np.repeat(numbers.integers(0, 2, 7), 5)[:33]
        arrival[hit, np.arange(33)] += numbers.exponential(10 * MS, 33).astype(np.int64)
        wrong += named(arrival) is not None
    assert wrong <= 60, f"{wrong} of 300"


@pytest.mark.parametrize("begins", range(2, 20))
def test_a_burst_that_holds_up_another_rank_does_not_hide_the_straggler(begins: int) -> None:
    """As recorded: rank 0 led in 20 of 23 waits by 20 to 35 ms, and not in three in a row."""
    arrival = arrivals(2, 24, 2.0, begins, late=0, by=25.0)
    arrival[1, begins : begins + 3] += 50 * MS
    assert named(arrival) == 0


def test_one_long_wait_is_no_straggler_and_three_are() -> None:
    arrival = arrivals(2, 20, 0.001, 0)
    arrival[1, 7] += 40 * MS
    assert named(arrival) is None
    arrival[1, [9, 13]] += 40 * MS
    assert named(arrival) == 1


def test_the_first_collective_does_not_count() -> None:
    arrival = arrivals(2, 20, 0.001, 0)
    arrival[1, 0] += 40 * MS
    found = blame_of(arrival, np.zeros((2, 2), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)] * 2)
    assert found.totals.max() < 1e-3
    assert found.of == 19


def test_below_five_per_cent_nobody_is_named() -> None:
    assert named(arrivals(2, 40, 0.001, 0, late=1, by=50 * LEAST_SHARE * 0.9)) is None
    assert named(arrivals(2, 40, 0.001, 0, late=1, by=50 * LEAST_SHARE * 1.2)) == 1


def test_what_the_clocks_may_be_off_is_nobodys_fault() -> None:
    arrival = arrivals(2, 20, 0.001, 0, late=1, by=10.0)
    assert named(arrival, error=11 * MS) is None
    none = [np.zeros((0, 2), dtype=np.int64)] * 2
    found = blame_of(arrival, np.full((2, 2), 4 * MS), none)
    assert found.totals[1] == pytest.approx(19 * 6e-3, rel=0.01), "only what is beyond the error counts"


def test_a_wait_behind_computation_holds_nobody_up() -> None:
    arrival = np.array([[0, 50], [0, 80]]) * MS
    compute = [joined_stretches(np.array([50 * MS]), np.array([75 * MS])), np.zeros((0, 2), dtype=np.int64)]
    found = blame_of(arrival, np.zeros((2, 2), dtype=np.int64), compute)
    assert found.totals.tolist() == [0, pytest.approx(5e-3)]
    assert found.seconds.tolist() == [[0, pytest.approx(5e-3)]]


def test_waits_of_several_ranks_for_one_count_once() -> None:
    arrival = np.array([[0, 50], [0, 60], [0, 80]]) * MS
    found = blame_of(arrival, np.zeros((3, 3), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)] * 3)
    assert found.totals.tolist() == [0, 0, pytest.approx(30e-3)]
    assert found.last.tolist() == [0, 0, 1]


def test_a_rank_that_is_no_member_neither_waits_nor_is_waited_for() -> None:
    arrival = np.array([[0, 50, 90, 0, 60], [0, 50, 90, 0, 80], [0, 70, 90, ABSENT, ABSENT]])
    arrival[arrival > ABSENT] *= MS
    found = blame_of(arrival, np.zeros((3, 3), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)] * 3)
    assert found.totals.tolist() == [0, pytest.approx(20e-3), pytest.approx(20e-3)]
    assert found.of == 3, "the first of all ranks and the first of the group do not count"


def test_waits_that_are_alike_for_long_are_few() -> None:
    """A rank has the worse core for the first third, another one for the rest: two spells, not 300 waits."""
    numbers = np.random.default_rng(0)
    wrong = 0
    for _ in range(100):
        lead = np.repeat(numbers.normal(0, 1, 5), 60) + numbers.normal(0, 3, 300)
        arrival = np.tile(np.arange(301) * 50 * MS, (2, 1))
        arrival[1, 1:] += (np.maximum(lead, 0) * 5 * MS).astype(np.int64)
        arrival[0, 1:] += (np.maximum(-lead, 0) * 5 * MS).astype(np.int64)
        wrong += named(arrival) is not None
    assert wrong <= 15, f"{wrong} of 100"
