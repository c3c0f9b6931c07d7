"""The rule that gives an op its class: each threshold from both sides."""

from __future__ import annotations

import math

import pytest

from torchbench_magic.process.peaks import Peaks
from torchbench_magic.profiling.efficiency.op_bytes import accounts_for, class_of
from torchbench_magic.profiling.efficiency.table import CLASSES

TWO = Peaks(threads=2, dispatch=1e-6)
ONE = Peaks(threads=1, dispatch=1e-6)


@pytest.mark.parametrize(
    ("seconds", "roof", "told"),
    [
        (3.9e-6, (3e-6, "memory"), "overhead"),
        (4.1e-6, (3e-6, "memory"), "memory"),
        (1e-3, (0.51e-3, "compute"), "compute"),
        (1e-3, (0.51e-3, "memory"), "memory"),
        (1e-3, (0.49e-3, "memory"), "below-roof"),
        (1e-3, (0.9e-6, "memory"), "overhead"),
        (1e-3, (1.9e-3, "memory"), "memory"),
        (1e-3, (2.1e-3, "memory"), ""),  # the peak must be wrong
        (0.0, (1e-3, "memory"), ""),
        (1e-3, (math.nan, ""), ""),
    ],
)
def test_time_against_the_call_and_the_roof(seconds: float, roof: tuple[float, str], told: str) -> None:
    assert class_of(seconds, roof, TWO, is_bounded=True) == told
    assert told in (*CLASSES, "")


def test_an_op_whose_arithmetic_is_not_counted_is_never_called_far_below() -> None:
    assert class_of(1e-3, (1e-5, "memory"), TWO, is_bounded=False) == ""
    assert class_of(1e-3, (0.6e-3, "memory"), TWO, is_bounded=False) == "memory"


def test_one_thread_is_a_reason_only_where_there_could_be_more() -> None:
    roof = (1e-5, "memory")
    assert class_of(1e-3, roof, TWO, is_bounded=False, is_serial=True) == "serial"
    assert class_of(1e-3, roof, ONE, is_bounded=True, is_serial=True) == "below-roof"
    assert class_of(5e-5, roof, TWO, is_bounded=True, is_serial=True) == "below-roof"


def test_page_faults_come_before_one_thread_and_after_the_roof() -> None:
    told = {"is_bounded": True, "is_faulting": True, "is_serial": True}
    assert class_of(1e-3, (1e-5, "memory"), TWO, **told) == "page-fault"
    assert class_of(1e-3, (6e-4, "memory"), TWO, **told) == "memory"


def test_without_peaks_nothing_is_told() -> None:
    assert class_of(1e-3, (math.nan, ""), Peaks(threads=2), is_bounded=True) == ""


@pytest.mark.parametrize(
    ("faults", "fresh", "told"),
    [(16384, 64 << 20, True), (4000, 64 << 20, False), (200, 512 << 10, False), (math.nan, 64 << 20, False)],
)
def test_page_faults_must_account_for_the_fresh_bytes(faults: float, fresh: float, told: bool) -> None:
    assert accounts_for(faults, fresh) is told
