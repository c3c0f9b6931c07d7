"""The magics in a real kernel: what a notebook user sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

SETUP = """\
import torch
x = torch.ones(64)

def double(a):
    b = a * 2
    return b
"""


LINES = "{(int(r.cell), int(r.line)) for r in _tprofile.lines.dropna(subset=['cell']).itertuples()}"
"""(cell, line) of the last profile."""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """One kernel for the tests of this module: the setup is In[2]."""
    return start_kernel(SETUP)


def test_a_timing_is_displayed_once_with_text_and_html_and_stays_in_out(kernel: Kernel) -> None:
    ran = kernel.run("%timer -n 5 -r 5 x + 1")
    assert ran.kinds == ["display_data"]
    assert "x + 1" in ran.text()
    assert "<script data-needs=table_explorer-" in ran.text("text/html")
    assert kernel.run(f"Out[{kernel.number}] is _timer").text() == "True"
    assert kernel.run("r = %timer -n 5 -r 5 x + 1").kinds == ["display_data"]
    assert kernel.run("r is _timer").text() == "True"


def test_a_profile_shows_the_value_as_ever_and_then_the_profile(kernel: Kernel) -> None:
    ran = kernel.run("%%tprofile\ny = double(x)\ny.sum().item()")
    assert ran.kinds == ["execute_result", "display_data"]
    assert ran.outputs[0]["data"]["text/plain"] == "128.0"
    assert "In[2], double" in ran.text()
    # not `_`, which a cell of another test may have bound: IPython leaves it alone from then on
    assert kernel.run(f"Out[{kernel.number}], type(_tprofile).__name__").text() == "(128.0, 'Profile')"


def test_await_works_in_both_cells_and_in_every_place(kernel: Kernel) -> None:
    ran = kernel.run("%%tprofile\nimport asyncio\ny = double(x)\nawait asyncio.sleep(0.01)\nawait asyncio.sleep(0, 5)")
    assert not ran.error
    assert ran.outputs[0]["data"]["text/plain"] == "5"
    here = kernel.number
    assert kernel.run(f"{{({here}, 3), ({here}, 4), (2, 5)}} <= {LINES}").text() == "True"
    cell = "%%timer -n 2 -r 2\n# --- setup\nawait asyncio.sleep(0)\n# --- a\nawait asyncio.sleep(0)\n# --- b\nx"
    ran = kernel.run(cell)
    assert not ran.error
    assert kernel.run("list(_timer.frame.description)").text() == "['a', 'b']"
    ran = kernel.run("%%timer\nx\nawait asyncio.sleep(0) + 1")
    assert f"In[{kernel.number}], line 3" in ran.error
    assert "torchbench_magic" not in ran.error


def test_each_await_of_a_cell_waits_on_its_own_line(kernel: Kernel) -> None:
    """The kernel's cell awaits the magic, and is suspended and resumed with the body."""
    naps = "await asyncio.sleep(0.02)\nawait asyncio.sleep(0.03)\nfor _ in range(2):\n    await asyncio.sleep(0.01)"
    assert not kernel.run(f"%%tprofile -q\nimport asyncio\n{naps}").error
    lines = "_tprofile.lines.dropna(subset=['line']).set_index('line')"
    assert kernel.run(f"{lines}.index.tolist()").text() == "[2, 3, 4, 5, 6]"
    others = "{3: 0.05, 4: 0.04, 6: 0.05}.items()"  # line 4 naps 30 ms, lines 3 and 6 naps 20 ms
    waits = f"all(0.02 <= {lines}.wall_time[n] <= _tprofile.wall_time - rest for n, rest in {others})"
    assert kernel.run(waits).text() == "True"


def test_tasks_of_the_loop_go_on_while_a_cell_awaits(kernel: Kernel) -> None:
    kernel.run("import asyncio\nseen = []\nasync def tick():\n    await asyncio.sleep(0.01)\n    seen.append(1)\n")
    kernel.run("%%tprofile -q\ntask = asyncio.create_task(tick())\nawait asyncio.sleep(0.1)")
    assert kernel.run("seen, task.done()").text() == "([1], True)"


