"""Where Python time goes: when the stack is sampled, what a sample stands for, and planted cases end to end."""

from __future__ import annotations

import linecache
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.profiling.asking import asked
from tests.profiling.profiling_text import CELL, profiled, row
from tests.profiling.running import awaited
from torchbench_magic import profile
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import MissingTool
from torchbench_magic.process.code import compile_body
from torchbench_magic.process.contention import WantedClock
from torchbench_magic.profiling import run as profiling_run
from torchbench_magic.profiling.cores.side_process import FUTEX, UNTIMED, wait_kind
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.python import sampler
from torchbench_magic.profiling.python.sampler import PythonSampler, SampleRecord
from torchbench_magic.profiling.python.table import (
    active_before,
    doubts_of_sampling,
    idle_times,
    sampled_times,
    waited,
    without_callers,
)
from torchbench_magic.profiling.run import profile_body_async

# ==== python sampler ==================================================================================================
# Where Python time goes, end to end: planted cases, and that all is put back.
#
# The sampler sits on the hook of the thread that it samples, so that nothing depends on when another thread runs. A
# busy machine makes any stretch longer and none shorter: a time is at least what the code computes or sleeps (less
# `SHORT`), and at most that of its line in the same run (and `SHORT`).


BURN = """import time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""
SHORT = 0.004
"""s: a few samples lie so far apart, as far as the next call where calls are short."""


def tree_of(text: str, **options: Any) -> pd.DataFrame:
    names = {"torch": torch, "__name__": "__main__", **options.pop("names", {})}
    outcome = profiled(text, names, python=True, **options)
    assert outcome.error is None, outcome.error
    tree = outcome.profile.python
    assert tree is not None
    assert_adds_up(outcome.profile)
    return tree


def assert_adds_up(profile: Profile) -> None:
    tree = profile.python
    assert tree is not None
    assert tree["self_time"].sum() == pytest.approx(profile.wall_time)
    assert tree["total_time"].iloc[0] == pytest.approx(profile.wall_time)
    parts = tree["torch_time"] + tree["python_time"] + tree["waiting_time"]
    assert (parts - tree["total_time"]).abs().max() < 1e-9
    assert (tree["waiting_time"] > -1e-9).all()
    assert (tree["self_torch_time"] + tree["self_waiting_time"] <= tree["self_time"] + 1e-9).all()
    assert (tree["self_torch_time"] <= tree["self_time"] + 1e-9).all()
    assert (tree["python_time"] > -1e-9).all()


def total(tree: pd.DataFrame, function: str, column: str = "total_time") -> float:
    return float(tree.loc[tree["function"] == function, column].sum())


def path(tree: pd.DataFrame, at: int) -> list[str]:
    names = []
    while at >= 0:
        names.append(str(tree["function"][at]))
        at = int(tree["parent"][at])
    return names[::-1]


# ---- planted cases --------------------------------------------------------------------------------------------------


PLANTED = f"""{BURN}
def nap():
    time.sleep(0.03)
def multiply():
    for _ in range(5):
        torch.mm(a, a)
a = torch.ones(600, 600)
burn(0.03)
nap()
multiply()
"""


def test_python_sleep_and_torch_are_told_apart_and_agree_with_the_lines() -> None:
    outcome = profiled(PLANTED, {"torch": torch, "__name__": "__main__"}, python=True)
    tree, lines = outcome.profile.python, outcome.profile.lines.set_index("source")
    assert tree is not None
    assert_adds_up(outcome.profile)
    for function, line in (("burn", "burn(0.03)"), ("nap", "nap()"), ("multiply", "multiply()")):
        assert total(tree, function) <= lines["wall_time"][line] + SHORT, function
    exact = lines["cpu_time"]["multiply()"]
    assert exact - SHORT <= total(tree, "multiply", "torch_time") <= exact + SHORT
    assert total(tree, "burn", "python_time") >= 0.03 - SHORT
    assert total(tree, "sleep", "self_time") >= 0.03 - SHORT
    assert total(tree, "nap", "waiting_time") >= 0.03 - SHORT
    for function in ("burn", "nap"):
        assert total(tree, function, "torch_time") <= sampler.LOOK, "of an op that ended just before"


WAITS = f"""{BURN}
import queue, threading
box, lock = queue.Queue(), threading.Lock()
def take():
    begun.append(1)
    return box.get()
