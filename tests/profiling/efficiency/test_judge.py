"""Ops judged by the peaks of a machine: real runs, ops that are called once more, and what page faults take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from tests.insights.insight_runs import calm
from torchbench_magic.process import contention
from torchbench_magic.process.contention import ProcessUse
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling import run as profiling_run
from torchbench_magic.profiling.efficiency import judge
from torchbench_magic.profiling.efficiency.judge import (
    MoreCalls,
    cost_of_fault,
    faults_in_call,
    judged,
    once_more,
)
from torchbench_magic.profiling.efficiency.table import CLASSES, OpEfficiency
from torchbench_magic.profiling.op_arguments import RecordedCall
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.run import profile
from torchbench_magic.result_base import Doubt

# ==== judged ops ======================================================================================================
# Real runs judged by peaks that are given: classes of ops and lines, coverage, what is not available.


CODE = """\
a = torch.rand(400, 400)
for i in range(5):
    b = a @ a
x = torch.rand(1_000_000)
for i in range(5):
    y = x + 1
for i in range(5):
    e = x.exp()
z = torch.rand(4)
for i in range(50):
    w = z + 1"""
SLOW = Peaks(
    threads=2,
    flops=tuple((dtype, count, 1e7) for dtype in ("float32", "float64") for count in (1, 2)),
    bandwidth=tuple((size, count, 1e6) for size in (1 << 20, 1 << 28) for count in (1, 2)),
    dispatch=2e-5,
    caches=(("L2", 1 << 20), ("L3", 1 << 25)),
)
"""Of a machine so slow that everything is above its roof, which cannot be."""
FAST = replace(
    SLOW,
    flops=tuple((dtype, count, 1e16) for dtype, count, _ in SLOW.flops),
    bandwidth=tuple((size, count, 1e14) for size, count, _ in SLOW.bandwidth),
    dispatch=1e-12,
)
"""Of one so fast that nothing is."""


@pytest.fixture(scope="module")
def run() -> Profile:
    return calm(profile(CODE, globals={"torch": torch}, shapes=True, flops=True))


@pytest.mark.usefixtures("not_called")
def test_a_run_that_others_held_up_is_not_called_far_below(run: Profile) -> None:
    busy = replace(run, warnings=[Doubt("busy", "Busy machine.", "")])
    made = judged(busy, FAST)
    assert not {"below-roof", "serial"} & set(made.ops["efficiency_class"].dropna())
    assert "Other processes delayed this run" in noted(made)
    assert "Other processes delayed this run" not in noted(judged(run, FAST))


@pytest.fixture
def not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an op nor, for what it costs, a page fault."""
    monkeypatch.setattr(judge, "once_more", lambda *_: None)
    monkeypatch.setattr(judge, "cost_of_fault", lambda threads: math.nan)


def kind_at(made: Profile, op: str, line: int) -> Any:
    ops = made.ops
    (kind,) = ops.loc[(ops["op"] == op) & (ops["line"] == line), "efficiency_class"]
    return kind


def reached_by(run: Profile, op: str, line: int) -> Peaks:
    """Of a machine whose roof is 1.25 times what this op reached in the run, and nowhere else in the way."""
    row = judged(run, FAST).efficiency.ops.set_index(["op", "line"]).loc[(op, line)]
    if row["flops"] > 0:
        rate = 1.25 * row["flops_per_second"]
        return replace(FAST, flops=tuple((dtype, count, rate) for dtype, count, _ in FAST.flops))
    rate = 1.25 * row["bytes_per_second"]
    return replace(FAST, bandwidth=tuple((size, count, rate) for size, count, _ in FAST.bandwidth))


@pytest.mark.usefixtures("not_called")
@pytest.mark.parametrize(
    ("op", "line", "kind"), [("aten::mm", 3, "compute"), ("aten::add", 6, "memory"), ("aten::exp", 8, "memory")]
)
def test_near_the_roof(run: Profile, op: str, line: int, kind: str) -> None:
    made = judged(run, reached_by(run, op, line))
    assert kind_at(made, op, line) == kind
    lines = made.lines.set_index("line")
    assert lines["efficiency_class"][line] == kind
    assert lines["fraction_of_peak"][line] == pytest.approx(0.8, abs=0.05)
    assert 0 < made.efficiency.coverage <= 1