INTERRUPTED = """import asyncio, os, signal, time
lock = asyncio.Lock()
calls = 0
def interrupt(at):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGINT)
"""
"""A warm-up has fewer calls than the cells say: each 5 % shorter than the one before, from minutes to milliseconds."""


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("%%timer --min-run-time 600 --max-run-time 600\nawait asyncio.sleep(0.002)\ninterrupt(600)", "_timer"),
        (
            "%%timer --min-run-time 600 --max-run-time 600\nasync with lock:\n    sum(range(100_000))\ninterrupt(600)",
            "_timer",
        ),
        ("%%tprofile\nwhile True:\n    await asyncio.sleep(0.001)\n    interrupt(100)", "_tprofile"),
    ],
    ids=["timer", "code that never suspends", "profile"],
)
def test_an_interrupt_of_a_cell_that_awaits_keeps_what_there_is(kernel: Kernel, cell: str, name: str) -> None:
    """ipykernel cancels the task of such a cell."""
    kernel.run(INTERRUPTED)
    ran = kernel.run(cell)
    assert ran.error.count("KeyboardInterrupt") >= 1
    assert "Partial: interrupted after" in kernel.run(f"str({name}.warnings)").text()
    assert kernel.run("await asyncio.sleep(0, 'the loop goes on')").text() == "'the loop goes on'"


def test_a_task_that_the_code_cancels_itself_is_no_interrupt(kernel: Kernel) -> None:
    cell = "%%timer -n 3 -r 3\ntask = asyncio.ensure_future(asyncio.sleep(9))\ntask.cancel()\nawait task"
    kernel.run("import asyncio")
    ran = kernel.run(cell)
    assert "CancelledError" in ran.error
    assert "KeyboardInterrupt" not in ran.error


def test_an_exception_reads_as_in_any_cell_and_stops_the_run(kernel: Kernel) -> None:
    plain = kernel.run("x\n1 / 0").error
    profiled = kernel.run("%%tprofile\n1 / 0").error
    assert f"Cell In[{kernel.number}], line 2" in profiled
    assert "----> 2 1 / 0" in profiled
    assert profiled.count("\n") == plain.count("\n")
    for cell in ("%%timer\nx\ndouble(1 / 0)", "x\n%timer 1 / 0", "%%timer\n1 / 0"):
        error = kernel.run(cell).error
        assert error.count("Cell In[") == 1
        assert "torchbench_magic" not in error
        assert "hidden" not in error


def test_code_that_fails_late_shows_what_was_measured_and_then_the_error(kernel: Kernel) -> None:
    ran = kernel.run("import time\nfew = iter(range(300))\n%timer --min-run-time 600 next(few); time.sleep(0.002)")
    assert ran.kinds == ["display_data", "error"]
    assert "Partial: the code raised StopIteration after" in ran.text()
    assert "torchbench_magic" not in ran.error
    assert kernel.run("_timer.partial, len(_timer.samples) > 3").text() == "(True, True)"


def test_the_lines_of_timed_code_are_numbered_as_the_cell_shows_them(kernel: Kernel) -> None:
    error = kernel.run("%%timer\n# --- a\nx\n1 / 0\n# --- b\nx").error
    assert "      1 %%timer\n" in error
    assert "----> 4 1 / 0\n" in error


def test_a_syntax_error_reads_as_in_any_cell(kernel: Kernel) -> None:
    for magic in ("%%timer", "%%tprofile"):
        error = kernel.run(f"{magic}\nx\ny = = 1").error
        assert error.strip().startswith(f"Cell In[{kernel.number}], line 3")
        assert "y = = 1" in error
        assert "torchbench_magic" not in error


def test_wrong_options_are_one_line_on_stderr(kernel: Kernel) -> None:
    ran = kernel.run("%timer --foo x")
    assert ran.kinds == ["stream"]
    assert ran.stderr.startswith("UsageError: %timer has no option --foo")
    assert ran.stderr.strip().count("\n") == 0


