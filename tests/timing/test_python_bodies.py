"""What timed code binds is local to it: functions that it calls read the notebook's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import CheckFailed
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.sweep import Point, sweep_points
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock

NOTEBOOK = """\
import math
n = 1
def inner():
    return n + math.pi
def f(k=0):
    clock.work(10)
    return inner()
"""


HOLDERS = """\
import functools
import types
import torch
def m():
    return 1
class Block(torch.nn.Module):
    def forward(self, x):
        return x + inner()
class Held:
    def __init__(self):
        self.f, self.m, self.x = f, m, 0
    def run(self):
        return self.f()
    @property
    def value(self):
        return 1 / self.x
class Slotted:
    __slots__ = ("f",)
ops, fs, held, slotted = {"f": f, 1: [(f,)]}, [f], Held(), Slotted()
slotted.f = f
others = {"m": m, "x": torch.zeros(3), "held": [m]}
space, part, kept = types.SimpleNamespace(f=f), functools.partial(fs[0]), {f}
net = torch.nn.Sequential(torch.nn.Sequential(Block()))
layers = torch.nn.ModuleList([Block()])
deep = Block()
for _ in range(9):
    deep = torch.nn.Sequential(deep)
hooked = torch.nn.Identity()
hooked.register_forward_hook(lambda *_: f())
lambdas = {"a": lambda: f()}
bound = held.run
def closing(g):
    return lambda: g()
closed = closing(f)
many = list(range(100_000))
def change():
    global n
    n = 30
"""


def timed(
    *bodies: str, setup: str = "", holders: bool = False, points: Sequence[Point] = (), check: bool = False
) -> Comparison:
    clock = FakeClock()
    home: dict[str, Any] = {"clock": clock, "__name__": "__main__"}
    exec(NOTEBOOK + HOLDERS * holders, home)
    return compare_bodies(Task(
        {f"b{at}": Body(body) for at, body in enumerate(bodies)},
        setup=[Body(setup)] if setup else [],
        namespace=home,
        plan=Plan(threads=(1,), min_run_time=0.01, check=check),
        clocks=clock.clocks,
        points=points,
    ))


@pytest.mark.parametrize(("body", "setup", "who"), [
    ("n = 5\nf()", "", "inner"),
    ("for n in (5,):\n    f()", "", "inner"),
    ("for k in (1, 2):\n    f()\n    n = k", "", "inner"),
    ("n = 5\ng = lambda: f()\ng()", "", "inner"),
    ("n = 5\ng()", "def g():\n    clock.work(10)\n    return n", "g"),
    ("f()\nn += 1", "", "inner"),  # goes on to the next call
    ("def inner():\n    return 2\nf()", "", "f"),
])  # fmt: skip
def test_a_function_that_reads_another_value_is_named_and_there_is_no_verdict(body: str, setup: str, who: str) -> None:
    result = timed("f()", body, setup=setup)
    name = "inner" if who == "f" else "n"
    (doubt,) = [doubt for doubt in result.warnings if doubt.kind == "used-up"]
    said = f"The code assigns to `{name}`, but `{who}` reads the global of that name, which did not change"
    assert said in doubt.text
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


@pytest.mark.parametrize("call", [
    "ops['f']()", "ops[1][0][0]()", "ops.get('f')()", "[f][0]()", "[g() for g in fs]", "next(iter(kept))()", "part()",
    "held.f()", "held.run()", "space.f()", "slotted.f()", "bound()", "lambdas['a']()", "closed()",
    "net(1)", "layers[0](1)", "deep(1)", "hooked(1)",
])  # fmt: skip
def test_functions_in_containers_objects_and_modules_are_found(call: str) -> None:
    result = timed(f"n = 1\nclock.work(10)\n{call}", f"n = 20\nclock.work(10)\n{call}", holders=True)
    (doubt,) = [doubt for doubt in result.warnings if doubt.kind == "used-up"]
    assert "The code assigns to `n`, but `inner` reads the global of that name" in doubt.text
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]


@pytest.mark.parametrize("call", ["others['m']()", "others['held'][0]()", "len(many)", "others['x'] + math.pi"])
def test_nothing_is_said_of_containers_whose_functions_read_no_such_name(call: str) -> None:
    result = timed(f"n = 1\nclock.work(10)\n{call}", f"n = 20\nclock.work(10)\n{call}", holders=True)
    assert [doubt for doubt in result.warnings if doubt.kind == "used-up"] == []


def test_a_name_that_setup_binds_under_a_function_takes_the_verdict_of_the_alternatives_that_call_it() -> None:
    result = timed("clock.work(10)", "ops['f']()", "clock.work(20)", setup="n = 20", holders=True)
    (doubt,) = [doubt for doubt in result.warnings if doubt.kind == "used-up"]
    assert doubt.text.startswith("Setup assigns to `n`, but `inner` reads the notebook's variable")
    assert doubt.facts["rows"] == [1]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided", "slower"]


def test_an_axis_that_only_a_function_in_a_container_would_read_takes_the_verdicts_and_is_not_called_unused() -> None:
    result = timed("fs[0]()", "clock.work(10)", holders=True, points=sweep_points(["n=[1, 20]"], {}))
    (doubt,) = result.warnings
    assert doubt.text.startswith("The sweep sets `n`, but `inner` reads the notebook's variable")
    assert result.frame["verdict"].tolist() == ["baseline", "same", "baseline", "undecided"]  # the notebook's n is 1


@pytest.mark.parametrize("setup", ["n = 1", "change()", "import math", "m2 = 20"])
def test_a_setup_that_leaves_what_functions_read_takes_no_verdict(setup: str) -> None:
    """What its functions bind in the notebook itself is what the timed code's functions find."""
    result = timed("clock.work(10)", "fs[0]()", setup=setup, holders=True)
    assert [doubt for doubt in result.warnings if doubt.kind == "used-up"] == []
    assert result.frame["verdict"].tolist() == ["baseline", "same"]


def test_check_names_it_as_the_cause_of_different_values() -> None:
    with pytest.raises(CheckFailed, match=r"different values: .*The code assigns to `n`, but `inner` reads the global"):
        timed("f()", "n = 5\nf()\nn", check=True)
    with pytest.raises(CheckFailed) as caught:
        timed("f()", "f() + 1", check=True)
    assert "binds" not in str(caught.value)
