"""Slow calls make rounds scarce: the slow side sets how many there are, and a run does not end before it can judge."""

from __future__ import annotations

import random

import pytest

from torchbench_magic import Comparison
from torchbench_magic.timing.intervals import ALPHA, rounds_for_an_interval, rounds_for_ranges

from .fake_clock import FakeClock, timed

ONCE = rounds_for_an_interval("once")


def pair(clock: FakeClock, slow_us: float, fast_us: float, **plan: float) -> Comparison:
    """Each call by up to 5 % longer or shorter."""
    bodies = {
        "slow": f"clock.work({slow_us} * dice.uniform(0.95, 1.05))",
        "fast": f"clock.work({fast_us} * dice.uniform(0.95, 1.05))",
    }
    return timed(clock, bodies, names={"dice": random.Random(1)}, **({"min_run_time": 0.2} | plan))


def rounds_of(result: Comparison) -> list[int]:
    return result.samples.groupby("measurement")["round"].nunique().tolist()


@pytest.mark.parametrize("times", [3, 10, 100, 1000])
@pytest.mark.parametrize("slow_us", [20_000, 50_000, 99_000, 250_000, 600_000, 2_000_000])
def test_a_pair_far_apart_is_decided_in_thirty_seconds_and_in_two_where_calls_are_short(
    slow_us: int, times: int
) -> None:
    clock = FakeClock()
    result = pair(clock, slow_us, slow_us / times)
    assert result.frame["verdict"][1] == "faster"
    assert clock.wall_ns <= (30e9 if slow_us >= 100_000 else 2e9), "first calls and warm-up included"
    assert result.frame["ratio"][1] == pytest.approx(1 / times, rel=0.05)


@pytest.mark.parametrize("slow_us", [20_000, 50_000, 250_000, 1_500_000])
def test_both_sides_have_as_many_blocks_and_the_fast_one_few_calls_in_each(slow_us: int) -> None:
    result = pair(FakeClock(), slow_us, slow_us / 100)
    assert result.frame["samples"].nunique() == 1
    spent = result.samples.groupby("measurement")["wall"].sum()
    assert 0.18 <= spent[1] <= 0.3, "its minimum, and not as much as the slow side's"


def test_the_fewest_rounds_decide_far_apart_and_the_result_says_so() -> None:
    result = pair(FakeClock(), 600_000, 6_000)
    least = rounds_for_ranges("once")
    assert rounds_of(result) == [least, least]
    assert least < ONCE
    assert result.by_ranges == {1: least}
    slow, fast = (result.call_times(row) for row in (0, 1))
    row = result.frame.iloc[1]
    assert row["ratio_low"] == pytest.approx(fast.min() / slow.max())
    assert row["ratio_high"] == pytest.approx(fast.max() / slow.min())


def test_a_pair_less_than_three_times_apart_has_the_rounds_of_an_interval_by_ranks() -> None:
    result = pair(FakeClock(), 600_000, 250_000)
    assert rounds_of(result) == [ONCE, ONCE]
    assert result.frame["verdict"][1] == "faster"
    assert not result.by_ranges


def test_one_block_that_is_near_the_other_side_leaves_it_to_the_ranks() -> None:
    clock = FakeClock()
    costs = clock.sequence([600_000.0] * 4 + [90_000.0] + [600_000.0])  # two calls come before the first round
    bodies = {"slow": "clock.work(next(costs))", "fast": "clock.work(60_000)"}
    result = timed(clock, bodies, names={"costs": costs}, min_run_time=0.2)
    assert rounds_of(result) == [ONCE, ONCE]
    assert (result.frame["verdict"][1], result.by_ranges) == ("faster", {})


def test_calls_that_become_slower_than_in_the_warm_up_have_their_rounds_all_the_same() -> None:
    clock = FakeClock()
    costs = clock.sequence([250_000.0] * 2 + [600_000.0])
    bodies = {"slow": "clock.work(next(costs))", "fast": "clock.work(240_000)"}
    result = timed(clock, bodies, names={"costs": costs}, min_run_time=0.2)
    assert rounds_of(result) == [ONCE, ONCE]
    assert result.frame["verdict"][1] == "faster"


def test_a_maximum_that_was_asked_for_ends_it_whatever_is_missing() -> None:
    clock = FakeClock()
    result = pair(clock, 600_000, 500_000, max_run_time=1.0)
    assert result.frame["verdict"][1] == "undecided"
    assert result.voids[1].cause == "few-rounds"
    assert result.elapsed <= 2 * 1.0 + 2 * 1.1 + 1.1, "two maxima, first calls, the last round"


def test_rounds_that_do_not_fit_into_thirty_seconds_are_not_waited_for() -> None:
    clock = FakeClock()
    result = pair(clock, 12_000_000, 12_500)
    assert result.frame["verdict"][1] == "undecided"
    assert rounds_of(result) == [3, 3]


def test_each_of_several_takes_part_until_it_can_be_judged() -> None:
    clock = FakeClock()
    costs = {"slow": 500_000, "twin": 497_000, "half": 250_000, "fast": 50}
    result = timed(clock, {name: f"clock.work({us})" for name, us in costs.items()}, min_run_time=0.2)
    need = rounds_for_an_interval("once", ALPHA / 3)
    assert rounds_of(result)[:3] == [need] * 3
    assert result.frame["verdict"].tolist() == ["baseline", "same", "faster", "faster"]


def test_a_slow_one_takes_no_precision_from_a_fast_pair_beside_it() -> None:
    clock = FakeClock()
    bodies = {"a": "clock.work(10)", "b": "clock.work(10.5)", "slow": "clock.work(250_000)"}
    result = timed(clock, bodies, min_run_time=0.2)
    assert result.frame["verdict"].tolist() == ["baseline", "slower", "slower"]
    assert rounds_of(result)[1] > rounds_of(result)[2]
    assert rounds_of(result)[2] <= rounds_for_an_interval("once", ALPHA / 2)
    assert set(result.samples["number"][result.samples["round"] >= rounds_of(result)[2]]) == {20}, "their own blocks"


def test_code_whose_number_of_calls_is_given_has_several_blocks_instead() -> None:
    result = pair(FakeClock(), 250_000, 2_500, cold=True)
    assert set(result.samples["number"]) == {1}
    assert result.frame["verdict"][1] == "faster"


def test_calls_that_become_faster_than_in_the_warm_up_ask_for_no_more_rounds() -> None:
    """The fast side's minimum is made up in the rounds that are left, whatever its first blocks took."""
    clock = FakeClock()
    costs = clock.sequence([10_000.0] * 8 + [4_000.0])
    bodies = {"slow": "clock.work(1_000_000)", "fast": "clock.work(next(costs))"}
    result = timed(clock, bodies, names={"costs": costs}, min_run_time=0.2)
    assert rounds_of(result) == [rounds_for_ranges("once")] * 2
    assert result.samples.groupby("measurement")["wall"].sum()[1] >= 0.19
