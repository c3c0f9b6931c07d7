from __future__ import annotations

import ast
import errno
import linecache
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import torchbench_magic
from tests.every_case import every_case
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, CheckFailed, Interrupted, OptionError
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.fuzzers import points_of
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.processes import compare_in_processes
from torchbench_magic.timing.sent_task import packed
from torchbench_magic.timing.sweep import sweep_points
from torchbench_magic.timing.task import Task

pytestmark = pytest.mark.interpreter

QUICK: dict[str, Any] = {"number": 3, "repeat": 8, "threads": (1,)}
"""Rounds and not seconds: on a busy machine too a process has enough of them for its ratio to count."""


def task(bodies: dict[str, str], *, setup: str = "", processes: Any = 2, **more: Any) -> Task:
    options = {**QUICK, **more.pop("options", {})}
    return Task(
        {name: Body(text, f"<{name}>") for name, text in bodies.items()},
        setup=[Body(setup, "<setup>")] if setup else [],
        plan=Plan(processes=processes, **options),
        **more,
    )


def measured(bodies: dict[str, str], **more: Any) -> Comparison:
    return compare_in_processes(task(bodies, **more))


class Stopping:
    """A progress that interrupts as soon as a process is told of."""

    def __init__(self, at: str) -> None:
        self._at, self.told = at, list[str]()

    def update(self, done: float, total: float | None, what: str) -> None:
        self.told.append(what)
        if what.startswith(self._at):
            raise KeyboardInterrupt


def children() -> set[int]:
    """Of this process; the one that counts, which other tests have started, may be among them."""
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    files, processes = set(os.listdir("/proc/self/fd")), children()
    yield
    assert (set(os.listdir("/proc/self/fd")) - files, children() - processes) == (set(), set())


@pytest.mark.slow
def test_each_process_has_its_own_addresses_and_hash_seed_and_is_named_and_the_first_one_s_prints_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    seen = tmp_path / "seen"
    note = f"import os, torch; open({str(seen)!r}, 'a').write(f\"{{os.getpid()}} {{hash('a')}} {{id(torch)}}\\n\")"
    note += "; print('from the setup')"
    bodies, told = {"a": "sum(q)", "b": "( sum(q) )"}, Stopping("nowhere")
    found = measured(bodies, setup=note, namespace={"q": [*range(50)]}, processes=3, progress=told)
    pids, seeds, addresses = zip(*(line.split() for line in seen.read_text().splitlines()), strict=True)
    assert len({*pids}) == len({*seeds}) == len({*addresses}) == 3
    assert str(os.getpid()) not in pids
    assert sorted({*found.samples["process"]}) == [1, 2, 3]
    assert found.frame["method"].tolist() == ["processes", "processes"]
    assert capsys.readouterr().out == "from the setup\n"
    assert "process 1 of 3: importing torch" in told.told
    assert any(what.startswith("process 2 of 3: ") for what in told.told)


@pytest.mark.slow
def test_the_text_of_a_cell_travels_with_its_functions_and_a_counter_that_they_branch_on_goes_on_there() -> None:
    text = "def every(k):\n    if k % 2 == 0: made.append(k)\n"
    names: dict[str, Any] = {"n": 0, "made": []}
    linecache.cache["<cell-of-every>"] = (len(text), None, text.splitlines(True), "<cell-of-every>")
    try:
        exec(compile(text, "<cell-of-every>", "exec"), names)
        bodies = {"a": "n += 1\nevery(n)\nassert len(made) == n // 2", "b": "every"}
        assert measured(bodies, namespace=names).frame["samples"].tolist() == [16, 16]
    finally:
        del linecache.cache["<cell-of-every>"]


@pytest.mark.one_of_each
def test_what_the_code_uses_travels_and_what_it_changes_stays_there() -> None:
    scale = 3

    def scaled(t: torch.Tensor) -> torch.Tensor:
        return t.mul(scale)

    class Layer(torch.nn.Module):
        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return scaled(t)

    held: list[int] = []
    names = {"layer": Layer(), "x": torch.ones(3), "held": held}
    bodies = {"a": "layer(x); held.append(1)", "b": "x.mul(3); held.append(1)"}
    found = measured(bodies, namespace=names, setup="assert layer(x).sum() == 9")
    assert len(found.processes) == 4
    assert held == []


