"""A timing from its start to its result, with a clock that a test moves."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from torchbench_magic import compare
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, Interrupted, OptionError
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.environment import read_commit
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies, compare_bodies_async
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock, timed

# ==== timer ===========================================================================================================


def test_a_lone_statement_has_its_exact_time_and_neither_ratio_nor_verdict() -> None:
    result = timed(FakeClock(), {"": "clock.work(10)"})
    row = result.frame.iloc[0]
    assert row["median"] == pytest.approx(10e-6)
    assert row["cpu_clock_median"] == pytest.approx(10e-6)
    assert row["iqr"] == 0
    assert row["number_per_run"] == 20  # blocks of 200 us
    assert pd.isna(row["ratio"])
    assert pd.isna(row["verdict"])
    assert pd.isna(row["description"])


def test_the_minimum_is_spent_by_each_alternative_and_no_more_when_all_is_settled() -> None:
    """All that is waited for counts: of 0.2 s, the untimed calls of the blocks take 9 %."""
    result = timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(20)"}, min_run_time=0.2)
    spent = result.samples.groupby("measurement")["wall"].sum()
    assert result.elapsed == pytest.approx(0.42, rel=0.03)  # both are warmed up for 10 ms
    assert spent[0] == pytest.approx(0.2 * 10 / 11, rel=0.06)
    assert spent[1] == pytest.approx(0.2 * 10 / 11, rel=0.06)


def test_the_ratio_is_this_over_the_baseline_with_a_verdict() -> None:
    frame = timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(20)", "c": "clock.work(10)"}).frame
    assert frame["ratio"].tolist() == pytest.approx([1, 2, 1])
    assert frame["verdict"].tolist() == ["baseline", "slower", "same"]
    assert frame["method"].tolist() == ["paired"] * 3


def test_another_baseline_gives_the_inverse_ratio() -> None:
    result = timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(20)"}, baseline="b")
    assert result.frame["ratio"].tolist() == pytest.approx([0.5, 1])
    assert result.rebase("a").frame["ratio"].tolist() == pytest.approx([1, 2])


def test_rounds_hold_every_alternative_in_random_order() -> None:
    samples = timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(10)"}, min_run_time=0.02).samples
    firsts = samples[samples["position"] == 0]["measurement"]
    assert set(firsts) == {0, 1}
    assert 0.3 < firsts.mean() < 0.7
    assert (samples.groupby("round")["measurement"].nunique() == 2).all()


def test_the_same_seed_gives_the_same_order() -> None:
    orders = [
        timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(10)"}, seed=seed).samples["measurement"].tolist()
        for seed in (5, 5, 6)
    ]
    assert orders[0] == orders[1] != orders[2]


def test_an_undecided_run_goes_on_to_the_maximum_and_says_how_much_more_it_needs() -> None:
    clock, dice = FakeClock(), random.Random(3)
    bodies = {"a": "clock.work(dice.choice((8, 12)))", "b": "clock.work(dice.choice((8, 12.4)))"}
    result = timed(clock, bodies, names={"dice": dice}, min_run_time=0.02, max_run_time=0.05, number=None)
    if result.frame["verdict"][1] == "undecided":
        assert result.undecided_seconds[1] > 0
    assert result.samples.groupby("measurement")["wall"].sum().max() <= 0.052


def test_slow_bodies_are_given_the_rounds_of_an_exact_interval() -> None:
    result = timed(FakeClock(), {"a": "clock.work(1_000_000)", "b": "clock.work(1_500_000)"})
    assert result.frame["samples"].tolist() == [6, 6]
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]
    assert result.subjects[0].look == "once"


def test_a_maximum_that_was_given_holds_for_slow_bodies() -> None:
    result = timed(FakeClock(), {"": "clock.work(1_000_000)"}, max_run_time=3.0)
    assert result.frame["samples"][0] == 2
    assert result.elapsed == pytest.approx(4.0)  # the first call apart, and one of the three was the warm-up's


def test_a_body_longer_than_every_budget_gives_one_sample() -> None:
    clock = FakeClock()
    result = timed(clock, {"": "clock.work(41_000_000)"})
    assert result.frame["samples"][0] == 1
    assert np.isnan(result.frame["iqr"][0])
    assert clock.wall_ns == pytest.approx(3 * 41e9)  # the first call, one to warm up, one sample


def test_time_is_shared_fairly_among_alternatives_of_very_different_speed() -> None:
    costs = {"fast": 10, "twin": 10, "slow": 1000, "slower": 20_000}
    bodies = {name: f"clock.work({us})" for name, us in costs.items()}
    result = timed(FakeClock(), bodies, min_run_time=1.0)
    spent = result.samples.groupby("measurement")["wall"].sum()
    assert spent.min() >= 0.36  # of 1 s, most goes to the one or two untimed calls before each call of 1 ms
    assert spent.drop(0).max() <= 1.1
    assert result.frame["samples"][1] >= 4000
    assert result.elapsed <= 5.1
    assert result.frame["verdict"].tolist() == ["baseline", "same", "slower", "slower"]


def test_a_slow_baseline_does_not_starve_the_fast_ones() -> None:
    result = timed(FakeClock(), {"slow": "clock.work(20_000)", "fast": "clock.work(10)"}, min_run_time=0.5)
    spent = result.samples.groupby("measurement")["wall"].sum()
    assert spent.min() >= 0.4
    assert spent.max() <= 0.6
    assert result.elapsed <= 1.25  # six calls of the slow one to look at its work, too
    assert result.frame["ratio"][1] == pytest.approx(10 / 20_000)


@pytest.mark.parametrize(("number", "repeat", "most"), [(1, 1, 3), (1, None, 7), (20, 2, 40), (None, 2, 10**6)])
def test_who_fixes_the_number_of_calls_gets_no_more_to_warm_up(number: Any, repeat: Any, most: int) -> None:
    result = timed(FakeClock(), {"": "clock.work(1)"}, number=number, repeat=repeat)
    made = result.subjects[0].warmup_calls
    assert made == most if number else made > 1000


def test_alternatives_of_about_one_speed_share_one_block_size() -> None:
    """What starting a block costs would else be spread over other numbers of calls: false differences of a per cent."""
    result = timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(12)", "c": "clock.work(40)"})
    assert result.frame["number_per_run"].tolist() == [20, 20, 5]


def test_a_block_of_several_calls_is_primed_by_an_untimed_one() -> None:
    calls: list[int] = []
    result = timed(FakeClock(), {"": "calls.append(1)\nclock.work(10)"}, names={"calls": calls}, number=50, repeat=3)
    bare = timed(FakeClock(), {"": "clock.work(10)"}, number=50, repeat=3)
    made = 1 + result.details["warmup_calls"][0] + 3 * 51
    made += 3  # that are recorded: two after the first, one in the end
    assert made <= len(calls) <= made + 3  # one more at random, so that calls which differ in turns are all met
    assert result.frame["median"][0] == bare.frame["median"][0] == pytest.approx(10e-6)


def test_number_and_repeat_are_timeits_mode() -> None:
    result = timed(FakeClock(), {"": "clock.work(10)"}, number=7, repeat=5)
    assert result.frame["samples"][0] == 5
    assert result.frame["number_per_run"][0] == 7
    assert timed(FakeClock(), {"": "clock.work(10)"}, number=7).frame["samples"][0] == 7
    assert timed(FakeClock(), {"": "clock.work(10)"}, repeat=4).frame["samples"][0] == 4


def test_the_first_call_is_a_figure_of_its_own_and_never_a_sample() -> None:
    clock = FakeClock()
    result = timed(clock, {"": "clock.work(next(cost))"}, names={"cost": clock.sequence([5000, 10])})
    assert result.details["first_call"][0] == pytest.approx(5e-3)
    assert result.samples["wall"].max() == pytest.approx(200e-6)


def test_a_slow_start_is_warmed_through() -> None:
    clock = FakeClock()
    falling = [1000 * 0.9**i for i in range(60)] + [1.0]
    result = timed(clock, {"": "clock.work(next(cost))"}, names={"cost": clock.sequence(falling)})
    assert result.details["warmup_calls"][0] >= 60
    assert result.call_times(0).max() == pytest.approx(1e-6)


def test_waiting_shows_in_wall_time_and_not_in_processor_time() -> None:
    result = timed(FakeClock(), {"": "clock.work(10); clock.wait(30)"})
    assert result.frame["median"][0] == pytest.approx(40e-6)
    assert result.frame["cpu_clock_median"][0] == pytest.approx(10e-6)
    assert result.details["wall_over_cpu"][0] == pytest.approx(4)


def test_thread_counts_are_visited_and_put_back() -> None:
    clock, before = FakeClock(), torch.get_num_threads()
    result = timed(
        clock,
        {"a": "clock.work(10 * torch.get_num_threads())", "b": "clock.work(10)"},
        names={"torch": torch},
        threads=(1, 2),
    )
    assert result.frame["num_threads"].tolist() == [1, 1, 2, 2]
    assert result.frame["median"].tolist() == pytest.approx([10e-6, 10e-6, 20e-6, 10e-6])
    assert result.frame["ratio"].tolist() == pytest.approx([1, 1, 1, 0.5])
    assert torch.get_num_threads() == before


def test_thread_counts_take_turns_of_twenty_milliseconds_with_an_untimed_call_after_each_switch() -> None:
    clock = FakeClock()
    seen: list[tuple[int, int]] = []

    def watched() -> None:
        clock.work(100)
        seen.append((torch.get_num_threads(), clock.wall_ns))

    timed(clock, {"": "watched()"}, names={"watched": watched}, threads=(1, 2), min_run_time=0.2)
    switches = [i for i in range(1, len(seen)) if seen[i][0] != seen[i - 1][0]]
    turns = [seen[b][1] - seen[a][1] for a, b in itertools.pairwise(switches)]
    assert len(turns) > 4
    assert min(turns[2:-2]) >= 20_000_000


def test_more_threads_than_cores_are_measured_and_said() -> None:
    result = timed(FakeClock(), {"": "clock.work(10)"}, threads=(1, 512))
    assert result.frame["num_threads"].tolist() == [1, 512]
    assert [d.kind for d in result.warnings] == ["oversubscribed"]


def test_names_mean_the_same_in_every_iteration() -> None:
    clock, names = FakeClock(), {"x": "a"}
    timed(clock, {"": "x += 'b'\nassert x == 'ab'\nclock.work(10)"}, names=names)
    timed(clock, {"": "try:\n    fresh\n    raise AssertionError\nexcept NameError:\n    fresh = 1\nclock.work(10)"})
    timed(clock, {"": "def f():\n    global x\n    x += 'b'\nf()\nassert x == 'ab'\nclock.work(10)"}, names=names)
    timed(clock, {"": "del x\nclock.work(10)"}, names=names)
    assert names == {"x": "a"}


def test_code_that_counts_goes_on_in_the_next_iteration_and_leaves_the_caller_s_names() -> None:
    names: dict[str, Any] = {"n": 0, "x": "a"}
    seen: list[int] = []
    timed(FakeClock(), {"": "n += 1\nx = str(n)\nnote(n)\nclock.work(10)"}, names=names | {"note": seen.append})
    timed_calls = seen[: seen.index(1, 1)]  # after them one is tried from the state before the first
    assert timed_calls == [*range(1, len(timed_calls) + 1)]
    assert len(timed_calls) > 1000
    assert (names["n"], names["x"]) == (0, "a")


def test_each_alternative_fills_its_own_of_what_goes_on() -> None:
    """Else the second one would find more than 8 once the first has replaced it, and never empty it."""
    names: dict[str, Any] = {"buf": []}
    text = "buf.append(1)\nclock.work(10)\nif len(buf) == 8:\n    {}()\n    buf = []"
    done: list[str] = []
    names |= {name: functools.partial(done.append, name) for name in "ab"}
    timed(FakeClock(), {name: text.format(name) for name in "ab"}, names=names)
    assert min(done.count("a"), done.count("b")) > 100
    assert names["buf"] == []


def test_nothing_is_written_to_the_callers_namespace() -> None:
    clock = FakeClock()
    names: dict[str, Any] = {"clock": clock}
    plan = Plan(threads=(1,))
    body = Body("global w\nw = 1\ny = 2\nfor i in range(2): z = i\nclock.work(10)")
    compare_bodies(Task({"": body}, setup=[Body("s = 1")], namespace=names, plan=plan, clocks=clock.clocks))
    assert names == {"clock": clock}


def test_annotations_and_multi_line_strings_mean_what_they_mean_in_the_callers_cell() -> None:
    """This package's own ``from __future__ import annotations`` must not reach the timed code."""
    timed(FakeClock(), {"": "def f(x: int): pass\nassert f.__annotations__['x'] is int\nclock.work(10)"})
    timed(FakeClock(), {"": 's = """a\n  b"""\nassert s == "a\\n  b"\nclock.work(10)'})


