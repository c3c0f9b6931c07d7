from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from torchbench_magic.timing.intervals import (
    ALPHA,
    ANYTIME,
    Interval,
    Look,
    confidence_of_ranges,
    far_ratio,
    log_ratio_interval,
    median_interval,
    mixture_rank,
    order_rank,
    rounds_for_an_interval,
    rounds_for_ranges,
    without_order_effect,
)
from torchbench_magic.timing.verdict import rounds_to_decide, verdict


def test_five_samples_give_no_exact_interval_and_six_give_their_range() -> None:
    assert order_rank(5) == -1
    assert order_rank(6) == 0
    assert median_interval(np.array([1.0, 2, 3, 4, 5, 9])) == Interval(3.5, 1.0, 9.0)


@pytest.mark.parametrize(("n", "rank"), [(10, 1), (20, 5), (50, 17), (100, 39)])
def test_order_ranks_are_those_of_the_binomial_tables(n: int, rank: int) -> None:
    assert order_rank(n) == rank


def test_the_normal_approximation_meets_the_exact_ranks() -> None:
    assert abs(order_rank(2001) - order_rank(2000)) <= 2


def test_two_alternatives_need_six_rounds_for_one_look_and_three_need_seven() -> None:
    assert [rounds_for_an_interval("once", ALPHA / comparisons) for comparisons in (1, 2, 3)] == [6, 7, 7]


# ---- ranges far apart ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 6])
def test_ranges_of_exchangeable_blocks_are_apart_as_often_as_is_said(n: int) -> None:
    """All ways to share 2 n blocks between two sides, each block ten times the last: two of them part the sides."""
    values = 10.0 ** np.arange(2 * n)
    ways = [np.isin(np.arange(2 * n), taken) for taken in itertools.combinations(range(2 * n), n)]
    found = [far_ratio(values[one], values[~one], "anytime") for one in ways]
    assert sum(each is not None for each in found) == 2
    assert len(ways) == math.comb(2 * n, n)
    assert 2 / len(ways) <= (1 - ANYTIME) * ALPHA


@pytest.mark.parametrize("look", ["once", "anytime"])
def test_both_rules_together_err_no_more_often_than_is_promised(look: Look) -> None:
    """The run ends with the first that gives a word, so their errors are added: the ranges' and the ranks'."""
    for comparisons in range(1, 200):
        level = ALPHA / comparisons
        few, need = rounds_for_ranges(look, level), rounds_for_an_interval(look, level)
        ranks = 2.0 ** (1 - need) if look == "once" else ANYTIME * level
        assert few <= need
        assert few == need or 2 / math.comb(2 * few, few) + ranks <= level
    assert rounds_for_ranges(look) == 5


def test_the_interval_of_ranges_holds_the_ratio_as_often_as_is_said_where_one_side_repeats_exactly() -> None:
    """Of 5 blocks, each as likely below its median as above, at least one lies on either side of it: 30 of 32 ways."""
    slow = 10.0 + np.array([*itertools.product((-1, 1), repeat=5)])
    found = [far_ratio(blocks, np.ones(5), "once") for blocks in slow]
    held = [each is not None and each.low <= math.log(10) <= each.high for each in found]
    assert np.mean(held) == confidence_of_ranges(5) == 0.9375


def test_only_a_distance_of_three_times_between_all_blocks_is_far_apart() -> None:
    slow = np.array([3.1, 3.2, 3.3, 3.2, 3.1])
    found = far_ratio(slow, np.full(5, 1.0), "once")
    assert found is not None
    assert found.exp().low == pytest.approx(3.1)
    assert found.exp().high == pytest.approx(3.3)
    turned = far_ratio(np.full(5, 1.0), slow, "once")
    assert turned is not None
    assert turned.exp().high == pytest.approx(1 / 3.1)
    for near in ([3.1, 3.2, 3.3, 3.2, 2.9], [3.1, 3.2, 3.3, 3.2], [3.1, 3.2, 3.3, 3.2, 0.0]):
        assert far_ratio(np.array(near), np.full(len(near), 1.0), "once") is None


def test_the_mixture_cannot_decide_below_twelve_rounds() -> None:
    assert mixture_rank(11) == -1
    assert mixture_rank(12) == 0
    assert mixture_rank(13, 0.025) == -1
    assert mixture_rank(14, 0.025) == 0


def test_the_mixture_rank_is_the_largest_that_its_formula_rejects() -> None:
    def martingale(s: int, n: int, a: float = 5.0) -> float:
        beta = math.lgamma(a + s) + math.lgamma(a + n - s) - math.lgamma(2 * a + n)
        return beta - (2 * math.lgamma(a) - math.lgamma(2 * a)) + n * math.log(2)

    for n in (12, 37, 150, 999):
        k = mixture_rank(n)
        assert martingale(k, n) >= math.log(20) > martingale(k + 1, n)


