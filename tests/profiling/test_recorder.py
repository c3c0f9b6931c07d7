"""Recording changes nothing of what it observes; clocks that are set, and processes that are forked, meanwhile."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from torchbench_magic import profile
from torchbench_magic.cell_body import CellText
from torchbench_magic.process import code
from torchbench_magic.profiling import kineto, recorder
from torchbench_magic.profiling.kineto import torch_profiler_runs
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.view import document

from .profiling_text import profiled

pytestmark = pytest.mark.usefixtures("compiled_anew")

# ==== observer ========================================================================================================
# A profile changes nothing of what it observes: what is compiled, random numbers, hooks, modes.


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        return x + self.linear(self.norm(x))


class Breaks(nn.Module):
    """Its forward is compiled in two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def whole(backend: str) -> Callable[[Any], Any]:
    compiled: Callable[[Any], Any] = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend=backend)
    return compiled


def in_place(backend: str) -> Callable[[Any], Any]:
    net = Block()
    net.compile(backend=backend)
    return net


def function(backend: str) -> Callable[[Any], Any]:
    net = Block()
    return torch.compile(lambda x: net(x).sin(), backend=backend)


def part(backend: str) -> Callable[[Any], Any]:
    return nn.Sequential(nn.Linear(4, 4), torch.compile(Block(), backend=backend))


