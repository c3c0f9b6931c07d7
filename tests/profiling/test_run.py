"""One profiled run: what it measures, what it refuses, and that it leaves everything as it was."""

from __future__ import annotations

import asyncio
import bdb
import functools
import gc
import itertools
import linecache
import os
import signal
import subprocess
import sys
import threading
import time
import trace
import traceback
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pandas as pd
import pytest
import torch

from torchbench_magic import compare, profile
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import BodyError, Busy, Interrupted, OptionError
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling import kineto
from torchbench_magic.profiling.recorder import RecordedRun
from torchbench_magic.profiling.run import Asked, Outcome, profile_body, profile_body_async

from .memory.test_table import TRAINING
from .profiling_text import CELL, profiled, row
from .running import awaited

# ==== profiler ========================================================================================================


def run(text: str, namespace: dict[str, Any] | None = None, **options: Any) -> Outcome:
    names = {"torch": torch, "time": time, "threading": threading} if namespace is None else namespace
    return profiled(text, names, **options)


_BY_CHANCE = ("profiler-cost", "waits")


def kinds(outcome: Outcome) -> list[str]:
    """Without what profiling cost, and whether a line waits: of a body of microseconds both differ from run to run."""
    return [doubt.kind for doubt in outcome.profile.warnings if doubt.kind not in _BY_CHANCE]


# ---- interrupted in the preparation ----


