"""Ctrl-C at any moment of a profile: what was recorded is shown, and nothing stays switched."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Kernel, Ran

SET_UP = """
import json, os, signal, sys, threading, time, tracemalloc, torch
began = []
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
x = torch.randn(8, 16)

def interrupt_at(*moments):
    "SIGINT so many seconds after the next magic begins, each, as long as it runs."
    shell, inside, over = get_ipython(), threading.RLock(), threading.Event()
    def send(since):
        for moment in sorted(moments):
            over.wait(max(0.0, since + moment - time.perf_counter()))
            with inside:  # none comes when the magic has ended: there IPython and ipykernel lose the cell's reply
                if not over.is_set():
                    os.kill(os.getpid(), signal.SIGINT)
    def end():
        while not over.is_set():
            try:
                with inside:
                    over.set()
            except KeyboardInterrupt:
                pass
    def run(*args, **more):
        del shell.run_cell_magic
        try:
            threading.Thread(target=send, args=(time.perf_counter(),), daemon=True).start()
            return shell.run_cell_magic(*args, **more)
        finally:
            end()
    shell.run_cell_magic = run

def open_files():
    "How many descriptors; not the eventfds, by which threads reach ipykernel: it closes those of ended ones in time."
    there = (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(place) and not os.readlink(place).endswith("[eventfd]") for place in there)

def side_processes():
    "How many processes look at this one's threads."
    tasks = os.listdir("/proc/self/task")
    children = [pid for task in tasks for pid in read(f"/proc/self/task/{task}/children").split()]
    return sum("side_process" in read(f"/proc/{pid}/cmdline") for pid in children)

def read(file):
    try:
        return open(file).read()
    except OSError:
        return ""

def state():
    held = sys.modules.get("torchbench_magic.process.interrupts")
    tools = [sys.monitoring.get_tool(n) for n in range(6)] if hasattr(sys, "monitoring") else []
    return [
        torch._C._autograd._profiler_enabled(), torch.autograd.profiler._is_profiler_enabled,
        [[os.fstat(n).st_dev, os.fstat(n).st_ino] for n in (1, 2)],
        sys.gettrace() is None, threading.gettrace() is None, tools, tracemalloc.is_tracing(), torch.get_num_threads(),
        str(signal.getsignal(signal.SIGINT)), held and held._now.depth,
        torch.utils.data._utils.worker._worker_loop.__name__, side_processes(),
    ]
"""
BODY = """
began.append(1)
for i in range(60):
    y = model(x)
    held = [bytes(1000) for _ in range(20)]
    for j in range(60):
        total = j + i
