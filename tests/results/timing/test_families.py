"""All comparisons of a cell share one error rate: simulated with a fixed seed."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.timing.intervals import Interval, Look, holm_level, median_interval
from torchbench_magic.timing.verdict import verdict

Found = list[tuple[Interval, bool]]


def level(draws: list[np.ndarray], look: Look, comparisons: int) -> float:
    """The level at which intervals of ``comparisons``, of which these were made, err together with 5 %."""

    def excluded(alpha: float) -> int:
        intervals = (median_interval(values, alpha, look) for values in draws)
        return sum(interval.low > 0 or interval.high < 0 for interval in intervals)

    return holm_level(excluded, comparisons)


def judged(draws: list[np.ndarray], look: Look) -> list[Interval]:
    alpha = level(draws, look, len(draws))
    return [median_interval(values, alpha, look) for values in draws]


@pytest.mark.parametrize("look", ["once", "anytime"])
@pytest.mark.parametrize("differing", [0, 10])
def test_a_sweep_of_identical_alternatives_rarely_holds_a_false_verdict(look: Look, differing: int) -> None:
    """20 comparisons of a median of 60 rounds: without a family, 6 in 10 such sweeps hold one."""
    generator, trials, false, alone = np.random.default_rng(0), 300, 0, 0
    for _ in range(trials):
        shifts = [0.3 if i < differing else 0.0 for i in range(20)]
        draws = [generator.normal(shift, 0.1, 60) for shift in shifts]
        null = judged(draws, look)[differing:]
        false += any(verdict(interval, 0.01) in ("faster", "slower") for interval in null)
        alone += any(
            verdict(median_interval(values, look=look), 0.01) in ("faster", "slower") for values in draws[differing:]
        )
    assert false <= 0.05 * trials
    assert alone > 2 * false


def test_a_lone_pair_is_judged_as_before() -> None:
    values = np.random.default_rng(1).normal(0.02, 0.05, 40)
    for look in ("once", "anytime"):
        assert judged([values], look) == [median_interval(values, look=look)]  # type: ignore[arg-type]


def test_what_is_clear_is_found_in_a_large_family_too() -> None:
    generator = np.random.default_rng(2)
    draws = [generator.normal(0.05, 0.02, 100) for _ in range(200)]
    assert {verdict(interval, 0.01) for interval in judged(draws, "anytime")} == {"slower"}
    assert level(draws, "anytime", 200) == 0.05


def test_comparisons_that_are_still_to_come_count() -> None:
    values = np.full(6, 0.1)
    assert level([values], "once", 1) == 0.05
    assert level([values], "once", 20) == 0.05 / 20
