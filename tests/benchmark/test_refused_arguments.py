"""Arguments that cannot be are refused in one line by every entrance for scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch

import torchbench_magic
from torchbench_magic.benchmark import Timer
from torchbench_magic.errors import OptionError

NO_COUNT = [0, -1, 1.5, math.nan, math.inf, "3", True, None, 10**13]
NO_SECONDS = [-1, math.nan, math.inf, "1", True]


CALLS: list[tuple[str, Callable[[Any], object], list[Any]]] = [
    ("number", lambda value: Timer("pass").collect_callgrind(value), NO_COUNT),
    ("num_threads", lambda value: Timer("pass", num_threads=value), [*NO_COUNT, 4097]),
    ("threads", lambda value: torchbench_magic.compare({"a": "1"}, threads=value), [0, 1.5, math.nan, "2", True, 9999]),
    ("min_run_time", lambda value: torchbench_magic.compare({"a": "1"}, min_run_time=value), [*NO_SECONDS, 0, None]),
    ("max_run_time", lambda value: torchbench_magic.compare({"a": "1"}, max_run_time=value), [*NO_SECONDS, 0]),
    ("seed", lambda value: torchbench_magic.compare({"a": "1"}, seed=value), [-1, math.nan, 1.5, "1", True]),
    ("threads", lambda value: torchbench_magic.profile(int, threads=value), [0, -1, 1.5, math.nan, "2", True, 9999]),
    ("max_events", lambda value: torchbench_magic.profile(int, max_events=value), [0, -1, 1.5, math.nan, "2", True]),
    ("schedule", lambda value: torchbench_magic.profile(int, schedule={"active": value}), [0, -1, math.nan, "2", True]),
    ("schedule", lambda value: torchbench_magic.profile(int, schedule=f"active={value}"), [0, -1, "nan", "9" * 5000]),
]


def refused(name: str, call: Callable[[Any], object], value: Any, said: str) -> str:
    """What is wrong with how a call refuses a value: nothing."""
    try:
        call(value)
    except OptionError as error:
        return "" if re.match(said, str(error)) else f"{name}={value!r}: {error}"
    return f"{name}={value!r}: taken"


def test_a_value_that_cannot_be_is_one_line_with_its_name() -> None:
    found = [refused(name, call, value, rf"{name}: [^\n]+$") for name, call, values in CALLS for value in values]
    assert len(found) > 60
    assert [wrong for wrong in found if wrong] == []


def test_a_table_of_no_number_of_rows_and_a_benchmark_of_an_op_refuse_them_too() -> None:
    x = torch.ones(4)
    recorded = torchbench_magic.profile(lambda: x + 1, shapes=True)
    found = []
    for name in ("row_limit", "group_by_stack_n"):
        said = rf"{name}=[^\n]*: give a whole number[^\n]*$"
        call = lambda value, name=name: recorded.table(**{name: value})
        found += [refused(name, call, value, said) for value in (math.nan, 1.5, "3", None)]
    for name, value in (("threads", math.nan), ("threads", 1.5), ("min_run_time", math.inf)):
        call = lambda value, name=name: torchbench_magic.benchmark_op(recorded, "aten::add", **{name: value})
        found.append(refused(name, call, value, rf"{name}: [^\n]+$"))
    assert [wrong for wrong in found if wrong] == []
