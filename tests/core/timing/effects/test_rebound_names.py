"""What timed code binds is local to it: functions that it calls read the notebook's own."""

from __future__ import annotations

from typing import Any

import pytest

from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.timer import compare_bodies
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.timing.comparison import Comparison

from ..fake_clock import FakeClock

NOTEBOOK = """\
import math
n = 1
def inner():
    return n + math.pi
def f(k=0):
    clock.work(10)
    return inner()
"""


def timed(*bodies: str, setup: str = "") -> Comparison:
    clock = FakeClock()
    home: dict[str, Any] = {"clock": clock, "__name__": "__main__"}
    exec(NOTEBOOK, home)
    return compare_bodies(Task(
        {f"b{at}": Body(body) for at, body in enumerate(bodies)},
        setup=[Body(setup)] if setup else [],
        namespace=home,
        plan=Plan(threads=(1,), min_run_time=0.01),
        clocks=clock.clocks,
    ))


@pytest.mark.parametrize(("body", "setup", "who"), [
    ("n = 5\nf()", "", "inner"),
    ("for n in (5,):\n    f()", "", "inner"),
    ("for k in (1, 2):\n    f()\n    n = k", "", "inner"),
    ("n = 5\ng = lambda: f()\ng()", "", "inner"),
    ("n = 5\ng()", "def g():\n    clock.work(10)\n    return n", "g"),
    ("def inner():\n    return 2\nf()", "", "f"),
])  # fmt: skip
def test_a_function_that_reads_another_value_is_named_and_there_is_no_verdict(body: str, setup: str, who: str) -> None:
    result = timed("f()", body, setup=setup)
    name = "inner" if who == "f" else "n"
    (doubt,) = [doubt for doubt in result.warnings if doubt.kind == "used-up"]
    assert f"The code binds `{name}`, but `{who}` reads the global of that name, which stayed as it was" in doubt.text
    assert doubt.facts["rows"] == [1]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]


@pytest.mark.parametrize("body", [
    "n = f()",  # of the value before, as in a cell
    "import math\nf()",
    "f([n for n in range(3)])",
    "m = 5\nf(m)",
    "n = 5\ndef f():\n    clock.work(10)\n    return n\nf()",
    "class A:\n    n = 5\nf()",
])  # fmt: skip
def test_nothing_is_said_where_functions_read_what_they_would_in_a_cell(body: str) -> None:
    result = timed("f()", body)
    assert [doubt for doubt in result.warnings if doubt.kind == "used-up"] == []
    assert result.frame["verdict"].tolist() == ["baseline", "same"]
