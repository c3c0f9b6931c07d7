"""Stored traces: torch's own and ours read back, damaged and foreign files told apart."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torch._C._profiler import _ExperimentalConfig  # noqa: E402

from torchbench_magic import load_trace, profile  # noqa: E402
from torchbench_magic.errors import TraceError  # noqa: E402
from torchbench_magic.profiling.kineto import profiler_silenced  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402

MS = 1000.0  # us


def step(x: Any) -> None:
    with torch.profiler.record_function('say "hi"'):
        (x @ x).relu().sum().backward()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A trace of torch's profiler, with a quote in a name, and the profiler."""
    x = torch.randn(64, 64, requires_grad=True)
    with profiler_silenced(), torch.profiler.profile(profile_memory=True, record_shapes=True) as profiler:
        for _ in range(3):
            step(x)
    path = tmp_path_factory.mktemp("torch") / "trace.json"
    profiler.export_chrome_trace(str(path))
    return path, profiler


def is_valid(path: Path) -> bool:
    """Torch's file as it is: not so with a quote in a name up to torch 2.13, with other quotes in torch 2.15."""
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


def test_ops_of_a_trace_are_those_of_torchs_own_table(recorded: tuple[Path, Any]) -> None:
    path, profiler = recorded
    ops = load_trace(path).ops.groupby("op")[["calls", "self_cpu_time", "cpu_time"]].sum()
    table = {entry.key: entry for entry in profiler.key_averages() if not entry.key.startswith("[memory]")}
    if is_valid(path):  # torch 2.15 writes other quotes into the file
        table = {key.replace('"', "'"): entry for key, entry in table.items()}
    assert Counter({op: int(n) for op, n in ops["calls"].items()}) == Counter({k: e.count for k, e in table.items()})
    for key, entry in table.items():
        assert ops.loc[key, "self_cpu_time"] * 1e6 == pytest.approx(entry.self_cpu_time_total, rel=0.02, abs=1)


def test_a_trace_that_a_quote_made_invalid_is_read_and_it_is_said(recorded: tuple[Path, Any]) -> None:
    path, _ = recorded
    loaded = load_trace(path)
    if is_valid(path):
        assert loaded.ranges == ("say 'hi'",)
        assert "trace-mended" not in [doubt.kind for doubt in loaded.warnings]
        return
    assert loaded.ranges == ('say "hi"',)
    (doubt,) = (doubt for doubt in loaded.warnings if doubt.kind == "trace-mended")
    assert doubt.facts == {"events": 3}


def test_bytes_and_shapes_of_a_trace_are_there(recorded: tuple[Path, Any]) -> None:
    path, profiler = recorded
    loaded = load_trace(path)
    assert loaded.memory is not None
    allocated = sum(event.nbytes() for event in profiler.profiler.kineto_results.events() if event.nbytes() > 0)
    assert loaded.ops["allocated"].sum() <= allocated
    assert loaded.ops[loaded.ops["op"] == "aten::mm"]["allocated"].sum() == 3 * 3 * 64 * 64 * 4
    assert "[[64, 64], [64, 64]]" in set(loaded.ops["input_shapes"])
    assert loaded.options.memory
    assert loaded.options.shapes


def test_a_trace_without_stacks_has_no_lines_and_says_why(recorded: tuple[Path, Any]) -> None:
    loaded = load_trace(recorded[0])
    assert loaded.lines.empty
    assert loaded.warnings[0].kind == "no-lines"
    assert "holds no lines of the code" in str(loaded)


def test_a_trace_may_be_gzip_whatever_its_name(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    for name in ("trace.json.gz", "trace"):
        (tmp_path / name).write_bytes(gzip.compress(recorded[0].read_bytes()))
        pd.testing.assert_frame_equal(load_trace(tmp_path / name).ops, load_trace(recorded[0]).ops)


def test_ops_of_a_trace_with_stacks_stand_on_the_function_they_ran_in(tmp_path: Path) -> None:
    x = torch.randn(16, 16, requires_grad=True)

    def inner() -> Any:
        return (x @ x).sum()

    def outer() -> None:
        inner().backward()

    options = {"with_stack": True, "experimental_config": _ExperimentalConfig(verbose=True)}
    with profiler_silenced(), torch.profiler.profile(**options) as profiler:
        outer()
        outer()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    loaded = load_trace(tmp_path / "trace.json")
    lines = loaded.lines.set_index("source")
    assert lines.loc["def inner", "line"] == inner.__code__.co_firstlineno
    assert (lines.loc["def inner", "calls"], lines.loc["def outer", "calls"]) == (2, 2)
    ops = loaded.ops[loaded.ops["line"] == inner.__code__.co_firstlineno]
    assert set(ops["op"]) >= {"aten::mm", "aten::sum"}
    assert "MmBackward0" not in set(ops["op"])
    assert lines.loc["def inner", "backward_cpu_time"] > 0
    assert loaded.warnings[0].kind == "lines-of-functions"


def test_our_trace_comes_back_as_the_profile_it_was(tmp_path: Path) -> None:
    text = "y = x @ x\nfor _ in range(3):\n    y = y.relu()"
    made = profile(text, globals={"x": torch.ones(8, 8)}, memory=True, shapes=True)
    for name in ("trace.json", "trace.json.gz"):
        made.export_trace(tmp_path / name)
        loaded = load_trace(tmp_path / name)
        for table in ("lines", "ops", "memory"):
            pd.testing.assert_frame_equal(getattr(loaded, table), getattr(made, table))
        assert loaded.trace is not None
        assert made.trace is not None
        pd.testing.assert_frame_equal(loaded.trace.events, made.trace.events)
        assert dict(loaded.sources) == dict(made.sources)


# ---- devices, from a trace as a machine with one writes it ------------------------------------------------------


def op(name: str, ts: float, dur: float, external: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur,
            "args": {"External id": external, **args}}  # fmt: skip


def call(name: str, ts: float, correlation: int, external: int = 0) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": 5,
            "args": {"correlation": correlation, "External id": external}}  # fmt: skip


