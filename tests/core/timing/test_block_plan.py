"""Blocks of as many calls as the alternatives' speeds ask for, whatever speed the warm-up met."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torchbench_magic.timing.samples import Blocks, Subject
from torchbench_magic.timing.voids import unlike_blocks

from .fake_clock import FakeClock, timed


def slow_until(clock: FakeClock, wall_ms: float, slow: float) -> Callable[[str], None]:
    """10 us of work, 3 more where the other body ran before, and ``slow`` us until the clock stands at ``wall_ms``."""
    last = [""]

    def work(name: str) -> None:
        clock.work((slow if clock.wall_ns < wall_ms * 1e6 else 10) + (3 if last[0] != name else 0))
        last[0] = name

    return work


BODIES = {"a": "work('a')", "b": "work('b')"}


@pytest.mark.parametrize("slow", [60, 200, 900])
def test_a_warm_up_of_another_speed_leaves_no_blocks_of_another_size(slow: float) -> None:
    clock = FakeClock()
    result = timed(clock, BODIES, names={"work": slow_until(clock, 14, slow)}, min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == [20, 20]
    assert result.frame["ratio"][1] == 1
    assert result.frame["median"].tolist() == pytest.approx([10e-6, 10e-6])  # no block of the slow spell is kept
    assert not result.voids


def test_a_spell_that_goes_on_into_the_rounds_leaves_none_either() -> None:
    clock = FakeClock()
    result = timed(clock, BODIES, names={"work": slow_until(clock, 24, 200)}, min_run_time=0.05)
    assert result.frame["number_per_run"].tolist() == [20, 20]
    assert result.frame["ratio"][1] == 1


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


def wakes(clock: FakeClock, us: float) -> Callable[[str], None]:
    """So many us of work, 60 more for ``b`` where the other body ran before: its threads wake up later."""
    last = [""]

    def work(name: str) -> None:
        clock.work(us + (60 if name == "b" and last[0] != name else 0))
        last[0] = name

    return work


HELD_UP = {"ran": 0.9, "waited": 0.6}


@pytest.mark.parametrize(
    ("load", "threads", "us", "calls", "is_measured"),
    [(HELD_UP, 2, 150, 2, False), ({}, 2, 150, 1, True), (HELD_UP, 1, 150, 1, True), (HELD_UP, 2, 3000, 1, True)],
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
