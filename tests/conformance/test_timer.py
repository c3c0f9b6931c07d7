"""``Timer`` of the drop-in: torch's arithmetic, text and refusals."""

from __future__ import annotations

import re
import timeit
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.utils.benchmark as theirs

from torchbench_magic import benchmark as ours
from torchbench_magic.errors import OptionError

BLOCK = """
    with torch.no_grad():
        y = x + 1
"""


class FakeTimer:
    """Takes no time: a call costs what the table says, with noise from one seed."""

    costs: ClassVar = {"pass": 8e-9, "cheap()": 4e-6, "costly()": 20e-6, "with torch.no_grad():\n    y = x + 1": 10e-6}

    def __init__(self, stmt: str, setup: str, timer: Callable[[], float], globals: dict[str, Any]) -> None:  # noqa: A002
        self.noise = np.random.RandomState(0)
        self.cost = self.costs[stmt]

    def timeit(self, number: int) -> float:
        drawn = (self.noise.normal(mean, 0.05 * mean) for mean in (1e-7, self.cost * number, 1e-7))
        return sum(max(time, 5e-9) for time in drawn)


def fake(package: ModuleType, **arguments: Any) -> Any:
    return type("Fake", (package.Timer,), {"_timer_cls": FakeTimer})(**arguments)


def shown(measurement: object) -> str:
    return re.sub("0x[0-9a-f]+", "0x", repr(measurement))


@pytest.mark.parametrize(
    "arguments",
    [
        {"stmt": "pass"},
        {"stmt": "cheap()"},
        {"stmt": "costly()", "label": "L", "sub_label": "s", "description": "d", "env": "e"},
        {"stmt": BLOCK},
        {"stmt": BLOCK, "sub_label": "s", "setup": "prepare()"},
        {
            "stmt": BLOCK,
            "label": "L",
            "setup": "\n    a = 1\n    for _ in range(5):\n        a += 1",
            "num_threads": 16,
        },
    ],
)
@pytest.mark.parametrize(
    "measure",
    [
        lambda timer: timer.blocked_autorange(min_run_time=10),
        lambda timer: timer.blocked_autorange(),
        lambda timer: timer.adaptive_autorange(),
        lambda timer: timer.adaptive_autorange(0.02, min_run_time=0.5, max_run_time=2.0),
        lambda timer: timer.timeit(1000),
    ],
)
def test_with_a_swapped_timer_class_every_figure_and_text_is_torchs(arguments: dict[str, Any], measure: Any) -> None:
    found, expected = (measure(fake(package, **arguments)) for package in (ours, theirs))
    assert shown(found) == shown(expected)
    assert found.raw_times == expected.raw_times
    assert found.task_spec == expected.task_spec


def test_the_callback_is_told_each_block() -> None:
    told: list[tuple[int, float]] = []
    measured = fake(ours, stmt="cheap()").blocked_autorange(callback=lambda *block: told.append(block), min_run_time=1)
    assert told == [(measured.number_per_run, time) for time in measured.raw_times]


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"stmt": lambda: 1},
        {"stmt": None},
        {"setup": 3},
        {"global_setup": "#include <x>"},
        {"language": "rust"},
        {"language": "c++", "globals": {"x": 1}},
        {"stmt": "return 1"},
        {"stmt": "x ="},
        {"stmt": "yield"},
        {"stmt": "break"},
        {"stmt": "await f()"},
        {"stmt": "x = 1\n  y = 2"},
        {"stmt": "from __future__ import annotations"},
        {"stmt": "from math import *"},
        {"setup": "x ="},
        {"setup": "if True:", "stmt": "    pass"},
        {"setup": "return"},
        {"setup": "nonlocal x"},
        {"globals": 3},
    ],
)
def test_what_torch_refuses_is_refused_in_the_same_way(arguments: dict[str, Any]) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011  (whatever torch raises)
        theirs.Timer(**arguments)
    with pytest.raises(expected.type) as found:
        ours.Timer(**arguments)
    if not isinstance(expected.value, SyntaxError):
        assert str(found.value) == str(expected.value)
    else:
        assert found.value.msg == expected.value.msg


def test_repeat_and_autorange_point_to_blocked_autorange_as_in_torch() -> None:
    for call in ("repeat", "autorange"):
        with pytest.raises(NotImplementedError, match="blocked_autorange"):
            getattr(ours.Timer(), call)()


def test_the_globals_of_the_caller_are_left_alone() -> None:
    given = {"x": 1}
    ours.Timer("y = x + 1", "z = 2", globals=given).timeit(3)
    assert given == {"x": 1}


def test_a_name_that_setup_binds_goes_on_from_call_to_call_as_in_torch() -> None:
    logs: list[list[int]] = []
    for package in (ours, theirs):
        log: list[int] = []
        package.Timer("n += 1; log.append(n)", "n = 0", globals={"log": log}).timeit(4)
        logs.append(log)
    assert logs[0] == logs[1] == [1, 2, 1, 2, 3, 4]


def test_setup_runs_before_each_block_as_in_torch() -> None:
    counts = []
    for package in (ours, theirs):
        log: list[int] = []
        package.Timer("pass", "log.append(1)", globals={"log": log}).timeit(1000)
        counts.append(len(log))
    assert counts[0] == counts[1] == 2


def test_nothing_is_subtracted_from_the_times() -> None:
    ticks = iter(range(1000))
    timer = ours.Timer("pass", timer=lambda: next(ticks))
    assert timer._timeit(5) == 1  # one tick between the two readings


def test_torch_runs_on_one_thread_and_is_put_back() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    ours.Timer("seen.append(torch.get_num_threads())", globals={"seen": seen}).timeit(2)
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


# ---- clocks ----------------------------------------------------------------------------------------------------------


def test_the_cpu_clock_does_not_run_while_the_code_sleeps() -> None:
    sleeping = {"stmt": "time.sleep(0.02)", "setup": "import time"}
    assert ours.Timer(**sleeping).timeit(3).median >= 0.02
    assert ours.Timer(**sleeping, timer="cpu").timeit(3).median < 0.01


def test_a_clock_that_does_not_exist_is_refused_in_one_line() -> None:
    with pytest.raises(OptionError, match="'wall', 'cpu', 'device'"):
        ours.Timer("pass", timer="gpu")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_the_device_clock_needs_a_device() -> None:
    with pytest.raises(OptionError, match="no accelerator"):
        ours.Timer("pass", timer="device")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is available")
def test_the_device_clock_tells_what_the_device_worked() -> None:
    names = {"x": torch.randn(4096, 4096, device="cuda")}
    on_device = ours.Timer("x @ x", globals=names, timer="device").timeit(20).median
    wall = ours.Timer("x @ x", globals=names).timeit(20).median
    assert on_device == pytest.approx(wall, rel=0.3)
    idle = ours.Timer("time.sleep(0.01)", "import time", timer="device").timeit(5).median
    assert idle == pytest.approx(0.01, rel=0.5)  # events on an idle device are as far apart as their recording


def test_the_default_clock_is_torchs() -> None:
    assert ours.Timer()._timer.timer is theirs.timer
    assert ours.Timer(timer=timeit.default_timer)._timer.timer is timeit.default_timer