@pytest.mark.usefixtures("not_called")
def test_above_the_roof_the_peaks_are_wrong_and_nothing_is_told(run: Profile) -> None:
    made = judged(run, SLOW)
    assert pd.isna(kind_at(made, "aten::mm", 3))
    assert pd.isna(kind_at(made, "aten::add", 6))


@pytest.mark.usefixtures("not_called")
def test_far_below_that_of_a_fast_one(run: Profile) -> None:
    made = judged(run, FAST)
    assert kind_at(made, "aten::mm", 3) == "below-roof"
    assert pd.isna(kind_at(made, "aten::exp", 8)), "its arithmetic is not counted: the bandwidth is no roof"
    assert made.lines.set_index("line")["fraction_of_peak"][3] < 0.01


@pytest.mark.usefixtures("not_called")
def test_rates_and_bytes_are_those_of_the_sizes(run: Profile) -> None:
    table = judged(run, SLOW).efficiency.ops.set_index(["op", "line"])
    product = table.loc[("aten::mm", 3)]
    assert (product["calls"], product["flops"], product["bytes"]) == (5, 2 * 400**3, 3 * 4 * 400**2)
    assert product["flops_per_second"] == pytest.approx(product["flops"] / product["seconds"])
    assert table.loc[("aten::add", 6), "bytes"] == pytest.approx(2 * 4_000_000, rel=1e-5)  # and the number
    assert set(table["kind"]) <= {*CLASSES, ""}


@pytest.mark.usefixtures("not_called")
def test_tiny_ops_are_calls(run: Profile) -> None:
    made = judged(run, replace(SLOW, dispatch=1e-3))
    assert kind_at(made, "aten::add", 11) == "overhead"


@pytest.mark.usefixtures("not_called")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (MoreCalls(1000.0, 1.0), None),  # what a fault costs is not known
        (MoreCalls(0.0, 1.0), "below-roof"),
        (MoreCalls(0.0, 0.01), "serial"),
        (MoreCalls(math.nan, 1.0), None),
        (None, None),
    ],
)
def test_what_more_calls_tell(run: Profile, more: Any, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "once_more", lambda *_: more)
    monkeypatch.setattr(judge, "_to_call", lambda found, _: list(found))  # how long it took and memory: as they are now
    kind = kind_at(judged(run, FAST), "aten::add", 6)
    assert kind == told if told else pd.isna(kind)