def test_setup_runs_once_in_order_and_is_shared() -> None:
    clock = FakeClock()
    log: list[str] = []
    setup = ["log.append('one'); x = 1", "log.append('two'); x += 1"]
    timed(clock, {"a": "assert x == 2; clock.work(10)", "b": "assert x == 2; clock.work(10)"}, setup, {"log": log})
    assert log == ["one", "two"]


def test_a_tensor_changed_in_place_is_said_with_its_count() -> None:
    x = torch.zeros(2)
    result = timed(FakeClock(), {"": "x += 1\nclock.work(10)"}, names={"x": x})
    (doubt,) = [d for d in result.warnings if d.kind == "in-place"]
    assert doubt.facts["changes"] == {"x": int(x[0])}
    assert doubt.facts["calls"] == int(x[0])
    assert "`x` changed in place" in str(doubt)


def test_a_tensor_that_a_notebook_function_changes_is_said_too() -> None:
    clock = FakeClock()
    home: dict[str, Any] = {"clock": clock, "state": torch.zeros(1), "__name__": "__main__"}
    exec("def step():\n    state.add_(1)\n    clock.work(10)", home)
    result = compare_bodies(Task({"": Body("step()")}, namespace=home, plan=Plan(threads=(1,)), clocks=clock.clocks))
    assert [d.kind for d in result.warnings] == ["in-place"]


