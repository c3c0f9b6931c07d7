"""When compiling has paid."""

from __future__ import annotations

import math

import pytest

from torchbench_magic.timing.samples import calls_to_pay


@pytest.mark.parametrize(
    ("compiling", "before", "after", "calls"),
    [(4.0, 3e-3, 1e-3, 2000), (1.0, 3e-3, 1e-3, 500), (0.0, 2.0, 1.0, 0), (1.0, 0.9, 0.3, 2)],
)
def test_it_is_the_compile_time_over_what_a_call_saves(
    compiling: float, before: float, after: float, calls: int
) -> None:
    assert calls_to_pay(compiling, before, after) == calls


def test_what_is_no_faster_never_pays() -> None:
    assert math.isnan(calls_to_pay(1.0, 1e-3, 1e-3))
    assert math.isnan(calls_to_pay(1.0, 1e-3, 2e-3))


def test_what_is_not_known_gives_no_number() -> None:
    assert math.isnan(calls_to_pay(math.nan, 1.0, 0.5))
    assert math.isnan(calls_to_pay(1.0, 1.0, math.nan))