@pytest.mark.parametrize("moment", ["__init__", "__enter__", "enter"])
def test_an_interrupt_before_the_code_begins_says_that_nothing_was_recorded(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    plain = getattr(RecordedRun, moment)

    def interrupted(*given: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return plain(*given, **named)

    monkeypatch.setattr(RecordedRun, moment, interrupted)
    began: list[int] = []
    with pytest.raises(KeyboardInterrupt, match="before the code began: nothing was recorded"):
        run("began.append(1)\n", {"began": began})
    assert began == []
    monkeypatch.undo()
    assert run("began.append(1)\n", {"began": began}).error is None  # all is as it was before
    assert began == [1]


# ---- time -------------------------------------------------------------------------------------------------------


def test_time_outside_torch_is_python_time() -> None:
    outcome = run("time.sleep(0.05)\nx = torch.ones(3)\n")
    sleeping = row(outcome, 1)
    assert 0.05 <= sleeping["python_time"] <= outcome.profile.wall_time
    assert sleeping["self_cpu_time"] == 0
    assert row(outcome, 2)["self_cpu_time"] > 0


def test_wall_time_of_a_line_holds_the_lines_it_calls() -> None:
    outcome = run("def f():\n    time.sleep(0.02)\nf()\nf()\n")
    for_both = row(outcome, 3)["wall_time"] + row(outcome, 4)["wall_time"]
    assert row(outcome, 3)["wall_time"] >= 0.02
    assert row(outcome, 3)["python_time"] <= row(outcome, 3)["wall_time"] - 0.02, "the sleep is another line's"
    assert 0.04 <= row(outcome, 2)["wall_time"] <= for_both, "within the two calls"


def test_a_recursive_line_is_not_counted_twice() -> None:
    outcome = run("def f(n):\n    time.sleep(0.01)\n    if n: f(n - 1)\nf(3)\n")
    assert row(outcome, 3)["wall_time"] < outcome.profile.wall_time
    assert row(outcome, 3)["calls"] == 4
    assert row(outcome, 3)["wall_time"] <= row(outcome, 4)["wall_time"], "by depth, it would be more than its whole"


def test_python_in_a_range_is_python_on_the_line_and_self_time_of_the_range() -> None:
    outcome = run('with torch.profiler.record_function("nap"):\n    time.sleep(0.02)\n')
    assert row(outcome, 2)["python_time"] >= 0.02
    ops = outcome.profile.ops.set_index("op")
    assert ops.loc["nap", "self_cpu_time"] >= 0.02
    assert outcome.profile.ranges == ("nap",)


def test_python_that_an_op_calls_back_is_python_time() -> None:
    text = """class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.02)
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        time.sleep(0.03)
        return g.clone()
w = torch.ones(2, requires_grad=True)
y = Slow.apply(w)
y.sum().backward()
"""
    outcome = run(text)
    assert row(outcome, 4)["python_time"] >= 0.02
    assert row(outcome, 8)["python_time"] >= 0.03
    assert row(outcome, 12)["wall_time"] >= 0.03
    for line, slept in ((11, 0.02), (12, 0.03)):
        assert row(outcome, line)["self_cpu_time"] <= row(outcome, line)["wall_time"] - slept, "the sleep is Python"


def test_backward_time_is_on_the_line_of_backward_and_on_the_forward_line() -> None:
    text = "w = torch.ones(400, 400, requires_grad=True)\ny = w @ w\nz = y.sum()\nz.backward()\n"
    outcome = run(text)
    forward, backward = row(outcome, 2), row(outcome, 4)
    assert 0 < forward["backward_cpu_time"] <= backward["self_cpu_time"]
    assert row(outcome, 1)["backward_cpu_time"] == 0
    caused = outcome.profile.lines["backward_cpu_time"].sum()
    assert caused <= backward["self_cpu_time"]
    ops = outcome.profile.ops
    matrix_products = ops[(ops["op"] == "aten::mm") & (ops["line"] == 4)]["self_cpu_time"].sum()
    assert forward["backward_cpu_time"] >= matrix_products > 0


def test_backward_of_a_graph_from_before_is_caused_by_no_line() -> None:
    names = {"torch": torch}
    w = torch.ones(5, requires_grad=True)
    names["y"] = w.exp().sum()
    outcome = run("y.backward()\n", names)
    assert outcome.profile.lines["backward_cpu_time"].sum() == 0
    assert row(outcome, 1)["self_cpu_time"] > 0


def test_waiting_stands_on_the_awaiting_line() -> None:
    text = (
        "import asyncio\n"
        "async def nap(n):\n"
        "    await asyncio.sleep(n)\n"
        "await nap(0.02)\n"
        "await asyncio.gather(nap(0.03), nap(0.01))\n"
    )
    cell = CellText.of(text, CELL, 1)
    linecache.cache[CELL] = (len(text), None, text.splitlines(True), CELL)
    body = compile_body(Body(text, CELL))
    outcome = awaited(profile_body_async(body, Asked(cells=lambda f: cell if f == CELL else None)))
    assert outcome.error is None
    wall = outcome.profile.wall_time
    assert 0.02 <= row(outcome, 3)["python_time"] <= wall - 0.03  # line 4 waits in it
    assert 0.02 <= row(outcome, 4)["wall_time"] <= wall - 0.03
    assert 0.03 <= row(outcome, 5)["wall_time"] <= wall - 0.02  # the tasks wait at the same time
    assert row(outcome, 3)["python_time"] + row(outcome, 5)["python_time"] >= 0.05  # timers are started in line 3


def test_a_trailing_expression_on_the_line_of_a_statement_is_one_run_of_the_line() -> None:
    outcome = run("x = 1\ny = 2; y + 1")
    assert outcome.value == 3
    assert row(outcome, 2)["calls"] == 1


def test_a_stop_iteration_of_the_body_is_its_error() -> None:
    assert isinstance(run("next(iter([]))").error, StopIteration)
    with pytest.raises(StopIteration):
        profile(lambda: next(iter([])))


def test_a_body_that_awaits_is_refused_where_no_event_loop_runs() -> None:
    with pytest.raises(BodyError, match="needs an event loop"):
        run("import asyncio\nawait asyncio.sleep(0)")


def test_an_async_body_has_no_line_that_is_not_there_and_returns_its_trailing_value() -> None:
    body = compile_body(Body("import asyncio\nawait asyncio.sleep(0)\nx = 1", CELL))
    outcome = awaited(profile_body_async(body, Asked()))
    assert outcome.profile.lines["line"].dropna().tolist() == [1, 2, 3]
    body = compile_body(Body("import asyncio\nawait asyncio.sleep(0, 5)", CELL))
    assert awaited(profile_body_async(body, Asked())).value == 5


# ---- threads ----------------------------------------------------------------------------------------------------

POOL = """def work():
    for _ in range(20):
        x = torch.ones(300, 300) @ torch.ones(300, 300)
threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(2)]
for t in threads: t.start()
for t in threads: t.join()
"""


def test_ops_and_lines_of_threads_started_in_the_cell_are_there() -> None:
    outcome = run(POOL)
    lines = outcome.profile.lines
    work = lines[lines["line"] == 3]
    assert sorted(work["thread"]) == [1, 2]
    assert list(work["calls"]) == [20, 20]
    assert sorted(outcome.profile.threads[1:]) == ["worker-0", "worker-1"]
    ops = outcome.profile.ops
    assert ops[ops["op"] == "aten::mm"]["calls"].sum() == 40


def test_with_memory_the_cpu_seconds_of_unseen_threads_are_said() -> None:
    before = time.process_time()
    outcome = run(POOL, memory=True)
    used = time.process_time() - before
    (doubt,) = [d for d in outcome.profile.warnings if d.kind == "threads-unseen"]
    assert 0 < doubt.facts["cpu_seconds"] <= used, "no more than the whole process used"
    assert "aten::mm" not in set(outcome.profile.ops["op"])
    assert outcome.profile.none_ran == "no torch operation ran on the thread of the cell"


def test_with_memory_a_cell_without_threads_of_its_own_has_no_such_doubt() -> None:
    outcome = run("for _ in range(30): x = torch.ones(300, 300) @ torch.ones(300, 300)\n", memory=True)
    assert "threads-unseen" not in kinds(outcome)
    assert outcome.profile.none_ran == "no torch operation ran"


def test_ops_of_a_thread_from_before_are_there_with_their_line_or_the_reason() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        torch.ones(5).exp()
        done.set()

    thread = threading.Thread(target=work, name="older")
    thread.start()
    outcome = run("go.set()\ndone.wait()\n", {"go": go, "done": done})
    thread.join()
    ops = outcome.profile.ops
    (found,) = ops[ops["op"] == "aten::exp"].to_dict("records")
    assert outcome.profile.threads[found["thread"]] == "older"
    if not hasattr(sys, "monitoring"):
        assert kinds(outcome) == ["thread-lines"]


def test_the_kernels_own_threads_are_in_no_table() -> None:
    names = {"__name__": "ipykernel.heartbeat", "torch": torch}
    go, done = threading.Event(), threading.Event()
    exec("def beat(go, done):\n    go.wait()\n    torch.ones(5).exp()\n    done.set()\n", names)
    thread = threading.Thread(target=names["beat"], args=(go, done), name="Heartbeat")
    thread.start()
    outcome = run("go.set()\ndone.wait()\ntorch.ones(3).sin()\n", {"go": go, "done": done, "torch": torch})
    thread.join()
    assert "aten::exp" not in set(outcome.profile.ops["op"])
    assert "Heartbeat" not in outcome.profile.threads
    assert set(outcome.profile.lines["thread"]) == {0}


# ---- bytes ------------------------------------------------------------------------------------------------------


def test_bytes_stand_on_the_line_and_the_op_that_took_them() -> None:
    text = "x = torch.empty(1000)\ny = x + 1\nz = y.clone()\ndel y\nx = None\n"
    outcome = run(text, {"torch": torch}, memory=True)
    assert row(outcome, 1)["allocated"] == 4000
    assert row(outcome, 3)["net"] == 4000
    assert (row(outcome, 4)["freed"], row(outcome, 4)["net"]) == (4000, -4000)
    assert row(outcome, 5)["freed"] == 4000
    assert row(outcome, 3)["peak"] == 12000
    assert row(outcome, 5)["peak"] == 8000
    ops = outcome.profile.ops.set_index(["op", "line"])
    assert ops.loc[("aten::empty", 1), "allocated"] == 4000
    assert (outcome.profile.lines["allocated"].dropna() >= 0).all()


def test_the_net_of_all_lines_is_torchs_own_total_and_the_peak_is_its_highest() -> None:
    outcome = run(TRAINING, {"torch": torch}, memory=True)
    lines, memory = outcome.profile.lines, outcome.profile.memory
    assert (lines["net"] == lines["allocated"] - lines["freed"]).all()
    assert lines["net"].sum() == memory["bytes"].iloc[-1]
    on_thread = lines[lines["thread"] == 0]
    assert on_thread["peak"].max() == memory["bytes"].max()
    assert (memory["time"].diff().dropna() >= 0).all()
    assert memory["time"].between(0, outcome.profile.wall_time).all()


def test_a_loop_line_has_the_peak_of_what_it_calls() -> None:
    text = "def f():\n    x = torch.empty(5000)\n    del x\nf()\ny = 1\n"
    outcome = run(text, {"torch": torch}, memory=True)
    assert row(outcome, 4)["peak"] == 20000
    assert row(outcome, 4)["allocated"] == 0
    assert row(outcome, 5)["peak"] == 0


def test_without_memory_the_byte_columns_are_na() -> None:
    outcome = run("x = torch.ones(3)\n")
    assert (
        outcome.profile.lines[["allocated", "freed", "net", "peak", "host_net", "host_peak"]]
        .isna()
        .all(axis=None)
    )
    assert outcome.profile.ops[["allocated", "freed", "peak"]].isna().all(axis=None)
    assert outcome.profile.memory is None


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("x.numpy()", " (`.numpy()`)"),
        ("np.asarray(x)", " (`np.asarray`)"),
        ("np.argwhere(x.cpu().numpy() > 0)", " (`np.argwhere`, `.numpy()`)"),
        ("x.__array__()", ""),
    ],
)
def test_with_memory_a_line_that_hands_a_tensor_to_numpy_is_named(call: str, named: str) -> None:
    outcome = run(f"x = torch.ones(9)\ny = x + 1\nz = {call}\n", memory=True, namespace=_names())
    (doubt,) = [d for d in outcome.profile.warnings if d.kind == "outside-torch"]
    assert doubt.facts["line"] == 3
    assert doubt.text.startswith(f"In[7]:3 passes a tensor to NumPy{named}: NumPy allocates")


