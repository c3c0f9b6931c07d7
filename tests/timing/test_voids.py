"""A verdict is withheld where the run itself knows that its ratio is not that of the code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from torchbench_magic import Comparison, load
from torchbench_magic.process.contention import Contention
from torchbench_magic.process.environment import Environment
from torchbench_magic.show import text
from torchbench_magic.timing import view
from torchbench_magic.timing.across_runs import side_by_side
from torchbench_magic.timing.intervals import Interval, median_interval, rounds_for_an_interval
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.scaling import thread_curves
from torchbench_magic.timing.verdict import CAUSES, Cause, Ruling, Void
from torchbench_magic.timing.voids import far_apart, range_of_parts, spell_factor, widened
from torchbench_magic.timing.warnings import doubts_of

Blocks = tuple[Sequence[float], float, int]  # seconds of each block, processor over wall time, calls in a block
BESIDE_THREE = Contention(wall=1.0, ext=1.6, wanted=2.0, waiting=1.6, pressure=0.99, involuntary=140.0, steal=0.0)
IDLE = Contention(wall=1.0, ext=0.0, wanted=2.0, waiting=0.01, pressure=0.01, involuntary=10.0, steal=0.0)


def made(a: Blocks, b: Blocks, load: Contention = BESIDE_THREE, threads: int = 2) -> Comparison:
    subjects = tuple(Subject(description=n, num_threads=threads, contention=load, page_faults=0.0) for n in "ab")
    rows = [
        (at, row, wall, wall * share, number, row)
        for row, (walls, share, number) in enumerate((a, b))
        for at, wall in enumerate(walls)
    ]
    samples = pd.DataFrame(rows, columns=["round", "measurement", "wall", "cpu", "number", "position"])
    return Comparison(subjects, samples, Environment("3.11", "2.13", usable_cores=2))


def near(level: float, n: int = 60, seed: int = 0, spread: float = 0.01) -> list[float]:
    return list(level * (1 + spread * np.random.default_rng(seed).normal(size=n)))


def verdict(of: Comparison) -> str:
    return str(of.frame["verdict"][1])


def said(of: Comparison) -> str:
    return " ".join(text.render(view.document(replace(of, warnings=doubts_of(of)))).split())


# ---- stalls --------------------------------------------------------------------------------------------------------

# The README's pair beside three busy processes on two cores: each end of a parallel region waits for a slice.
STALLED = made((near(19.8e-3, 16), 0.39, 2), (near(39.6e-3, 16, seed=1), 0.40, 2))


def test_where_the_typical_block_waits_for_a_core_there_is_no_verdict_and_no_interval() -> None:
    row = STALLED.frame.iloc[1]
    assert row["ratio"] == pytest.approx(2, rel=0.02)
    assert (row["verdict"], row["ratio_low"], row["ratio_high"]) == ("undecided", 0.0, math.inf)
    assert not STALLED.undecided_seconds, "more of the same decides nothing"


def test_the_sentence_the_table_and_the_doubts_agree_on_it() -> None:
    shown = said(STALLED)
    assert shown.startswith("b against a is undecided: threads waited for other processes")
    assert "! Busy machine (other processes used up to 1.6 cores): absolute times are unreliable" in shown
    assert "no verdict on b. Measure again on a quiet machine" in shown
    assert "ratios are still valid" not in shown
    assert "not known undecided, see below" in " ".join(shown.split())


def test_a_whole_core_for_two_threads_is_not_enough_where_blocks_are_long() -> None:
    # Beside one busy process: 8 against 16 ms of code that takes 113 and 104 us, the interval within 3 %.
    load = replace(BESIDE_THREE, ext=1.0, waiting=1.0)
    assert verdict(made((near(7.9e-3, 13), 1.0, 1), (near(15.8e-3, 13), 1.0, 1), load)) == "undecided"


def test_a_typical_block_many_times_its_shortest_is_a_stall() -> None:
    long = [*near(95e-6, 6), *near(6.3e-3, 54)]
    load = replace(BESIDE_THREE, ext=0.95, waiting=0.94, wanted=1.95)
    assert verdict(made((near(200e-6), 1.0, 4), (long, 0.99, 1), load)) == "undecided"


def test_a_loaded_machine_alone_takes_no_verdict_away_and_the_doubts_say_so() -> None:
    quick = made(([*near(200e-6, 90), *near(30e-3, 10)], 1.0, 2), (near(260e-6, 100), 1.0, 2))
    assert verdict(quick) == "slower"
    shown = said(quick)
    assert "The ratios are still valid" in shown
    assert "No verdict" not in shown


def test_code_that_sleeps_by_itself_keeps_its_verdict_where_threads_waited_far_less_than_it_slept() -> None:
    little = replace(BESIDE_THREE, wall=0.24, wanted=0.4, waiting=0.12)
    slept = made((near(1e-3), 1.0, 1), (near(3e-3), 0.02, 1), little)
    assert verdict(slept) == "slower"
    waited = replace(BESIDE_THREE, wall=0.24, wanted=0.9, waiting=0.5)
    assert verdict(made((near(1e-3), 1.0, 1), (near(3e-3), 0.02, 1), waited)) == "undecided"


def test_one_working_thread_is_judged_where_its_work_alone_is_three_times_the_time_of_the_other_side() -> None:
    load = replace(BESIDE_THREE, wanted=1.05, waiting=0.5)
    slow, fast = (near(0.4, 8), 0.6, 1), (near(12e-3, 8, seed=1), 0.7, 4)
    far = made(slow, fast, load)
    assert verdict(far) == "faster"
    row = far.frame.iloc[1]
    (a, b), share = (far.call_times(0), far.call_times(1)), (0.6, 0.7)
    assert row["ratio_low"] == pytest.approx(share[1] * b.min() / a.max())
    assert row["ratio_high"] == pytest.approx(b.max() / (share[0] * a.min()))
    assert far.by_ranges == {1: 8}
    compiling = replace(far, subjects=(far.subjects[0], replace(far.subjects[1], compiled_in_samples=3)))
    assert verdict(compiling) == "undecided", "nor where some of them compiled"
    assert verdict(made(slow, fast, replace(load, wanted=1.9))) == "undecided", "threads may spin for each other"
    assert verdict(made((near(14e-3, 8), 0.6, 1), (near(12e-3, 8, seed=1), 0.7, 4), load)) == "undecided"
    assert verdict(made(slow, (near(1.2e-3, 4, seed=1), 0.7, 4), load)) == "undecided", "too few rounds"


def test_code_of_one_thread_keeps_its_verdict_beside_six_busy_processes() -> None:
    load = replace(BESIDE_THREE, wanted=1.0, waiting=0.75)
    assert verdict(made((near(200e-6), 1.0, 10), (near(220e-6), 1.0, 10), load)) == "slower"


def test_the_same_blocks_on_an_idle_machine_or_at_one_thread_keep_theirs() -> None:
    blocks = (near(19.8e-3, 16), 0.39, 2), (near(39.6e-3, 16, seed=1), 0.40, 2)
    assert verdict(made(*blocks, IDLE)) == "slower", "a body that sleeps"
    assert verdict(made(*blocks, replace(BESIDE_THREE, wanted=1.0), threads=1)) == "slower"
    assert verdict(made(*blocks, threads=1)) == "undecided", "a body that starts threads"


def test_long_calls_of_one_thread_are_compared_by_processor_time_where_others_took_its_core() -> None:
    """Of 2 and 6 ms only the second waits for a slice: by the wall clock they are 7 times apart."""
    load = replace(BESIDE_THREE, wanted=1.0, waiting=0.6)
    pair = (near(2e-3), 1.0, 20), (near(14e-3, seed=1), 0.45, 20)
    of = made(*pair, load, threads=1)
    assert of.by_processor_time == {0, 1}
    assert of.frame["ratio"][1] == pytest.approx(0.45 * 7, rel=0.01)
    assert of.frame["median"][1] == pytest.approx(14e-3 / 20, rel=0.01)
    assert "Ratios are of processor time, which others do not lengthen." in said(of)
    assert "processor time / processor time of a at the same point" in said(of)
    assert made(*pair, replace(load, wanted=0.5), threads=1).by_processor_time == set(), "a body that sleeps"
    assert replace(of, clock="cpu").by_processor_time == set(), "as asked"
    short = made((near(200e-6), 1.0, 10), (near(220e-6), 1.0, 10), load, threads=1)
    assert short.by_processor_time == set(), "its blocks fit into slices"


def test_code_that_also_sleeps_is_judged_by_the_wall_clock_and_not_where_its_typical_block_waited() -> None:
    """A file that is synced, beside a sum: of 60 blocks of 6 ms, 0.12 ms each is processor time."""
    synced, summed = (near(6e-3), 0.02, 1), (near(200e-6, seed=1), 1.0, 5)
    for slept, word in ((0.3, "faster"), (0.01, "undecided")):
        of = made(synced, summed, replace(BESIDE_THREE, wall=0.4, wanted=1 - slept / 0.4, waiting=0.5), threads=1)
        assert (of.by_processor_time, verdict(of)) == (set(), word), "it slept all that time, or waited for a core"


def test_where_waiting_is_not_known_the_load_of_others_stands_for_it() -> None:
    unknown = replace(BESIDE_THREE, waiting=math.nan, wanted=math.nan)
    blocks = (near(19.8e-3, 16), 0.39, 2), (near(39.6e-3, 16, seed=1), 0.40, 2)
    assert verdict(made(*blocks, unknown)) == "undecided"
    assert verdict(made(*blocks, replace(unknown, ext=math.nan))) == "slower"


def test_blocks_of_single_calls_beside_blocks_of_a_dozen_give_no_verdict() -> None:
    load = replace(BESIDE_THREE, ext=0.87, waiting=0.87)
    odd = made((near(48e-6, 34), 1.0, 1), (near(190e-6, 34, seed=1), 1.0, 11), load)
    assert verdict(odd) == "undecided"
    assert "chose 11 calls per block for b and 1 for a" in said(odd)


def test_a_rebased_joined_and_stored_result_withholds_it_too(tmp_path: object) -> None:
    path = f"{tmp_path}/runs.sqlite"
    STALLED.save(path)
    (again,) = load(path)
    assert verdict(again) == "undecided"
    assert str(STALLED.rebase("b").frame["verdict"][0]) == "undecided"
    assert "undecided" in STALLED.to_markdown()
    beside = side_by_side({"one": STALLED, "two": STALLED}, baseline="a")
    assert [str(word) for word in beside.frame["verdict"]] == ["baseline", "undecided"] * 2


def test_a_lone_stalled_time_says_that_it_is_of_waiting_and_a_speed_up_of_it_is_none() -> None:
    quick = [(at, 0, 200e-6, 200e-6, 2, 0) for at in range(20)]
    slow = [(at, 1, wall, wall * 0.4, 2, 0) for at, wall in enumerate(near(19.8e-3, 20))]
    samples = pd.DataFrame([*quick, *slow], columns=["round", "measurement", "wall", "cpu", "number", "position"])
    subjects = (
        Subject(stmt="f(x)", contention=IDLE),
        Subject(stmt="f(x)", num_threads=2, group=1, contention=BESIDE_THREE),
    )
    lone = Comparison(subjects, samples, Environment("3.11", "2.13", usable_cores=2))
    assert any(str(doubt).startswith("The time of the code (2 threads) is mostly waiting") for doubt in doubts_of(lone))
    (curve,) = thread_curves(lone)
    assert math.isnan(curve.points[1].speed_up)
    assert curve.knee is None


# ---- spells --------------------------------------------------------------------------------------------------------


def test_rounds_of_one_speed_count_one_by_one_and_those_of_two_spells_do_not() -> None:
    rng = np.random.default_rng(0)
    assert spell_factor(rng.normal(size=800)) == 1.0
    spells = np.concatenate([rng.normal(0.12, 0.02, 300), rng.normal(-0.18, 0.02, 500)])
    assert spell_factor(spells) > 20
    assert spell_factor(spells[::60]) == 1.0, "too few to tell"


def test_independent_rounds_are_called_spells_once_in_a_thousand() -> None:
    rng = np.random.default_rng(1)
    assert sum(spell_factor(rng.standard_cauchy(200)) > 1 for _ in range(2000)) <= 8


def test_an_interval_is_widened_by_the_root_of_the_factor_in_ranks() -> None:
    values = np.arange(1001.0)
    assert widened(Interval(500, 480, 520), values, 1.0) == Interval(500, 480, 520)
    wide = widened(Interval(500, 480, 520), values, 9.0)
    assert (wide.low, wide.high) == pytest.approx((440, 560), abs=2)
    assert widened(Interval(500, 480, 520), values, 1e6) == Interval(500, -math.inf, math.inf)


def test_a_ratio_of_two_states_of_the_machine_is_not_a_verdict() -> None:
    # One thread, an idle guest: bmm takes 250 or 440 us with the state of a cache that is shared with other guests.
    a, b = [*near(250e-6, 70), *near(430e-6, 130)], [*near(285e-6, 70, seed=1), *near(361e-6, 130, seed=1)]
    spells = made((a, 1.0, 1), (b, 1.0, 1), replace(IDLE, wanted=1.0), threads=1)
    row = spells.frame.iloc[1]
    assert row["verdict"] == "undecided"
    assert row["ratio"] < 0.85
    assert row["ratio_high"] > 1.1
    shown = said(spells)
    assert shown.startswith("b against a is undecided: the ratio changed during the run")
    assert "b was 0.88 to 1.20 times as fast in different parts of the run" in shown
    assert "ratios are still valid" not in shown


@pytest.mark.parametrize(("calls", "cause"), [(200, "one-way"), (39, "unsteady")])
def test_a_ratio_that_only_rises_is_of_a_side_that_does_more_with_every_call(calls: int, cause: str) -> None:
    rising = [(7 + 70 * n / calls) * 1e-6 for n in range(calls)]
    grows = made((near(9e-6, calls), 1.0, 1), (rising, 1.0, 1), replace(IDLE, wanted=1.0), threads=1)
    assert (grows.frame["verdict"][1], grows.voids[1].cause) == ("undecided", cause), "of few rounds it is not known"
    shuffled = np.random.default_rng(0).permutation(rising).tolist()
    mixed = made((near(9e-6, calls), 1.0, 1), (shuffled, 1.0, 1), replace(IDLE, wanted=1.0), threads=1)
    assert mixed.voids.get(1) is None or mixed.voids[1].cause != "one-way"


def in_spells(first: float, then: float, stalled: Sequence[int] = ()) -> Comparison:
    """One thread, an idle machine: the ratio is ``first`` in one half of the run and ``then`` in the other.

    Args:
        stalled: rounds in which the block of the baseline was set aside for 20 of its times.
    """
    a = near(1e-4, 200, spread=0.002)
    b = [*near(first * 1e-4, 100, seed=1, spread=0.002), *near(then * 1e-4, 100, seed=2, spread=0.002)]
    for at in stalled:
        a[at] *= 20
    return made((a, 1.0, 1), (b, 1.0, 1), replace(IDLE, wanted=1.0), threads=1)


@pytest.mark.parametrize("stalled", [(), (3, 40, 110, 111)], ids=["calm", "stalled"])
@pytest.mark.parametrize(
    ("first", "then", "word"), [(17, 19, "slower"), (19, 17, "slower"), (1 / 17, 1 / 19, "faster")]
)
def test_spells_of_a_ratio_that_no_state_of_a_machine_makes_leave_the_verdict(
    first: float, then: float, word: str, stalled: Sequence[int]
) -> None:
    far = in_spells(first, then, stalled)
    row = far.frame.iloc[1]
    assert row["verdict"] == word
    assert (row["ratio_low"], row["ratio_high"]) == pytest.approx(sorted((first, then)), rel=0.002)
    assert "undecided" not in said(far)


@pytest.mark.parametrize(("first", "then"), [(0.9, 1.1), (2.0, 3.0), (1 / 19, 19)])
def test_spells_on_both_sides_of_what_a_machine_may_do_withhold_it(first: float, then: float) -> None:
    assert verdict(in_spells(first, then)) == "undecided"


def test_a_baseline_stays_one_and_what_is_compared_with_it_has_its_cause() -> None:
    calm = made((near(200e-6), 1.0, 10), (near(220e-6), 1.0, 10), IDLE)
    assert [(one.word, one.cause) for one in calm.rulings] == [("baseline", ""), ("slower", "")]
    a, b = calm.subjects
    spent = replace(calm, subjects=(replace(a, used_up=(("less", "x"),)), b))
    assert [(one.word, one.cause) for one in spent.rulings] == [("baseline", ""), ("undecided", "used-up")]
    assert not spent.voids, "not by its numbers"


def test_a_new_cause_is_told_everywhere_by_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAUSES, "odd", Cause("the clock ran backwards", "Set the clock."))
    odd = made((near(200e-6), 1.0, 10), (near(220e-6), 1.0, 10), IDLE)
    monkeypatch.setitem(vars(odd), "rulings", (Ruling("baseline"), Ruling("undecided", Void("odd", 1))))
    shown = text.render(view.document(odd))
    assert shown.startswith("b against a is undecided: the clock ran backwards")
    assert "not known  undecided, see below" in shown
    assert [str(doubt) for doubt in doubts_of(odd)] == ["No verdict on b: the clock ran backwards. Set the clock."]


# ---- the medians ---------------------------------------------------------------------------------------------------


def test_medians_that_contradict_the_ratio_are_explained() -> None:
    # The machine slows down, b takes 1.3 times as long throughout and took part in more rounds of the slow part.
    a = [*near(10e-6, 60), *near(12e-6, 50)]
    b = [1.3 * x for x in a]
    b = [*b, *near(21e-6, 40)]
    apart = made((a, 1.0, 1), (b, 1.0, 1), replace(IDLE, wanted=1.0), threads=1)
    quotient = apart.frame["median"][1] / apart.frame["median"][0]
    assert apart.frame["ratio"][1] == pytest.approx(1.3)
    assert quotient > 1.5
    (doubt,) = [doubt for doubt in doubts_of(apart) if doubt.kind == "medians"]
    assert f"the medians alone give {quotient:.3g} times as long, the ratio 1.3. Trust the ratio" in str(doubt)
    assert not [d for d in doubts_of(made((near(1e-4), 1.0, 1), (near(2e-4), 1.0, 1), IDLE)) if d.kind == "medians"]


# ---- too few rounds ------------------------------------------------------------------------------------------------


def test_a_verdict_that_too_few_rounds_leave_open_says_so() -> None:
    few = made(([0.81, 0.82], 1.0, 4000), ([1.1e-4, 1.2e-4], 1.0, 4000), IDLE)
    assert verdict(few) == "undecided"
    assert not few.undecided_seconds
    assert "b against a is undecided: there are too few rounds" in said(few)
    assert "undecided, see below" in said(few)
    need = rounds_for_an_interval(few.subjects[1].look)
    assert f"No verdict on b: 2 rounds are too few, at least {need} are needed." in said(few)


def test_rounds_that_compiled_decide_nothing_and_neither_do_ranges_with_them() -> None:
    fast, slow = (near(1e-4, 38), 1.0, 4), ([0.5] * 8 + near(1.3e-4, 30, seed=1), 1.0, 1)
    plain = made(fast, (slow[0][:5], 1.0, 1), IDLE)
    assert (verdict(plain), plain.by_ranges) == ("slower", {1: 5})
    need = rounds_for_an_interval(plain.subjects[1].look)

    def compiling(times: int, rounds: int) -> Comparison:
        run = made(fast, (slow[0][:rounds], 1.0, 1), IDLE)
        return replace(run, subjects=(run.subjects[0], replace(run.subjects[1], compiled_in_samples=times)))

    assert verdict(compiling(5, 5)) == "undecided"
    assert verdict(compiling(8, 7 + need)) == "undecided"
    left = f"No verdict on b: {need - 1} rounds without compiling are too few, at least {need} are needed."
    assert any(left in str(doubt) for doubt in doubts_of(compiling(8, 7 + need)))
    assert compiling(8, 38).frame["verdict"][1] == "slower"


def test_no_undecided_row_is_without_a_reason_or_the_seconds_that_it_needs() -> None:
    for n in range(1, 40):
        for level in (1.0, 1.005, 1.3, 500.0):
            found = made((near(1e-3, n), 1.0, 1), (near(level * 1e-3, n, seed=1, spread=0.1), 1.0, 1), IDLE)
            if verdict(found) == "undecided":
                assert 1 in found.voids or found.undecided_seconds[1] > 0, (n, level)


def test_an_interval_needs_as_many_rounds_as_are_said() -> None:
    for look in ("once", "anytime"):
        need = rounds_for_an_interval(look)
        assert np.isfinite(median_interval(np.arange(need, dtype=float), look=look).width)
        assert not np.isfinite(median_interval(np.arange(need - 1, dtype=float), look=look).width)


def test_ratios_too_small_for_a_number_are_far_apart_too() -> None:
    """A damaged store may hold any times; the logarithm of 0 was an error that was none of ours."""
    for far in (-800.0, 800.0):
        found = far_apart(np.full(64, far))
        assert found is not None
        assert (found.low, found.high) == (far, far)
        assert range_of_parts(np.full(64, far)) in ((0.0, 0.0), (math.inf, math.inf))
