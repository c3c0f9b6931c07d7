"""Torch's profiler by its private names: what it starts, refuses and writes, with this torch and older ones."""

from __future__ import annotations

import ast
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torchbench_magic
from torchbench_magic import profile
from torchbench_magic.errors import Busy
from torchbench_magic.profiling import events, kineto
from torchbench_magic.profiling.kineto import (
    OlderBlocks,
    allocator_silenced,
    profiler_silenced,
    torch_profiler_runs,
    with_missing_getters,
)

# ==== torch profiler ==================================================================================================
# Torch's profiler by its private names: in one module, with a known answer where a name is missing.


PACKAGE = Path(torchbench_magic.__file__).parent
ADAPTER = "profiling/kineto.py"
# the public types of results that the user made himself, and the public profiler that `rank_profile` gives to him
GRAPHS = "profiling/memory/holders.py"  # the class of what a graph has saved lives in the same module of torch's
SHOWING = {GRAPHS, "show/torch_results.py", "notebook/display.py", "cluster/rank_recording.py"}
MODULES = re.compile(r"torch\.(_C\._?(profiler|autograd)|autograd\.profiler|profiler|_kineto)\b")
NAMES = {
    "_autograd", "_profiler", "_KinetoEvent", "_ProfilerEvent", "_ExtraFields_Allocation", "_ExperimentalConfig",
    "_RecordFunctionFast", "_ProfilerResult", "_disable_profiler", "_profiler_enabled", "_is_profiler_enabled",
    "_set_is_profiler_enabled", "record_function",
}  # fmt: skip


WORDS = ("_C", "profiler", "_kineto", *NAMES)
"""A file without any of them has no such name."""