def test_lines_that_stay_in_torch_are_not_named() -> None:
    text = "x = torch.ones(9)\ny = x.to(torch.float64).cpu()\nz = y.tolist()\nw = x.conj().resolve_conj()\n"
    assert "outside-torch" not in kinds(run(text, memory=True))


def _names() -> dict[str, Any]:
    import numpy as np

    return {"torch": torch, "np": np}


# ---- shapes -----------------------------------------------------------------------------------------------------


def test_shapes_tell_calls_of_one_op_apart() -> None:
    text = (
        "a = torch.ones(2, 3)\nfor b in (torch.ones(3, 4), torch.ones(3, 5), torch.ones(3, 4)):\n    a @ b\n"
    )
    ops = run(text, shapes=True).profile.ops
    products = ops[ops["op"] == "aten::mm"].set_index("input_shapes")
    assert products["calls"].to_dict() == {"[[2, 3], [3, 4]]": 2, "[[2, 3], [3, 5]]": 1}
    assert set(products["input_dtypes"]) == {"['float', 'float']"}
    assert set(products["input_strides"]) == {"[[3, 1], [4, 1]]", "[[3, 1], [5, 1]]"}


def test_without_shapes_the_input_columns_are_na() -> None:
    ops = run("x = torch.ones(3)\n").profile.ops
    assert ops[["input_shapes", "input_dtypes", "input_strides"]].isna().all(axis=None)


