"""Exported traces: always valid, read by torch's own readers, complete or not there."""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from torchbench_magic.errors import TraceError
from torchbench_magic.printable import printable
from torchbench_magic.profiling import chrome_trace
from torchbench_magic.profiling.cores.table import Concurrency, CoreUse
from torchbench_magic.profiling.profile import Profile

from ..profiles import profile_of_two_kernels

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
        patch.setattr(chrome_trace, "_opened", lambda path, gzipped: Path("/dev/full").open("w"))  # noqa: SIM115
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