"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """The first profile of a kernel loads what stays."""
    return start_kernel(SET_UP, *(f"%%tprofile {options}{BODY}" for options in OPTIONS))


OPTIONS = ("", "--memory", "--host-memory", "--memory --shapes --host-memory", "--steps 20", "--concurrency")


def seconds_of(kernel: Kernel, cell: str) -> float:
    """How long the cell takes when nobody interrupts it."""
    timed = "get_ipython().events.register('pre_run_cell', lambda *_: globals().__setitem__('t0', time.perf_counter()))"
    assert not kernel.run(timed).error
    assert not kernel.run(cell).error
    return float(kernel.run("print(time.perf_counter() - t0)").stdout) + 0.0


def told_state(kernel: Kernel) -> tuple[Any, int]:
    """(all that is to be as it was, how many files are open)."""
    state, files = json.loads(kernel.run("time.sleep(0.2); print(json.dumps([state(), open_files()]))").stdout)
    return state, files


def checked(kernel: Kernel, cell: str, *moments: float) -> Ran:
    """Run it interrupted at these moments; what was recorded must be shown, and all be as it was before."""
    before, files = told_state(kernel)
    assert not kernel.run(f"began.clear(); _tprofile = None; interrupt_at({', '.join(map(str, moments))})").error
    ran = kernel.run(cell)
    after, files_after = told_state(kernel)
    assert after == before
    assert files_after <= files, "what ipykernel had open for threads that have ended may be closed meanwhile"
    has_begun, kept = kernel.run("print(len(began), _tprofile is not None)").stdout.split()
    shown = "display_data" in ran.kinds and "torchbench" in ran.text("text/html")
    assert shown == (kept == "True") == (has_begun != "0"), (moments, ran.outputs)
    assert "torchbench_magic" not in ran.error, ran.error
    assert not ran.error or "KeyboardInterrupt" in ran.error
    assert "Traceback" not in ran.stderr
    return ran


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.slow
def test_an_interrupt_at_any_moment_keeps_what_was_recorded_and_leaves_nothing_switched(
    kernel: Kernel, options: str
) -> None:
    cell, drawn = f"%%tprofile {options}{BODY}", random.Random(11)
    lasts = seconds_of(kernel, cell)
    for _ in range(5):
        checked(kernel, cell, drawn.uniform(0.0, 1.05 * lasts))


def test_more_interrupts_while_the_profile_is_made_do_not_take_it_away(kernel: Kernel) -> None:
    cell, drawn = f"%%tprofile --memory{BODY}", random.Random(12)
    lasts = seconds_of(kernel, cell)
    for _ in range(4):
        first = drawn.uniform(0.0, lasts)
        checked(kernel, cell, first, first + 0.02, first + 0.06, first + 0.2)


WHILE_IT_IS_MADE = """
import torchbench_magic.profiling.run as profiler
was = profiler.report
def report(*args, **more):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    return was(*args, **more)
profiler.report = report
"""


def test_an_interrupt_after_the_code_has_run_shows_the_whole_profile(kernel: Kernel) -> None:
    assert not kernel.run(WHILE_IT_IS_MADE).error
    try:
        ran = kernel.run(f"%%tprofile{BODY}")
    finally:
        assert not kernel.run("profiler.report = was").error
    assert "KeyboardInterrupt" in ran.error
    assert "the profile is whole" in ran.error
    assert "torchbench_magic" not in ran.error
    assert "Partial" not in ran.text()
    assert kernel.run("print(_tprofile.partial)").stdout.strip() == "False"


def test_the_code_itself_is_interrupted_at_once(kernel: Kernel, tmp_path: Path) -> None:
    there = tmp_path / "there"
    with kernel.interrupted_when(there.exists):
        cell = f"%%tprofile\nbegan.append(1)\nopen({str(there)!r}, 'w').close()\ntime.sleep(600)\nbegan.append(2)"
        ran = checked(kernel, cell)
    assert "KeyboardInterrupt" in ran.error
    assert kernel.run("print(began)").stdout.strip() == "[1]"
    assert "Partial: interrupted" in ran.text()


FIRST = (
    SET_UP.replace(", torch\n", "\n").partition("began =")[0]
    + SET_UP[SET_UP.index("def interrupt_at") :].partition("def state")[0]
)


@pytest.mark.slow
def test_an_interrupt_in_the_first_imports_leaves_a_kernel_in_which_the_next_cell_works(fresh_kernel: Kernel) -> None:
    assert not fresh_kernel.run(FIRST).error
    cell = "%%tprofile\nimport torch\nprint(torch.ones(3).sum())"
    for moment in (0.15, 0.6):
        assert not fresh_kernel.run(f"interrupt_at({moment})").error
        ran = fresh_kernel.run(cell)
        assert "torchbench_magic" not in ran.error
        assert not ran.error or "KeyboardInterrupt" in ran.error
    ran = fresh_kernel.run(cell)
    assert not ran.error
    assert "aten::sum" in ran.text() or "In[" in ran.text()
    assert ran.stdout == "tensor(3.)\n"


DYING = """%%tprofile
began.append(1)
class Dies(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5:
            {how}
        return index
seen = []
for number in torch.utils.data.DataLoader(Dies(), num_workers=1, batch_size=None):
    seen.append(int(number))
"""


@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_worker_that_dies_in_the_middle_of_the_loop_leaves_the_profile_until_then(kernel: Kernel, how: str) -> None:
    assert not kernel.run("began.clear(); _tprofile = None").error
    ran = kernel.run(DYING.format(how=how))
    assert "RuntimeError: DataLoader worker" in ran.error
    assert "torchbench_magic" not in ran.error
    assert "Partial: ended by RuntimeError" in ran.text()
    assert "for number in torch.utils.data.DataLoader" in ran.text()
    assert kernel.run("print(_tprofile.partial, seen[:2])").stdout.strip() == "True [0, 1]"


AS_A_WORKER_DIES = """
def died(number, frame):
    raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
before = signal.signal(signal.SIGCHLD, died)
import torchbench_magic.profiling.run as profiler
was = profiler.report
def report(*args, **more):
    signal.raise_signal(signal.SIGCHLD)
    return was(*args, **more)
profiler.report = report
"""


def test_a_worker_that_dies_while_the_profile_is_made_does_not_take_it_away(kernel: Kernel) -> None:
    assert not kernel.run(AS_A_WORKER_DIES).error
    try:
        ran = kernel.run(f"%%tprofile{BODY}")
    finally:
        assert not kernel.run("profiler.report = was; signal.signal(signal.SIGCHLD, before);").error
    assert "DataLoader worker (pid 7) is killed" in ran.error
    assert "wall time" in ran.text()
    assert "torchbench_magic" not in ran.error


@pytest.mark.slow
def test_an_interrupt_while_a_result_is_displayed_comes_when_it_stands_there(kernel: Kernel) -> None:
    assert not kernel.run(
        "from torchbench_magic.notebook import display\nwas_shown = display.Output.show\n"
        "def show(self, *args):\n    signal.raise_signal(signal.SIGINT)\n    was_shown(self, *args)\n"
        "display.Output.show = show\n_tprofile = _timer = None"
    ).error
    try:
        profiled = kernel.run(f"%%tprofile{BODY}")
        timed = kernel.run("%%timer -n 1 -r 3\nx + 1")
    finally:
        assert not kernel.run("display.Output.show = was_shown").error
    for ran in (profiled, timed):
        assert "KeyboardInterrupt" in ran.error
        assert "torchbench_magic" not in ran.error
        assert "text/html" in str(ran.outputs)
        assert "Partial" not in ran.text()
    assert kernel.run("print(_tprofile.partial, _timer.partial)").stdout.strip() == "False False"