def test_an_interval_valid_at_every_look_is_wider_than_one_for_a_single_look() -> None:
    values = np.arange(200.0)
    assert median_interval(values, look="anytime").width > median_interval(values, look="once").width


def test_looking_after_every_round_keeps_the_error_rate() -> None:
    """Identical code, looked at after every one of 300 rounds: a fixed-n interval would alarm in 40 % or so."""
    generator, alarms = np.random.default_rng(1), 0
    for _ in range(200):
        values = generator.normal(size=300)
        looks = (median_interval(values[:n], look="anytime") for n in range(12, 301, 4))
        alarms += any(look.low > 0 or look.high < 0 for look in looks)
    assert alarms <= 17  # 5 % of 200 with three standard deviations


def test_several_comparisons_share_one_error_rate() -> None:
    values = np.arange(100.0)
    assert log_ratio_interval(values, 3, "once").width > log_ratio_interval(values, 1, "once").width


def test_an_order_effect_is_taken_out_and_the_median_stays() -> None:
    generator = np.random.default_rng(0)
    before = generator.random(400) < 0.5
    values = 0.02 + generator.normal(scale=0.001, size=400) + np.where(before, 0.03, -0.03)
    moved = without_order_effect(values, before)
    assert median_interval(moved).median == pytest.approx(0.02, abs=0.0005)
    assert median_interval(moved).width < 0.001 < 0.05 < median_interval(values).width


def test_few_rounds_of_an_order_and_an_effect_that_is_not_known_move_nothing() -> None:
    values, before = np.arange(30.0), np.arange(30) < 9
    assert without_order_effect(values, before) is values
    generator = np.random.default_rng(1)
    before = generator.random(60) < 0.5
    values = generator.standard_t(1.2, size=60) * 0.005 + np.where(before, 0.0004, -0.0004)
    assert without_order_effect(values, before) is values


@pytest.mark.parametrize("faster", [0.5, 0.45])
def test_two_speeds_around_the_others_are_no_order_effect(faster: float) -> None:
    generator, alarms = np.random.default_rng(2), 0
    for _ in range(200):
        before = generator.random(100) < 0.5
        values = np.where(generator.random(100) < faster, math.log(0.5), math.log(1.5)) + generator.normal(0, 0.01, 100)
        found = median_interval(without_order_effect(values, before))
        alarms += found.width < 0.5 and abs(found.median) < 0.35  # fits neither speed
    assert alarms <= 2


@pytest.mark.parametrize("effect", [*(pytest.param(effect, marks=pytest.mark.slow) for effect in (0.0, 0.003)), 0.03])
def test_taking_an_order_effect_out_keeps_the_error_rate(effect: float) -> None:
    generator, alarms = np.random.default_rng(5), 0
    for _ in range(150):
        before = generator.random(200) < 0.5
        values = generator.standard_t(1.2, size=200) * 0.005 + np.where(before, effect, -effect)
        looks = (
            median_interval(without_order_effect(values[:n], before[:n]), look="anytime") for n in range(12, 201, 6)
        )
        alarms += any(look.low > 0 or look.high < 0 for look in looks)
    assert alarms <= 15


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval(0.0, -0.005, 0.005), "same"),
        (Interval(0.05, 0.02, 0.08), "slower"),
        (Interval(-0.05, -0.08, -0.02), "faster"),
        (Interval(0.05, -0.01, 0.08), "undecided"),
        (Interval(0.006, 0.001, 0.012), "undecided"),  # excludes 1, but the median is inside the margin
        (Interval(0.5, -math.inf, math.inf), "undecided"),
        (Interval(0.5, 0.3, math.inf), "undecided"),  # the table says of it that its interval is not known
        (Interval(-0.5, -math.inf, -0.3), "undecided"),
    ],
)
def test_verdicts(interval: Interval, expected: str) -> None:
    assert verdict(interval, 0.01) == expected


def test_a_wider_margin_makes_more_things_the_same() -> None:
    interval = Interval(0.03, 0.02, 0.04)
    assert verdict(interval, 0.01) == "slower"
    assert verdict(interval, 0.05) == "same"


def test_rounds_to_decide_grow_with_the_square_of_the_width() -> None:
    narrow, wide = Interval(0.05, -0.05, 0.15), Interval(0.05, -0.15, 0.25)
    assert rounds_to_decide(wide, 100, 0.01) == pytest.approx(4 * rounds_to_decide(narrow, 100, 0.01))
    assert rounds_to_decide(Interval(math.log1p(0.01), -1.0, 1.0), 100, 0.01) == math.inf
    assert math.isnan(rounds_to_decide(Interval(0.5, -math.inf, math.inf), 5, 0.01))