@pytest.mark.parametrize("setup", ["pass", "next(iter([]))"])
def test_a_stop_iteration_of_the_code_leaves_as_it_is(setup: str) -> None:
    """A coroutine, within which the code runs, would make a RuntimeError of it."""
    with pytest.raises(StopIteration):
        timed(FakeClock(), {"": "next(iter([]))"}, setup=[setup])


def test_pure_code_raises_no_doubt() -> None:
    assert timed(FakeClock(), {"": "x + 1\nclock.work(10)"}, names={"x": torch.zeros(2)}).warnings == []


def test_a_global_that_setup_rebinds_under_a_notebook_function_is_named() -> None:
    clock = FakeClock()
    home: dict[str, Any] = {"clock": clock, "n": 1, "__name__": "__main__"}
    exec("def inner():\n    return n\ndef f():\n    clock.work(10)\n    return inner()", home)
    plan = Plan(threads=(1,))
    result = compare_bodies(Task(
        {"": Body("f()")}, setup=[Body("n = 2; m = 3")], namespace=home, plan=plan, clocks=clock.clocks
    ))
    (doubt,) = result.warnings
    assert doubt.kind == "used-up"
    assert doubt.text.startswith("Setup assigns to `n`, but `inner` reads the notebook's variable")


def test_output_of_the_first_call_is_shown_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    result = timed(FakeClock(), {"": "print('hello')\nclock.work(10)"})
    assert capsys.readouterr().out == "hello\n"
    assert [d.kind for d in result.warnings] == ["prints"]
    assert result.warnings[0].facts["characters"] > 1000


