"""What a profile keeps of its events: all of them, on their threads and lines, in little room."""

from __future__ import annotations

import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import load, profile  # noqa: E402

TRAINING = """
for _ in range(100):
    out = model(x)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def training(**options: bool) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    names = {"model": model, "x": torch.ones(4, 8), "optimizer": torch.optim.Adam(model.parameters())}
    return profile(TRAINING, globals=names, **options)


def test_every_op_of_the_table_is_an_event_with_its_line() -> None:
    made = training()
    trace = made.trace
    events = trace.events[trace.is_kind("op", "range")]
    frame = pd.DataFrame(
        {
            "op": [trace.names[n] for n in events["name"]],
            "line": trace.nodes["line"].to_numpy()[events["node"]],
        }
    )
    counted = frame.value_counts().to_dict()
    table = made.ops.groupby(["op", "line"])["calls"].sum().to_dict()
    assert counted == {(op, int(line)): calls for (op, line), calls in table.items()}


def test_events_of_other_threads_are_on_tracks_of_their_own() -> None:
    code = "t = threading.Thread(target=x.sin, name='worker')\nt.start()\nt.join()\nx.cos()"
    trace = profile(code, globals={"threading": threading, "x": torch.ones(4)}).trace
    assert trace is not None
    track = {trace.names[name]: trace.tracks[track] for name, track in trace.events[["name", "track"]].to_numpy()}
    assert track["aten::cos"].name == "MainThread"
    assert track["aten::sin"].thread == 1
    assert track["aten::sin"].ident != track["aten::cos"].ident


def test_a_trace_with_any_name_of_a_range_is_valid(tmp_path: Path) -> None:
    name = 'a "b"\n</script> \\ é'
    code = "with torch.profiler.record_function(name):\n    x.sin()"
    profile(code, globals={"torch": torch, "x": torch.ones(4), "name": name}).export_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    (kept,) = (event for event in events if event.get("cat") == "user_annotation")
    assert "".join(kept["name"].split()) == "".join(name.split())  # torch makes one space of a line end


def test_an_event_takes_less_than_a_kilobyte_in_memory_and_a_hundred_bytes_on_disk(tmp_path: Path) -> None:
    made = training(memory=True, shapes=True)
    assert made.n_events > 10_000
    tables = [getattr(made, item.name) for item in fields(made)]
    tables += [made.trace.events, made.trace.nodes, made.trace.segments]
    held = sum(t.memory_usage(deep=True).sum() for t in tables if isinstance(t, pd.DataFrame))
    assert held / made.n_events < 1000
    made.save(tmp_path / "runs.sqlite")
    assert (tmp_path / "runs.sqlite").stat().st_size / made.n_events < 100
    made.export_trace(tmp_path / "t.json.gz")
    assert (tmp_path / "t.json.gz").stat().st_size / made.n_events < 100  # 300 steps stay far below 30 MB
    (kept,) = load(tmp_path / "runs.sqlite")
    pd.testing.assert_frame_equal(kept.trace.events, made.trace.events)
