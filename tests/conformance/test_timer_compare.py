"""``Timer.compare``: timers side by side, each with its own statement, setup and globals."""

from __future__ import annotations

import timeit
from typing import Any

import pytest

from torchbench_magic import Comparison
from torchbench_magic.benchmark import Timer
from torchbench_magic.errors import OptionError

QUICK: dict[str, Any] = {"min_run_time": 0.02, "max_run_time": 0.3}


class Clock:
    """Seconds; only the statements that are timed move it. Of a library's module: it is no state of theirs."""

    __module__ = "time"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, us: float) -> None:
        self.now += us * 1e-6


def compared(**options: Any) -> Comparison:
    """Statements that take 20 and 200 us of a clock of their own."""
    clock = Clock()
    timers = [
        Timer(f"work({us})", globals={"work": clock.work}, timer=clock, label="work", description=f"n={us}")
        for us in (20, 200)
    ]
    return Timer.compare(timers, **QUICK, **options)


def test_the_slower_of_two_is_told_and_the_results_carry_torchs_names() -> None:
    found = compared()
    assert list(found.frame["description"]) == ["n=20", "n=200"]
    assert list(found.frame["label"]) == ["work", "work"]
    assert list(found.frame["num_threads"]) == [1, 1]
    assert found.frame["verdict"].iloc[1] == "slower"
    assert [m.task_spec.stmt for m in found.measurements] == ["work(20)", "work(200)"]


def test_the_baseline_can_be_chosen() -> None:
    found = compared(baseline="n=200")
    assert list(found.frame["verdict"])[1] == "baseline"
    assert found.frame["ratio"].iloc[0] == pytest.approx(0.1)


def test_one_setup_for_all_runs_once_and_its_objects_are_shared() -> None:
    log: list[int] = []
    setup = "x = [1, 2, 3]; log.append(1)"
    timers = [Timer(stmt, setup, globals={"log": log}) for stmt in ("len(x)", "sum(x)")]
    found = Timer.compare(timers, **QUICK)
    assert log == [1]
    assert list(found.frame["description"]) == ["len(x)", "sum(x)"]


def test_names_are_restored_before_each_call() -> None:
    timers = [Timer("n += 1; assert n == 1", "n = 0"), Timer("n += 2; assert n == 2", "n = 0")]
    Timer.compare(timers, **QUICK)


def test_the_clock_of_the_timers_is_used() -> None:
    by_cpu = Timer.compare([Timer("1 + 1", timer="cpu"), Timer("2 + 2", timer="cpu")], **QUICK)
    assert by_cpu.clock == "cpu"
    readings = 0

    def clock() -> float:
        nonlocal readings
        readings += 1
        return timeit.default_timer()

    Timer.compare([Timer("1 + 1", timer=clock), Timer("2 + 2", timer=clock)], **QUICK)
    assert readings > 10


class Swapped(Timer):
    class _timer_cls:  # noqa: N801  (torch's name)
        def __init__(self, **arguments: Any) -> None: ...
        def timeit(self, number: int) -> float:
            return 1.0


@pytest.mark.parametrize(
    ("timers", "message"),
    [
        ([Timer("a = 1")], "two timers or more"),
        ([Timer("a = 1"), Timer("a = 1")], "give each a description"),
        ([Timer("a = 1"), Timer("a = 2", num_threads=2)], "one num_threads"),
        ([Timer("a = 1"), Timer("a = 2", timer="cpu")], "the same clock"),
        ([Timer("a = 1"), timeit.Timer("a = 2")], "not a Timer of torchbench_magic"),
        ([Timer("a = 1"), Swapped("a = 2")], "_timer_cls"),
        ([Timer("int a = 1;", language="c++"), Timer("a = 2")], "C\\+\\+"),
        ([Timer("sum(x)", "x = [1] * 3"), Timer("len(x)", "x = [1] * 50")], "`x` is a different object in each"),
        ([Timer("len('ab')"), Timer("len('ab') + 1", "len = lambda text: 7")], "`len` is a different object in each"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(timers: list[Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        Timer.compare(timers, **QUICK)
    assert "\n" not in str(raised.value)