def train_step(backend: str) -> Callable[[Any], Any]:
    """Its frames are compiled while others run, and between them the compiler looks at whatever code it meets."""
    net = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(net.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return torch.compile(step, backend=backend)


def broken(backend: str) -> Callable[[Any], Any]:
    compiled: Callable[[Any], Any] = torch.compile(Breaks(), backend=backend)
    return compiled


def compiled_by(run: Callable[[], object]) -> int:
    """How many frames; cleared first, as torch keeps the last 64 and the number would stand still there."""
    from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

    clear_compilation_metrics()
    run()
    return len(get_compilation_metrics())


def seen(call: Callable[[Any], Any], **options: bool) -> Profile:
    return profile("call(x)", globals={"call": call, "x": torch.ones(2, 4)}, **options)


KINDS = (whole, in_place, function, part, train_step)


@pytest.mark.parametrize(
    ("make", "backend"),
    [
        (broken, "eager"),  # what `make test` compiles: several frames, of which one goes on where another ended
        pytest.param(broken, "aot_eager", marks=pytest.mark.compiler),
        *(pytest.param(make, name, marks=pytest.mark.compiler) for make in KINDS for name in ("eager", "aot_eager")),
    ],
)
def test_a_profile_compiles_exactly_as_many_frames_as_without(make: Callable[..., Any], backend: str) -> None:
    plain = make(backend)
    expected = compiled_by(lambda: plain(torch.ones(2, 4)))
    torch._dynamo.reset()
    call = make(backend)
    assert compiled_by(lambda: seen(call)) == expected, "cold"
    assert compiled_by(lambda: (seen(call), seen(call, memory=True), call(torch.ones(2, 4)))) == 0, "warm"
    torch.compiler.set_stance("fail_on_recompile")
    assert seen(call, shapes=True).warnings is not None


COLD = """\
import sys, torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.Adam(net.parameters())
def step(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
compiled, x = torch.compile(step, backend="aot_eager"), torch.ones(2, 4)
def body():
    for _ in range(3):
        compiled(x)
if sys.argv[1] == "plain":
    body()
else:
    from torchbench_magic import profile
    profile(body, phases=sys.argv[1] == "phases")
from torch._dynamo.utils import counters
print(counters["frames"]["total"], counters["frames"]["ok"])
"""


@pytest.mark.slow
def test_in_a_new_process_the_compiler_meets_no_frame_of_ours() -> None:
    """There it looks at code of torch's own and of the standard library for the first time, and would at ours."""
    met = [
        subprocess.run([sys.executable, "-c", COLD, way], capture_output=True, text=True, check=True).stdout
        for way in ("plain", "lines", "phases")
    ]
    plain, *ours = [int(each.split()[0]) for each in met]
    assert max(ours) <= plain, met  # fewer: what this package imports has run before


def test_a_timed_cell_compiles_exactly_as_many_frames_as_the_call() -> None:
    from torchbench_magic import compare

    call = broken("eager")
    call(torch.ones(2, 4))
    names = {"call": call, "x": torch.ones(2, 4)}
    timed = lambda: compare({"a": "call(x)", "b": "x + 1"}, globals=names, min_run_time=0.01, max_run_time=0.02)
    assert compiled_by(timed) == 0


def test_modules_in_compiled_code_have_no_rows_and_this_is_said() -> None:
    call = broken("eager")
    call(torch.ones(2, 4))
    made = seen(call)
    assert made.modules["name"].tolist() == ["call"]
    assert "compiled-modules" in [doubt.kind for doubt in made.warnings]
    assert "compiled-modules" not in [doubt.kind for doubt in seen(Block()).warnings]


def test_a_module_and_what_it_was_compiled_to_have_the_names_that_the_code_uses() -> None:
    m = Block()
    cm = torch.compile(m, backend="eager")
    x = torch.ones(2, 4)
    for text, expected in (("m(x)", ["m", "m.norm", "m.linear"]), ("cm(x)", ["cm"])):
        names = {"cm": cm, "m": m, "x": x}
        assert profile(text, globals=names).modules["name"].tolist() == expected
    model = nn.Sequential(Block())
    made = profile("head(x)", globals={"model": model, "head": model[0], "x": x})
    assert made.modules["name"].tolist() == ["head", "head.norm", "head.linear"]


def test_profile_called_in_a_notebook_names_the_cells_of_the_book_that_is_open() -> None:
    cell = CellText.of("def f():\n    return 1\n", "<cell of a notebook>", 7)
    names: dict[str, Any] = {}
    exec(compile(cell.text, cell.file, "exec"), names)
    book = lambda file: cell if file == cell.file else None
    code.open_book(book)
    try:
        assert set(profile(names["f"]).lines["cell"].dropna()) == {7}
    finally:
        code.close_book(book)
    assert code.cell_of(cell.file) is None


def test_a_grouping_that_was_asked_for_is_shown_first() -> None:
    made = profile("y = x @ x\n", globals={"x": torch.ones(8, 8)}, shapes=True)
    assert document(made).tables[0].name == "lines"
    assert document(made, group_by="shape").tables[0].name == document(made).tables[1].name


# ---- random numbers ---------------------------------------------------------------------------------------------

DRAWS = "drawn.append((torch.rand(2).tolist(), np.random.rand(), random.random()))\n"


def test_a_profile_of_any_kind_draws_no_random_numbers() -> None:
    names: dict[str, Any] = {"torch": torch, "np": np, "random": random, "drawn": []}

    def seed() -> None:
        torch.manual_seed(1), np.random.seed(1), random.seed(1)

    def draw() -> Any:
        exec(DRAWS, names)
        return names["drawn"].pop()

    seed()
    expected = [draw() for _ in range(3)]
    for options in ({}, {"memory": True}, {"shapes": True}, {"flops": True}, {"host_memory": True}):
        seed()
        found = [draw()]
        profiled(DRAWS, names, **options)
        found += names["drawn"]
        names["drawn"].clear()
        found.append(draw())
        assert found == expected, options


# ---- hooks, copies, scripts -------------------------------------------------------------------------------------


def test_no_hook_is_registered_meanwhile() -> None:
    names: dict[str, Any] = {"modules": torch_modules, "net": Block(), "x": torch.ones(2, 4), "kept": (kept := [])}
    made = profile("y = net(x)\nkept.append(bool(modules._has_any_global_hook()))", globals=names)
    assert kept == [False]
    assert len(made.modules) == 3


def test_the_users_own_global_hooks_are_called_for_the_users_modules_only() -> None:
    called: list[str] = []
    handle = torch_modules.register_module_forward_hook(lambda module, args, out: called.append(type(module).__name__))
    try:
        profile("net(x)", globals={"net": nn.Identity(), "x": torch.ones(2)})
    finally:
        handle.remove()
    assert called == ["Identity"]


def test_modes_of_the_user_see_the_users_ops_only() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Notes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.ops: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.ops.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Notes() as notes:
        profile("x + 1", globals={"x": x})
    assert notes.ops == ["aten.add.Tensor"]


@pytest.mark.parametrize(
    "text",
    [
        "found = pickle.loads(pickle.dumps(net))(x)",
        "found = copy.deepcopy(net)(x)",
        "new = nn.Linear(4, 4); new.load_state_dict(net.linear.state_dict()); found = new(x)",
        "found = torch.func.functional_call(net, dict(net.named_parameters()), (x,))",
        "found = torch.func.vmap(net)(x)",
        "found = torch.func.grad(lambda x: net(x).sum())(x)",
        "found = torch.jit.trace(net, x)(x)",
    ],
)
def test_what_is_done_to_a_module_gives_the_same_within_a_profile(text: str) -> None:
    names: dict[str, Any] = {"torch": torch, "nn": nn, "pickle": pickle, "copy": copy, "net": Block()}
    names |= {"x": torch.rand(3, 4)}
    plain = dict(names)
    exec(text, plain)
    outcome = profiled(f"{text}\n", names)
    assert outcome.error is None
    assert torch.equal(names["found"], plain["found"])
    assert outcome.profile.modules["name"].notna().all()


def test_a_thread_that_goes_on_after_the_run_is_not_followed_any_more() -> None:
    go, done = threading.Event(), threading.Event()
    net, x = Block(), torch.ones(2, 4)

    def work() -> None:
        net(x)
        go.wait()
        net(x)
        done.set()

    made = profile("threading.Thread(target=work).start()", globals={"threading": threading, "work": work})
    before = len(made.modules)
    go.set()
    done.wait()
    assert len(made.modules) == before


def test_what_a_compiler_left_behind_is_not_asked_for_its_memory_and_nothing_warns() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        left = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profile("x + 1", globals={"x": torch.ones(2)}, memory=True)
    assert left.device.type == "cpu"


def test_a_start_that_fails_leaves_no_profiler_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "living_blocks", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        profile("x + 1", globals={"x": torch.ones(2)}, memory=True)
    assert not torch_profiler_runs()


# ==== clock readings ==================================================================================================
# The clocks as a run is entered and left: one that was set is told, a process that was stopped between two readings is
# not taken for it.


MS = 1_000_000


class Clocks:
    """Two clocks that only reading moves, by 100 ns; one of both may be stopped before a reading, or set."""

    def __init__(self, stops: dict[int, int], set_by: int = 0) -> None:
        self.now, self.readings, self.stops, self.set_by, self.was_set = 0, 0, stops, set_by, 0

    def time_ns(self) -> int:
        return self._read() + 1_790_000_000_000 * MS + self.was_set

    def perf_counter_ns(self) -> int:
        return self._read()

    def _read(self) -> int:
        self.now += 100 + self.stops.get(self.readings, 0)
        self.readings += 1
        return self.now


def run_of(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of 10 ms that was entered and left by these clocks."""
    times = SimpleNamespace(time_ns=clocks.time_ns, perf_counter_ns=clocks.perf_counter_ns, thread_time_ns=lambda: 0)
    times.perf_counter = lambda: 0.0
    monkeypatch.setattr(recorder, "time", times)
    source: Any = SimpleNamespace(name="none", outside_calls=lambda: 0)
    options: Any = SimpleNamespace(python=False, concurrency=False, threads=1, memory=False, shapes=False)
    run = recorder.RecordedRun(source, options, SimpleNamespace(update=print))  # type: ignore[arg-type]
    run.enter()
    clocks.now += 10 * MS
    clocks.was_set = clocks.set_by
    run.leave()
    return run


def test_a_process_that_is_stopped_between_any_two_readings_has_not_set_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stopped in itertools.product([0, 500 * MS], repeat=6):
        run = run_of(Clocks(dict(enumerate(stopped))), monkeypatch)
        assert run.clock_set_by == 0, stopped


@pytest.mark.parametrize("ms", [500, -500])
def test_a_clock_that_was_set_is_told_by_how_much_at_the_least(ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_of(Clocks({}, ms * MS), monkeypatch).clock_set_by == pytest.approx(0.5, abs=1e-6)
    for at in range(6):
        run = run_of(Clocks({at: 100 * MS}, ms * MS), monkeypatch)
        assert 0.4 - 1e-6 <= run.clock_set_by <= 0.5, at


def test_it_is_said_that_no_time_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder.RecordedRun, "clock_set_by", 3600.0)
    (doubt,) = [each for each in profiled("x = 1").profile.warnings if each.kind == "clock-set"]
    assert doubt.text.startswith("The system clock was changed during the run: ")
    assert doubt.text.endswith("No time here is valid.")
    assert doubt.action == "Run it again."


def test_a_body_ends_when_the_device_has_and_begins_when_what_was_launched_before_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, waits = Clocks({}), iter([30 * MS, 46 * MS])

    def wait_for_devices() -> bool:
        clocks.now += next(waits)
        return True

    monkeypatch.setattr(recorder, "wait_for_devices", wait_for_devices)
    run = run_of(clocks, monkeypatch)
    assert run.end - run.begin == pytest.approx(56 * MS, abs=2000)
    assert run.after == pytest.approx(46 * MS, abs=2000)
    assert run.wall_by_other_clock == pytest.approx(0.056, abs=2e-6)
    assert run.clock_set_by == 0


def test_without_a_device_in_use_a_body_ends_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "wait_for_devices", lambda: False)
    run = run_of(Clocks({}), monkeypatch)
    assert run.after == 0
    assert run.end - run.begin == pytest.approx(10 * MS, abs=2000)


def test_what_a_device_does_after_the_code_is_part_of_the_time_and_on_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait at the end is a sleep here; the one before the body is none of its time. As of this package, its lines
    are not recorded."""
    waits: list[int] = []
    text = "def wait_for_devices():\n  time.sleep(0.05)\n  waits.append(1)\n  return True"
    names: dict[str, Any] = {"time": time, "waits": waits}
    exec(compile(text, "/usr/lib/elsewhere.py", "exec"), names)
    monkeypatch.setattr(recorder, "wait_for_devices", names["wait_for_devices"])
    made = profiled("x = 1\ny = 2").profile
    assert len(waits) == 2
    assert made.wall_time >= 0.05
    (doubt,) = [each for each in made.warnings if each.kind == "device-after"]
    assert float(str(doubt.facts["seconds"])) >= 0.05
    assert made.not_attributed >= 0.05
    assert float(made.lines.loc[made.lines["line"].notna(), "wall_time"].sum()) < made.wall_time - 0.05
    assert "attributed" in str(made)
    assert " 0.0 % attributed" not in str(made)


# ==== forked children =================================================================================================
# A process that the profiled code forks runs as it would without the profiler.


HAS_FORK = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
FORKS = """import os, sys, threading
read, write = os.pipe()
child = os.fork()
if not child:
    tool = getattr(sys, "monitoring", None)
    held = [name for name in map(tool.get_tool, range(6)) if name == "torchbench_magic"] if tool else []
    os.write(write, repr((sys.gettrace(), threading.gettrace(), held)).encode())
    os._exit(0)
os.waitpid(child, 0)
said = os.read(read, 1000).decode()
os.close(read); os.close(write)
here = 1
"""


@HAS_FORK
@pytest.mark.parametrize("python", [False, True])
def test_nothing_of_the_recording_is_on_in_a_forked_process_and_all_of_it_in_this_one(python: bool) -> None:
    names: dict[str, object] = {}
    found = profiled(FORKS, names, python=python).profile
    assert names["said"] == "(None, None, [])"
    ran = found.lines.dropna(subset=["line"]).groupby("line")["calls"].sum()
    assert ran[12] == 1, "lines after the fork are recorded in the process that is profiled"
    assert sys.gettrace() is None
    assert threading.gettrace() is None


@HAS_FORK
def test_the_users_own_trace_function_is_on_in_the_child_again() -> None:
    def mine(frame: object, event: str, arg: object) -> None:
        return None

    names: dict[str, object] = {}
    threading.settrace(mine)
    try:
        profiled(FORKS, names)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    assert "mine" in str(names["said"])
