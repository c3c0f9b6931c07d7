"""Insights about operators: planted efficiency, each kind with the cases in which it must stay silent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from torchbench_magic.insights.slow_operators import below_roof, memory_bound_run, page_fault, shape, slow_dtype
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.efficiency.table import Efficiency, OpEfficiency
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import EVENT_COLUMNS, compact

from .built import SOURCE, Did, Op, built_profile

MIB = 1 << 20
PEAKS = Peaks(
    threads=2,
    flops=(("float32", 2, 1e11), ("float16", 2, 2e9), ("bfloat16", 2, 4e11)),
    bandwidth=((MIB, 2, 1e11), (256 * MIB, 2, 2e10)),
    dispatch=1e-6,
    caches=(("L1", 32 << 10), ("L2", MIB), ("L3", 32 * MIB)),
    contended=0.02,
)
TEXT = "%%tprofile --efficiency\nfor i in range(10):\n    y = work(x)\n    z = more(y)"


def row(op: str = "aten::mm", line: int = 3, **changes: Any) -> OpEfficiency:
    """Ten calls of 10 ms each: 100 ms on line 3."""
    plain = OpEfficiency(op, "[[512, 512], [512, 512]]", "['float', 'float']", SOURCE, line, 0, 10, 0.01)
    return replace(plain, **changes)


def made(rows: Sequence[OpEfficiency], peaks: Peaks = PEAKS, **changes: Any) -> Profile:
    did = {3: Did(10, 0.001, [Op("aten::mm", 10, 0.1)]), 4: Did(10, 0.001, [Op("aten::add", 10, 0.05)])}
    return built_profile(TEXT, did, efficiency=Efficiency(peaks, tuple(rows)), **changes)


HALF = row(flops=2e7, bytes=1e6, dtype="float16", roof=0.01, side="compute", kind="compute")


def test_half_precision_that_this_processor_is_slow_at_is_told_with_float32_and_bfloat16() -> None:
    (told,) = slow_dtype(made([HALF]))
    assert told.kind == "slow-dtype"
    assert told.places[0].line == 3
    assert told.seconds == pytest.approx(10 * (0.01 - 2e7 / 1e11))
    assert "float16" in told.text
    assert [cure.code for cure in told.cures] == ["x = x.float()", "x = x.bfloat16()"]


@pytest.mark.parametrize(
    ("rows", "peaks"),
    [
        ([replace(HALF, dtype="float32")], PEAKS),
        ([replace(HALF, dtype="bfloat16")], PEAKS),
        ([replace(HALF, flops=math.nan)], PEAKS),
        ([replace(HALF, calls=1, seconds=0.0005)], PEAKS),
        ([HALF], replace(PEAKS, flops=(("float16", 2, 9e10), ("float32", 2, 1e11)))),
        ([HALF], replace(PEAKS, flops=(("float16", 2, 2e9), ("float32", 2, math.nan)))),
        ([HALF], replace(PEAKS, contended=0.5)),
    ],
)
def test_no_word_of_a_dtype_where_it_is_not_slow_or_not_known(rows: list[OpEfficiency], peaks: Peaks) -> None:
    assert slow_dtype(made(rows, peaks)) == []


NARROW = row(
    "aten::bmm", input_shapes="[[64, 512, 512], [64, 512, 13]]", flops=4e8, bytes=7e7, dtype="float32", roof=0.004,
    side="compute", kind="below-roof", again=0.01,
)  # fmt: skip


def test_a_narrow_product_is_told() -> None:
    (told,) = shape(made([NARROW]))
    assert "N = 13" in told.text
    assert "40 %" in told.text
    assert told.seconds == pytest.approx(10 * (0.01 - 0.004))
    assert below_roof(made([NARROW])) == [], "it is told once"


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "compute", "roof": 0.006},
        {"kind": "page-fault"},
        {"input_shapes": "[[64, 512, 512], [64, 512, 64]]"},
        {"input_shapes": "[[64, 8, 8], [64, 8, 13]]"},
        {"input_shapes": "no shapes"},
        {"op": "aten::convolution"},
        {"flops": math.nan},
    ],
)
def test_no_word_of_a_shape_that_is_not_narrow_or_not_slow(changed: dict[str, Any]) -> None:
    assert shape(made([replace(NARROW, **changed)])) == []


FAULTS = row(
    "aten::div", bytes=128.0 * MIB, written=64.0 * MIB, fresh=64.0 * MIB, roof=0.003, side="memory", kind="page-fault",
    faults=16384.0, fault_seconds=0.004,
)  # fmt: skip


def test_page_faults_are_told_with_their_number_and_three_cures() -> None:
    (told,) = page_fault(made([FAULTS]))
    assert "page faults" in told.text
    assert "16384" in "".join(filter(str.isalnum, told.text))
    assert "64.0 MiB" in told.text
    assert "spends 40 % of `aten::div` on page faults" in told.text
    assert told.seconds == pytest.approx(10 * 0.004), "what the faults take, not all above the roof"
    code = " ".join(cure.code or "" for cure in told.cures)
    assert "out=out" in code
    assert "MALLOC_MMAP_THRESHOLD_" in code
    assert "MALLOC_TRIM_THRESHOLD_" in code


def test_page_faults_of_several_operations_of_a_line_are_one_insight() -> None:
    small = replace(FAULTS, op="aten::neg", seconds=0.0031, fault_seconds=0.0001)
    (told,) = page_fault(made([FAULTS, replace(FAULTS, op="aten::exp", seconds=0.006, fault_seconds=0.003), small]))
    assert "40 % of `aten::div` and part of 2 other operations on page faults" in told.text
    assert told.seconds == pytest.approx(10 * (0.004 + 0.003 + 0.0001))


def test_what_is_far_below_the_roof_besides_its_page_faults_is_told_beside_them() -> None:
    """``T + T.t()``: `out=` saves the faults, `contiguous` what the other layout costs; neither is told twice."""
    both = replace(FAULTS, roof=0.001, is_bounded=True)
    profile = made([both])
    (rest,) = below_roof(profile)
    assert "`aten::div`, its page faults aside, at 17 % of what this machine's bandwidth" in rest.text
    assert rest.seconds == pytest.approx(10 * (0.01 - 0.004 - 0.001))
    assert rest.cures[0].lever == "contiguous"
    told = [(each.kind, each.seconds) for each in profile.insights if each.kind in ("page-fault", "below-roof")]
    assert told == [("below-roof", pytest.approx(0.05)), ("page-fault", pytest.approx(0.04))]
    assert below_roof(made([FAULTS])) == [], "half of the rest is what the machine needs"
    assert below_roof(made([replace(both, is_bounded=False)])) == [], "its arithmetic is not counted"


def test_other_classes_are_no_page_faults() -> None:
    assert page_fault(made([replace(FAULTS, kind=kind) for kind in ("memory", "below-roof", "", "serial")])) == []


FAR = row(flops=1e8, bytes=3e6, dtype="float32", roof=0.001, side="compute", kind="below-roof")


def test_a_product_far_below_is_told() -> None:
    (told,) = below_roof(made([FAR]))
    assert "10 %" in told.text


def test_what_an_op_takes_longer_in_the_run_than_when_called_again_is_not_at_stake() -> None:
    (told,) = below_roof(made([replace(FAR, again=0.004)]))
    assert told.seconds == pytest.approx(10 * (0.004 - 0.001))
    assert "25 %" in told.text
    (told,) = shape(made([replace(NARROW, again=0.006)]))
    assert told.seconds == pytest.approx(10 * (0.006 - 0.004))
    assert below_roof(made([replace(FAR, again=0.02)]))[0].seconds == pytest.approx(10 * (0.01 - 0.001))


@pytest.mark.parametrize(
    ("changed", "speaks"),
    [
        ({}, True),
        ({"kind": "serial"}, True),
        ({"kind": "compute"}, False),
        ({"kind": ""}, False),
        ({"flops": math.nan, "side": "memory", "bytes": 8.0 * MIB}, False),  # it may have come from main memory
        ({"flops": math.nan, "side": "memory", "bytes": 256.0 * MIB}, True),
        ({"source_id": None, "line": None}, False),
        ({"roof": 0.0099}, False),
    ],
)
def test_when_far_below_is_said(changed: dict[str, Any], speaks: bool) -> None:
    assert bool(below_roof(made([replace(FAR, **changed)]))) is speaks


@pytest.mark.parametrize("kind", [slow_dtype, shape, page_fault, below_roof, memory_bound_run])
def test_without_the_option_and_on_a_busy_machine_all_are_silent(kind: Any) -> None:
    rows = [HALF, NARROW, FAULTS, FAR]
    assert kind(replace(made(rows), efficiency=None)) == []
    assert kind(made(rows, replace(PEAKS, contended=1.0))) == []


# ---- runs of memory-bound operations --------------------------------------------------------------------------------

SCORES = "[64, 512, 512]"
SIZE = 64.0 * MIB


def chain(**changes: Any) -> list[OpEfficiency]:
    """A product, a division and a softmax, each over what the one before made."""
    more = {"written": SIZE, "fresh": SIZE, "output": SCORES}
    moving = more | {"bytes": 2 * SIZE, "roof": 0.006, "side": "memory", "kind": "memory"}
    rows = [
        row("aten::bmm", input_shapes="[[64, 512, 64], [64, 64, 512]]", flops=2e9, bytes=SIZE + 16 * MIB, roof=0.009,
            side="compute", kind="compute", dtype="float32", **more),
        row("aten::div", input_shapes=f"[{SCORES}, []]", **moving),
        row("aten::_softmax", line=4, input_shapes=f"[{SCORES}, [], []]", **moving),
    ]  # fmt: skip
    return [replace(each, **changes) for each in rows]


def in_time(rows: Sequence[OpEfficiency], profile: Profile, times: int = 10) -> Profile:
    """With a trace in which the rows follow each other."""
    trace = profile.trace
    assert trace is not None
    names = tuple(dict.fromkeys(each.op for each in rows))
    inputs = tuple((each.input_shapes, each.input_dtypes, "") for each in rows)
    node = {int(line): at for at, line in enumerate(trace.nodes["line"])}
    count = len(rows) * times
    columns = {name: np.zeros(count, dtype=np.int64) for name in EVENT_COLUMNS}
    columns["start"] = np.arange(count) * 10
    columns["duration"] = np.full(count, 9)
    for name in ("parent", "launched_by", "caused_by"):
        columns[name] = np.full(count, -1)
    columns["name"] = np.array([names.index(each.op) for each in rows] * times)
    columns["inputs"] = np.array([*range(len(rows))] * times)
    columns["node"] = np.array([node[each.line or 0] for each in rows] * times)
    return replace(
        profile, trace=replace(trace, events=compact(EVENT_COLUMNS, columns), names=names, inputs=inputs)
    )


def test_a_run_is_told_with_its_ops_lines_and_the_bytes_that_fusing_saves() -> None:
    rows = chain()
    (told,) = memory_bound_run(in_time(rows, made(rows), times=5))
    assert "bmm / div / softmax" in told.text
    assert "fused, they need not move 256 MiB: up to" in told.text
    assert [place.line for place in told.places] == [3, 4]
    # one operation moves nothing of what the division and the softmax move
    assert told.seconds == pytest.approx(5 * 0.02)
    assert told.evidence["times"] == 5
    assert "L2 holds 1.00 MiB" in str(told.evidence["caches"])
    assert told.cures[0].code == "torch.nn.functional.scaled_dot_product_attention(q, k, v)"


def test_page_faults_of_what_is_not_written_any_more_are_saved_too() -> None:
    product, division, softmax = chain()
    rows = [
        replace(product, fault_seconds=0.005),
        replace(division, kind="page-fault", fault_seconds=0.006),
        replace(softmax, kind="page-fault", fault_seconds=0.002),
    ]
    (told,) = memory_bound_run(in_time(rows, made(rows), times=5))
    assert " nor wait for page faults: up to" in told.text
    assert told.seconds == pytest.approx(5 * (0.005 + 0.01 + 0.01)), "attention: all but the product's arithmetic"
    held_up = [replace(rows[0], kind="page-fault", roof=0.003), *rows[1:]]
    (told,) = memory_bound_run(in_time(held_up, made(held_up), times=5))
    assert told.seconds == pytest.approx(5 * (0.007 + 0.01 + 0.01)), "the product above its roof"
    plain = [replace(rows[1], op="aten::add"), replace(rows[2], op="aten::relu")]
    (told,) = memory_bound_run(in_time(plain, made(plain)))
    # the faults of the sum; half of the rest of it for its output, half of the rest of the other for its input
    assert told.seconds == pytest.approx(10 * (0.006 + 0.002 + 0.004))


@pytest.mark.parametrize(
    ("rows", "times"),
    [
        (chain(written=0.5 * MIB), 10),  # it fits into the second cache
        (chain(output="[1, 2, 3]"), 10),  # no op takes what the one before made
        (chain(kind="compute", side="compute"), 10),
        *[(chain()[2:], times) for times in (10, 50)],  # one op, in a loop too
    ],
)
def test_what_memory_does_not_bound_from_op_to_op_is_no_run(rows: list[OpEfficiency], times: int) -> None:
    assert memory_bound_run(in_time(rows, made(rows), times)) == []


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("y = q @ k / 8", "z = softmax(y)", True),
        ("y = q @ k; y /= 8", "z = softmax(y)", False),  # two statements: which made it is not known
        ("y /= 8", "z = softmax(y)", True),
        ("y.div_(8)", "z = softmax(y)", True),
        ("y, other = q @ k / 8, 1", "z = softmax(y)", True),
        ("y = q @ k / 8", "y = softmax(x)", False),
        ("y == q", "z = softmax(y)", False),
        ("y = q @ k / 8", "z = softmax(my)", False),
    ],
)
def test_lines_are_joined_by_the_name_that_one_makes_and_the_other_reads(first: str, second: str, told: bool) -> None:
    rows = chain()[1:]
    profile = made(rows)
    source = profile.sources[SOURCE]
    text = f"%%tprofile --efficiency\nfor i in range(10):\n    {first}\n    {second}"
    profile = replace(profile, sources={SOURCE: replace(source, text=text)})
    assert bool(memory_bound_run(in_time(rows, profile))) is told


def test_without_an_order_in_time_nothing_is_said() -> None:
    rows = chain()
    assert memory_bound_run(made(rows, trace=None)) == []
    assert memory_bound_run(made(rows)) == [], "no events"
