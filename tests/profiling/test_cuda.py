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


def work(x: torch.Tensor) -> None:
    for _ in range(20):
        x @ x


def names() -> dict[str, object]:
    x = torch.randn(4096, 4096, device="cuda")
    work(x)
    torch.cuda.synchronize()
    return {"x": x, "torch": torch, "host": torch.randn(512, 512)}


def test_a_profile_ends_when_the_device_has_and_says_that_the_code_ran_ahead() -> None:
    made = profile("for _ in range(20): y = x @ x", globals=names())
    table = made.device_events
    assert made.wall_time >= 0.9 * table.loc[table["kind"] == "kernel", "time"].sum()
    (doubt,) = [each for each in made.warnings if each.kind == "device-after"]
    assert float(str(doubt.facts["seconds"])) > 0.5 * made.wall_time
    assert "launches all of the work of cuda:0" in " ".join(str(made).split())


def test_work_that_was_launched_before_is_no_time_of_the_body() -> None:
    known = names()
    x = known["x"]
    for _ in range(200):
        x @ x  # type: ignore[operator]
    assert profile("z = 1", globals=known).wall_time < 0.1


def test_a_line_that_reads_a_value_is_said_to_wait() -> None:
    made = profile("for _ in range(10):\n    y = x @ x\n    v = y[0, 0].item()", globals=names())
    said = " ".join(str(made).split())
    assert ":2 launches" in said
    assert "the host waits for it at" in said
    assert ":3 takes" not in said


@pytest.mark.parametrize(("line", "cure"), [("z = host.to('cuda')", "pin_memory"), ("z = y.nonzero()", "torch.where")])
def test_a_wait_that_leaves_the_device_idle_has_the_cure_of_its_cause(line: str, cure: str) -> None:
    import time

    code = f"for _ in range(8):\n    y = x @ x\n    {line}\n    time.sleep(0.004)"
    found = [each for each in profile(code, globals=names() | {"time": time}).insights if each.kind == "sync"]
    assert [each.places[0].line for each in found] == [3]
    assert cure in str(found[0].cures)


def test_cores_are_not_blamed_for_a_device_that_works() -> None:
    made = profile("for _ in range(400): y = x @ x\ntorch.cuda.synchronize()", globals=names(), concurrency=True)
    assert made.concurrency is not None
    assert made.concurrency.verdict == "device"
    assert not [each for each in made.insights if not each.places]


def test_a_timing_after_a_profile_says_that_launches_are_slower() -> None:
    from torchbench_magic import compare

    known = names()
    profile("y = x @ x", globals=known)
    kinds = [doubt.kind for doubt in compare({"": "x @ x"}, globals=known, threads=1).warnings]
    assert "after-profile" in kinds
