"""The run of a point: what it is handed, and Ctrl-C at any line of it."""

from __future__ import annotations

import ast
import gc
import inspect
import os
import random
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import torchbench_magic
from tests.interrupting import PACKAGE, lines_run, one_in, with_interrupt_at
from torchbench_magic.cell_body import Body
from torchbench_magic.cpp.run import SnippetBodies
from torchbench_magic.errors import Interrupted
from torchbench_magic.process.interrupts import interrupts_held
from torchbench_magic.script import compare
from torchbench_magic.timing import point_run
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.fuzzers import fuzz_points
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.point_run import TimedCode
from torchbench_magic.timing.python_bodies import PythonBodies
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock

pytestmark = [pytest.mark.usefixtures("two_threads"), pytest.mark.filterwarnings("error::RuntimeWarning")]

# ==== interrupts ======================================================================================================
# Ctrl-C at any line of a timing: what was measured is kept, and nothing stays switched.


TIMING = [
    *(PACKAGE / "timing" / f"{name}.py" for name in ("run", "point_run", "python_bodies", "rounds", "task")),
    *(PACKAGE / "timing" / f"{name}.py" for name in ("blocks", "isolation", "restore", "changes")),
    *(
        PACKAGE / "timing" / f"{name}.py"
        for name in ("written_objects", "iterators", "watched_objects", "repeat_probe", "repeat_state", "check")
    ),
    PACKAGE / "process" / "output.py",
    PACKAGE / "process" / "settings.py",
    PACKAGE / "process" / "memory.py",
]


def state() -> dict[str, Any]:
    """What a timing switches."""
    return {
        "collector": (gc.isenabled(), gc.get_threshold()),
        "streams": (sys.stdout, sys.stderr),
        "dropped": [{"write", "flush"} & vars(stream).keys() for stream in (sys.stdout, sys.stderr, sys.__stderr__)],
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "generators": (torch.initial_seed(), hash(random.getstate()), torch.get_rng_state().sum().item()),
        "filters": tuple(warnings.filters),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "descriptors": {n: os.readlink(f"/proc/self/fd/{n}") for n in ("0", "1", "2")},
        "handler": signal.getsignal(signal.SIGINT),
        "trace": (sys.gettrace(), sys.getprofile()),
        "modes": (_get_current_dispatch_mode_stack(), torch._C._is_torch_function_enabled()),
    }


def changed(before: dict[str, Any]) -> list[str]:
    return [f"{name}: {before[name]} -> {now}" for name, now in state().items() if now != before[name]]


def task() -> Task:
    """The same lines each time: nothing waits, and no real clock says when it is warm."""
    clock = FakeClock()
    first, second = "torch.set_grad_enabled(False); x + 1", "torch.set_num_threads(1); print(y)"
    bodies = {"a": Body(f"{first}; clock.work(4000)"), "b": Body(f"{second}; clock.work(4000)")}
    setup = [Body("x = torch.zeros(3); y = next(numbers)")]
    names = {"torch": torch, "clock": clock, "numbers": iter(range(10_000))}
    plan = Plan(number=2, repeat=2, threads=(2, 1), seed=0)
    return Task(bodies, setup=setup, namespace=names, plan=plan, clocks=clock.clocks)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("step", [60, pytest.param(4, marks=pytest.mark.slow)])
def test_an_interrupt_at_a_line_of_a_timing_leaves_nothing_switched(step: int) -> None:
    made: list[Comparison] = []

    def run() -> None:
        made.append(compare_bodies(task()))

    run()
    places = lines_run(run, TIMING)
    assert len(places) > 300
    for place in one_in(step, places):
        made.clear()
        before = state()
        error = with_interrupt_at(place, run)
        assert changed(before) == [], place
        assert made or isinstance(error, KeyboardInterrupt), (place, error)


@pytest.mark.slow
def test_two_interrupts_leave_nothing_switched_either() -> None:
    places = lines_run(lambda: compare_bodies(task()), TIMING)
    for place in one_in(120, places):
        before = state()
        error = with_interrupt_at(place, lambda: compare_bodies(task()), times=3)
        assert changed(before) == [], place
        assert isinstance(error, KeyboardInterrupt), place


def test_an_interrupt_after_the_last_sample_hands_the_whole_result_over_in_a_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    was = compare.compare_bodies

    def then_interrupted(task: Task) -> Comparison:
        made = was(task)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(compare, "compare_bodies", then_interrupted)
    with pytest.raises(Interrupted) as caught:
        compare.compare({"a": "1 + 1"}, min_run_time=0.001, max_run_time=0.002)
    partial: Any = caught.value.partial
    assert not partial.partial
    assert len(partial.samples) > 0


