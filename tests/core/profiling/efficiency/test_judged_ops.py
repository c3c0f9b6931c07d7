"""Real runs judged by peaks that are given: classes of ops and lines, coverage, what is not available."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from torchbench_magic.process import contention
from torchbench_magic.process.contention import ProcessUse
from torchbench_magic.process.peaks import Peaks
from torchbench_magic.profiling import profiler
from torchbench_magic.profiling.efficiency import judge
from torchbench_magic.profiling.efficiency.judge import MoreCalls, judged
from torchbench_magic.profiling.efficiency.table import CLASSES
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.profiler import profile
from torchbench_magic.results import Doubt

from ..insight_runs import calm

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


def test_a_run_that_others_held_up_is_not_called_far_below(run: Profile) -> None:
    busy = replace(run, warnings=[Doubt("busy", "Busy machine.", "")])
    made = judged(busy, FAST)
    assert not {"below-roof", "serial"} & set(made.ops["efficiency_class"].dropna())
    assert "Other processes delayed this run" in noted(made)
    assert "Other processes delayed this run" not in noted(judged(run, FAST))


@pytest.fixture(autouse=True)
def not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an op nor, for what it costs, a page fault: what the system says of its time is taken."""
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


def test_above_the_roof_the_peaks_are_wrong_and_nothing_is_told(run: Profile) -> None:
    made = judged(run, SLOW)
    assert pd.isna(kind_at(made, "aten::mm", 3))
    assert pd.isna(kind_at(made, "aten::add", 6))


def test_far_below_that_of_a_fast_one(run: Profile) -> None:
    made = judged(run, FAST)
    assert kind_at(made, "aten::mm", 3) == "below-roof"
    assert pd.isna(kind_at(made, "aten::exp", 8)), "its arithmetic is not counted: the bandwidth is no roof"
    assert made.lines.set_index("line")["fraction_of_peak"][3] < 0.01


def test_rates_and_bytes_are_those_of_the_sizes(run: Profile) -> None:
    table = judged(run, SLOW).efficiency.ops.set_index(["op", "line"])
    product = table.loc[("aten::mm", 3)]
    assert (product["calls"], product["flops"], product["bytes"]) == (5, 2 * 400**3, 3 * 4 * 400**2)
    assert product["flops_per_second"] == pytest.approx(product["flops"] / product["seconds"])
    assert table.loc[("aten::add", 6), "bytes"] == pytest.approx(2 * 4_000_000, rel=1e-5)  # and the number
    assert set(table["kind"]) <= {*CLASSES, ""}


def test_tiny_ops_are_calls(run: Profile) -> None:
    made = judged(run, replace(SLOW, dispatch=1e-3))
    assert kind_at(made, "aten::add", 11) == "overhead"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (MoreCalls(1000.0, 0.9, 1.0, ""), "page-fault"),
        (MoreCalls(1000.0, 0.1, 1.0, ""), "below-roof"),
        (MoreCalls(0.0, 0.0, 0.01, ""), "serial"),
        (MoreCalls(math.nan, 0.0, 1.0, ""), None),
        (None, None),
    ],
)
def test_what_more_calls_tell(run: Profile, more: Any, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "once_more", lambda *_: more)
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "_MOST_CALLED", 100)
    kind = kind_at(judged(run, FAST), "aten::add", 6)
    assert kind == told if told else pd.isna(kind)


@pytest.mark.parametrize(
    ("faults", "faster", "told"), [(1e6, 10.0, "page-fault"), (0.0, 10.0, "below-roof"), (1e6, 1.0, "below-roof")]
)
def test_page_faults_of_the_run_count_where_memory_is_there_in_the_calls_after_it(
    run: Profile, faults: float, faster: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million faults are all of its fresh pages; it is blamed on them where the op is faster without."""
    seconds = next(row.seconds for row in judged(run, FAST).efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 0.0, 1.0, "", seconds / faster))
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "_MOST_CALLED", 100)
    made = judged(run, FAST, ProcessUse(faults=faults))
    assert kind_at(made, "aten::add", 6) == told
    (row,) = (row for row in made.efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    assert row.again == pytest.approx(seconds / faster)
    assert row.faults == (row.fresh / 4096 if told == "page-fault" else 0.0)


@pytest.mark.parametrize(("part", "told"), [(0.4, "page-fault"), (0.2, "below-roof"), (3.0, "page-fault")])
@pytest.mark.parametrize("system_share", [0.0, 0.9])
def test_what_page_faults_take_is_by_their_measured_cost_whatever_the_system_says(
    run: Profile, part: float, told: str, system_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's share of the processor time is sampled: it told the same op apart from run to run."""
    seconds = next(row.seconds for row in judged(run, FAST).efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(1000.0, system_share, 1.0, "", seconds))
    monkeypatch.setattr(judge, "cost_of_fault", lambda threads: part * seconds / 1000)
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "_MOST_CALLED", 100)
    made = judged(run, FAST)
    assert kind_at(made, "aten::add", 6) == told
    (row,) = (row for row in made.efficiency.rows if (row.op, row.line) == ("aten::add", 6))
    assert row.fault_seconds == pytest.approx(min(part, 1.0) * seconds)
    assert row.is_bounded