def hold():
    begun.append(1)
    with lock:
        pass
def nap():
    time.sleep(0.03)
def later(what):
    until_waiting()
    time.sleep(0.03)
    what()
lock.acquire()
threads = [threading.Thread(target=later, args=(what,)) for what in (lambda: box.put(1), lock.release)]
for each, wait in zip(threads, (take, hold)):
    each.start()
    burn(0.03)
    wait()
    each.join()
nap()"""


def names_of_waiting() -> dict[str, Any]:
    """What a thread calls to return when this one, which says that it begins to, waits for a lock without a limit."""
    begun, call = list[int](), Path(f"/proc/self/task/{threading.get_native_id()}/syscall")

    def until_waiting() -> None:
        while not begun or wait_kind(call.read_bytes(), FUTEX[platform.machine()]) != UNTIMED:
            time.sleep(0.001)
        begun.clear()

    return {"until_waiting": until_waiting, "begun": begun}


@pytest.mark.skipif(not os.path.exists("/proc/self/syscall"), reason="says what a thread waits for")
def test_waiting_is_no_python() -> None:
    """For a queue, a lock and a timer; a thread that computes wants a processor."""
    tree = tree_of(WAITS, names=names_of_waiting())
    for name in ("take", "hold", "nap"):
        assert total(tree, name, "waiting_time") >= 0.03 - SHORT, name
    assert total(tree, "burn", "python_time") >= 2 * (0.03 - SHORT)


class Coarse(WantedClock):
    """Moves so rarely that it does not while it is read."""

    def __call__(self) -> int:
        return 10**9


def test_where_the_clock_of_the_thread_is_coarse_waiting_is_not_known() -> None:
    for clock in (WantedClock, Coarse):
        made = sampler.PythonSampler(clock)
        made.start(())
        for _ in range(5):
            time.sleep(0.002)
        record = made.stop()
        assert len(record.moments) > 1
        assert len(record.wanted) == (len(record.moments) + 1 if clock is WantedClock else 0)


def test_the_tree_begins_with_the_cell_and_says_where_functions_stand() -> None:
    tree = tree_of(f"{BURN}burn(0.006)")
    assert list(tree.loc[0, ["function", "module", "library"]]) == ["In[7]", "", ""]
    burn = tree[tree["function"] == "burn"].iloc[0]
    assert (burn["cell"], burn["line"], burn["file"], burn["library"], burn["parent"]) == (7, 2, CELL, "", 0)


def test_calls_are_exact_where_lines_were_recorded_and_else_not_known() -> None:
    tree = tree_of(f"{BURN}import json\nfor _ in range(5): burn(0.003)\ntext = json.dumps([0] * 30_000, indent=1)")
    assert tree.loc[tree["function"] == "burn", "calls"].tolist() == [5]
    library = tree[tree["module"].str.startswith("json")]
    assert len(library)
    assert library["calls"].isna().all()


def test_calls_of_one_function_are_told_apart_by_the_path_that_leads_to_it() -> None:
    text = f"{BURN}def a():\n    for _ in range(3): burn(0.004)\ndef b(): burn(0.006)\na()\nb()\nb()"
    tree = tree_of(text)
    calls = {tuple(path(tree, at)): tree["calls"][at] for at in tree.index[tree["function"] == "burn"]}
    assert calls == {("In[7]", "a", "burn"): 3, ("In[7]", "b", "burn"): 2}


def test_library_code_is_opened_by_its_modules_and_classes() -> None:
    text = "net = torch.nn.Sequential(torch.nn.Linear(600, 600))\nx = torch.ones(600, 600)\nfor _ in range(5): net(x);"
    tree = tree_of(text)
    (linear,) = tree.index[tree["function"] == "Linear.forward"]
    assert [name for name in path(tree, linear) if name.endswith("forward")] == ["Sequential.forward", "Linear.forward"]
    assert tree.loc[linear, ["module", "library"]].tolist() == ["torch.nn.modules.linear", "torch"]
    assert str(tree["file"][linear]).endswith("linear.py")


def test_generators_recursion_and_lambdas() -> None:
    text = f"""{BURN}
