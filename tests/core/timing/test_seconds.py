"""The seconds of the options are those that a user waits, whatever they go to; and what is told meanwhile."""

from __future__ import annotations

import random

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock, timed


def busy_between_blocks(clock: FakeClock, us: float) -> None:
    """As on a busy machine: it takes the processor away where a system call returns, which is between two blocks."""

    def faults() -> int:
        clock.wait(us)
        return 0

    clock.count_faults = faults


def test_time_that_passes_between_blocks_counts() -> None:
    clock = FakeClock()
    busy_between_blocks(clock, 3000)
    result = timed(clock, {"a": "clock.work(10)", "b": "clock.work(10)"}, min_run_time=0.2)
    assert result.elapsed == pytest.approx(0.4, rel=0.1)
    assert result.samples["wall"].sum() < 0.05


def test_an_undecided_cell_ends_at_its_maximum_on_a_busy_machine_and_says_what_is_missing() -> None:
    clock = FakeClock()
    busy_between_blocks(clock, 10_000)
    body = "clock.work(dice.uniform(8, 12))"
    names = {"dice": random.Random(1)}
    result = timed(clock, {"a": body, "b": body}, names=names, margin=1e-4, min_run_time=0.2)
    assert result.frame["verdict"][1] == "undecided"
    assert result.elapsed <= 2 * 5 * 0.2 + 0.1
    assert result.undecided_seconds[1] > 0


def test_the_seconds_that_would_decide_are_those_of_waiting() -> None:
    def waited(seconds: float) -> Comparison:
        """A pair of ratio 1.03 on a busy machine, where a block of 0.2 ms takes 10 ms."""
        clock, noise = FakeClock(), random.Random(5)
        busy_between_blocks(clock, 5_000)
        bodies = {"a": "clock.work(10)", "b": "clock.work(10.3 + noise.gauss(0, 3))"}
        return timed(clock, bodies, names={"noise": noise}, min_run_time=seconds, max_run_time=seconds)

    short = waited(0.5)
    assert short.frame["verdict"][1] == "undecided"
    needed = short.undecided_seconds[1]
    assert needed > 10 * short.samples["wall"].sum(), "the blocks alone would take 0.01 s"
    assert waited(0.5 + needed / 2 / 8).frame["verdict"][1] == "undecided"  # the seconds are of two alternatives
    assert waited(0.5 + needed / 2 * 2).frame["verdict"][1] == "slower"


def test_priming_and_warming_up_count() -> None:
    clock = FakeClock()
    result = timed(clock, {"": "clock.work(40)"}, min_run_time=0.2, max_run_time=0.2)
    assert result.elapsed == pytest.approx(0.2, rel=0.02)


def test_a_slow_baseline_beside_a_fast_body_ends_with_their_maximum() -> None:
    """A baseline runs in every round, so the maximum of the others alone would not end it: 40 rounds of 2 s here."""
    clock = FakeClock()
    result = timed(clock, {"slow": "clock.work(2_000_000)", "fast": "clock.work(10)"})
    assert result.frame["verdict"][1] == "faster"
    first, warm, least, fast, last = 2, 2, 1.1 * 6 * 2, 1, 2
    assert result.elapsed <= first + warm + least + fast + last + 0.1


def test_a_baseline_that_a_neighbour_slows_ends_with_their_maximum() -> None:
    clock = FakeClock()
    costs = clock.sequence([10.0] * 3000 + [20_000.0])
    result = timed(clock, {"a": "clock.work(next(costs))", "b": "clock.work(10)"}, names={"costs": costs})
    assert result.elapsed <= 3.5


def test_what_passes_between_rounds_counts() -> None:
    clock = FakeClock()

    class Slow:
        def update(self, done: float, total: float | None, what: str) -> None:
            clock.wait(150_000)

    result = compare_bodies(Task(
        {"a": Body("clock.work(100)"), "b": Body("clock.work(200)")},
        namespace={"clock": clock},
        plan=Plan(threads=(1,), min_run_time=1.0),
        clocks=clock.clocks,
        progress=Slow(),
    ))
    assert 2.0 <= result.elapsed <= 2.0 + 4 * 0.15 + 0.3  # told of first calls and warm-ups, and the last round


