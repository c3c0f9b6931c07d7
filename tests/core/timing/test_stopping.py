from __future__ import annotations

import random

import numpy as np
import pytest

from torchbench_magic import Comparison
from torchbench_magic.cell_text import Body
from torchbench_magic.errors import OptionError
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.samples import Clock
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock, timed

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


def test_until_of_a_lone_statement_is_of_its_median() -> None:
    clock = FakeClock()
    result = timed(clock, {"": NOISY}, names={"dice": random.Random(1)}, min_run_time=0.01, until=0.01)
    detail = result.details.iloc[0]
    assert detail["precision_high"] / detail["precision_low"] - 1 <= 0.01
    assert result.samples["wall"].sum() > 0.01


def test_until_ends_at_a_maximum_that_was_given() -> None:
    clock = FakeClock()
    result = timed(
        clock, {"": NOISY}, names={"dice": random.Random(1)}, min_run_time=0.01, max_run_time=0.02, until=1e-6
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