def items():
    for _ in range(2):
        burn(0.006)
        yield 1
def deep(n):
    burn(0.006)
    if n: deep(n - 1)
list(items())
deep(2)
(lambda: burn(0.006))()
"""
    tree = tree_of(text)
    paths = [path(tree, at) for at in tree.index[tree["function"] == "burn"]]
    assert sorted(paths) == sorted(
        [
            ["In[7]", "items", "burn"],
            *(["In[7]", *["deep"] * depth, "burn"] for depth in (1, 2, 3)),
            ["In[7]", "<lambda>", "burn"],
        ]
    )


def test_a_loop_that_calls_nothing_is_one_sample_of_its_full_length() -> None:
    tree = tree_of("n = 0\nfor i in range(20_000): n += i")
    assert len(tree) == 1
    assert tree["self_time"].tolist() == tree["total_time"].tolist()


def test_a_backward_function_in_python_is_no_torch_time() -> None:
    text = f"""{BURN}
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        burn(0.03)
        return g * 2
Slow.apply(torch.ones(3, requires_grad=True)).sum().backward()
"""
    tree = tree_of(text)
    assert total(tree, "Slow.backward", "python_time") >= 0.03 - SHORT


@pytest.mark.skipif(not os.path.exists("/proc/self/syscall"), reason="says what a thread waits for")
def test_only_the_cells_own_thread_is_sampled() -> None:
    text = f"{BURN}import threading\ndef other():\n    until_waiting()\n    burn(0.02)\n"
    text += "t = threading.Thread(target=other)\nt.start()\nbegun.append(1)\nt.join()"
    tree = tree_of(text, names=names_of_waiting())
    assert "burn" not in set(tree["function"])
    assert total(tree, "Thread.join") >= 0.02 - SHORT


def test_a_worker_that_is_forked_samples_nothing() -> None:
    text = """import torch.utils.data as d
import sys, os
class Hook(d.Dataset):
    def __len__(self): return 2
    def __getitem__(self, i):
        __import__("time").sleep(0.01)
        return sys.getprofile() is None
seen = [bool(each) for each in d.DataLoader(Hook(), batch_size=None, num_workers=1)]
"""
    names: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
    outcome = profiled(text, names, python=True)
    assert outcome.error is None
    assert names["seen"][-1] is True


# ---- with other options ---------------------------------------------------------------------------------------------


def test_with_memory_freed_tensors_are_freed_when_they_are() -> None:
    text = f"{BURN}def f():\n    x = torch.ones(1000)\n    burn(0.005)\n    del x\n    burn(0.005)\nf()"
    with_tree = profiled(text, {"torch": torch}, python=True, memory=True).profile
    without = profiled(text, {"torch": torch}, memory=True).profile
    columns = ["line", "allocated", "freed", "net"]
    pd.testing.assert_frame_equal(with_tree.lines[columns], without.lines[columns])
    assert with_tree.lines.set_index("source")["freed"]["    del x"] >= 4000


def test_steps_are_sampled_each_and_added_up() -> None:
    text = f"{BURN}from torchbench_magic import step\nfor i in range(4):\n    burn(0.01)\n    step()"
    from torchbench_magic.profiling.options import Schedule

    made = profiled(text, {"torch": torch}, python=True, schedule=Schedule(wait=1, active=1, repeat=2)).profile
    assert len(made.cycles) == 2
    for each in (made, *made.cycles):
        assert_adds_up(each)
    assert made.python is not None
    assert made.python.loc[made.python["function"] == "burn", "calls"].tolist() == [2]
    assert total(made.python, "burn") >= 2 * (0.01 - SHORT)


def test_lines_of_a_library_gives_its_calls() -> None:
    text = "import json\nfor _ in range(3): t = json.dumps([0] * 20_000, indent=1)"  # some ms: it is sampled
    tree = tree_of(text, lines_of=("json.encoder",))
    assert tree.loc[tree["function"] == "JSONEncoder.encode", "calls"].tolist() == [3]


def test_twice_measures_it_too() -> None:
    made = profiled(f"{BURN}burn(0.005)", {"torch": torch}, python=True, twice=True).profile
    assert made.repeats
    assert sys.getprofile() is None


def test_a_cell_that_awaits() -> None:
    text = f"""{BURN}import asyncio