def test_progress_begins_with_the_first_call_and_names_what_is_done() -> None:
    clock = FakeClock()
    told: list[str] = []

    class Listener:
        def update(self, done: float, total: float | None, what: str) -> None:
            told.append(what)

        def await_end(self, done: float, total: float | None, what: str) -> None:
            told.append(f"{what} (may last)")

    def work() -> None:
        told.append("call") if len(told) < 4 else None
        clock.work(100)

    compare_bodies(Task(
        {"a": Body("work()"), "b": Body("work()")},
        namespace={"work": work},
        plan=Plan(threads=(1,)),
        clocks=clock.clocks,
        progress=Listener(),
    ))
    first, second = "running the first call of a (may last)", "running the first call of b (may last)"
    assert told[:4] == [first, "call", second, "call"]
    assert told[4:6] == ["warming up a", "warming up b"]
    assert told[6] == "2 alternatives, 1 thread"


@pytest.mark.parametrize(("other", "calls"), [(100, [20, 2]), (1000, [20, 1]), (15, [20, 13])])
def test_alternatives_of_other_speeds_are_primed_alike(other: int, calls: list[int]) -> None:
    """A block that starts cold takes 3 us more, on whatever number of calls: only if all are primed the ratio holds."""
    clock = FakeClock()
    last = [""]

    def work(name: str, us: float) -> None:
        clock.work(us + (3 if last[0] != name else 0))
        last[0] = name

    bodies = {"a": "work('a', 10)", "b": f"work('b', {other})"}
    result = timed(clock, bodies, names={"work": work}, min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == calls
    assert result.frame["ratio"][1] == pytest.approx(other / 10, rel=1e-6)


@pytest.mark.parametrize("times", [2, 3, 10, 100])
def test_alternatives_of_other_speeds_are_primed_for_as_long_a_time(times: int) -> None:
    """A cold start that wears off over 60 us is not over after one call of 10 us, as it is after one of 100."""
    clock = FakeClock()
    last, since = [""], [0.0]

    def work(name: str, count: int) -> None:
        if last[0] != name:
            last[0], since[0] = name, 0.0
        for _ in range(count):
            us = 10 + 3 * max(0.0, 1 - since[0] / 60)
            since[0] += us
            clock.work(us)

    bodies = {"a": "work('a', 1)", "b": f"work('b', {times})"}
    result = timed(clock, bodies, names={"work": work}, min_run_time=0.05)
    warmed = 1e-3 if times * 10 >= 60 else 0.02  # what is left after a call of 20 or 30 us is the same for both
    assert result.frame["ratio"][1] == pytest.approx(times, rel=warmed)


def test_short_blocks_beside_a_long_one_are_averaged_over_as_long_a_time() -> None:
    """One call in eleven is disturbed; a call of 2 ms holds its share of that, and most blocks of 190 us hold none."""
    clock = FakeClock()
    count = iter(range(10**9))
    bodies = {"a": "clock.work(190 + (110 if next(count) % 11 == 9 else 0))", "b": "clock.work(2000)"}
    result = timed(clock, bodies, names={"count": count}, min_run_time=0.2, number=None)
    assert result.frame["ratio"][1] == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize(("every", "seed"), [(2, 0), (2, 1), (2, 2), (3, 0), (4, 0)])
def test_calls_that_differ_in_turns_are_all_met(every: int, seed: int) -> None:
    """A step for every second batch: blocks of a call that each follow an untimed one would meet the same half."""
    clock, count = FakeClock(), iter(range(10**9))
    bodies = {"a": f"clock.work(1000 if next(count) % {every} else 3000)", "b": "clock.work(2000)"}
    result = timed(clock, bodies, names={"count": count}, min_run_time=1.0, number=None, seed=seed)
    assert result.frame["mean"][0] == pytest.approx((3 + every - 1) / every * 1e-3, rel=0.15)
    if every == 2:
        assert result.frame["verdict"][1] in ("same", "undecided")  # of the means; half of the calls of each are slower
        assert "bimodal" in {doubt.kind for doubt in result.warnings}