def named(tree: ast.AST) -> Iterator[str]:
    """What the code imports and the attributes of torch's that it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"{alias.name}." for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def is_profilers(name: str) -> bool:
    owned = not name.startswith("self.")
    return bool(MODULES.search(name)) or (owned and not NAMES.isdisjoint(name.split(".")[1:]))


def test_only_the_adapter_names_torchs_profiler() -> None:
    found = {
        str(path.relative_to(PACKAGE)): sorted(set(filter(is_profilers, named(ast.parse(text)))))
        for path in PACKAGE.rglob("*.py")
        if any(word in (text := path.read_text()) for word in WORDS)
    }
    others = {file: names for file, names in found.items() if names and file != ADAPTER and file not in SHOWING}
    assert others == {}
    assert len(found[ADAPTER]) > 5, "the test sees such names"


def test_every_name_is_there_in_the_torch_that_is_installed() -> None:
    from torch._C import _autograd, _profiler
    from torch.autograd import profiler

    for owner, names in (
        (_profiler, ("_ExperimentalConfig", "_ProfilerEvent", "_ExtraFields_Allocation", "_RecordFunctionFast")),
        (_autograd, ("_KinetoEvent", "_profiler_enabled", "_disable_profiler")),
        (profiler, ("_is_profiler_enabled", "_set_is_profiler_enabled")),
    ):
        assert [name for name in names if not hasattr(owner, name)] == [], torch.__version__
    assert kineto._config({"profile_all_threads": True, "capture_overload_names": True}) is not None


def test_an_option_that_torch_does_not_know_is_left_out() -> None:
    made = kineto._config({"profile_all_threads": True, "no_such_option": True})
    assert made is not None


@pytest.mark.parametrize("missing", ["_RecordFunctionFast", "_ProfilerEvent", "_ExperimentalConfig"])
def test_without_a_name_a_profile_has_its_ops_and_its_bytes(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _profiler

    monkeypatch.delattr(_profiler, missing)
    made = profile("y = x + 1", globals={"x": torch.ones(4)}, memory=True)
    (row,) = made.ops[made.ops["op"] == "aten::add"].itertuples()
    assert (row.calls, row.allocated) == (1, 16)
    assert "events-lost" not in [doubt.kind for doubt in made.warnings]


def test_whether_kernels_of_cuda_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    activities = torch.profiler.ProfilerActivity
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {activities.CPU, activities.CUDA})
    for cuda in ("13.0", None):  # None: built for AMD, whose tracing is another
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert kineto.records_cuda() == (cuda is not None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {activities.CPU})
    assert not kineto.records_cuda()


def test_a_call_that_only_hands_on_to_one_of_its_own_name_is_counted_as_torch_counts_it() -> None:
    def hands_on(x: Any) -> Any:
        with torch.profiler.record_function("again"), torch.profiler.record_function("again"):
            return x + 1

    x = torch.ones(4)
    with torch.profiler.profile() as theirs:
        hands_on(x)
    made = profile(lambda: hands_on(x))
    calls = {each.key: each.count for each in theirs.key_averages()}
    assert made.ops[made.ops["op"] == "again"]["calls"].sum() == calls["again"]


# ==== running profilers ===============================================================================================
# A profiler that runs already is refused and left alone.


def ones() -> None:
    torch.ones(3).exp()


def kinds(result: Any) -> list[str]:
    return [doubt.kind for doubt in result.warnings if doubt.kind != "profiler-cost"]


def refused() -> None:
    with pytest.raises(Busy, match=r"already running; stop it .*`prof\.stop\(\)`"):
        profile(ones)
    assert torch_profiler_runs()


def test_one_that_a_variable_holds_is_refused_and_goes_on() -> None:
    running = torch.profiler.profile()
    running.start()
    refused()
    torch.ones(3).log()
    running.stop()
    assert "aten::log" in {event.key for event in running.key_averages()}
    assert kinds(profile(ones)) == []


def test_one_of_a_with_without_a_name_is_refused() -> None:
    with torch.profiler.profile():
        refused()


def test_one_inside_an_object_of_the_users_is_refused() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.tools = {"profiler": torch.profiler.profile()}

    trainer = Trainer()
    trainer.tools["profiler"].start()
    refused()
    trainer.tools["profiler"].stop()


def test_the_old_profiler_is_refused_too() -> None:
    with torch.autograd.profiler.profile() as running:
        refused()
        torch.ones(3).log()
    assert "aten::log" in {event.key for event in running.key_averages()}


def test_one_that_runs_on_another_thread_is_refused() -> None:
    started, end = threading.Event(), threading.Event()

    def work() -> None:
        with torch.profiler.profile():
            started.set()
            end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    try:
        refused()
    finally:
        end.set()
        thread.join()
    assert not torch_profiler_runs()


def test_one_of_a_suspended_generator_is_refused() -> None:
    def recorded() -> Any:
        with torch.profiler.profile() as running:
            yield running

    generator = recorded()
    next(generator)
    refused()
    generator.close()


# ==== muted stderr ====================================================================================================
# What the profiler writes past Python is held back, and nothing else.


OF_THE_PROFILER = (
    b"USDT:2026-11-21 20:39:43 8496:8496 SyncActivityProfilerHandler.cpp:52] profiler_start\n",
    b"STAGE:2026-11-21 20:39:43 8496:8496 ActivityProfilerController.cpp:314] Completed Stage: Warm Up\n",
    b"ERROR:2026-11-21 21:30:51 17633:17633 DeviceProperties.cpp:50] gpuGetDeviceCount failed with code 35\n",
    b"[W1121 20:41:02.759891361 profiler_kineto.cpp:942] disableProfiler called but no active session found.\n",
)
OF_OTHERS = (
    b"my own line\n",
    b"[W1121 20:41:02.759891361 TensorShape.cpp:12] mind the shape\n",
    b"ERROR: no such file\n",
    b"without an end",
)


def test_the_profilers_lines_are_dropped_and_all_others_come_through() -> None:
    with tempfile.TemporaryFile() as kept:
        real = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            with profiler_silenced():
                for line in (*OF_THE_PROFILER, *OF_OTHERS):
                    os.write(2, line)
        finally:
            os.dup2(real, 2)
            os.close(real)
        kept.seek(0)
        assert kept.read() == b"".join(OF_OTHERS)


def test_the_descriptor_is_put_back_after_an_error() -> None:
    before = os.fstat(2)
    with pytest.raises(KeyError), profiler_silenced():
        raise KeyError
    after = os.fstat(2)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)


# ==== c10 symbols =====================================================================================================
# The private symbols of torch's C++ library: there in the torch that is installed, and done without where not.


def test_the_torch_that_is_installed_shows_them() -> None:
    assert kineto.memory_reporter() is not None
    assert kineto.log_level() is not None


@pytest.mark.parametrize("name", ["_REPORTER", "_NEW", "_DELETE"])
def test_without_one_of_the_reporters_symbols_no_older_block_is_entered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, name, "_ZN3c109elsewhereEv")
    older, kept = OlderBlocks(), torch.ones(1000)
    assert not older.known
    older.enter()
    older.leave()
    assert older.nbytes == 0, kept.shape


def test_without_the_symbol_of_the_log_nothing_is_silenced_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    level = kineto.log_level()
    assert level is not None
    with allocator_silenced():
        assert level.value == 2
    before = level.value
    monkeypatch.setattr(kineto, "_LOG_LEVEL", "FLAGS_elsewhere")
    with allocator_silenced():
        assert level.value == before


def test_a_torch_without_a_library_of_that_name_has_neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert kineto.memory_reporter() is None
    assert kineto.log_level() is None


# ==== older torch =====================================================================================================
# What events of torch before 2.13 do not say is made of what they do say: the same, where torch says both.


MISSING = ("activity_type", "structured_input_shapes", "structured_input_strides")
OUT_OF_STEP = "Can't disable Kineto profiler when it's not running"


def run(x: Any, net: Any) -> None:
    with torch.profiler.record_function("mine"):
        torch.cat([x, x.T, x[::2]])
    torch.split(x, [1, 3]), x.t().mm(x), torch.einsum("ij,jk->ik", x, x)
    net(x).sum().backward()


@pytest.fixture(scope="module")
def results() -> Any:
    prof = torch.profiler.profile(record_shapes=True)
    with prof:
        run(torch.rand(4, 4), torch.nn.Linear(4, 4))
    return prof.profiler.kineto_results


def as_before(kind: Any) -> Any:
    """The class of events without what came later."""
    return SimpleNamespace(
        **{name: getattr(kind, name) for name in dir(kind) if name not in MISSING and not name.startswith("__")}
    )


def test_kinds_shapes_and_strides_are_those_of_torch(results: Any) -> None:
    kind = type(results.events()[0])
    if not hasattr(kind, MISSING[0]):
        pytest.skip("this torch does not say them: nothing to compare with")
    made = with_missing_getters(as_before(kind), results, shapes=True)
    seen = set()
    for event in results.events():
        for name in MISSING if kind.activity_type(event) == "cpu_op" else MISSING[:1]:
            assert getattr(made, name)(event) == getattr(kind, name)(event), (event.name(), name)
        seen.add((event.name(), kind.activity_type(event)))
    assert {("aten::cat", "cpu_op"), ("mine", "user_annotation")} <= seen


def test_without_shapes_inputs_are_empty(results: Any) -> None:
    made = with_missing_getters(as_before(type(results.events()[0])), results, shapes=False)
    assert {str(made.structured_input_shapes(event)) for event in results.events()} == {"[]"}


def test_events_of_a_device_are_told_by_their_names() -> None:
    made = with_missing_getters(SimpleNamespace(), None, shapes=False)

    def kind(name: str, device: int, is_annotation: bool) -> str:
        event = SimpleNamespace(
            name=lambda: name, device_type=lambda: device, is_user_annotation=lambda: is_annotation
        )
        word: str = made.activity_type(event)
        return word

    cuda = 1
    assert kind("void gemm<float>(int)", cuda, False) == "kernel"
    assert kind("Memcpy HtoD (Pageable -> Device)", cuda, False) == "gpu_memcpy"
    assert kind("Memset (Device)", cuda, False) == "gpu_memset"
    assert kind("mine", cuda, True) == "gpu_user_annotation"
    assert kind("cudaLaunchKernel", 0, False) == kind("hipLaunchKernel", 0, False) == "cuda_runtime"
    assert kind("cuLaunchKernel", 0, False) == "cuda_driver"
    assert kind("[memory]", 0, False) == kind("[OutOfMemory]", 0, False) == "cpu_instant_event"
    assert kind("[memory]", 0, True) == "user_annotation"
    assert kind("Activity Buffer Request", 0, False) == "overhead"
    assert kind("aten::mul", 0, False) == kind("custom", 0, False) == "cpu_op"


def out_of_step(*args: Any) -> None:
    raise RuntimeError(OUT_OF_STEP)


def test_a_profiler_in_its_warm_up_is_refused_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    profile("x + 1", globals={"x": torch.ones(3)})
    warming = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1))
    warming.start()
    try:
        monkeypatch.setattr(torch.profiler.profile, "prepare_trace", out_of_step)
        with pytest.raises(Busy, match=r"in its warm-up; stop it first \(`prof\.stop\(\)`\)"):
            profile("x + 1", globals={"x": torch.ones(3)})
        monkeypatch.undo()
        assert warming.profiler.entered
    finally:
        warming.stop()


def test_events_that_another_profiler_took_are_said_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    profile("x + 1", globals={"x": torch.ones(3)})
    theirs = torch.profiler.profile.stop_trace

    def taken(self: Any) -> None:
        theirs(self)
        self.profiler.kineto_results = None
        out_of_step()

    monkeypatch.setattr(torch.profiler.profile, "stop_trace", taken)
    made = profile("x + 1", globals={"x": torch.ones(3)})
    assert "events-lost" in [doubt.kind for doubt in made.warnings]
    assert not kineto.torch_profiler_runs()


def test_another_error_of_torchs_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(torch.profiler.profile, "prepare_trace", fails)
    with pytest.raises(RuntimeError, match="something else"):
        profile("x + 1", globals={"x": torch.ones(3)})


@pytest.mark.parametrize("none", [2**64 - 5, -5])
def test_an_op_whose_time_torch_could_not_tell_is_left_out(none: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of one in which another thread was as the recording ended."""

    plain = events.event_getters

    class Getters:
        def __init__(self, *given: Any, **named: Any) -> None:
            self._plain = plain(*given, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._plain, name)

        def start_ns(self, event: Any) -> int:
            return none if event.name() == "aten::neg" else int(event.start_ns())

    monkeypatch.setattr(events, "event_getters", Getters)
    made = profile("-x; x.exp()", globals={"x": torch.ones(2)})
    assert [*made.ops["op"]] == ["aten::exp"]
