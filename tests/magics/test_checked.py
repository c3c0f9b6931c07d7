"""``%%timer --check`` in a shell."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from torchbench_magic.errors import OptionError
from torchbench_magic.notebook.option_parser import read_line
from torchbench_magic.notebook.options import TimerOptions
from torchbench_magic.timing.equality import Numbers
from torchbench_magic.timing.plan import Plan, tolerances_asked

Run = Callable[..., str]
SHORT = "-t 1 -n 2 -r 6"
READY = """
import threading, weakref
import numpy as np, torch
w = torch.ones(23)
refs = []
def kept(value):
    refs.append(weakref.ref(value))
    return value
"""


@pytest.fixture
def ready(loaded: Any, run: Run) -> Any:
    run(loaded, READY)
    return loaded


@pytest.mark.parametrize(
    ("line", "check", "rest"),
    [
        ("--check", True, ""),
        ("--check --restore", True, ""),
        ("--check y = 1", True, "y = 1"),
        ("--check tol = 1", True, "tol = 1"),
        ("--check rtol=1e-3,atol=1e-5", "rtol=1e-3,atol=1e-5", ""),
        ("--check=rtol=1e-3 y = 1", "rtol=1e-3", "y = 1"),
        ("--check 'atol=0, rtol=1' -n 2", "atol=0, rtol=1", ""),
        ("", False, ""),
    ],
)
def test_tolerances_are_told_from_the_setup_after_them(line: str, check: object, rest: str) -> None:
    options, left = read_line(TimerOptions, "%%timer", line)
    assert (options.check, left.strip()) == (check, rest)
    assert options.plan(label=None).check == check


@pytest.mark.parametrize(
    "text", ["rtol", "rtol=", "rtol=x", "rtol=-1", "rtol=nan", "rtol=inf", "rtol=1,btol=1", "1e-3", "rtol=1,"]
)
def test_other_tolerances_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(OptionError, match="give tolerances of at least 0, such as rtol=1e-3,atol=1e-5") as caught:
        read_line(TimerOptions, "%%timer", f"--check={text}")
    assert "\n" not in str(caught.value)
    with pytest.raises(OptionError, match=r"^check: give tolerances"):
        Plan(check=text)


def test_what_is_not_given_is_left_to_the_dtype() -> None:
    assert tolerances_asked("rtol=1e-3") == (1e-3, None)
    assert tolerances_asked(" atol = 0 ") == (None, 0.0)
    assert tolerances_asked(True) is None


def test_reduced_precision_is_compared_with_the_tolerances_given(ready: Any, run: Run) -> None:
    cell = "# --- single\nw * 2\n# --- half\n(w * 2.001).bfloat16()"
    assert "return the same numbers as bfloat16 and float32;" in run(ready, f"%%timer {SHORT} --check\n{cell}")
    run(ready, f"%%timer {SHORT} --check rtol=1e-2\n{cell}")
    assert "`half` and `single` return the same numbers (within rtol=0.01" in str(ready.user_ns["_timer"].warnings)
    assert "--check rtol=1e-2" in ready.user_ns["_timer"].to_markdown()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("kept(w * 3)", "return different values"),
        ("kept((w * 2).double())", "return the same numbers as"),
        ("[kept(w * 2), threading.Lock()]", "cannot be compared"),
        ("held = kept(w * 2)\nheld[100]", "IndexError"),
    ],
)
def test_a_failed_check_keeps_no_result_alive(ready: Any, run: Run, other: str, said: str) -> None:
    ready.user_ns["refs"].clear()
    shown = run(ready, f"%%timer {SHORT} --check\n# --- a\nkept(w * 2)\n# --- b\n{other}")
    assert said in shown
    assert sys.last_value.__traceback__ is not None, "what a debugger would walk"
    gc.collect()
    refs = ready.user_ns["refs"]
    assert len(refs) >= 2
    wanted = 1 if said == "IndexError" else 0  # the local variable of the user's own frame, in the user's traceback
    assert sum(ref() is not None for ref in refs) == wanted
    assert not [each for each in gc.get_objects() if type(each) is Numbers and each.values.shape == (23,)]