def test_a_body_of_a_few_nanoseconds_gets_no_verdict() -> None:
    bodies = {"a": "clock.work(0.005)", "b": "clock.work(0.015)"}
    result = timed(FakeClock(), bodies, number=1000, repeat=15, min_run_time=1e-4, max_run_time=1e-4)
    assert result.frame["median"].tolist() == pytest.approx([5e-9, 15e-9])
    assert result.frame["verdict"].isna()[1]
    assert [d.kind for d in result.warnings] == ["near-loop"]


def test_generators_grad_mode_and_collector_are_put_back() -> None:
    torch.manual_seed(1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    body = "torch.rand(1); random.random(); np.random.rand(); torch.set_grad_enabled(False); clock.work(10)"
    timed(FakeClock(), {"": body}, names={"torch": torch, "random": random, "np": np})
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert states[2] == np.random.get_state()[1].tolist()
    assert torch.is_grad_enabled()
    assert gc.isenabled()


def test_the_collector_is_off_while_blocks_run() -> None:
    seen: list[bool] = []
    timed(FakeClock(), {"": "seen.append(gc.isenabled())\nclock.work(10)"}, names={"seen": seen, "gc": gc})
    assert seen[0]
    assert not any(seen[1:])


def test_the_bodys_exception_is_the_users_own_with_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        timed(FakeClock(), {"a": "clock.work(10)\n\n1 / 0", "b": "clock.work(10)"})
    frame = caught.traceback[-1]
    assert (str(frame.frame.code.path), frame.lineno + 1, frame.name) == ("<a>", 3, "<module>")
    assert frame.frame.code.raw.co_firstlineno == 1


def test_a_body_that_fails_late_leaves_everything_as_it_was() -> None:
    clock, threads = FakeClock(), torch.get_num_threads()
    count = iter(range(1000))
    with pytest.raises(StopIteration):
        timed(clock, {"": "next(count); clock.work(10)"}, names={"count": count}, threads=(2,))
    assert gc.isenabled()
    assert torch.get_num_threads() == threads


def test_what_was_measured_before_a_body_failed_is_handed_over() -> None:
    clock = FakeClock()
    kept: list[Any] = []

    def work() -> None:
        clock.work(10)
        if clock.wall_ns > 100e6:
            raise ValueError("the 10 000th call")

    with pytest.raises(ValueError, match="10 000th"):
        compare_bodies(Task(
            {"": Body("work()")},
            namespace={"work": work},
            plan=Plan(threads=(1,), min_run_time=1.0),
            clocks=clock.clocks,
            failed=kept.append,
        ))
    (partial,) = kept
    assert partial.partial
    assert partial.frame["median"][0] == pytest.approx(10e-6)


def test_an_interrupt_keeps_what_was_measured() -> None:
    clock = FakeClock()

    def work() -> None:
        clock.work(10)
        if clock.wall_ns > 100e6:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        timed(clock, {"": "work()"}, names={"work": work}, min_run_time=1.0)
    partial = caught.value.partial
    assert partial is not None
    assert partial.partial
    assert partial.frame["median"][0] == pytest.approx(10e-6)


def test_an_interrupt_before_the_first_sample_keeps_nothing() -> None:
    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        timed(FakeClock(), {"": "work()"}, names={"work": work})
    assert caught.value.partial is None


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (0, "interrupted after 5.00 s, while running the setup."),
        (1, "interrupted after 8.00 s, while running the first call of a."),
        (2, "interrupted after 11.0 s, while running the first call of b. First call: a 3.00 s."),
        (3, "interrupted after 14.0 s, while warming up a. First calls: a 3.00 s, b 3.00 s."),
    ],
)
def test_an_interrupt_before_the_first_sample_says_what_had_run(calls: int, said: str) -> None:
    clock, made = FakeClock(), []

    def work(seconds: float) -> None:
        clock.work(seconds * 1e6)
        made.append(seconds)
        if len(made) > calls:
            raise KeyboardInterrupt

    names = {"work": work}
    with pytest.raises(Interrupted) as caught:
        timed(clock, {"a": "work(3)", "b": "work(3)"}, setup=["work(5)"], names=names)
    assert str(caught.value) == caught.value.said == f"Nothing was measured yet: {said}"


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("", BodyError, "nothing to time"),
        ("# only a comment", BodyError, "nothing to time"),
        ("'walk(10)'", BodyError, "the statement is a text, which runs nothing"),
        ("from math import *", BodyError, "setup"),
        ("from __future__ import annotations", BodyError, "setup"),
        ("return 1", SyntaxError, "outside function"),
        ("x = 1\ny =", SyntaxError, "line 2"),
        ("await f()", BodyError, "notebook cell"),
    ],
)
def test_what_cannot_be_timed_is_one_line(source: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        timed(FakeClock(), {"": source})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "plan",
    [
        {"threads": (0,)},
        {"threads": ()},
        {"min_run_time": 0},
        {"min_run_time": 1.0, "max_run_time": 0.5},
        {"number": 0},
        {"repeat": 0},
        {"baseline": "missing"},
        {"description": "named twice"},
    ],
)
def test_a_plan_that_does_not_fit_is_one_line(plan: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        timed(FakeClock(), {"a": "clock.work(1)", "b": "clock.work(1)"}, **plan)
    assert "\n" not in str(caught.value)


def test_labels_reach_the_frame_and_torchs_measurements() -> None:
    given = {"label": "L", "sub_label": "S", "description": "D", "env": "E"}
    result = timed(FakeClock(), {"": "clock.work(10)"}, ["y = 1"], **given)
    assert {k: result.frame[k][0] for k in given} == given
    (measurement,) = result.measurements
    spec = measurement.task_spec
    assert (spec.label, spec.sub_label, spec.description, spec.env) == ("L", "S", "D", "E")
    assert (spec.stmt, spec.setup, spec.num_threads) == ("clock.work(10)", "y = 1", 1)
    assert measurement.median == pytest.approx(10e-6)
    assert measurement.number_per_run == 20


def test_code_that_awaits_is_timed_in_a_running_loop() -> None:
    import asyncio

    clock = FakeClock()

    async def work() -> None:
        clock.work(10)

    async def main() -> Any:
        return await compare_bodies_async(Task(
            {"a": Body("await work()"), "b": Body("clock.work(20)")},
            setup=[Body("await work()")],
            namespace={"work": work, "clock": clock},
            plan=Plan(threads=(1,)),
            clocks=clock.clocks,
        ))

    frame = asyncio.run(main()).frame
    assert frame["median"].tolist() == pytest.approx([10e-6, 20e-6])


def test_progress_is_told_between_rounds() -> None:
    clock = FakeClock()
    told: list[tuple[float, float | None, str]] = []

    class Listener:
        def update(self, done: float, total: float | None, what: str) -> None:
            told.append((done, total, what))

    compare_bodies(Task(
        {"a": Body("clock.work(20)"), "b": Body("clock.work(40)")},
        namespace={"clock": clock},
        plan=Plan(threads=(1,), min_run_time=1.0),
        clocks=clock.clocks,
        progress=Listener(),
    ))
    done = [d for d, _, _ in told]
    assert len(told) > 10
    assert done == sorted(done)
    assert all(total == pytest.approx(2.02, rel=0.01) for _, total, _ in told[2:-1])


class Watcher:
    """Asks for what is known at every chance, and stops at the last of so many."""

    def __init__(self, chances: int) -> None:
        self.chances, self.seen = chances, list[Any]()

    def update(self, done: float, total: float | None, what: str) -> None:
        if len(self.seen) == self.chances:
            raise KeyboardInterrupt

    def watch(self, partial: Callable[[], Any]) -> None:
        self.seen.append(partial())


def test_who_watches_is_handed_what_is_known_and_may_stop_the_run() -> None:
    clock, watcher = FakeClock(), Watcher(5)
    with pytest.raises(Interrupted) as stopped:
        compare_bodies(Task(
            {"a": Body("clock.work(100)"), "b": Body("clock.work(200)")},
            namespace={"clock": clock},
            plan=Plan(threads=(1,), min_run_time=1.0),
            clocks=clock.clocks,
            progress=watcher,
        ))
    sizes = [int(known.frame["samples"].min()) for known in watcher.seen]
    assert sizes == sorted(set(sizes)), "each time more is known"
    assert all(known.partial for known in watcher.seen)
    kept = stopped.value.partial
    assert kept is not None
    assert kept.frame["samples"].min() >= sizes[-1]
    assert kept.frame["ratio"][1] == pytest.approx(2.0)


def test_real_clocks_time_a_real_body() -> None:
    """What is measured was within the run, and a process computes no longer than it was there."""
    clocks = Clocks()
    began = clocks.wall()
    result = compare({"a": "sleep(0.002)"}, globals={"sleep": time.sleep}, threads=1, min_run_time=0.02)
    passed = (clocks.wall() - began) / 1e9
    assert result.samples["wall"].sum() <= result.elapsed <= passed
    assert (result.samples["cpu"] >= 0).all()
    assert clocks.counters().wall > 0


def test_a_script_keeps_the_commit_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(read_commit.__kwdefaults__, "timeout", None)  # git is waited for, however long it takes
    assert compare({"a": "1 + 1"}, min_run_time=0.001).environment.commit is None
    options = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *options, *words], check=True)
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    assert compare({"a": "1 + 1"}, min_run_time=0.001).environment.commit == said