async def other():
    burn(0.01)
async def main():
    burn(0.01)
    await asyncio.gather(other())
    await asyncio.sleep(0.02)
await main()
"""
    cell = CellText.of(text, CELL, 7)
    linecache.cache[CELL] = (len(text), None, text.splitlines(True), CELL)
    wanted = asked(namespace={"__name__": "__main__"}, cells={CELL: cell}.get, python=True)
    made = awaited(profile_body_async(compile_body(Body(text, CELL)), wanted)).profile
    assert made.python is not None
    assert_adds_up(made)
    burns = [path(made.python, at) for at in made.python.index[made.python["function"] == "burn"]]
    assert ["In[7]", "main", "burn"] in burns
    assert [found[:2] for found in burns if "other" in found] == [["In[7]", "(while the cell awaits)"]]
    assert total(made.python, "(while the cell awaits)") >= 0.01 + 0.02 - 2 * SHORT
    assert not [name for name in made.python["module"] if name.startswith("torchbench_magic")]


# ---- what can go wrong ----------------------------------------------------------------------------------------------


def test_an_exception_keeps_what_was_sampled_and_has_no_frame_of_ours() -> None:
    outcome = profiled(f"{BURN}burn(0.02)\n1 / 0", {}, python=True)
    assert isinstance(outcome.error, ZeroDivisionError)
    assert outcome.error.__traceback__ is not None
    assert outcome.error.__traceback__.tb_next is None
    assert outcome.profile.python is not None
    assert total(outcome.profile.python, "burn") >= 0.02 - SHORT
    assert sys.getprofile() is None


def test_an_interrupt_keeps_what_was_sampled() -> None:
    text = f"{BURN}import signal\nburn(0.02)\nsignal.raise_signal(signal.SIGINT)\nburn(9)"
    before = threading.active_count()
    outcome = profiled(text, {}, python=True)
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert outcome.profile.python is not None
    tree = outcome.profile.python
    assert total(tree, "burn") >= 0.02 - SHORT
    assert tree.loc[tree["function"] == "burn", "calls"].tolist() == [1], "the second one never ran"
    assert sys.getprofile() is None
    assert threading.active_count() == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupts_that_meet_the_sampler_wait_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that meets it each time: it ends the code all the same, and never the sampler."""
    from torchbench_magic.profiling.python.sampler import PythonSampler

    plain, begun = PythonSampler._c_function, []  # a Ctrl-C before the code begins is the caller's

    def with_signal(self: PythonSampler, function: object) -> int:
        if begun:
            signal.raise_signal(signal.SIGINT)
        return plain(self, function)

    with_signal.__code__ = with_signal.__code__.replace(co_name="_c_function")
    monkeypatch.setattr(PythonSampler, "_c_function", with_signal)
    outcome = profiled(
        "import time\nbegun.append(1)\nfor _ in range(2000): time.sleep(0.002)", {"begun": begun}, python=True
    )
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert sys.getprofile() is None


