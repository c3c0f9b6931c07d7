"""What is asked of a timing: a plan that can be, inputs that code reads of its own, and inputs that nothing reads."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import OptionError
from torchbench_magic.timing.fuzzers import fuzz_points
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.sweep import sweep_points
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock

# ==== unused inputs ===================================================================================================
# A sweep's axis, or what a fuzzer draws, that no code reads.


def unused(setup: str, body: str, points: Any = None, **names: Any) -> list[tuple[str, object]]:
    clock = FakeClock()
    result = compare_bodies(Task(
        {"": Body(body)},
        setup=[Body(setup)] if setup else [],
        namespace={"clock": clock, **names},
        plan=Plan(threads=(1,), min_run_time=0.001),
        clocks=clock.clocks,
        points=sweep_points(["n=[1, 2]"], names) if points is None else points,
    ))
    return [(str(doubt), doubt.facts["name"]) for doubt in result.warnings if doubt.kind == "unused-input"]


def test_an_axis_that_no_code_reads_is_said_once_with_its_name() -> None:
    ((said, name),) = unused("m = 3", "clock.work(m)")
    assert name == "n"
    assert said.startswith("The sweep's axis `n` is not used by the setup or a statement")


@pytest.mark.parametrize(
    ("setup", "body"),
    [
        ("n = 3", "clock.work(n)"),
        ("", "n = 3\nclock.work(n)"),
        ("class cfg: n = 3", "clock.work(cfg.n)"),
        ("", "clock.work(len('n'))"),
    ],
)
def test_an_axis_that_is_overwritten_or_only_looks_used_is_said(setup: str, body: str) -> None:
    assert [name for _, name in unused(setup, body)] == ["n"]


@pytest.mark.parametrize(
    ("setup", "body"),
    [
        ("m = n", "clock.work(m)"),
        ("", "clock.work(n)"),
        ("n = n * 2", "clock.work(n)"),
        ("def f():\n    return n", "clock.work(f())"),
        ("m = int(f'{n}')", "clock.work(m)"),
        ("m = [i * n for i in [1]]", "clock.work(m[0])"),
        ("", "clock.work(eval('n'))"),
        ("m = globals()['n']", "clock.work(m)"),
        ("", "clock.work((lambda: n)())"),
    ],
)
def test_an_axis_that_some_code_reads_is_not(setup: str, body: str) -> None:
    assert unused(setup, body) == []


def test_a_function_of_the_notebook_that_reads_the_name_counts() -> None:
    names: dict[str, Any] = {"n": 5}
    exec("def f(): return n", names)
    clock = FakeClock()
    names |= {"clock": clock}
    result = compare_bodies(Task(
        {"": Body("clock.work(f())")},
        namespace=names,
        plan=Plan(threads=(1,), min_run_time=0.001),
        clocks=clock.clocks,
        points=sweep_points(["n=[1, 2]"], {}),
    ))
    assert [doubt.facts["how"] for doubt in result.warnings] == ["axis"]  # it reads the notebook's own


def test_a_tensor_of_a_fuzzer_that_no_code_reads_is_said() -> None:
    assert [name for _, name in unused("", "clock.work(1 + x.dim())", fuzz_points("binary:2", {}))] == ["y"]
    assert unused("", "clock.work(1 + x.dim() + y.dim())", fuzz_points("binary:2", {})) == []


# ==== plan ============================================================================================================
# Values that cannot be are refused wherever they are set.


NO_SECONDS = [0, -1, math.nan, math.inf, -math.inf, "1", True, [1]]
NO_SHARE = [0, -0.1, math.nan, math.inf, "1 %", 11]
NO_COUNT = [0, -1, 2.5, math.nan, "3", True]
BAD: list[tuple[str, Any]] = [
    *(("min_run_time", value) for value in [*NO_SECONDS, None]),
    *(("max_run_time", value) for value in NO_SECONDS),
    *((name, value) for name in ("margin", "until", "adaptive") for value in NO_SHARE),
    *((name, value) for name in ("number", "repeat") for value in NO_COUNT),
    *((name, 10**13) for name in ("number", "repeat")),
    *(("threads", (value,)) for value in [*NO_COUNT, 4097, 10**30]),
    *(("seed", value) for value in (-1, 1.5, math.nan, "7", True, 2**32)),
]


def test_a_value_that_cannot_be_is_one_line_with_its_name() -> None:
    wrong: list[str] = []
    for name, value in BAD:
        try:
            Plan(**{name: value})
        except OptionError as error:
            if re.fullmatch(rf"{name}: give [^\n]+", str(error)) is None:
                wrong.append(f"{name}={value!r}: {error}")
        else:
            wrong.append(f"{name}={value!r}: taken")
    assert wrong == []


def test_numbers_of_numpy_are_numbers() -> None:
    made = Plan(min_run_time=np.float32(0.5), number=np.int64(3), threads=(np.int32(2),))
    assert (made.min_run_time, made.number, made.threads) == (0.5, 3, (2,))