def test_loops_and_two_magics_in_a_cell(kernel: Kernel) -> None:
    ran = kernel.run("for i in range(2):\n    %timer -n 2 -r 2 x + i\n%tprofile -q double(x)")
    assert ran.kinds == ["display_data", "display_data"]
    call = "get_ipython().run_cell_magic('tprofile', '-q', body)"
    ran = kernel.run(f"body = 'y = double(x)\\n'\nfor i in range(2):\n    p = {call}")
    assert not ran.error
    own = "p.lines[p.lines.file == '<tprofile-1>']"
    assert kernel.run(f"{own}.line.tolist(), {own}.cell.isna().tolist()").text() == "([1], [True])"


def test_capture_takes_the_output_and_the_lines_are_those_of_the_visible_cell(kernel: Kernel) -> None:
    ran = kernel.run("%%capture kept\n%%tprofile\ny = double(x)\n5")
    assert ran.kinds == []
    assert kernel.run("len(kept.outputs)").text() == "2"
    assert kernel.run(f"({kernel.number - 1}, 3) in {LINES}").text() == "True"


@pytest.mark.slow
def test_a_long_measurement_shows_progress_and_only_the_result_stays(kernel: Kernel) -> None:
    ran = kernel.run("import time\n%timer --min-run-time 1.6 time.sleep(0.05)")
    assert ran.kinds == ["display_data"]
    assert "time.sleep(0.05)" in ran.text()
    assert "measuring" not in ran.text()
    seen = kernel.run(
        "seen = []\nship = get_ipython().display_pub\nship.register_hook(lambda m: seen.append(m['content']) or m)\n"
        "def nap():\n    time.sleep(0.05)\n    if len(seen) == 3: raise KeyboardInterrupt\n"
        "%timer --min-run-time 600 nap()"
    )
    assert "KeyboardInterrupt" in seen.error
    first = kernel.run("seen[0]['data']['text/plain']").text()
    assert "measuring" in first
    assert "interrupt the kernel to stop and keep partial results" in first
    assert kernel.run("len(seen) > 2, len({str(m['transient']) for m in seen[:-1]})").text() == "(True, 1)"


def test_an_interrupt_shows_and_keeps_what_was_measured(kernel: Kernel, tmp_path: Path) -> None:
    there = tmp_path / "there"
    noted = f"def nap():\n    time.sleep(0.002)\n    if next(calls) == 300: open({str(there)!r}, 'w')"
    kernel.run(f"import itertools, time\ncalls = itertools.count()\n{noted}")
    with kernel.interrupted_when(there.exists):
        ran = kernel.run("%timer --min-run-time 600 nap()")
    assert "KeyboardInterrupt" in ran.error
    assert "torchbench_magic" not in ran.error
    assert "artial" in ran.text()
    assert kernel.run("_timer.partial, len(_timer.samples) > 3").text() == "(True, True)"
    assert kernel.run("%timer -n 2 -r 2 x").kinds == ["display_data"]


def test_display_modes(kernel: Kernel) -> None:
    kernel.run("%config TorchBench.display = 'text'")
    assert list(kernel.run("%timer -n 2 -r 2 x").outputs[0]["data"]) == ["text/plain"]
    assert list(kernel.run("_timer").outputs[0]["data"]) == ["text/plain"]
    kernel.run("%config TorchBench.display = 'html'")
    assert set(kernel.run("_timer").outputs[0]["data"]) == {"text/plain", "text/html", "text/markdown"}
    kernel.run("%config TorchBench.display = 'auto'")


@pytest.mark.slow
def test_the_startup_file_serves_a_notebook_without_load_ext(fresh_kernel: Kernel) -> None:
    kernel = fresh_kernel
    assert kernel.run("import sys\n'torch' in sys.modules").text() == "False"
    assert "TorchBench.min_run_time" in kernel.run("%config TorchBench").stdout
    kernel.run(SETUP)
    ran = kernel.run("%%tprofile\nimport asyncio\ny = double(x)\nawait asyncio.sleep(0.01)\ny.sum()")
    assert not ran.error
    assert kernel.run(f"{{(4, 3), (4, 4), (4, 5), (3, 5)}} <= {LINES}").text() == "True"


def test_the_kernel_finds_identical_cells_by_their_last_number(kernel: Kernel) -> None:
    cell = "%%tprofile -q\ny = double(x)"
    kernel.run(cell)
    kernel.run(cell)
    assert kernel.run(f"set(_tprofile.lines.cell.dropna()) == {{2, {kernel.number}}}").text() == "True"
