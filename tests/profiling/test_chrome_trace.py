"""Traces as files: what is exported is valid, what is read back is torch's own and ours."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from torchbench_magic import load_trace, profile
from torchbench_magic.errors import TraceError
from torchbench_magic.printable import printable
from torchbench_magic.profiling import chrome_trace
from torchbench_magic.profiling.cores.verdict import Concurrency, CoreUse
from torchbench_magic.profiling.kineto import profiler_silenced
from torchbench_magic.profiling.profile import Profile

from .profiles import profile_of_two_kernels

# ==== chrome trace ====================================================================================================
# Exported traces: always valid, read by torch's own readers, complete or not there.


AWKWARD = 'say "hi"\n</script><!-- \u2028 \\ \x00 \udc80'


def exported(profile: Profile, folder: Path, name: str = "trace.json") -> dict[str, Any]:
    profile.export_trace(folder / name)
    raw = (folder / name).read_bytes()
    return json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)


def events(trace: dict[str, Any], **wanted: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if all(event.get(key) == value for key, value in wanted.items())]


def check_format(trace: dict[str, Any]) -> None:
    """What the Trace Event Format asks of every event."""
    ends = defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["ph"] in "XMCsf"
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["tid"], int)
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
        assert isinstance(event["ts"], (int, float))
    for first, second in ends.values():  # one start, one finish, in this order
        assert (first["ph"], second["ph"], second["bp"]) == ("s", "f", "e")
        assert first["ts"] <= second["ts"]


def test_ops_runtime_calls_and_kernels_stand_on_their_tracks(tmp_path: Path) -> None:
    trace = exported(profile_of_two_kernels(), tmp_path)
    check_format(trace)
    (op,) = events(trace, name="aten::mm")
    assert (op["cat"], op["pid"], op["tid"], op["ts"], op["dur"]) == ("cpu_op", 4000, 4242, 1000.0, 2000.0)
    assert op["args"]["line"] == "In[3]:2"
    assert [event["ts"] for event in events(trace, cat="cuda_runtime")] == [2000.0, 5500.0]
    (kernel,) = events(trace, name="gemm")
    assert (kernel["cat"], kernel["pid"], kernel["tid"]) == ("kernel", 0, 7)
    assert kernel["args"]["line"] == "In[3]:2"


def test_an_arrow_leads_from_each_launch_to_its_kernel(tmp_path: Path) -> None:
    trace = exported(profile_of_two_kernels(), tmp_path)
    starts, ends = (events(trace, ph=phase, cat="ac2g") for phase in "sf")
    assert [(event["ts"], event["tid"]) for event in starts] == [(2000.0, 4242), (5500.0, 4242)]
    assert [(event["ts"], event["pid"], event["tid"]) for event in ends] == [(4000.0, 0, 7), (9000.0, 0, 7)]


def test_lines_are_ranges_on_a_track_called_cell_lines(tmp_path: Path) -> None:
    trace = exported(profile_of_two_kernels(), tmp_path)
    lines = events(trace, cat="cell_line")
    assert [line["name"] for line in lines] == [
        "In[3]:2  y = x @ x",
        "In[3]:3  z = y.relu()",
        "In[3]:4  torch.cuda.synchronize()",
    ]
    (tid,) = {line["tid"] for line in lines}
    (track,) = (event for event in events(trace, ph="M", name="thread_name") if event["tid"] == tid)
    assert track["args"]["name"] == "cell lines"


def test_whatever_is_in_a_name_the_file_is_valid_and_strict_readers_take_it(tmp_path: Path) -> None:
    trace = exported(profile_of_two_kernels(AWKWARD), tmp_path)
    check_format(trace)
    (name,) = {event["name"] for event in events(trace, cat="cpu_op")} - {"aten::relu"}
    assert name == printable(AWKWARD)
    text = (tmp_path / "trace.json").read_text(encoding="ascii")
    assert "<" not in text
    name.encode("utf-8")


def test_memory_is_a_counter_of_each_device(tmp_path: Path) -> None:
    from torchbench_magic.profiling.schema import MEMORY_COLUMNS, frame_of

    memory = frame_of(MEMORY_COLUMNS, {"time": [0.001, 0.002], "bytes": [400, 0], "device": ["cpu", "cpu"]})
    counters = events(exported(profile_of_two_kernels(memory=memory), tmp_path), ph="C")
    assert [(c["name"], c["ts"], c["args"]["bytes"]) for c in counters] == [
        ("bytes on cpu", 1000.0, 400),
        ("bytes on cpu", 2000.0, 0),
    ]


def test_threads_are_a_counter_that_holds_from_the_start_of_each_stretch(tmp_path: Path) -> None:
    timeline = pd.DataFrame({"time": [0.002, 0.004], "running": [2.0, 1.5], "waiting": [0.0, 1.234], "workers": 0.0})
    seen = Concurrency("oversubscribed", CoreUse(cores=2), timeline)
    counters = events(exported(profile_of_two_kernels(concurrency=seen), tmp_path), ph="C", name="threads")
    assert [(c["ts"], c["args"]["running"], c["args"]["waiting for a core"]) for c in counters] == [
        (0.0, 2.0, 0.0),
        (2000.0, 1.5, 1.23),
        (4000.0, 0, 0),
    ]


def test_a_name_that_ends_in_gz_is_gzip_with_the_same_content(tmp_path: Path) -> None:
    profile = profile_of_two_kernels()
    assert exported(profile, tmp_path, "trace.json.gz") == exported(profile, tmp_path)


def test_a_trace_may_be_exported_again(tmp_path: Path) -> None:
    profile = profile_of_two_kernels()
    assert exported(profile, tmp_path) == exported(profile, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_torch_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("torch.profiler._trace_validator")  # not in torch 2.8 and 2.9
    from torch._inductor.analysis.profile_analysis import JsonProfile
    from torch.profiler._trace_validator import validate_trace

    profile = profile_of_two_kernels(AWKWARD)
    for name in ("trace.json", "trace.json.gz"):
        profile.export_trace(tmp_path / name)
        passed, violations = validate_trace(str(tmp_path / name))
        assert passed, violations
    read = JsonProfile(str(tmp_path / "trace.json"))
    assert len([event for event in read.events if event.get("cat") == "kernel"]) == 2
    read._compute_stats()
    assert [device.index if hasattr(device, "index") else number for number, device in read._devices.items()] == [0]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no device that is always full")
    old = '{"traceEvents": []}'
    (tmp_path / "trace.json").write_text(old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chrome_trace, "opened_trace", lambda path, level: Path("/dev/full").open("w"))  # noqa: SIM115
        with pytest.raises(TraceError, match="the disk is full"):
            profile_of_two_kernels().export_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == old
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:  # root may write everywhere
        patch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(TraceError, match=r"read-only; use another name$"):
            profile_of_two_kernels().export_trace(folder / "trace.json")
    with pytest.raises(TraceError, match="does not exist"):
        profile_of_two_kernels().export_trace(tmp_path / "none" / "trace.json")
    with pytest.raises(TraceError, match="is a folder; name a file in it"):
        profile_of_two_kernels().export_trace(folder)


def test_an_interrupt_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chrome_trace, "_memory", interrupted)
        with pytest.raises(KeyboardInterrupt):
            profile_of_two_kernels().export_trace(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_a_profile_without_events_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace to export"):
        profile_of_two_kernels(trace=None).export_trace(tmp_path / "trace.json")


# ==== load trace ======================================================================================================
# Stored traces: torch's own and ours read back, damaged and foreign files told apart.


MS = 1000.0  # us


def step(x: Any) -> None:
    with torch.profiler.record_function("say hi"):
        (x @ x).relu().sum().backward()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A trace of torch's profiler, and the profiler."""
    x = torch.randn(64, 64, requires_grad=True)
    with profiler_silenced(), torch.profiler.profile(profile_memory=True, record_shapes=True) as profiler:
        for _ in range(3):
            step(x)
    path = tmp_path_factory.mktemp("torch") / "trace.json"
    profiler.export_chrome_trace(str(path))
    return path, profiler


def test_ops_of_a_trace_are_those_of_torchs_own_table(recorded: tuple[Path, Any]) -> None:
    path, profiler = recorded
    ops = load_trace(path).ops.groupby("op")[["calls", "self_cpu_time", "cpu_time"]].sum()
    table = {entry.key: entry for entry in profiler.key_averages() if not entry.key.startswith("[memory]")}
    assert Counter({op: int(n) for op, n in ops["calls"].items()}) == Counter({k: e.count for k, e in table.items()})
    for key, entry in table.items():
        assert ops.loc[key, "self_cpu_time"] * 1e6 == pytest.approx(entry.self_cpu_time_total, rel=0.02, abs=1)


def test_a_quote_that_torch_left_in_a_name_is_said(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [op("say hi", 0, 1, 1), op("aten::mm", 2, 1, 2)]})
    (tmp_path / "t.json").write_text(text.replace("say hi", 'say "hi"'))
    with pytest.raises(TraceError, match=r'its JSON is not valid near .*say "hi'):
        load_trace(tmp_path / "t.json")


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