@pytest.mark.slow
def test_names_gradients_backends_and_trees_that_the_shell_changes_are_the_notebook_s() -> None:
    """Names of the calling function stand before globals, but not for functions."""
    names: dict[str, Any] = {"torch": torch}
    exec("a = 1\ndef of_globals(): return a", names)
    weight = names["weight"] = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    names["opt"] = torch.optim.SGD([weight], lr=0.1)

    class Doubled(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.copy_location(ast.Constant(node.value * 2), node) if node.value == 21 else node

    code = (
        "opt.step(); assert weight[0] < 1\n"
        "assert not torch.backends.cuda.flash_sdp_enabled()\n"
        "assert (a, of_globals()) == (2, 1)\n"
        "assert sum((21,)) == 42"
    )
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        setup = "assert (a, of_globals()) == (2, 1)"
        found = measured({"a": code}, setup=setup, namespace=names, local={"a": 2}, transform_ast=Doubled().visit)
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert len(found.frame) == 1
    assert len(found.processes) == 2
    assert weight.tolist() == [1, 1, 1]


@pytest.mark.slow
def test_settings_random_numbers_and_filters_of_the_notebook_hold_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside.py").write_text("VALUE = 1")
    import beside  # type: ignore[import-not-found]

    beside.VALUE = 2  # as the notebook has it, not as its file says
    limit = sys.getrecursionlimit()
    torch.set_flush_denormal(True)
    sys.setrecursionlimit(4321)
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(3)
        np.random.seed(4)
        random.seed(5)
        states = torch.get_rng_state(), random.getstate()
        drawn = torch.rand(2).tolist(), np.random.rand(), random.random()
        torch.set_rng_state(states[0])
        np.random.seed(4)
        random.setstate(states[1])
        names = {"torch": torch, "np": np, "random": random, "warnings": warnings, "drawn": drawn, "sys": sys}
        setup = (
            "import os\n"
            "assert torch.get_default_dtype() is torch.float64 and not torch.is_grad_enabled()\n"
            f"assert os.getcwd() == {str(tmp_path)!r} and torch.get_num_threads() == {torch.get_num_threads()}\n"
            "assert beside.VALUE == 2\n"
            "assert drawn == (torch.rand(2).tolist(), np.random.rand(), random.random())\n"
            "assert torch.full((2,), 2e-38, dtype=torch.float32).mul(0.01).sum() == 0\n"
            "try:\n    warnings.warn('seen')\nexcept UserWarning:\n    pass\nelse:\n    raise AssertionError\n"
            "assert sys.getrecursionlimit() == 4321"
        )
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("error", UserWarning)
            assert len(measured({"s": "beside.VALUE"}, setup=setup, namespace={**names, "beside": beside}).frame) == 1
        assert torch.equal(states[0], torch.get_rng_state())
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_flush_denormal(False)
        sys.setrecursionlimit(limit)
        del sys.modules["beside"]


@pytest.mark.slow
def test_what_cannot_be_made_there_is_one_line() -> None:
    made = types.ModuleType("made_by_hand")
    made.n = 4  # type: ignore[attr-defined]
    sys.modules["made_by_hand"] = made
    try:
        with pytest.raises(BodyError, match=r"cannot be made in another process \(ModuleNotFoundError: No module"):
            measured({"a": "mm.n"}, namespace={"mm": made})
    finally:
        del sys.modules["made_by_hand"]


@pytest.mark.slow
def test_points_of_a_fuzzer_are_drawn_in_every_process() -> None:
    found = measured({"a": "x.sum()"}, points=points_of([], "unary:3", {}), namespace={"torch": torch})
    here = [point.sub_label for point in points_of([], "unary:3", {})]
    assert found.frame["sub_label"].tolist() == here
    assert (found.frame["samples"] == 16).all()


@pytest.mark.slow
def test_every_point_and_thread_count_is_measured_in_every_process_and_kept_but_not_where_it_is_stored() -> None:
    kept: list[Comparison] = []
    sweep: dict[str, Any] = {"points": sweep_points(["n=[1, 2]"], {}), "options": {"threads": (1, 2)}}
    sweep["namespace"], bodies = {"x": torch.ones(5)}, {"a": "x + n", "b": "x.add(n)"}
    both = measured(bodies, **sweep, keep=kept.append)
    assert {*both.processes["process"]} >= {1, 2}
    assert both.frame["n"].tolist() == [1] * 4 + [2] * 4
    assert both.frame["num_threads"].tolist() == [1, 1, 2, 2] * 2
    assert [part.frame["n"].tolist() for part in kept] == [[1] * 4, [2] * 4]
    assert {part.options["processes"] for part in kept} == {2}
    again: list[Comparison] = []
    skip: Callable[..., Comparison | None] = lambda _, point: kept[0] if dict(point.axes)["n"] == 1 else None
    second = measured(bodies, **sweep, keep=again.append, skip=skip)
    assert [part.frame["n"].tolist() for part in again] == [[2] * 4]
    assert second.frame["median"][0] == both.frame["median"][0]
    assert second.frame["n"].tolist() == [1] * 4 + [2] * 4


@pytest.mark.slow
def test_a_process_that_dies_is_said_and_another_takes_its_place(tmp_path: Path) -> None:
    mark = tmp_path / "died"
    once = f"""import os, pathlib
p = pathlib.Path({str(mark)!r})
if not p.exists():
    p.touch(); os.kill(os.getpid(), 11)"""
    found = measured({"a": "sum((1, 2))"}, setup=once)
    assert sorted({*found.samples["process"]}) == [2, 3]
    said = next(doubt for doubt in found.warnings if doubt.kind == "process-died")
    assert said.text == (
        "Process 1 was killed by signal 11 (SIGSEGV); its ratio is left out."
    )


@pytest.mark.slow
def test_code_that_ends_every_process_is_an_error() -> None:
    with pytest.raises(BodyError, match="the code ends its interpreter: each ended with status 3"):
        measured({"a": "import os; os._exit(3)"})


@pytest.mark.slow
def test_an_exception_comes_with_the_lines_of_the_code(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile("\n\ndef of_two(t):\n    return t.nope", "<cell 1>", "exec"), names)
    with pytest.raises(AttributeError, match="nope") as caught:
        measured({"a": "y = 1\nof_two(y)"}, namespace=names)
    lines = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(caught.tb)]
    assert lines[-2:] == [("<a>", 2, lines[-2][2]), ("<cell 1>", 4, "of_two")]
    assert caught.value.__notes__ == ["Raised in process 1 of 2 (--processes)."]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.slow