# ---- which code -------------------------------------------------------------------------------------------------


def test_identical_cells_are_one_source() -> None:
    text = "def f(x):\n    return x + 1\n"
    book = {f"<cell-{n}>": CellText.of(text, f"<cell-{n}>", n) for n in (1, 4)}
    names: dict[str, Any] = {"torch": torch}
    functions = []
    for file in book:
        exec(compile(text, file, "exec"), names)
        functions.append(names["f"])
    names["functions"] = functions
    body = compile_body(Body("for f in functions: f(torch.ones(2))", "<last>"))
    outcome = profile_body(body, Asked(namespace=names, cells=lambda f: book.get(f)))
    lines = outcome.profile.lines
    both = lines[lines["source_id"] == book["<cell-1>"].source_id]
    assert both["line"].tolist() == [1, 2]
    assert both["calls"].tolist() == [2, 2]
    assert set(both["cell"]) == {4}


def test_a_cell_and_the_same_cell_under_a_magic_keep_their_own_line_numbers() -> None:
    text = "def f(x):\n    return x + 1\n"
    shown = {"<plain>": (text, 0), "<magic>": ("%%tprofile\n" + text, 1)}
    book = {file: CellText.of(whole, file, 1 + above) for file, (whole, above) in shown.items()}
    names: dict[str, Any] = {"torch": torch}
    functions = []
    for file, (_, above) in shown.items():
        exec(compile("\n" * above + text, file, "exec"), names)
        functions.append(names["f"])
    body = compile_body(Body("for f in functions: f(torch.ones(2))", "<last>"))
    wanted = Asked(namespace={"functions": functions, "torch": torch}, cells=lambda f: book.get(f))
    outcome = profile_body(body, wanted)
    lines = outcome.profile.lines
    found = lines[lines["source"].str.contains("return")].set_index("cell")["line"].to_dict()
    assert found == {1: 2, 2: 3}


