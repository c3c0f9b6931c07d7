"""Kernels, copies and graphs on a real device: run wherever there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import load_trace, profile  # noqa: E402

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is available"),
]


def test_kernels_stand_on_the_line_that_launched_them() -> None:
    x = torch.randn(2048, 2048, device="cuda")
    code = "y = x @ x\ntorch.cuda.synchronize()\nz = y.sin()\ntorch.cuda.synchronize()"
    made = profile(code, globals={"x": x, "torch": torch})
    table = made.device_events
    by_line = table[table["kind"] == "kernel"].groupby("line")["time"].sum()
    assert set(by_line.index) == {1, 3}
    lines = made.lines.set_index("line")
    assert lines.loc[1, "self_device_time"] == pytest.approx(by_line[1])
    assert lines.loc[2, "self_device_time"] == 0
    assert set(table["kind"]) >= {"kernel", "runtime"}
    assert not [op for op in made.ops["op"] if op.startswith("cuda")]


def test_backward_kernels_stand_on_the_backward_line() -> None:
    x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    made = profile("y = (x @ x).sum()\ny.backward()\ntorch.cuda.synchronize()", globals={"x": x, "torch": torch})
    lines = made.lines.groupby("line")["self_device_time"].sum()
    assert lines[1] > 0
    assert lines[2] > 0


def test_the_kernels_of_a_replayed_graph_stand_on_the_replay_line() -> None:
    x = torch.randn(1024, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x @ x
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = (x @ x).sin()
    made = profile("a = 1\ngraph.replay()\ntorch.cuda.synchronize()", globals={"graph": graph, "torch": torch})
    table = made.device_events
    assert set(table[table["kind"] == "kernel"]["line"].dropna()) == {2}
    assert y.shape == (1024, 1024)


def test_a_wait_of_the_host_is_an_idle_gap_on_its_line() -> None:
    import time

    x = torch.randn(1024, 1024, device="cuda")
    code = "y = x @ x\ntorch.cuda.synchronize()\ntime.sleep(0.05)\nz = y @ x\ntorch.cuda.synchronize()"
    made = profile(code, globals={"x": x, "torch": torch, "time": time})
    longest = made.idle.iloc[0]
    assert longest["line"] == 3
    assert longest["duration"] > 0.04


def test_an_exported_trace_has_launches_and_is_read_back(tmp_path: Path) -> None:
    x = torch.randn(512, 512, device="cuda")
    made = profile("y = x @ x\ny.cpu()", globals={"x": x})
    made.export_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"kernel", "gpu_memcpy", "cuda_runtime", "ac2g", "cell_line"} <= {event.get("cat") for event in events}
    assert load_trace(tmp_path / "trace.json").device_events.equals(made.device_events)


def test_torchs_own_trace_gives_the_same_device_time(tmp_path: Path) -> None:
    x = torch.randn(1024, 1024, device="cuda")
    with torch.profiler.profile() as profiler:
        (x @ x).sum()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    read = load_trace(tmp_path / "trace.json")
    table = {entry.key: entry.self_device_time_total / 1e6 for entry in profiler.key_averages()}
    ours = read.ops.groupby("op")["self_device_time"].sum()
    assert ours["aten::mm"] == pytest.approx(table["aten::mm"], rel=0.01)