def test_an_exception_that_cannot_travel_is_told_in_words() -> None:
    odd = """class Odd(Exception):
    def __reduce__(self): raise TypeError
def f(): raise Odd('so it is')"""
    with pytest.raises(BodyError, match="Odd: so it is"):
        measured({"a": "f()"}, setup=odd)


@pytest.mark.slow
def test_an_exception_in_a_later_process_hands_over_the_earlier_ones(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    second = f"import pathlib\np = pathlib.Path({str(mark)!r})\nif p.exists(): raise ValueError('again')\np.touch()"
    handed: list[Comparison] = []
    with pytest.raises(ValueError, match="again"):
        measured({"a": "sum((1, 2))"}, setup=second, failed=handed.append)
    (partial,) = handed
    assert partial.partial
    assert {*partial.samples["process"]} == {1}


@pytest.mark.slow
def test_what_the_alternatives_return_is_checked_there() -> None:
    with pytest.raises(CheckFailed, match="return different values"):
        measured({"a": "x + 1", "b": "x + 2"}, namespace={"x": torch.ones(2)}, options={"check": True})


@pytest.mark.slow
def test_an_interrupt_keeps_the_processes_that_have_finished() -> None:
    bodies = {"a": "sum(range(300))", "b": "sum(range(1, 301))"}
    stopped = task(bodies, progress=Stopping("process 2 of 6"), processes="auto")
    with pytest.raises(Interrupted) as caught:
        compare_in_processes(stopped)
    partial = caught.value.partial
    assert isinstance(partial, Comparison)
    assert partial.partial
    assert {*partial.samples["process"]} == {1}
    assert partial.frame["verdict"].tolist() == ["baseline", "undecided"]
    assert partial.warnings[0].text.startswith("Partial: interrupted after 1 of 6 processes.")


@pytest.mark.slow
def test_an_interrupt_in_the_first_process_says_that_nothing_was_measured() -> None:
    stopped = task({"a": "sum((1, 2))"}, progress=Stopping("process 1 of 2: running the first call"))
    with pytest.raises(Interrupted, match=r"Nothing was measured yet: interrupted .* in process 1 of 2\.") as caught:
        compare_in_processes(stopped)
    assert caught.value.partial is None


def test_what_cannot_travel_is_one_line(tmp_path: Path) -> None:
    generator = (i for i in range(3))
    with pytest.raises(BodyError, match=r"`g` \(generator\) cannot be sent to another process: .* `g` in the setup"):
        measured({"a": "next(g)"}, namespace={"g": generator})
    with pytest.raises(BodyError, match=r"use \.detach"):
        measured({"a": "y + 1"}, namespace={"y": torch.ones(2, requires_grad=True) + 1})


def test_a_name_that_the_code_makes_does_not_travel() -> None:
    """Unless the setup, or an alternative, reads it first."""

    def travels(setup: str, *bodies: str) -> bool:
        code = {str(n): body for n, body in enumerate(bodies or ["len(g)"])}
        sent, parcel = packed(task(code, setup=setup, namespace={"g": "of the notebook"}), [], awaits=False)
        parcel.close()
        return b"of the notebook" in sent.variables

    assert not travels("import threading\ng = [threading.Lock()]")
    assert travels("if g: g = [1]")
    assert travels("")
    assert not travels("", "g = [1]; len(g)", "g = [2]\ng")
    assert travels("", "g = [1]; len(g)", "len(g)")
    assert travels("", "def f(): return g\nlen(f())\ng = 1")


def test_numbers_of_processes_that_make_no_sense_are_refused() -> None:
    def check(processes: Any) -> None:
        with pytest.raises(OptionError, match="processes: give a whole number from 2 to 1000"):
            Plan(processes=processes)

    every_case(((value,) for value in (0, 1, -3, 1001, True, 6.0, "6", "all")), check)


def test_without_a_number_there_are_as_many_as_an_interval_that_assumes_nothing_needs() -> None:
    told = Stopping("process 1")
    three = dict.fromkeys("abc", "sum((1, 2))")
    with pytest.raises(Interrupted, match="in process 1 of 7"):
        compare_in_processes(task(three, progress=told, processes="auto"))


def test_an_interpreter_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BodyError, match="a fresh interpreter cannot be started: No such file"):
        measured({"a": "sum((1, 2))"})


