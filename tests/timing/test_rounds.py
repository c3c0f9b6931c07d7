"""Rounds: how many calls a block has, how many rounds there are, and when a run ends."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from torchbench_magic import Comparison
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import OptionError
from torchbench_magic.timing.intervals import ALPHA, rounds_for_an_interval, rounds_for_ranges
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.rounds import rare_blocks, share_of_others
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.samples import Blocks, Clock, Subject
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.voids import unlike_blocks

from .fake_clock import FakeClock, timed

# ==== block plan ======================================================================================================
# Blocks of as many calls as the alternatives' speeds ask for, whatever speed the warm-up met.


def slow_until(clock: FakeClock, wall_ms: float, slow: float) -> Callable[[str], None]:
    """10 us of work, 3 more where the other body ran before, and ``slow`` us until the clock stands at ``wall_ms``."""
    last = [""]

    def work(name: str) -> None:
        clock.work((slow if clock.wall_ns < wall_ms * 1e6 else 10) + (3 if last[0] != name else 0))
        last[0] = name

    return work


BODIES = {"a": "work('a')", "b": "work('b')"}


@pytest.mark.parametrize(("until", "slow"), [(14, 60), (14, 200), (14, 900), (24, 200)])
def test_a_warm_up_of_another_speed_leaves_no_blocks_of_another_size(until: float, slow: float) -> None:
    """Nor does one that goes on into the rounds."""
    clock = FakeClock()
    result = timed(clock, BODIES, names={"work": slow_until(clock, until, slow)}, min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == [20, 20]
    assert result.frame["ratio"][1] == 1
    assert result.frame["median"].tolist() == pytest.approx([10e-6, 10e-6])  # no block of the slow spell is kept
    assert not result.voids


def test_a_lone_statement_is_planned_anew_too() -> None:
    clock = FakeClock()
    result = timed(clock, {"": "work('')"}, names={"work": slow_until(clock, 14, 200)}, min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == [20]


def test_the_rounds_that_were_dropped_count_as_time_that_was_waited_for() -> None:
    clock = FakeClock()
    names = {"work": slow_until(clock, 14, 200)}
    result = timed(clock, BODIES, names=names, min_run_time=0.01, max_run_time=0.1, until=1e-9)
    assert result.elapsed <= 2 * 0.1 + 1e-3


def test_a_number_of_calls_that_was_asked_for_is_kept() -> None:
    clock = FakeClock()
    result = timed(clock, BODIES, names={"work": slow_until(clock, 14, 200)}, number=2, repeat=20)
    assert result.frame["number_per_run"].tolist() == [2, 2]
    assert result.frame["samples"].tolist() == [20, 20]


@pytest.mark.parametrize(
    ("every", "cheap", "dear"),
    [(8, 100, 1000), (16, 100, 200), (16, 100, 60), (32, 10, 100), (3, 100, 100), (100, 100, 3000), (4, 5000, 5000)],
)
def test_where_a_counter_decides_what_a_call_does_blocks_have_their_share_of_each_kind(
    every: int, cheap: float, dear: float
) -> None:
    nth = f"n += 1\nclock.work({cheap + dear} if n % {every} == 0 else {cheap})"
    result = timed(FakeClock(), {"all": f"clock.work({cheap + dear})", "nth": nth}, names={"n": 0}, min_run_time=0.2)
    (_, ratio), right = result.frame["ratio"], (cheap + dear / every) / (cheap + dear)
    assert ratio == pytest.approx(right, rel=0.025)
    assert result.frame["verdict"][1] == "faster"
    assert not result.warnings


@pytest.mark.parametrize(
    ("every", "cheap", "dear", "plan"),
    [
        (16, 5000, 10000, {}),
        (7, 5000, 5000, {}),
        (16, 100, 200, {"max_run_time": 0.3}),
        (16, 100, 200, {"number": 1, "repeat": 60}),
    ],
)
def test_where_that_does_not_fit_there_is_no_verdict(
    every: int, cheap: float, dear: float, plan: dict[str, Any]
) -> None:
    nth = f"n += 1\nclock.work({cheap + dear} if n % {every} == 0 else {cheap})"
    bodies = {"all": f"clock.work({cheap + dear})", "nth": nth}
    result = timed(FakeClock(), bodies, names={"n": 0}, min_run_time=0.2, **plan)
    (doubt,) = [each for each in result.warnings if each.kind == "used-up"]
    assert "Some calls of `nth` may do more than this run has time for: " in doubt.text
    assert result.frame["verdict"][1] == "undecided"


def test_code_whose_calls_do_other_work_at_random_has_longer_blocks_too() -> None:
    names = {"draw": random.Random(1).random}
    bodies = {"all": "clock.work(500)", "some": "clock.work(500 if draw() < 0.1 else 50)"}
    result = timed(FakeClock(), bodies, names=names, min_run_time=0.2)
    assert result.frame["ratio"][1] == pytest.approx(95 / 500, rel=0.05)


@pytest.mark.parametrize(
    ("wall", "cpu", "counts", "share"),
    [
        ([1, 1, 3, 1] * 4, [1, 1, 3, 1] * 4, False, 0.25),
        ([1, 1, 3, 1] * 4, [1, 1, 1, 1] * 4, False, 0.0),  # held up by others
        ([1, 1, 1.5, 1] * 4, [1, 1, 1.5, 1] * 4, False, 0.0),
        ([1, 1, 1.5, 1] * 4, [1, 1, 1.5, 1] * 4, True, 0.25),
        ([3, 3, 1, 3] * 4, [3, 3, 1, 3] * 4, False, 0.25),
        ([1, 1, 1.02, 1] * 4, [1, 1, 1.02, 1] * 4, True, 0.0),
        ([1, 1, 1, 5] + [1] * 12, [1, 1, 1, 5] + [1] * 12, True, 0.0),  # once
        ([1] * 5 + [4] * 6 + [16] * 5, [1] * 5 + [4] * 6 + [16] * 5, True, 0.0),  # grows
    ],
)
def test_blocks_are_of_two_kinds_by_both_clocks_again_and_again(
    wall: list[float], cpu: list[float], counts: bool, share: float
) -> None:
    found = share_of_others(np.array(wall), np.array(cpu), np.ones(len(wall), int), counts=counts)
    assert found == share


@pytest.mark.parametrize(
    ("wall", "cpu", "clause"),
    [
        ([1] * 40 + [9], [1] * 40 + [9], "1 of 41 blocks took 9 times as long as most"),
        ([1] * 40 + [9], [1] * 41, ""),  # held up by others
        ([1] * 40 + [3], [1] * 40 + [3], ""),  # one that is no longer may be chance
        ([1] * 40 + [3, 3], [1] * 40 + [2.5, 3], "2 of 42 blocks took 2.75 times as long as most"),
        ([1] * 400 + [9], [1] * 400 + [9], ""),  # moves no mean
        ([1] * 5 + [9], [1] * 5 + [9], ""),  # too few
    ],
)
def test_blocks_that_are_too_rare_for_the_median_are_counted(wall: list[float], cpu: list[float], clause: str) -> None:
    assert rare_blocks(np.array(wall), np.array(cpu), np.ones(len(wall), int)) == clause


def wakes(clock: FakeClock, us: float) -> Callable[[str], None]:
    """So many us of work, 60 more for ``b`` where the other body ran before: its threads wake up later."""
    last = [""]

    def work(name: str) -> None:
        clock.work(us + (60 if name == "b" and last[0] != name else 0))
        last[0] = name

    return work


HELD_UP, ALONE = {"ran": 0.9, "waited": 0.6}, {"waited": 0.15}


@pytest.mark.parametrize(
    ("load", "threads", "us", "calls", "is_measured"),
    [(HELD_UP, 2, 150, 2, False), ({}, 2, 150, 1, True), (ALONE, 1, 150, 1, True), (HELD_UP, 2, 3000, 1, True)],
    ids=["held up", "quiet", "one thread", "long calls"],
)
def test_where_others_hold_threads_up_their_waking_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, load: dict[str, float], threads: int, us: float, calls: int, is_measured: bool
) -> None:
    monkeypatch.setattr("torchbench_magic.process.environment.usable_cores", lambda: 2)
    clock = FakeClock()
    clock.load |= load
    result = timed(clock, BODIES, names={"work": wakes(clock, us)}, threads=(threads,), min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == [calls, calls]
    ratio = result.frame["ratio"][1]  # between 1 and the full effect, by how often the order has `b` after `a`
    assert ratio > 1.005 if is_measured else ratio == pytest.approx(1.0)


def test_a_warm_up_that_met_a_stall_does_not_hide_that_calls_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbench_magic.process.environment.usable_cores", lambda: 2)
    clock = FakeClock()
    clock.load |= HELD_UP
    short = wakes(clock, 150)

    def work(name: str) -> None:
        clock.work(5000 if clock.wall_ns < 60e6 else 0)
        short(name)

    result = timed(clock, BODIES, names={"work": work}, threads=(2,), min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == [2, 2]
    assert result.frame["ratio"][1] == pytest.approx(1.0)


def test_single_calls_that_were_asked_for_are_kept_where_others_hold_threads_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torchbench_magic.process.environment.usable_cores", lambda: 2)
    clock = FakeClock()
    clock.load |= HELD_UP
    result = timed(clock, BODIES, names={"work": wakes(clock, 150)}, threads=(2,), number=1, repeat=20)
    assert result.frame["number_per_run"].tolist() == [1, 1]
    assert result.frame["samples"].tolist() == [20, 20]


def blocks(calls: int, wall_us: float) -> Blocks:
    rounds, wall = np.arange(40), np.full(40, wall_us / 1e6)
    return Blocks(rounds, np.zeros_like(rounds), wall, wall, wall, np.full(40, calls), np.zeros_like(rounds))


def test_a_mistaken_plan_that_was_kept_voids_the_ratio_on_an_idle_machine_too() -> None:
    quiet = Subject(description="b")
    void = unlike_blocks(1, blocks(2, 23), blocks(17, 187), quiet, 2)
    assert void is not None
    assert (void.cause, void.low, void.high) == ("unlike-blocks", 2, 17)
    assert unlike_blocks(1, blocks(1, 134), blocks(2, 264), quiet, 2) is None  # rounding to whole calls
    assert unlike_blocks(1, blocks(1, 5000), blocks(17, 187), quiet, 2) is None
    assert unlike_blocks(1, blocks(700, 18_000), blocks(1900, 30_000), quiet, 2) is None  # starting them is nothing


# ==== scarce rounds ===================================================================================================
# Slow calls make rounds scarce: the slow side sets how many there are, and a run does not end before it can judge.


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
    result = pair(FakeClock(), 600_000, 500_000, max_run_time=1.0)
    assert result.frame["verdict"][1] == "undecided"
    assert result.voids[1].cause == "few-rounds"
    assert result.elapsed <= 2 * 1.0 + 2 * 1.1 + 1.1, "two maxima, first calls, the last round"


def test_rounds_that_do_not_fit_into_thirty_seconds_are_not_waited_for() -> None:
    result = pair(FakeClock(), 12_000_000, 12_500)
    assert result.frame["verdict"][1] == "undecided"
    assert rounds_of(result) == [3, 3]


def test_each_of_several_takes_part_until_it_can_be_judged() -> None:
    costs = {"slow": 500_000, "twin": 497_000, "half": 250_000, "fast": 50}
    result = timed(FakeClock(), {name: f"clock.work({us})" for name, us in costs.items()}, min_run_time=0.2)
    need = rounds_for_an_interval("once", ALPHA / 3)
    assert rounds_of(result)[:3] == [need] * 3
    assert result.frame["verdict"].tolist() == ["baseline", "same", "faster", "faster"]


def test_a_slow_one_takes_no_precision_from_a_fast_pair_beside_it() -> None:
    bodies = {"a": "clock.work(10)", "b": "clock.work(10.5)", "slow": "clock.work(250_000)"}
    result = timed(FakeClock(), bodies, min_run_time=0.2)
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


# ==== stopping ========================================================================================================


NOISY = "clock.work(dice.uniform(8, 12))"


def test_until_goes_on_to_the_precision_of_the_ratio() -> None:
    widths = {}
    for until in (0.05, 0.01):
        clock = FakeClock()
        bodies = {"a": NOISY, "b": NOISY.replace("8, 12", "16, 24")}
        result = timed(clock, bodies, names={"dice": random.Random(1)}, min_run_time=0.01, until=until)
        row = result.frame.iloc[1]
        widths[until] = row["ratio_high"] / row["ratio_low"] - 1
        assert widths[until] <= until
    assert widths[0.01] < widths[0.05]


def test_until_of_a_lone_statement_is_of_its_median_and_ends_at_a_maximum_that_was_given() -> None:
    result = timed(FakeClock(), {"": NOISY}, names={"dice": random.Random(1)}, min_run_time=0.01, until=0.01)
    detail = result.details.iloc[0]
    assert detail["precision_high"] / detail["precision_low"] - 1 <= 0.01
    assert result.samples["wall"].sum() > 0.01
    result = timed(
        FakeClock(), {"": NOISY}, names={"dice": random.Random(1)}, min_run_time=0.01, max_run_time=0.02, until=1e-6
    )
    assert result.elapsed == pytest.approx(0.02, rel=0.05)


def test_adaptive_goes_on_until_the_spread_is_small() -> None:
    clock = FakeClock()
    costs = clock.sequence([10.0] * 20 + [float(10 + (i % 7)) for i in range(400)] + [10.0])
    result = timed(
        clock, {"": "clock.work(next(costs))"}, names={"costs": costs}, min_run_time=0.001, number=None, adaptive=0.1
    )
    times = result.call_times(0)
    low, middle, high = np.percentile(times, [25, 50, 75])
    assert (high - low) / middle < 0.1


def test_a_wider_margin_settles_sooner() -> None:
    spent = {}
    for margin in (0.001, 0.2):
        clock = FakeClock()
        bodies = {"a": NOISY, "b": NOISY}
        plan = {"min_run_time": 0.005, "max_run_time": 0.2, "margin": margin}
        result = timed(clock, bodies, names={"dice": random.Random(2)}, **plan)
        spent[margin] = len(result.samples)
    assert spent[0.2] < spent[0.001]


def test_the_processor_clock_can_be_the_one_that_counts() -> None:
    bodies = {"a": "clock.work(10)", "b": "clock.work(10); clock.wait(30)"}
    by_wall = compare_with(bodies, "wall").frame
    by_cpu = compare_with(bodies, "cpu").frame
    assert by_wall["ratio"][1] == pytest.approx(4)
    assert by_cpu["median"].tolist() == pytest.approx([10e-6, 10e-6])
    assert by_cpu["verdict"][1] == "same"


def compare_with(bodies: dict[str, str], clock_name: Clock) -> Comparison:
    fake = FakeClock()
    return compare_bodies(Task(
        {name: Body(text) for name, text in bodies.items()},
        namespace={"clock": fake},
        plan=Plan(threads=(1,), clock=clock_name),
        clocks=fake.clocks,
    ))


@pytest.mark.parametrize(
    "plan",
    [
        {"until": 0},
        {"margin": -1},
        {"until": 0.1, "adaptive": 0.1},
        {"until": 0.1, "number": 3},
        {"cold": True, "number": 5},
    ],
)
def test_a_stop_that_does_not_fit_is_one_line(plan: dict[str, float]) -> None:
    with pytest.raises(OptionError) as caught:
        timed(FakeClock(), {"": "clock.work(1)"}, **plan)
    assert "\n" not in str(caught.value)