@pytest.mark.parametrize("ending", ["signal.raise_signal(signal.SIGINT)", "1 / 0"])
def test_another_interrupt_while_the_profile_is_made_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Who is impatient presses Ctrl-C twice: what was measured until the first is kept."""
    settle = profiling_run.settled
    again: list[object] = []

    def interrupted(made: Any) -> None:
        again.append(made)
        signal.raise_signal(signal.SIGINT)
        settle(made)

    monkeypatch.setattr(profiling_run, "settled", interrupted)
    outcome = profiled(f"import signal\n{ending}", {})
    assert again
    assert isinstance(outcome.error, KeyboardInterrupt if "signal" in ending else ZeroDivisionError)
    assert outcome.profile.partial


def test_a_profiler_of_the_users_is_left_alone_and_said() -> None:
    def users(frame: object, event: str, arg: object) -> None:
        pass

    sys.setprofile(users)
    try:
        made = profiled(f"{BURN}burn(0.003)", {}, python=True).profile
        assert sys.getprofile() is users
    finally:
        sys.setprofile(None)
    assert made.python is not None
    assert made.python.empty
    (doubt,) = (each for each in made.warnings if each.kind == "python-hook-held")
    assert "another profiler" in doubt.text
    assert "\n" not in doubt.text


def test_code_that_takes_the_hook_is_told_how_far_the_tree_goes() -> None:
    made = profiled(f"{BURN}import sys\nburn(0.02)\nsys.setprofile(None)\nburn(0.02)", {}, python=True).profile
    assert made.python is not None
    assert_adds_up(made)
    assert 0.02 - SHORT <= total(made.python, "burn") <= row_of(made, "burn(0.02)") + SHORT
    assert "python-hook-lost" in {each.kind for each in made.warnings}


def row_of(made: Profile, source: str) -> float:
    return float(made.lines.loc[made.lines["source"] == source, "wall_time"].iloc[0])


def test_a_body_shorter_than_the_interval_is_said_to_be_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = sampler.PythonSampler.stop
    monkeypatch.setattr(sampler.PythonSampler, "stop", lambda self: replace(stop(self), interval=10**15))
    made = profiled("x = 1", {}, python=True).profile
    assert made.python is not None
    assert made.python.empty
    (doubt,) = (each for each in made.warnings if each.kind == "python-too-short")
    assert doubt.text.startswith("No Python tree")


def test_of_few_samples_the_tree_is_said_to_be_rough() -> None:
    every = "the stack is sampled every 1.00 ms"
    wanted = {
        0: "No Python tree: the code took",
        999: f"No Python tree: the code took 999 µs, and {every}. Run it in a loop.",
        1000: f"The Python tree is rough: the code took 1.00 ms, and {every}.",
        19_999: f"The Python tree is rough: the code took 20.0 ms, and {every}.",
        20_000: "",
    }
    for us, said in wanted.items():
        run: Any = SimpleNamespace(joined=SimpleNamespace(wall=1000 * us, begin=0))
        found = doubts_of_sampling(sampler.SampleRecord(moments=[1] * (us > 0)), run)
        assert [each.text.startswith(said) for each in found] == [True] * bool(said), (us, found)
        assert {each.kind for each in found} <= {"python-too-short"}


def test_without_the_option_nothing_is_sampled() -> None:
    seen: dict[str, Any] = {}
    made = profiled("import sys\nhook = sys.getprofile()", seen).profile
    assert made.python is None
    assert seen["hook"] is None


@pytest.mark.parametrize("options", [{}, {"schedule": "wait=1,active=1"}])
def test_without_pyinstrument_nothing_runs(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    for name in ("pyinstrument", "pyinstrument.low_level", "pyinstrument.low_level.stat_profile"):
        monkeypatch.setitem(sys.modules, name, None)
    ran: list[int] = []
    with pytest.raises(MissingTool, match=r"python -m pip install 'torchbench_magic\[python\]'") as raised:
        profile(lambda: ran.append(1), python=True, **options)
    assert not ran
    assert "\n" not in str(raised.value)


def test_a_callable_of_a_script_is_the_root() -> None:
    def work() -> None:
        called: Callable[[], float] = lambda: sum(range(200_000))
        for _ in range(3):
            called()

    tree = profile(work, python=True).python
    assert tree is not None
    assert tree["function"][0].endswith("work")
    assert "sum" in set(tree["function"])


def test_line_times_stay_beside_it() -> None:
    outcome = profiled(f"{BURN}burn(0.003)", {}, python=True)
    assert row(outcome, 6)["calls"] == 1
    assert row(outcome, 6)["wall_time"] >= 0.003


# ==== sampler =========================================================================================================
# When the stack is looked at and when it is sampled: by a clock that a test sets.


US = 1000


class Clock:
    """Wall time in ns, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_790_000_000 * 10**9

    def time_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(sampler, "time", SimpleNamespace(time_ns=made.time_ns))
    yield made
    sys.setprofile(None)