# ---- what is refused, what is put back --------------------------------------------------------------------------


def test_a_running_profiler_is_refused_and_goes_on() -> None:
    with torch.profiler.profile() as running:
        torch.ones(3).exp()
        with pytest.raises(Busy, match="already running"):
            run("ran = True\n")
        torch.ones(3).log()
    assert {"aten::exp", "aten::log"} <= {event.key for event in running.key_averages()}


def test_a_profiler_inside_the_code_is_said_and_no_time_is_made_up() -> None:
    outcome = run("with torch.profiler.profile() as p:\n    torch.ones(3).exp()\n")
    assert kinds(outcome) == ["events-lost"]
    assert outcome.profile.ops.empty
    lines = outcome.profile.lines
    assert lines[["self_cpu_time", "python_time"]].isna().all(axis=None)
    assert (lines["wall_time"] > 0).any()
    assert not torch.autograd._profiler_enabled()


def test_a_thread_count_that_the_code_sets_stays() -> None:
    before = torch.get_num_threads()
    try:
        run("torch.set_num_threads(3)\n", threads=1 if before != 1 else 2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_what_the_code_changes_stays_changed() -> None:
    torch.manual_seed(0)
    expected = [torch.rand(1).item() for _ in range(2)]
    torch.manual_seed(0)
    outcome = run("torch.rand(1).item()")
    assert [outcome.value, torch.rand(1).item()] == expected


@pytest.mark.parametrize(
    "options", [{"threads": 0}, {"lines_of": ["no_such_module"]}, {"lines_of": ["math"]}]
)
def test_a_wrong_option_is_refused_before_anything_runs(options: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    with pytest.raises(OptionError, match=r"^--|^threads: give a whole number from 1"):
        run("ran = True\n", names, **options)
    assert "ran" not in names


def test_an_exception_gives_the_profile_until_then_and_a_traceback_of_the_users_frames() -> None:
    outcome = run("x = torch.ones(3)\ndef f():\n    raise KeyError('k')\nf()\ny = 1\n")
    assert isinstance(outcome.error, KeyError)
    frames = traceback.extract_tb(outcome.error.__traceback__)
    assert [(frame.filename, frame.lineno) for frame in frames] == [(CELL, 4), (CELL, 3)]
    assert outcome.profile.partial
    assert kinds(outcome) == ["partial"]
    assert row(outcome, 1)["self_cpu_time"] > 0
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize(
    "text",
    [
        "for n in itertools.count(): n == 100 and signal.raise_signal(2)\n",
        "for n in itertools.count():\n    torch.ones(9)\n    n == 100 and signal.raise_signal(2)\n",
        "go.release()\nwhile True: time.sleep(0.01)\n",
    ],
    ids=["a loop", "a loop of torch", "sleeping"],
)
def test_an_interrupt_gives_the_profile_until_then(text: str) -> None:
    """From the code itself in a loop's hundredth round, or from a thread that the code lets go; one that comes right
    before a sleep waits for its end, so that there are many short ones."""
    go, main = threading.Lock(), threading.main_thread().ident
    assert main is not None
    go.acquire()

    def interrupts() -> None:
        go.acquire()
        signal.pthread_kill(main, signal.SIGINT)

    helper = threading.Thread(target=interrupts, daemon=True)
    if "go" in text:
        helper.start()
    names = {"torch": torch, "time": time, "itertools": itertools, "signal": signal, "go": go}
    outcome = run(f"time.sleep(0.01)\n{text}", names)
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert {frame.filename for frame in traceback.extract_tb(outcome.error.__traceback__)} == {CELL}
    assert outcome.profile.partial
    assert outcome.profile.wall_time >= 0.01
    assert sys.gettrace() is None
    own = outcome.profile.lines[outcome.profile.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(
        outcome.profile.wall_time, rel=0.01
    )


def test_an_active_trace_hook_leaves_ops_without_lines() -> None:
    if hasattr(sys, "monitoring"):
        pytest.skip("sys.monitoring does not need the hook")
    hook = lambda frame, event, arg: None
    sys.settrace(hook)
    try:
        outcome = run("x = torch.ones(3).exp()\n")
        assert sys.gettrace() is hook
    finally:
        sys.settrace(None)
    assert outcome.profile.lines.empty
    assert outcome.profile.line_source == "none"
    assert kinds(outcome) == ["no-lines"]
    assert "aten::exp" in set(outcome.profile.ops["op"])
    assert outcome.profile.ops["line"].isna().all()


class StepDebugger(bdb.Bdb):
    """A debugger in the middle of its work: it stops at each line and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: set[int] = set()

    def user_line(self, frame: Any) -> None:
        if frame.f_code.co_filename == CELL:
            self.lines.add(frame.f_lineno)
        self.set_step()


def seen_by_a_debugger(text: str) -> tuple[Outcome, set[int]]:
    debugger = StepDebugger()
    return debugger.runcall(run, text), debugger.lines


def seen_by_coverage(text: str) -> tuple[Outcome, set[int]]:
    coverage = trace.Trace(count=1, trace=0)
    outcome = coverage.runfunc(run, text, {"torch": torch, "__file__": CELL})  # it passes over code of no file
    return outcome, {line for file, line in coverage.results().counts if file == CELL}


@pytest.mark.parametrize("tool", [seen_by_a_debugger, seen_by_coverage])
def test_a_debugger_and_a_coverage_tool_go_on_seeing_every_line(
    tool: Callable[[str], tuple[Outcome, set[int]]],
) -> None:
    outcome, lines = tool("x = torch.ones(3)\nfor _ in range(3):\n    y = x.exp()\n")
    assert lines == {1, 2, 3}
    ops = outcome.profile.ops.set_index("op")
    assert ops.loc["aten::exp", "calls"] == 3
    if hasattr(sys, "monitoring"):
        assert set(outcome.profile.lines["line"].dropna()) == {1, 2, 3}
    else:
        assert kinds(outcome) == ["no-lines"]


def test_a_result_keeps_no_tensor_and_no_frame_alive() -> None:
    names: dict[str, Any] = {"torch": torch, "weakref": weakref}
    outcome = run(
        "def f():\n    t = torch.ones(3)\n    return weakref.ref(t), t\nr, t = f()\n", names, memory=True
    )
    reference = names["r"]
    names.clear()
    profile_only = outcome.profile
    del outcome
    gc.collect()
    assert reference() is None
    assert profile_only.lines is not None


def test_the_collector_is_left_as_it_was() -> None:
    gc.disable()
    try:
        run("x = torch.ones(2)\n", shapes=True)
        assert not gc.isenabled()
    finally:
        gc.enable()
    run("x = torch.ones(2)\n", shapes=True)
    assert gc.isenabled()


def test_the_value_is_that_of_the_trailing_expression_and_its_display_is_not_profiled() -> None:
    outcome = run("x = torch.ones(3)\nx + x")
    assert outcome.value.tolist() == [2, 2, 2]
    assert set(outcome.profile.ops["op"]) == {"aten::ones", "aten::empty", "aten::fill_", "aten::add"}


@pytest.mark.slow
def test_nothing_of_the_profiler_reaches_the_output_and_all_of_the_users_does() -> None:
    script = (
        "import os, sys, torch\n"
        "from torchbench_magic import profile\n"
        "x = torch.ones(9)\n"
        "def body():\n"
        "    global x\n"
        "    x = torch.ones(8)\n"  # frees a block that the profiler does not know: torch logs that
        "    os.write(2, b'mine\\n')\n"
        "profile(body)\n"
        "profile(body, memory=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0
    assert ended.stderr == "mine\nmine\n"
    assert ended.stdout == ""


@pytest.mark.parametrize("has_begun", [False, True])
def test_all_is_put_back_when_starting_fails(has_begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run("pass\n")
    before = os.stat(2), torch.get_num_threads()
    start = torch.profiler.profile.start_trace

    def fails(self: torch.profiler.profile) -> None:
        if has_begun:
            start(self)
        raise RuntimeError("no")

    monkeypatch.setattr(torch.profiler.profile, "start_trace", fails)
    for memory in (False, True):
        with pytest.raises(RuntimeError, match=r"^no$"):
            run("pass\n", threads=before[1] + 1, memory=memory)
    assert (os.stat(2).st_ino, torch.get_num_threads()) == (before[0].st_ino, before[1])
    assert sys.gettrace() is None
    monkeypatch.undo()
    assert not kineto.torch_profiler_runs()
    ops = run("torch.ones(3).exp()\n").profile.ops  # up to torch 2.12 one that was prepared makes all others fail
    assert ops["op"].isin(["aten::exp"]).any()
    with torch.profiler.profile() as theirs:
        torch.ones(3).exp()
    assert "aten::exp" in {event.name for event in theirs.events()}


# ---- scripts ----------------------------------------------------------------------------------------------------


def test_a_callable_is_profiled_on_the_lines_of_its_file() -> None:
    def work() -> None:
        torch.ones(4).exp()

    result = profile(work)
    (found,) = result.lines[result.lines["source"].str.contains("exp", regex=False)].to_dict("records")
    assert found["file"] == __file__
    assert found["calls"] == 1
    assert result.ops["op"].isin(["aten::exp"]).any()


def test_text_is_profiled_with_its_own_lines_and_leaves_the_globals_alone() -> None:
    names = {"torch": torch}
    result = profile("x = torch.ones(4)\ny = x.exp()\n", globals=names)
    lines = result.lines.dropna(subset="line")
    assert lines["source"].tolist() == ["x = torch.ones(4)", "y = x.exp()"]
    assert names == {"torch": torch}


def test_ctrl_c_in_a_script_gives_the_partial_profile() -> None:
    def work() -> None:
        torch.ones(3)
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        profile(work)
    assert caught.value.partial.partial  # type: ignore[union-attr]


@pytest.mark.parametrize("target", [3, "await x"])
def test_what_cannot_be_profiled_is_refused(target: Any) -> None:
    with pytest.raises(BodyError):
        profile(target)


# ---- work that torch's own threads do ---------------------------------------------------------------------------


def sines(x: torch.Tensor) -> torch.Tensor:
    for _ in range(200):
        x = x.sin()
    return x


def test_a_fork_that_python_starts_runs_at_once_on_its_line() -> None:
    names = {"torch": torch, "scripted": torch.jit.script(sines), "x": torch.ones(10_000)}
    outcome = run("future = torch.jit.fork(scripted, x)\ny = torch.jit.wait(future)\n", names)
    ops = outcome.profile.ops
    assert set(ops[ops["op"] == "aten::sin"]["line"]) == {1}
    assert "torch-threads" not in kinds(outcome)


def test_a_gradient_that_is_added_to_another_one_is_caused_by_its_forward_line() -> None:
    text = """h = x @ w
s = (h * v).sum()
s.backward()
"""
    names = {"torch": torch, "x": torch.ones(4, 300), "v": torch.ones(300, requires_grad=True)}
    names["w"] = torch.ones(300, 300, requires_grad=True)
    run(text, names)  # there are gradients from now on
    outcome = run(text, names)
    ops = outcome.profile.ops
    adding = ops[ops["op"] == "aten::add_"]
    assert int(adding["calls"].sum()) == 2
    nodes = ops[ops["op"].str.startswith("autograd::engine") & (ops["line"] == 3)]
    caused = outcome.profile.lines["backward_cpu_time"].sum()
    everything = ops[(ops["line"] == 3) & ~ops["op"].isin(["aten::ones_like"])]
    assert caused == pytest.approx(
        row(outcome, 3)["self_cpu_time"] - _outside_nodes(outcome, 3, set(nodes["op"])), abs=2e-9 * len(everything)
    )


def _outside_nodes(outcome: Outcome, line: int, nodes: set[str]) -> float:
    """Torch seconds of a line that run in no backward node."""
    frames = outcome.profile.frames
    inside: list[bool] = []
    for parent, name in zip(frames["parent"], frames["name"], strict=True):
        inside.append(name in nodes or (parent >= 0 and inside[parent]))
    here = (frames["line"] == line) & (frames["thread"] == 0)
    return float(frames["self_cpu_time"][here & ~pd.Series(inside)].sum())


def test_a_profile_beside_a_measurement_of_another_thread_is_refused_and_one_within_it_is_not() -> None:
    found: list[object] = []

    def second() -> None:
        try:
            found.append(profile(lambda: None))
        except Busy as error:
            found.append(str(error))

    def first() -> None:
        if not found:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    for measure in (lambda: compare({"a": first}, threads=1, min_run_time=0.001), lambda: profile(first)):
        found.clear()
        measure()
        assert "another thread is measuring" in str(found[0])
    inner = profile(lambda: compare({"b": "1 + 1"}, threads=1, min_run_time=0.001))
    assert not inner.partial


# ==== called ==========================================================================================================
# `profile` of what runs nothing when it is called.


def makes() -> Iterator[torch.Tensor]:
    yield torch.ones(3) + 1


async def waits() -> None:
    torch.ones(3) + 1


async def makes_and_waits() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (makes, "'makes' is a generator function, and calling it runs none of its code: give `lambda: list(f())`"),
        (functools.partial(makes), "'partial' is a generator function,"),
        (waits, "'waits' is a coroutine function, and calling it runs none of its code: give `lambda: asyncio"),
        (makes_and_waits, "'makes_and_waits' is an async generator function,"),
        (lambda x: x, "'<lambda>' needs an argument (x)"),
    ],
    ids=["generator", "partial", "coroutine", "async generator", "argument"],
)
def test_what_runs_nothing_is_refused_in_one_line(function: Any, said: str) -> None:
    with pytest.raises(BodyError) as caught:
        profile(function)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_the_way_that_is_named_profiles_the_work() -> None:
    for way in (lambda: list(makes()), lambda: asyncio.run(waits())):
        made = profile(way)
        assert "aten::add" in set(made.ops["op"])
        assert "not-run" not in [doubt.kind for doubt in made.warnings]


@pytest.mark.parametrize(("target", "kind"), [(lambda: makes(), "generator"), ("waits()", "coroutine")])
def test_a_call_that_returns_what_has_not_begun_is_said_first(target: Any, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "coroutine was never awaited"
        made = profile(target, globals=globals())
    assert made.warnings[0].kind == "not-run"
    assert made.warnings[0].text == (
        f"The code returned a {kind} that has not started: this profile contains nothing of it."
    )


def test_a_generator_that_has_begun_is_not_said() -> None:
    held: list[Iterator[torch.Tensor]] = []

    def begins() -> Iterator[torch.Tensor]:
        held.append(makes())
        next(held[0])
        return held[0]

    assert "not-run" not in [doubt.kind for doubt in profile(begins).warnings]


def test_an_exception_shows_the_frames_of_the_user_alone() -> None:
    def fails() -> None:
        raise ZeroDivisionError("mine")

    for target in (fails, "fails()"):
        with pytest.raises(ZeroDivisionError) as caught:
            profile(target, globals={"fails": fails})
        shown = traceback.extract_tb(caught.value.__traceback__)
        assert not [frame for frame in shown if "torchbench_magic/core" in frame.filename]
        assert [frame.name for frame in shown][-1] == "fails"


# ==== body inputs =====================================================================================================
# What a profiled body read is kept with its profile.


def test_names_that_the_body_makes_itself_are_no_inputs() -> None:
    names: dict[str, Any] = {"x": torch.ones(3, 4), "y": torch.ones(7), "n": 2, "unused": 5}
    made = profile("y = x * n\nz = y.sum()", globals=names)
    assert made.inputs == (("n", "2"), ("x", "3 × 4 float32"))


def test_what_the_run_changes_is_no_input() -> None:
    names: dict[str, Any] = {"log": [], "cfg": {"n": 3}}
    made = profile("log.append(cfg['n'])", globals=names)
    assert made.inputs == (("cfg", "dict of 1"),)
    assert made.values is not None
    assert [(label, held) for label, held, _ in made.values] == [("cfg['n']", "3"), ("log", "")]


def test_an_optimizer_is_an_input_though_its_state_changes() -> None:
    weight = torch.ones(3, 4, requires_grad=True)
    names: dict[str, Any] = {"weight": weight, "opt": torch.optim.Adam([weight], foreach=True)}
    made = profile("weight.sum().backward()\nopt.step()", globals=names)
    assert ("opt", "Adam of 12 values in 1 tensor, foreach") in (made.inputs or ())


def test_variables_around_a_callable_are_known() -> None:
    x = torch.ones(3, 4)
    made = profile(lambda: x.sum())
    assert ("x", "3 × 4 float32") in (made.inputs or ())


def test_a_schedule_keeps_them_too() -> None:
    names: dict[str, Any] = {"x": torch.ones(2), "range": range}
    code = "import torchbench_magic\nfor i in range(4):\n    x.sum()\n    torchbench_magic.step()"
    made = profile(code, globals=names, schedule="wait=1,warmup=1,active=2")
    assert ("x", "2 float32") in (made.inputs or ())
