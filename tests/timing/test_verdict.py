"""The word for a comparison: what speaks against it, and the error rate of all words of a cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from torchbench_magic.timing.intervals import Interval, Look, holm_level, median_interval
from torchbench_magic.timing.verdict import CAUSES, VERDICTS, Evidence, Ruling, Void, is_open, judged, verdict

# ==== judged ==========================================================================================================
# What speaks against a verdict, and what of it comes first.


WHAT = "six windows against six"
SURE = Evidence(Interval(0.5, 0.4, 0.6), 0.01, because=WHAT)
APART = Evidence(None, 0.01, said="faster")
OPEN = replace(SURE, interval=Interval(0.1, -0.1, 0.3))


def test_an_interval_that_nothing_speaks_against_decides() -> None:
    assert judged(SURE) == Ruling("slower", None, WHAT)
    assert judged(replace(OPEN, if_open="; they overlap")) == Ruling("undecided", None, f"{WHAT}; they overlap")
    assert judged(replace(SURE, if_open="; they overlap")).reason == WHAT


@pytest.mark.parametrize(
    ("found", "cause", "has_ends"),
    [
        (["stalled"], "stalled", False),
        (["used-up"], "used-up", True),
        (["used-up", "few-rounds"], "used-up", True),
        (["used-up", "unlike-blocks"], "unlike-blocks", False),
        (["unsteady"], "unsteady", True),
    ],
)
def test_what_speaks_against_a_verdict_leaves_it_open(found: list[str], cause: str, has_ends: bool) -> None:
    voids = [None, *(Void(one, 1) for one in found)]
    for evidence in (SURE, APART):
        ruling = judged(replace(evidence, voids=voids))
        assert (ruling.word, ruling.cause, ruling.told.has_ends, ruling.reason) == ("undecided", cause, has_ends, "")
    assert judged(replace(OPEN, voids=voids)).reason == WHAT


def test_a_run_that_others_slowed_down_decides_nothing() -> None:
    loaded = replace(SURE, is_loaded=True)
    assert judged(loaded) == Ruling("undecided", None, f"{WHAT}; other processes slowed down one of the runs")
    assert judged(replace(loaded, interval=OPEN.interval)) == Ruling("undecided", None, WHAT)


def test_of_a_row_measured_apart_the_word_is_known() -> None:
    assert judged(APART) == Ruling("faster")
    assert judged(replace(APART, said=None)) == Ruling(None)


def test_near_the_loop_there_is_no_verdict_whatever_else_speaks_against_it() -> None:
    near = judged(replace(SURE, voids=[Void(cause, 1) for cause in reversed([*CAUSES][:-1])]))
    assert (near.word, near.cause, near.told.has_ends) == (None, "near-loop", True)
    assert not near.is_open


def test_one_of_the_verdicts_is_open() -> None:
    assert [word for word in VERDICTS if is_open(word)] == ["undecided"]
    assert not is_open("baseline")


# ==== families ========================================================================================================
# All comparisons of a cell share one error rate: simulated with a fixed seed.


Found = list[tuple[Interval, bool]]


def level(draws: list[np.ndarray], look: Look, comparisons: int) -> float:
    """The level at which intervals of ``comparisons``, of which these were made, err together with 5 %."""

    def excluded(alpha: float) -> int:
        intervals = (median_interval(values, alpha, look) for values in draws)
        return sum(interval.low > 0 or interval.high < 0 for interval in intervals)

    return holm_level(excluded, comparisons)


def intervals_of(draws: list[np.ndarray], look: Look) -> list[Interval]:
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
        null = intervals_of(draws, look)[differing:]
        false += any(verdict(interval, 0.01) in ("faster", "slower") for interval in null)
        alone += any(
            verdict(median_interval(values, look=look), 0.01) in ("faster", "slower") for values in draws[differing:]
        )
    assert false <= 0.05 * trials
    assert alone > 2 * false


def test_a_lone_pair_is_judged_as_before() -> None:
    values = np.random.default_rng(1).normal(0.02, 0.05, 40)
    for look in ("once", "anytime"):
        assert intervals_of([values], look) == [median_interval(values, look=look)]  # type: ignore[arg-type]


def test_what_is_clear_is_found_in_a_large_family_too() -> None:
    generator = np.random.default_rng(2)
    draws = [generator.normal(0.05, 0.02, 100) for _ in range(200)]
    assert {verdict(interval, 0.01) for interval in intervals_of(draws, "anytime")} == {"slower"}
    assert level(draws, "anytime", 200) == 0.05


def test_comparisons_that_are_still_to_come_count() -> None:
    values = np.full(6, 0.1)
    assert level([values], "once", 1) == 0.05
    assert level([values], "once", 20) == 0.05 / 20