# ==== seconds =========================================================================================================
# The seconds of the options are those that a user waits, whatever they go to; and what is told meanwhile.


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
    result = timed(FakeClock(), {"": "clock.work(40)"}, min_run_time=0.2, max_run_time=0.2)
    assert result.elapsed == pytest.approx(0.2, rel=0.02)


def test_a_slow_baseline_beside_a_fast_body_ends_with_their_maximum() -> None:
    """A baseline runs in every round, so the maximum of the others alone would not end it: 40 rounds of 2 s here."""
    result = timed(FakeClock(), {"slow": "clock.work(2_000_000)", "fast": "clock.work(10)"})
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
    count = iter(range(10**9))
    bodies = {"a": "clock.work(190 + (110 if next(count) % 11 == 9 else 0))", "b": "clock.work(2000)"}
    result = timed(FakeClock(), bodies, names={"count": count}, min_run_time=0.2, number=None)
    assert result.frame["ratio"][1] == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize(("every", "seed"), [(2, 0), (2, 1), (2, 2), (3, 0), (4, 0)])
def test_calls_that_differ_in_turns_are_all_met(every: int, seed: int) -> None:
    """A step for every second batch: blocks of a call that each follow an untimed one would meet the same half."""
    clock, count = FakeClock(), iter(range(10**9))
    bodies = {"a": f"clock.work(1000 if next(count) % {every} else 3000)", "b": "clock.work(2000)"}
    result = timed(clock, bodies, names={"count": count}, min_run_time=1.0, number=None, seed=seed)
    mean = (3 + every - 1) / every
    assert result.frame["mean"][0] == pytest.approx(mean * 1e-3, rel=0.03)
    assert result.frame["median"][0] == pytest.approx(mean * 1e-3, rel=0.03)  # blocks have their share of each kind
    assert result.frame["ratio"][1] == pytest.approx(2 / mean, rel=0.03)
    if every == 2:
        assert result.frame["verdict"][1] in ("same", "undecided")