def test_an_op_that_is_near_its_roof_when_called_again_is_not_far_below(
    run: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 0.0, 1.0, "", 1e-15))
    assert pd.isna(kind_at(judged(run, FAST), "aten::mm", 3))


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


@pytest.mark.parametrize("left", [(0, 1000, 1 << 40), None])
def test_what_does_not_fit_into_the_memory_that_is_left_is_not_called(
    run: Profile, left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(judge, "once_more", lambda call, threads: asked.append(call.op))
    monkeypatch.setattr(judge, "read_memory", lambda: left)
    judged(run, FAST)
    assert bool(asked) is (left is None), "without /proc 2 GiB are taken to be left"


def test_words_of_onednn_are_kept_for_products_far_below(run: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_MATTERS", 0.0)
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 0.0, 1.0, "matmul by ref"))
    assert judged(run, FAST).efficiency.implementations == (
        ("aten::mm", "[[400, 400], [400, 400]]", "matmul by ref"),
    )


# ---- what is not there ----------------------------------------------------------------------------------------------


def noted(made: Profile) -> str:
    return " ".join(made.efficiency.notes)


def test_without_counters_of_the_system_it_is_said(run: Profile) -> None:
    """No /proc and no resource module: Windows."""
    assert "Page faults of the run: not available here." in noted(judged(run, SLOW, None))
    assert "Page faults" not in noted(judged(run, SLOW, ProcessUse(10.0, 1.0, 0.1, 1.0)))


def test_hardware_counters_are_one_line_with_and_without(run: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    def there(folder: Path) -> list[Path]:
        return [folder / "cpu", folder / "software"]

    def hidden(folder: Path) -> list[Path]:
        raise PermissionError(folder)

    monkeypatch.setattr(judge.Path, "iterdir", there)
    assert "not read, though this machine has some" in noted(judged(run, SLOW))
    monkeypatch.setattr(judge.Path, "iterdir", hidden)
    assert "Hardware counters: not available here." in noted(judged(run, SLOW))


def test_a_quota_is_said(run: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        is_set, value = True, 0.5

    monkeypatch.setattr(judge, "cpu_quota", Half)
    assert "A quota of 0.5 cores" in noted(judged(run, SLOW))


def test_on_one_core_nothing_is_serial(run: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "once_more", lambda *_: MoreCalls(0.0, 0.0, 0.0, ""))
    made = judged(run, replace(FAST, threads=1))
    assert "serial" not in set(made.ops["efficiency_class"].dropna())


def test_peaks_that_are_not_known_are_named_and_leave_classes_open(run: Profile) -> None:
    unknown = replace(reached_by(run, "aten::add", 6), flops=(("float32", 1, 1e9), ("float32", 2, math.nan)))
    made = judged(run, unknown)
    assert "Unknown peaks, of which repeated measurements disagreed: float32." in noted(made)
    assert pd.isna(kind_at(made, "aten::mm", 3))
    assert kind_at(made, "aten::add", 6) == "memory"


def test_what_ran_on_an_accelerator_has_no_class(run: Profile) -> None:
    elsewhere = replace(run, ops=run.ops.assign(self_device_time=1e-3, device_time=1e-3))
    made = judged(elsewhere, SLOW)
    assert "CPU only" in noted(made)
    assert made.ops["efficiency_class"].isna().all()


def test_inputs_that_were_dropped_leave_no_class(run: Profile) -> None:
    made = judged(replace(run, ops=run.ops.assign(input_shapes=None), calls=()), SLOW)
    assert "The inputs of the operations were not kept" in noted(made)
    assert made.efficiency.rows == ()


def test_no_operation_at_all() -> None:
    empty = profile("a = 1", globals={}, shapes=True, flops=True)
    made = judged(empty, SLOW)
    assert math.isnan(made.efficiency.coverage)
    assert repr(made)


# ---- the option -----------------------------------------------------------------------------------------------------


@pytest.fixture
def given_peaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Peaks], None]:
    return lambda peaks: monkeypatch.setattr(judge, "peaks_here", lambda threads, progress: peaks)


def test_the_option_records_shapes_and_flops_and_reads_the_counters(given_peaks: Callable[[Peaks], None]) -> None:
    given_peaks(SLOW)
    made = profile(CODE, globals={"torch": torch}, efficiency=True)
    assert made.options.shapes
    assert made.options.flops
    assert made.efficiency is not None
    if contention.read_use().faults > 0:
        assert made.efficiency.page_faults >= 0


def test_code_that_fails_has_a_profile_without_efficiency(
    given_peaks: Callable[[Peaks], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_peaks(SLOW)
    monkeypatch.setattr(profiler, "with_efficiency", lambda *_: pytest.fail("a part of a run is not judged"))
    with pytest.raises(ZeroDivisionError):
        profile("x = 1 / 0", globals={}, efficiency=True)


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