def test_an_interrupt_while_a_later_point_is_made_keeps_the_points_before_it() -> None:
    from torchbench_magic.timing.sweep import Point

    def stop() -> dict[str, Any]:
        raise KeyboardInterrupt

    points = (Point(make=lambda: {"n": 1}, axes=(("n", 1),)), Point(make=stop, axes=(("n", 2),)))
    asked = Task({"a": Body("n + 1")}, namespace={}, plan=Plan(number=1, repeat=2), points=points)
    with pytest.raises(Interrupted) as caught:
        compare_bodies(asked)
    partial: Any = caught.value.partial
    assert partial.partial
    assert partial.frame["n"].tolist() == [1]
    assert partial.warnings[0].text.endswith("at point 2 of 2. What was measured is kept.")


def test_an_interrupt_at_any_line_of_a_draw_leaves_torchs_generator_as_it_was() -> None:
    def draw() -> None:
        fuzz_points("unary:2", {})[0].make()

    fuzzers = [PACKAGE / "timing" / "fuzzers.py"]
    for place in lines_run(draw, fuzzers):
        torch.manual_seed(3)
        before = torch.get_rng_state()
        with_interrupt_at(place, draw)
        assert torch.equal(torch.get_rng_state(), before), place


def test_the_code_is_interrupted_at_once() -> None:
    def work() -> None:
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
            calls.append("not reached")
        calls.append("called")

    calls: list[str] = []
    with pytest.raises(Interrupted):
        compare_bodies(Task({"": Body("work()")}, namespace={"work": work}, plan=Plan(min_run_time=60.0)))
    assert calls == ["called"] * 5


def test_a_setup_is_interrupted_at_once() -> None:
    names = {"signal": signal, "after": []}
    setup = [Body("signal.raise_signal(signal.SIGINT); after.append(1)")]
    with interrupts_held(), pytest.raises(KeyboardInterrupt):
        compare_bodies(Task({"": Body("1")}, setup=setup, namespace=names, plan=Plan(number=1, repeat=1)))
    assert names["after"] == []


def test_a_queue_is_not_left_guarded(tmp_path: Path) -> None:
    import queue

    waiting = [PACKAGE / "timing" / "iterators.py", PACKAGE / "timing" / "first_call.py"]

    def run() -> None:
        filled: queue.Queue[int] = queue.Queue()
        for n in range(4):
            filled.put(n)
        queues.append(filled)
        plan = Plan(number=2, repeat=2)
        setup = [Body("for _ in range(2): q.get()\nfor n in range(2): q.put(n)")]
        compare_bodies(Task({"": Body("q.get(); q.put(1)")}, setup=setup, namespace={"q": filled}, plan=plan))

    queues: list[Any] = []
    for place in one_in(4, lines_run(run, waiting)):
        with_interrupt_at(place, run)
        assert "get" not in vars(queues[-1]), place


# ==== timed code ======================================================================================================
# A run is handed what it times: the Python and the C++ one fit in the same place, and the run has no subclass.


SOURCES = Path(torchbench_magic.__file__).parent
HEIR = re.compile(r"^\s*class \w+\([^)]*\b(PointRun|Run|Task)\b", re.MULTILINE)
"""As a text, of which far fewer files have one than can be parsed in a second."""
MEMBERS = sorted(name for name in vars(TimedCode) if not name.startswith("_"))


@pytest.mark.parametrize("kind", [PythonBodies, SnippetBodies])
def test_each_language_has_all_that_a_run_asks_with_the_same_arguments(kind: type) -> None:
    assert len(MEMBERS) >= 8
    for name in MEMBERS:
        asked = getattr(TimedCode, name)
        if inspect.isfunction(asked):
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(inspect.signature(asked).parameters)
            assert inspect.iscoroutinefunction(getattr(kind, name)) == inspect.iscoroutinefunction(asked)
        else:
            assert hasattr(kind, name)


BY_LANGUAGE = {"python", "of_its_kind", "measured"}


def test_a_run_has_no_heir_and_a_task_of_another_language_says_only_what_that_changes() -> None:
    overridden = {
        (ast.unparse(base), inside.name)
        for path in SOURCES.rglob("*.py")
        if HEIR.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base) in ("PointRun", "Run", "Task")
        for inside in node.body
        if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert overridden == {("Task", name) for name in BY_LANGUAGE}


def assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Names of the attributes of ``self`` that a method binds."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def test_the_state_of_a_run_is_declared_where_it_begins() -> None:
    body = ast.parse(Path(point_run.__file__).read_text()).body
    (run,) = (n for n in body if isinstance(n, ast.ClassDef) and n.name == "PointRun")
    methods = [n for n in run.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    declared = {name for method in methods if method.name == "__init__" for name in assigned(method)}
    later = {name for method in methods if method.name != "__init__" for name in assigned(method)}
    assert declared
    assert later <= declared