@pytest.mark.usefixtures("not_called")
@pytest.mark.parametrize(("faster", "told"), [(10.0, None), (1.0, "below-roof")])
def test_an_op_that_is_much_faster_where_its_memory_is_there_has_no_class(
    run: Profile, faster: float, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page faults of the run may have held it up, and nobody counted them by themselves."""
    seconds = next(row.seconds for row in judged(run, FAST).efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 1.0, seconds / faster))
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "_MOST_CALLED", 100)
    kind = kind_at(judged(run, FAST), "aten::add", 6)
    assert kind == told if told else pd.isna(kind)


@pytest.mark.usefixtures("not_called")
@pytest.mark.parametrize(("part", "told"), [(0.4, "page-fault"), (0.2, "below-roof"), (3.0, "page-fault")])
def test_what_page_faults_take_is_by_their_measured_cost(
    run: Profile, part: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = next(row.seconds for row in judged(run, FAST).efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(1000.0, 1.0, seconds))
    monkeypatch.setattr(judge, "cost_of_fault", lambda threads: part * seconds / 1000)
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "_MOST_CALLED", 100)
    made = judged(run, FAST)
    assert kind_at(made, "aten::add", 6) == told
    (row,) = (row for row in made.efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    assert row.fault_seconds == pytest.approx(min(part, 1.0) * seconds)
    assert row.is_bounded


@pytest.mark.usefixtures("not_called")
def test_an_op_that_is_near_its_roof_when_called_again_is_not_far_below(
    run: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 1.0, 1e-15))
    assert pd.isna(kind_at(judged(run, FAST), "aten::mm", 3))


@pytest.mark.usefixtures("not_called")
def test_only_what_matters_is_called_and_for_some_seconds_at_most(
    run: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(judge, "once_more", lambda call, threads: asked.append(call.op))
    judged(run, FAST)
    assert 0 < len(asked) <= judge._MOST_CALLED
    asked.clear()
    monkeypatch.setattr(judge, "_LONGEST_CALLS", 0.0)
    judged(run, FAST)
    assert not asked


@pytest.mark.usefixtures("not_called")
@pytest.mark.parametrize("left", [(0, 0, 1 << 40), None])
def test_what_does_not_fit_into_the_memory_that_is_left_is_not_called(
    run: Profile, left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(judge, "once_more", lambda call, threads: asked.append(call.op))
    monkeypatch.setattr(judge, "read_memory", lambda: left)
    judged(run, FAST)
    assert bool(asked) is (left is None), "without /proc 2 GiB are taken to be left"


# ---- what is not there ----------------------------------------------------------------------------------------------


def noted(made: Profile) -> str:
    return " ".join(made.efficiency.notes)


@pytest.mark.usefixtures("not_called")
def test_without_counters_of_the_system_it_is_said(run: Profile) -> None:
    """No /proc and no resource module: Windows."""
    assert "Page faults of the run: not available here." in noted(judged(run, SLOW, None))
    assert "Page faults" not in noted(judged(run, SLOW, ProcessUse(10.0, 1.0, 0.1, 1.0)))


@pytest.mark.usefixtures("not_called")
def test_a_quota_is_said(run: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        is_set, value = True, 0.5

    monkeypatch.setattr(judge, "cpu_quota", Half)
    assert "A quota of 0.5 cores" in noted(judged(run, SLOW))


@pytest.mark.usefixtures("not_called")
def test_on_one_core_nothing_is_serial(run: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 0.0))
    made = judged(run, replace(FAST, threads=1))
    assert "serial" not in set(made.ops["efficiency_class"].dropna())


@pytest.mark.usefixtures("not_called")
def test_peaks_that_are_not_known_are_named_and_leave_classes_open(run: Profile) -> None:
    unknown = replace(reached_by(run, "aten::add", 6), flops=(("float32", 1, 1e9), ("float32", 2, math.nan)))
    made = judged(run, unknown)
    assert "Unknown peaks, of which repeated measurements disagreed: float32." in noted(made)
    assert pd.isna(kind_at(made, "aten::mm", 3))
    assert kind_at(made, "aten::add", 6) == "memory"


@pytest.mark.usefixtures("not_called")
def test_what_ran_on_an_accelerator_has_no_class(run: Profile) -> None:
    elsewhere = replace(run, ops=run.ops.assign(self_device_time=1e-3, device_time=1e-3))
    made = judged(elsewhere, SLOW)
    assert "CPU only" in noted(made)
    assert made.ops["efficiency_class"].isna().all()


@pytest.mark.usefixtures("not_called")
def test_inputs_that_were_dropped_leave_no_class(run: Profile) -> None:
    made = judged(replace(run, ops=run.ops.assign(input_shapes=None), calls=()), SLOW)
    assert "The inputs of the operations were not kept" in noted(made)
    assert made.efficiency.rows == ()


@pytest.mark.usefixtures("not_called")
def test_no_operation_at_all() -> None:
    empty = profile("a = 1", globals={}, shapes=True, flops=True)
    made = judged(empty, SLOW)
    assert math.isnan(made.efficiency.coverage)
    assert repr(made)


# ---- the option -----------------------------------------------------------------------------------------------------


@pytest.fixture
def given_peaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Peaks], None]:
    return lambda peaks: monkeypatch.setattr(judge, "peaks_here", lambda threads, progress: peaks)


@pytest.mark.usefixtures("not_called")
def test_the_option_records_shapes_and_flops_and_reads_the_counters(given_peaks: Callable[[Peaks], None]) -> None:
    given_peaks(SLOW)
    made = profile(CODE, globals={"torch": torch}, efficiency=True)
    assert made.options.shapes
    assert made.options.flops
    assert made.efficiency is not None
    if contention.read_use().faults > 0:
        assert made.efficiency.page_faults >= 0


@pytest.mark.usefixtures("not_called")
def test_code_that_fails_has_a_profile_without_efficiency(
    given_peaks: Callable[[Peaks], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_peaks(SLOW)
    monkeypatch.setattr(profiling_run, "with_efficiency", lambda *_: pytest.fail("a part of a run is not judged"))
    with pytest.raises(ZeroDivisionError):
        profile("x = 1 / 0", globals={}, efficiency=True)


@pytest.mark.usefixtures("not_called")
def test_the_sum_of_cycles_is_judged_and_no_cycle(given_peaks: Callable[[Peaks], None]) -> None:
    given_peaks(SLOW)
    names = {"torch": torch}
    exec("import torchbench_magic\ndef train():\n  a = torch.ones(300, 300)\n"
         "  for i in range(4):\n    b = a @ a\n    torchbench_magic.step()\n", names)  # fmt: skip
    made = profile(names["train"], schedule="wait=1,warmup=0,active=1,repeat=2", efficiency=True)
    assert made.efficiency is not None
    assert [each.efficiency for each in made.cycles] == [None] * len(made.cycles)
    assert made.cycles
    assert made.ops.loc[made.ops["op"] == "aten::mm", "bytes"].tolist() == [2 * 3 * 4 * 300**2]


# ==== page faults =====================================================================================================
# What page faults take: counted by their measured cost, or by what the memory that was there saved.


ROW = OpEfficiency("aten::add", "", "", "ab", 3, 0, 10, seconds=0.02, fresh=float(32 << 20))
FAULTS = 8192.0


@pytest.mark.skipif(math.isnan(judge.read_use().faults), reason="the system counts no page faults")
def test_the_cost_of_a_fault_is_some_time_and_leaves_the_threads() -> None:
    threads = torch.get_num_threads()
    assert 0 <= cost_of_fault(1) < 1e-3
    assert torch.get_num_threads() == threads


def test_without_a_count_or_memory_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()

    def full() -> None:
        raise OSError("no memory left")

    monkeypatch.setattr(judge, "_fill_fresh", full)
    assert math.isnan(cost_of_fault(1))
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(judge, "_fill_fresh", lambda: None)
    monkeypatch.setattr(judge, "read_use", ProcessUse)
    assert math.isnan(cost_of_fault(1))
    monkeypatch.setattr(judge, "read_use", lambda: ProcessUse(faults=3.0))
    assert math.isnan(cost_of_fault(1)), "none was counted"


@pytest.mark.parametrize(
    ("more", "cost", "told"),
    [
        (MoreCalls(FAULTS, 1.0, 0.02), 1e-6, (FAULTS, 8.192e-3, 0.4096)),
        (MoreCalls(FAULTS, 1.0, 0.02), 1e-3, (FAULTS, 0.02, 1.0)),  # never more than the op takes
        (MoreCalls(0.0, 1.0, 0.02), 1e-6, (0.0, 0.0, 0.0)),
    ],
)
def test_faults_their_seconds_and_their_share(more: MoreCalls, cost: float, told: tuple[float, float, float]) -> None:
    assert faults_in_call(ROW, more, cost) == pytest.approx(told)


@pytest.mark.parametrize(("more", "cost"), [(None, 1e-6), (MoreCalls(FAULTS, 1.0, 0.02), math.nan)])
def test_of_an_op_that_was_not_called_or_without_a_cost_none_are_known(more: MoreCalls | None, cost: float) -> None:
    faults, seconds, share = faults_in_call(ROW, more, cost)
    assert math.isnan(faults)
    assert (seconds, share) == (0.0, 0.0)


# ==== once more =======================================================================================================
# An op that is called once more: nothing of the user's moves.


PRODUCT = RecordedCall("aten::mm", "", [[64, 64], [64, 64]], ["float", "float"], [[64, 1], [64, 1]], [None, None])


def test_random_numbers_threads_and_stdout_go_on_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(3)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    made = once_more(PRODUCT, 1)
    assert made is not None
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert capfd.readouterr().out == ""


def test_one_thread_is_seen_to_work_alone() -> None:
    made = once_more(PRODUCT, 1)
    assert made is not None
    assert not made.worker_share > 0.5


def test_what_cannot_be_rebuilt_is_not_called() -> None:
    indices = RecordedCall(
        "aten::index_select", "", [[10, 2], [], [3]], ["float", "Scalar", "long int"], [[2, 1], [], [1]],
        [None, 0, None],
    )  # fmt: skip
    assert once_more(indices, 1) is None
    assert once_more(RecordedCall("mine::op", "", [], [], [], []), 1) is None
    torch.set_default_dtype(torch.float64)
    try:
        assert once_more(PRODUCT, 1) is None, "inputs would be of another dtype"
    finally:
        torch.set_default_dtype(torch.float32)
    sizes = RecordedCall("aten::mm", "", [[3, 4], [5, 6]], ["float", "float"], [[4, 1], [6, 1]], [None, None])
    assert once_more(sizes, 1) is None