def test_without_a_free_descriptor_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made = os.memfd_create

    def second(name: str) -> int:
        if name == "stderr":
            raise OSError(errno.EMFILE, "Too many open files")
        return made(name)

    monkeypatch.setattr(os, "memfd_create", second)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BodyError, match="a fresh interpreter cannot be started: Too many open files"):
        measured({"a": "sum((1, 2))"})
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_ctrl_c_while_an_interpreter_starts_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen

    def interrupted(*args: Any, **more: Any) -> Any:
        process = started(*args, **more)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(Interrupted, match="Nothing was measured yet"):
        measured({"a": "sum((1, 2))"})


@pytest.mark.slow
def test_another_ctrl_c_while_the_interpreter_is_ended_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = os.killpg

    def interrupted(group: int, number: int) -> None:
        signal.raise_signal(signal.SIGINT)
        kill(group, number)

    monkeypatch.setattr(os, "killpg", interrupted)
    stopped = task({"a": "sum((1, 2))", "b": "sum((2, 1))"}, progress=Stopping("process 2 of 2"))
    with pytest.raises(Interrupted) as caught:
        compare_in_processes(stopped)
    assert caught.value.partial is None or caught.value.partial.partial


@pytest.mark.slow
@pytest.mark.parametrize("without", [[], ["setarch", "-R"]], ids=["drawn", "fixed"])
def test_it_is_known_where_all_processes_have_the_same_addresses(without: list[str]) -> None:
    if without and shutil.which("setarch") is None:
        pytest.skip("setarch (util-linux) is not installed")
    code = "from torchbench_magic.timing.processes import fixed_addresses; print(fixed_addresses())"
    done = subprocess.run([*without, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(bool(without))


@pytest.mark.slow
def test_code_that_awaits_is_run_in_a_loop_of_its_own() -> None:
    awaits = task({"a": "await asyncio.sleep(0)"}, setup="import asyncio")
    assert len(compare_in_processes(awaits, awaits=True).processes) == 2


@pytest.mark.slow
def test_scripts_ask_for_processes_too() -> None:
    x = torch.ones(3)
    stmts = {"a": lambda: x.sum(), "b": "x.mean()"}
    of_script = torchbench_magic.compare(stmts, globals={"x": x}, processes=2, min_run_time=0.05)
    assert of_script.frame["method"].tolist() == ["processes", "processes"]


@pytest.mark.slow
def test_a_process_that_is_killed_from_outside_is_one_that_died(tmp_path: Path) -> None:
    """The first one waits for it: it neither ends before nor after."""
    pid = tmp_path / "pid"
    waits = f"""import os, pathlib, signal
p = pathlib.Path({str(pid)!r})
if not p.exists():
    q = p.with_suffix(".part"); q.write_text(str(os.getpid())); q.rename(p)
    while True: signal.pause()"""

    def kill() -> None:
        while not pid.exists():
            time.sleep(0.01)
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = measured({"a": "sum((1, 2))"}, setup=waits)
    killer.join()
    assert [doubt.text for doubt in found.warnings if "was killed by signal 9 (SIGKILL)" in doubt.text]