def loop(clock: Clock, *, short: int, long: int, times: int) -> SampleRecord:
    """So many turns of ``short`` us in calls of 10 us, then one call of ``long`` us, as the hook hears of them."""
    taken = PythonSampler(SimpleNamespace)  # type: ignore[arg-type]
    taken._began = taken._looked = taken._due = clock.now
    taken._next_due()

    def parse() -> None:
        clock.now += 10 * US
        if clock.now - taken._looked >= sampler.LOOK * 1e9:  # as pyinstrument's function does
            taken._look(sys._getframe(), "return", None)

    def wait() -> None:
        clock.now += long * US
        taken._look(sys._getframe(), "return", None)

    for _ in range(times):
        for _ in range(short // 10):
            parse()
        wait()
    return taken.stop()


def ms_of(record: SampleRecord) -> dict[str, float]:
    import numpy as np

    columns = [np.array(column, dtype=np.int64) for column in (record.moments, record.begins, record.dues)]
    moments = np.append(record.began, columns[0])
    none = np.zeros(0, dtype=np.int64)
    whole, _ = sampled_times(
        moments, columns[1], columns[2], (none, none), lambda at: active_before(at, record.began, int(moments[-1]))
    )
    found: dict[str, float] = {}
    for stack, ns in zip(record.stacks, whole.tolist(), strict=True):
        name = record.places[record.functions[stack]].name.rpartition(".")[2]
        found[name] = found.get(name, 0.0) + ns / 1e6
    return found


@pytest.mark.parametrize(("short", "long"), [(800, 2000), (400, 5000), (900, 300), (2500, 1000)])
def test_short_work_before_each_long_call_is_no_part_of_the_call(clock: Clock, short: int, long: int) -> None:
    """Once a sample was due an interval after the last one: 0.8 ms before each sleep of 2 ms counted as the sleep's."""
    found = ms_of(loop(clock, short=short, long=long, times=400))
    assert found["parse"] == pytest.approx(0.4 * short, rel=0.15)
    assert found["wait"] == pytest.approx(0.4 * long, abs=0.4 * 100 + 2)  # a look's length a turn


def test_samples_are_as_many_as_intervals_and_stretches(clock: Clock) -> None:
    record = loop(clock, short=1000, long=2000, times=300)
    assert sum(begin > 0 for begin in record.begins) == 300
    assert sum(due > 0 for due in record.dues) == pytest.approx(300, abs=5)
    assert all((begin > 0) != (due > 0) for begin, due in zip(record.begins, record.dues, strict=True))


# ==== sampled time ====================================================================================================
# What a sample stands for, and how much of that is torch's: by numbers that can be counted by hand (ns).


MS = 1_000_000
HOURS = 1_790_000_000 * 10**9  # Unix ns, where a float has steps of 256 ns


def ints(*values: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([HOURS + round(value * MS) for value in values], dtype=np.int64)


def times(
    samples: list[tuple[str, float, float]], spans: list[tuple[float, float]], **of_run: object
) -> tuple[list[float], list[float]]:
    """(whole, torch) in ms. A sample is ("stretch", its begin, its end) or ("due", when it was due, when it was taken);
    sampling begins at 0."""
    run = {"begin": HOURS, "end": HOURS + 1000 * MS} | of_run
    starts, ends = (ints(*edges) for edges in zip(*spans, strict=True)) if spans else (ints(), ints())
    active = partial(active_before, **run)  # type: ignore[arg-type]
    moments = ints(0, *(taken for _, _, taken in samples))
    firsts = ints(*(first for _, first, _ in samples))
    is_stretch = np.array([kind == "stretch" for kind, _, _ in samples])
    begins, dues = np.where(is_stretch, firsts, 0), np.where(is_stretch, 0, firsts)
    whole, torch = sampled_times(moments, begins, dues, (starts, ends), active)
    return [each / MS for each in whole.tolist()], [each / MS for each in torch.tolist()]


def test_a_sample_that_was_due_stands_for_the_time_since_the_due_moment_before_it_without_stretches() -> None:
    """0.6 ms of short work, a call of 4 ms, 0.5 ms of short work: a sample is due after 1 ms of short work."""
    assert times([("due", 1, 1.1), ("due", 2.25, 2.25), ("due", 3, 3.2)], []) == ([1, 1.25, 0.75], [0, 0, 0])
    assert times([("stretch", 0.6, 4.6), ("due", 5, 5.1)], []) == ([4, 1], [0, 0])


def test_of_a_stretch_the_part_in_torch_is_known_and_what_is_due_was_in_torch_or_was_not() -> None:
    assert times([("stretch", 0.6, 4.6)], [(0.9, 4)]) == ([4], [3.1])
    assert times([("due", 1, 1.1), ("due", 2, 2.1)], [(0.9, 1.05), (1.3, 1.9)]) == ([1, 1], [1, 0])


def test_ops_in_ops_count_once_in_any_order() -> None:
    assert times([("stretch", 0, 10)], [(3, 4), (0.5, 9), (8.5, 9.25)]) == ([10], [8.75])


def test_an_op_of_nanoseconds_is_not_lost_in_the_size_of_the_clock() -> None:
    whole, torch = times([("stretch", 0, 1.00002)], [(1.000001, 1.000011)])
    assert (round(whole[0] * MS), round(torch[0] * MS)) == (1_000_020, 10)


def test_only_the_time_of_the_run_counts() -> None:
    of_run = {"begin": HOURS + 2 * MS, "end": HOURS + 8 * MS}
    samples = [("due", 1, 1.0), ("stretch", 1, 4), ("due", 20, 20.0)]
    assert times(samples, [], **of_run) == ([0, 2, 4], [0, 0, 0])
    left_out = [(HOURS + 5 * MS, HOURS + 6 * MS), (HOURS + 5.5 * MS, HOURS + 7 * MS)]
    left_out = [(round(begin), round(end)) for begin, end in left_out]
    assert times(samples, [], **of_run, left_out=left_out) == ([0, 2, 2], [0, 0, 0])


def test_torch_is_never_more_than_the_time_of_the_run() -> None:
    whole, torch = times([("stretch", 0, 20)], [(0, 20)], end=HOURS + 8 * MS)
    assert (whole, torch) == ([8], [8])


def test_an_op_in_which_a_sample_was_taken_runs_python_itself() -> None:
    starts, ends = ints(0, 1, 5), ints(10, 2, 6)
    assert without_callers(starts, ends, ints(0, 3, 5.999)).tolist() == [False, True, True]  # 3 lies within the first


def idle(moments: list[float], wanted: list[float]) -> list[float]:
    return [each / MS for each in idle_times(ints(*moments), ints(*wanted)).tolist()]


def test_idle_is_what_the_wall_clock_moved_and_the_wish_for_a_core_did_not() -> None:
    assert idle([0, 1, 2, 12], [5, 6, 6.5, 6.5]) == [0, 0.5, 10]


def test_a_wait_between_the_two_readings_of_a_sample_is_no_idleness() -> None:
    """The thread is set aside for 3 ms after the wall clock was read: it is on the other clock first."""
    assert idle([0, 1, 2, 6, 7], [0, 1, 5, 6, 7]) == [0, 0, 0, 0]
    assert idle([0, 1, 2, 16, 17], [0, 1, 5, 6, 7]) == [0, 0, 10, 0]


def test_idleness_before_a_stretch_that_has_no_room_for_it_is_of_the_next_sample_between_stretches() -> None:
    """An op of torch of 5 ms is no idleness: the 0.1 ms were a nap before it."""
    idle_ms, room, is_stretch = np.array([3, 2, 1, 0]), np.array([1, 0, 9, 5]), np.array([True, True, False, False])
    assert waited(idle_ms, room, is_stretch).tolist() == [1, 0, 5, 0]
