"""What ran on a device stands on the line that launched it; where nothing ran, on the line the host was at."""

from __future__ import annotations

from dataclasses import fields

import pandas as pd
import pytest

from torchbench_magic.profiling.device_times import idle_share
from torchbench_magic.profiling.trace import Trace, Track

from .profiles import MS, profile_of_two_kernels


def test_kernels_have_rows_with_the_op_and_the_line_that_launched_them() -> None:
    table = profile_of_two_kernels().device_events
    kernels = table[table["kind"] == "kernel"].set_index("name")
    assert kernels["op"].to_dict() == {"gemm": "aten::mm", "relu_kernel": "aten::relu"}
    assert kernels["line"].to_dict() == {"gemm": 2, "relu_kernel": 3}
    assert kernels["time"].to_dict() == {"gemm": 0.002, "relu_kernel": 0.0005}
    assert set(kernels["device"]) == {"cuda:0"}
    assert set(kernels["stream"]) == {7}


def test_runtime_calls_have_rows_of_their_own_and_are_no_ops() -> None:
    profile = profile_of_two_kernels()
    table = profile.device_events
    runtime = table[table["kind"] == "runtime"]
    assert runtime["name"].tolist() == ["cudaLaunchKernel", "cudaLaunchKernel"]
    assert runtime["time"].tolist() == [0.0005, 0.00025]
    assert runtime["line"].tolist() == [2, 3]
    assert runtime["device"].isna().all()
    assert table["kind"].tolist() == ["kernel", "kernel", "runtime", "runtime"]
    assert "cudaLaunchKernel" not in set(profile.ops["op"])


def test_a_gap_stands_on_the_line_that_the_host_was_at() -> None:
    """Nothing runs from 6 to 9 ms: the host is on line 3 until 7 ms, then on line 4."""
    (gap,) = profile_of_two_kernels().idle.to_dict("records")
    assert (gap["start"], gap["duration"]) == (0.006, pytest.approx(0.003))
    assert gap["share"] == pytest.approx(3 / 5.5)
    assert (gap["line"], gap["source"]) == (4, "torch.cuda.synchronize()")
    assert idle_share(profile_of_two_kernels().trace) == {"cuda:0": pytest.approx(3 / 5.5)}


def test_the_gaps_of_a_device_are_those_in_which_no_stream_runs() -> None:
    """A second stream runs from 5 to 8 ms: the gap is from 8 to 9."""
    profile = profile_of_two_kernels()
    trace = profile.trace
    assert trace is not None
    events = trace.events.copy()
    events.loc[len(events)] = events.loc[4]
    events.loc[len(events) - 1, ["start", "duration", "track"]] = [5 * MS, 3 * MS, 2]
    events = events.astype(trace.events.dtypes)
    given = {item.name: getattr(trace, item.name) for item in fields(Trace)}
    two = Trace(**given | {"events": events, "tracks": (*trace.tracks, Track("stream 8", ident=8, device="cuda:0"))})
    (gap,) = profile_of_two_kernels(trace=two).idle.to_dict("records")
    assert (gap["start"], gap["duration"]) == (0.008, pytest.approx(0.001))


def test_without_a_device_the_tables_are_there_and_empty() -> None:
    profile = profile_of_two_kernels(trace=None)
    assert isinstance(profile.device_events, pd.DataFrame)
    assert profile.device_events.empty
    assert profile.idle.empty


def test_the_output_says_how_idle_the_device_was_and_where_the_host_was() -> None:
    text = repr(profile_of_two_kernels())
    said = "cuda:0 runs for 45 % of the recorded time; its longest gap is 3.00 ms, while the host was at In[3]:4."
    assert said in " ".join(text.split())
    assert "runs for" not in repr(profile_of_two_kernels(trace=None))