def kernel(name: str, ts: float, dur: float, correlation: int, external: int = 0, stream: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": stream, "correlation": correlation, "External id": external}}  # fmt: skip


def write(path: Path, events: list[Any], **keys: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **keys, "traceEvents": events, "traceName": "t"}))
    return path


def test_device_time_of_a_trace_stands_on_the_op_that_launched_it(tmp_path: Path) -> None:
    events = [
        op("aten::linear", 0, 2 * MS, 1),
        op("aten::addmm", 100, 1.5 * MS, 2),
        call("cudaLaunchKernel", 200, 71, 2),
        kernel("gemm", 30 * MS, 4 * MS, 71, 2),  # long after the op has ended
        op("aten::relu", 3 * MS, 1 * MS, 3),
        call("cudaLaunchKernel", 3.2 * MS, 72),
        kernel("relu", 34 * MS, 1 * MS, 72, stream=20),  # known only by the call that launched it
        call("cudaDeviceSynchronize", 5 * MS, 73),
    ]
    loaded = load_trace(write(tmp_path / "t.json", events))
    ops = loaded.ops.set_index("op")
    assert ops["self_device_time"].to_dict() == {"aten::addmm": 0.004, "aten::relu": 0.001, "aten::linear": 0.0}
    assert ops.loc["aten::linear", "device_time"] == pytest.approx(0.004)
    assert not [name for name in ops.index if name.startswith("cuda")]  # runtime calls are no ops
    trace = loaded.trace
    assert trace is not None
    assert int(trace.is_kind("runtime").sum()) == 3
    assert [(t.device, t.name) for t in trace.tracks if t.device] == [("cuda:0", "stream 7"), ("cuda:0", "stream 20")]


def test_times_of_a_trace_count_from_the_base_that_it_names(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [op("aten::mm", 1.5, 2, 1)], baseTimeNanoseconds=1_790_000_000_000_000_000)
    trace = load_trace(path).trace
    assert trace is not None
    assert (trace.begin, trace.events["duration"].tolist()) == (1_790_000_000_000_001_500, [2000])


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps([op("aten::mm", 0, 2, 1)]))
    assert load_trace(tmp_path / "t.json").ops["op"].tolist() == ["aten::mm"]


# ---- files that cannot be read ----------------------------------------------------------------------------------


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda good: b"", "is empty"),
        (lambda good: cut(good), "is cut off"),
        (lambda good: good[:-40], "is cut off"),
        (lambda good: cut(gzip.compress(good)), "its gzip data is broken"),
        (lambda good: gzip.compress(good)[:-12] + b"x" * 12, "its gzip data is broken"),
        (lambda good: gzip.compress(good)[:20] + b"\0" * 400, "its gzip data is broken"),
        (lambda good: b"\x80\x04K\x01.", "is not a Chrome trace: it is not JSON"),
        (lambda good: b"ncalls  tottime", "is not a Chrome trace: it is not JSON"),
        (lambda good: b'{"shared": {"frames": []}, "profiles": []}', "it has no traceEvents"),
        (lambda good: b'{"traceEvents": []}', "holds no events"),
        (lambda good: b'{"traceEvents": [{"ph": "X", "cat": "v8", "name": "a", "ts": 1, "dur": 2}]}', "events of v8"),
        (lambda good: b'{"traceEvents": [{"ph": }]}', "is cut off|is not valid"),
        (lambda good: b'{"torchbench_magic": {"layout": 1, "version": 1}, "traceEvents": []}', "is damaged"),
        (lambda good: b'{"torchbench_magic": {"layout": 9, "version": 1}}', "a newer torchbench_magic"),
    ],
)
def test_a_file_that_is_no_trace_is_one_line(tmp_path: Path, content: Callable[[bytes], bytes], said: str) -> None:
    good = json.dumps({"traceEvents": [op(f"aten::op{n}", n, 1, n) for n in range(50)]}).encode()
    (tmp_path / "t.json").write_bytes(content(good))
    with pytest.raises(TraceError, match=said) as caught:
        load_trace(tmp_path / "t.json")
    assert "\n" not in str(caught.value)
    assert "t.json" in str(caught.value)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "none.json")
    with pytest.raises(TraceError, match="is a folder"):
        load_trace(tmp_path)


def test_strange_values_in_events_do_no_harm(tmp_path: Path) -> None:
    odd = [
        {"ph": "X", "cat": "cpu_op", "name": None, "tid": "python", "ts": "x", "dur": None, "args": "none"},
        {"ph": "X", "cat": "cpu_op", "name": ["a"], "ts": 1e300, "dur": float("inf")},
        {"ph": "i", "name": "[memory]", "ts": 1, "args": {"Bytes": 1e400}},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -5, "args": {"stream": -1}},
        "text",
        None,
    ]
    loaded = load_trace(write(tmp_path / "t.json", [op("aten::mm", 0, 2, 1), *odd]))
    assert "aten::mm" in loaded.ops["op"].tolist()
    assert np.isfinite(loaded.ops["cpu_time"]).all()
    assert isinstance(loaded, Profile)
