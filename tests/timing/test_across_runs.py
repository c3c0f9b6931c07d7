"""Results of different occasions side by side: unpaired, since the last run."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from torchbench_magic.errors import InputError
from torchbench_magic.process.contention import Contention
from torchbench_magic.storage.store import Store, load
from torchbench_magic.timing.across_runs import (
    LAYOUT,
    side_by_side,
    since_last,
)
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import MOST_LINES, identity_differences, likeness, source_diffs
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.verdict import BLIND, DRIFT, RUNS, Range, Single, judged_ranges, range_of, range_of_windows

from .samples import HERE, lone, made, pair

# ==== unpaired ========================================================================================================
# Results of different occasions side by side: who is compared with whom, and when a verdict is given.


SHORT = "one run on"


def judgements(result: Comparison) -> list[tuple[object, ...]]:
    """(result, description or env, verdict, method) of each row."""
    frame = result.frame
    columns = zip(frame["result"], frame["description"], frame["verdict"], frame["method"], strict=True)
    return [tuple(None if value != value else value for value in row) for row in _no_na(columns)]


def _no_na(rows: object) -> list[tuple[object, ...]]:
    import pandas as pd

    return [tuple(None if value is pd.NA else value for value in row) for row in rows]  # type: ignore[attr-defined]


def steady(result: Comparison, *ranges: tuple[float, float] | None) -> Comparison:
    """The result, with a history of its rows."""
    known = {row: Range(*ends, RUNS, of_runs=True) for row, ends in enumerate(ranges) if ends is not None}
    return replace(result, history=known)


def single(median: float, known: Range | None = None, **more: bool) -> Single:
    """A time that is known within a per cent in its own run."""
    return Single(median, 0.99 * median, 1.01 * median, known, **more)


# ---- ranges -------------------------------------------------------------------------------------------------


def test_disjoint_ranges_of_equal_code_are_rarer_than_one_in_twenty() -> None:
    """The chance that the docstring of `ranges` states, by counting every order of RUNS + RUNS medians."""
    ranks = range(2 * RUNS)
    disjoint = total = 0
    for chosen in permutations(ranks, RUNS):
        others = set(ranks) - set(chosen)
        disjoint += max(chosen) < min(others) or max(others) < min(chosen)
        total += 1
    assert disjoint / total == pytest.approx(2 * math.factorial(RUNS) ** 2 / math.factorial(2 * RUNS))
    assert disjoint / total < 0.05


def test_a_history_needs_four_runs_and_twenty_seconds() -> None:
    assert range_of([1.0, 1.1, 1.2], 60) is None
    assert range_of([1.0, 1.1, 1.2, 1.3], 19) is None
    assert range_of([1.0, 1.3, 1.2, 1.1], 20) == Range(1.0, 1.3, 4, of_runs=True)


@pytest.mark.parametrize(
    ("this", "base", "verdict"),
    [
        ((2.0, 2.2), (1.0, 1.1), "slower"),
        ((1.0, 1.1), (2.0, 2.2), "faster"),
        ((1.0, 1.2), (1.1, 1.3), "undecided"),
        ((1.0, 1.001), (1.0, 1.001), "same"),
        ((1.004, 1.006), (1.0, 1.002), "same"),
        ((1.005, 1.03), (1.0, 1.002), "slower"),
    ],
)
def test_known_ranges_are_judged_at_their_worst_ends(
    this: tuple[float, float], base: tuple[float, float], verdict: str
) -> None:
    middle, base_middle = sum(this) / 2, sum(base) / 2
    one = judged_ranges(single(middle, Range(*this, 6)), single(base_middle, Range(*base, 6)), 0, 0.01)
    assert one.verdict == verdict
    assert one.ratio == middle / base_middle
    assert (one.low, one.high) == (this[0] / base[1], this[1] / base[0])
    assert one.reason.startswith("6 windows of one run against 6 windows of one run")


def test_a_median_outside_its_own_history_widens_the_range() -> None:
    one = judged_ranges(single(3.0, Range(1.0, 1.1, 4)), single(1.0, Range(1.0, 1.1, 4)), 0, 0.01)
    assert (one.verdict, one.high) == ("undecided", 3.0)


@pytest.mark.parametrize(("this", "base"), [(None, None), (Range(1, 1, 6), None), (None, Range(1, 1, 6))])
def test_one_run_on_either_side_does_not_decide_what_drift_can_do(this: Range | None, base: Range | None) -> None:
    one = judged_ranges(single(1.3, this), single(1.0, base), 0, 0.01)
    assert (one.verdict, one.ratio, one.low, one.high) == ("undecided", 1.3, 0.0, math.inf)
    assert one.reason.startswith(SHORT)
    assert f"{DRIFT:g} times" in one.reason


@pytest.mark.parametrize(("ratio", "verdict"), [(1.2 * DRIFT, "slower"), (1 / (1.2 * DRIFT), "faster")])
def test_a_change_far_beyond_what_drift_can_do_is_a_verdict(ratio: float, verdict: str) -> None:
    one = judged_ranges(single(ratio), single(1.0), 0, 0.01)
    assert one.verdict == verdict
    assert f"exceeds {DRIFT:g} times" in one.reason
    assert one.low <= ratio / DRIFT < ratio < ratio * DRIFT <= one.high


def test_a_range_that_is_known_to_be_wide_raises_the_bound() -> None:
    wide = Range(1.0, 3.0, 5, of_runs=True)
    assert judged_ranges(single(2 * DRIFT), single(1.0, wide), 0, 0.01).verdict == "undecided"
    assert judged_ranges(single(9.5), single(1.0, wide), 0, 0.01).verdict == "slower"


def test_a_run_whose_load_is_not_known_needs_more() -> None:
    assert judged_ranges(single(1.2 * DRIFT, load_known=False), single(1.0), 0, 0.01).verdict == "undecided"
    assert judged_ranges(single(1.2 * BLIND, load_known=False), single(1.0), 0, 0.01).verdict == "slower"


def test_a_run_that_was_held_up_can_only_be_found_to_be_the_shorter_one() -> None:
    assert judged_ranges(single(70.0, held_up=True), single(1.0), 0, 0.01).verdict == "undecided"
    assert judged_ranges(single(1.0, held_up=True), single(70.0), 0, 0.01).verdict == "faster"
    assert judged_ranges(single(70.0), single(1.0, held_up=True), 0, 0.01).verdict == "slower"
    assert judged_ranges(single(1.0), single(70.0, held_up=True), 0, 0.01).verdict == "undecided"


def test_few_samples_decide_nothing_however_far_apart() -> None:
    few = replace(single(100.0), low=0.0, high=math.inf)
    assert judged_ranges(few, single(1.0), 0, 0.01).verdict == "undecided"


def test_windows_over_twenty_seconds_know_their_range() -> None:
    long = made(Subject(stmt="f()", span=21.0), medians=[1e-3], blocks=60)
    known = long.known_range(0)
    assert known is not None
    assert known.windows == 18  # of 33 ms, in 60 blocks of 10 ms
    assert known.low <= 1e-3 <= known.high
    assert made(Subject(stmt="f()", span=19.0), medians=[1e-3], blocks=60).known_range(0) is None
    twice = side_by_side({"a": long, "b": made(Subject(stmt="f()", span=21.0), medians=[2e-3], blocks=60, seed=1)})
    assert list(twice.frame["verdict"]) == ["baseline", "slower"]


def test_the_range_of_six_windows_is_that_of_their_medians_and_of_more_what_six_would_have() -> None:
    times = np.repeat(np.arange(1.0, 7.0), 2)
    six = range_of_windows(times, 0.1, 20.0)
    assert six is not None
    assert (six.windows, six.low, six.high) == (6, pytest.approx(1.0), pytest.approx(6.0))
    many = range_of_windows(np.repeat(np.arange(1.0, 70.0), 2), 1e3, 20.0)
    assert many is not None
    assert (many.windows, many.low, many.high) == (69, pytest.approx(10.0), pytest.approx(60.0))
    assert range_of_windows(times, 0.1, 19.9) is None
    assert range_of_windows(times[:11], 0.1, 20.0) is None


def test_a_body_near_the_loops_own_cost_gets_no_verdict() -> None:
    fast = steady(lone(5e-9), (4e-9, 6e-9))
    both = side_by_side({"a": fast, "b": steady(lone(15e-9, seed=1), (14e-9, 16e-9))})
    assert both.frame["ratio"][1] == pytest.approx(3)
    assert both.frame["verdict"].isna()[1]


# ---- who is compared with whom ------------------------------------------------------------------------------


def test_lone_statements_are_compared_with_the_first_and_stay_undecided() -> None:
    both = side_by_side({"a": lone(1e-3), "b": lone(2e-3, "g(x)")})
    assert judgements(both) == [("a", None, "baseline", "unpaired"), ("b", None, "undecided", "unpaired")]
    assert both.frame["ratio"][1] == pytest.approx(2)
    (doubt,) = [d for d in both.warnings if d.kind == "unpaired"]
    assert SHORT in doubt.text
    assert "one %%timer cell" in doubt.action
    assert "--min-run-time 20" in doubt.action


def test_a_repeated_run_is_a_row_of_its_own_compared_with_the_first() -> None:
    both = side_by_side({"before": pair(1e-3, 2e-3), "after": pair(1e-3, 1e-3, seed=1)})
    assert judgements(both) == [
        ("before", "mul", "baseline", "paired"),
        ("before", "bmm", "baseline", "unpaired"),
        ("after", "mul", "undecided", "unpaired"),
        ("after", "bmm", "undecided", "unpaired"),
    ]
    assert both.frame["ratio"][3] == pytest.approx(0.5)
    assert len(both.frame) == 4


def test_runs_that_share_one_alternative_keep_their_paired_ratios() -> None:
    other = made(
        Subject(description="mul", stmt="f(x)"), Subject(description="einsum", stmt="h(x)"), medians=(1e-3, 4e-3)
    )
    both = side_by_side({"one": pair(1e-3, 2e-3), "two": other})
    assert judgements(both) == [
        ("one", "mul", "baseline", "paired"),
        ("one", "bmm", "slower", "paired"),
        ("two", "mul", "baseline", "paired"),
        ("two", "einsum", "slower", "paired"),
    ]


def test_a_baseline_of_one_run_serves_the_rows_of_another() -> None:
    both = side_by_side({"one": pair(1e-3, 2e-3), "two": lone(4e-3, "h(x)", description="einsum")}, baseline="bmm")
    assert judgements(both) == [
        ("one", "mul", "faster", "paired"),
        ("one", "bmm", "baseline", "paired"),
        ("two", "einsum", "undecided", "unpaired"),
    ]
    assert both.frame["ratio"][2] == pytest.approx(2)


def test_a_result_can_be_the_baseline() -> None:
    both = side_by_side({"one": pair(1e-3, 2e-3), "two": pair(3e-3, 3e-3, seed=1)}, baseline="two")
    assert [row[2] for row in judgements(both)] == ["undecided", "undecided", "baseline", "baseline"]
    assert list(both.frame["ratio"][:2]) == [pytest.approx(1 / 3), pytest.approx(2 / 3)]


def test_a_history_on_both_sides_decides() -> None:
    before = steady(pair(1e-3, 2e-3), (0.9e-3, 1.1e-3), (1.9e-3, 2.1e-3))
    after = steady(pair(1e-3, 1e-3, seed=1), (0.9e-3, 1.1e-3), (0.9e-3, 1.1e-3))
    both = side_by_side({"before": before, "after": after})
    assert [row[2] for row in judgements(both)] == ["baseline", "baseline", "undecided", "faster"]
    assert both.frame["ratio_high"][3] == pytest.approx(1.1 / 1.9)
    (doubt,) = [d for d in both.warnings if d.kind == "unpaired"]
    assert "their ranges overlap" in doubt.text


def test_other_inputs_and_other_environments_are_not_compared() -> None:
    found = side_by_side(
        {
            "a": lone(1e-3, sub_label="n=1"),
            "b": lone(2e-3, sub_label="n=2"),
            "c": lone(2e-3, sub_label="n=1", env="new"),
            "d": lone(2e-3, sub_label="n=1", num_threads=2),
        }
    )
    assert found.frame["verdict"].isna().all()
    (doubt,) = [d for d in found.warnings if d.kind == "no-counterpart"]
    assert "`--by env`" in doubt.action


def test_by_env_compares_the_same_thing_in_two_environments() -> None:
    old, new = pair(1e-3, 2e-3), pair(2e-3, 2e-3, seed=1)
    new = replace(new, subjects=tuple(replace(s, env="new") for s in new.subjects))
    both = side_by_side({"a": old, "b": new}, by="env")
    assert [row[2:] for row in judgements(both)] == [("baseline", "unpaired")] * 2 + [("undecided", "unpaired")] * 2
    assert list(both.frame["ratio"]) == [1, 1, pytest.approx(2), pytest.approx(1)]
    turned = side_by_side({"a": old, "b": new}, by="env", baseline="new")
    assert list(turned.frame["ratio"]) == [pytest.approx(0.5), pytest.approx(1), 1, 1]


def test_environments_without_a_name_beside_named_ones_are_no_trouble() -> None:
    found = side_by_side({"a": lone(1e-3), "b": lone(2e-3, env="x"), "c": lone(3e-3, env="")}, by="env", baseline="x")
    assert list(found.frame["verdict"]) == ["undecided", "baseline", "undecided"]
    assert "x" in str(found)


def test_points_of_a_sweep_meet_their_own_kind() -> None:
    def sweep(scale: float, seed: int) -> Comparison:
        points = [Subject(stmt="f()", sub_label=f"n={n}", axes=(("n", n),), group=n) for n in (1, 2, 3)]
        return made(*points, medians=[scale * 1e-3 * n for n in (1, 2, 3)], seed=seed)

    both = side_by_side({"a": sweep(1, 0), "b": sweep(3, 1)})
    assert list(both.frame["n"]) == [1, 2, 3] * 2
    assert list(both.frame["ratio"]) == [1] * 3 + [pytest.approx(3)] * 3


def test_a_large_sweep_takes_no_more_than_a_few_seconds() -> None:
    points = [Subject(stmt="f()", sub_label=f"n={n}", axes=(("n", n),), group=n) for n in range(500)]
    one, two = (made(*points, medians=[1e-3] * 500, blocks=6, seed=seed) for seed in (0, 1))
    assert (side_by_side({"a": one, "b": two}).frame["verdict"][500:] == "undecided").all()


# ---- what is said besides -----------------------------------------------------------------------------------


def test_unlike_clocks_are_refused_with_a_sentence() -> None:
    with pytest.raises(
        InputError, match="times of different clocks are not compared: a by the wall clock, b by the cpu"
    ):
        side_by_side({"a": lone(1e-3), "b": lone(1e-3, clock="cpu")})


@pytest.mark.parametrize("by", ["description", "env"])
def test_a_baseline_that_is_not_there_is_refused_with_those_that_are(by: str) -> None:
    with pytest.raises(InputError, match=r"no .* is called 'nope'; known: "):
        side_by_side({"a": pair(1e-3, 2e-3), "b": lone(1.0, env="E")}, baseline="nope", by=by)  # type: ignore[arg-type]


def test_differences_between_compared_runs_are_listed() -> None:
    new = replace(HERE, torch="2.14.0", commit="abc+", load=9.0, variables={"OMP_NUM_THREADS": "1"})
    found = side_by_side(
        {
            "a": lone(1e-3, "x.sum()\ny", label="L", options={"min_run_time": 0.2, "seed": 1}),
            "b": lone(1e-3, "x.sum()\nz", label="L", options={"min_run_time": 1.0, "seed": 2}, environment=new),
        }
    )
    (doubt,) = [d for d in found.warnings if d.kind == "differs"]
    assert doubt.text == (
        "From a to b: source, line 2: y -> z; option min_run_time: 0.2 -> 1.0; torch: 2.13.0 -> 2.14.0;"
        " commit: none -> abc+; OMP_NUM_THREADS: none -> 1."
    )
    assert found.environment.torch == "2.13.0 / 2.14.0"


def test_the_source_of_another_alternative_is_no_difference_and_an_edited_function_is_one() -> None:
    found = side_by_side({"a": lone(1e-3, "f(x)"), "b": lone(1e-3, "g(x)")})
    assert not [d for d in found.warnings if d.kind == "differs"]
    found = side_by_side({"a": lone(1e-3, functions=(("f", "1"),)), "b": lone(1e-3, functions=(("f", "2"),))})
    assert [d.text for d in found.warnings if d.kind == "differs"] == [
        "From a to b: source of f: edited (its text was not recorded)."
    ]


def test_rebasing_results_side_by_side_compares_anew() -> None:
    both = side_by_side({"one": pair(1e-3, 2e-3), "two": pair(3e-3, 3e-3, seed=1)})
    assert list(both.rebase("two").frame["verdict"]) == ["undecided", "undecided", "baseline", "baseline"]
    paired = both.rebase("bmm").frame
    assert list(paired["method"]) == ["paired"] * 4
    assert list(paired["verdict"]) == ["faster", "baseline", "same", "baseline"]
    with pytest.raises(InputError, match="nope"):
        both.rebase("nope")


def test_one_result_alone_is_shown_as_it_is() -> None:
    alone = side_by_side({"one": pair(1e-3, 2e-3)})
    assert judgements(alone) == [("one", "mul", "baseline", "paired"), ("one", "bmm", "slower", "paired")]


# ---- since the last time ------------------------------------------------------------------------------------


def test_since_the_last_run_each_row_stands_beside_its_own() -> None:
    before, now = pair(1e-3, 2e-3), pair(1e-3, 1e-3, seed=1)
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert judgements(found) == [
        ("last stored run", "mul", "baseline", "unpaired"),
        ("last stored run", "bmm", "baseline", "unpaired"),
        ("this run", "mul", "undecided", "unpaired"),
        ("this run", "bmm", "undecided", "unpaired"),
    ]
    assert found.warnings[0].kind == "unchanged"


def test_since_the_last_run_says_what_changed_and_what_was_not_there() -> None:
    before = lone(1e-3, "f(x)", label="L", description="mul")
    now = replace(pair(1e-3, 2e-3, seed=1), environment=replace(HERE, torch="2.14.0"))
    found = since_last(now, {0: (before, 0)})
    assert [d.text for d in found.warnings[:2]] == [
        "Since the last stored run: torch: 2.13.0 -> 2.14.0.",
        "No stored run of `bmm`: left out here.",
    ]
    assert len(found.frame) == 2


def test_since_the_last_run_decides_where_both_have_a_history() -> None:
    before = steady(lone(1e-3, label="L"), (0.9e-3, 1.1e-3))
    now = steady(lone(3e-3, "edited(x)", label="L", seed=1), (2.9e-3, 3.1e-3))
    assert list(since_last(now, {0: (before, 0)}).frame["verdict"]) == ["baseline", "slower"]


def test_nothing_stored_is_said() -> None:
    with pytest.raises(InputError, match="no stored run matches this result"):
        since_last(lone(1e-3), {})


def test_results_that_differ_by_the_same_are_said_in_one_line() -> None:
    other = replace(HERE, torch="9.9")
    runs = {name: lone(1e-3, seed=at) for at, name in enumerate("abcd")}
    runs |= {name: replace(runs[name], environment=other) for name in "bd"}
    found = side_by_side(runs)
    (text,) = [d.text for d in found.warnings if d.kind == "differs"]
    assert text == f"From a to b, d: torch: {HERE.torch} -> 9.9."


def test_what_could_not_be_compared_between_runs_of_one_code_is_said() -> None:
    read = {"inputs": (), "values": (("f", "", "TextIOWrapper"), ("n", "3", ""))}
    results = {"before": lone(1e-3, env="A", **read), "after": lone(1e-3, env="B", seed=1, **read)}
    said = {d.kind: d.text for d in side_by_side(results, by="env").warnings}
    assert said["not-compared"] == "Not compared: `f` (TextIOWrapper)."
    other = {"before": results["before"], "after": lone(1e-3, "g(x)", env="B", seed=1, **read)}
    assert "not-compared" not in {d.kind for d in side_by_side(other, by="env").warnings}


# ==== since last ======================================================================================================
# What changed since the last run: inputs, edited sources, alternatives that did not change, environments.


QUIET = Contention(wall=1.0, pressure=0.0, steal=0.0, ext=0.0, wanted=1.0, waiting=0.0)
X = (("x", "4 × 8 float32"),)


def two(manual: float, sdpa: float, *, edited: str = "", seed: int = 0, **more: object) -> Comparison:
    """``manual`` and ``sdpa`` side by side; ``edited`` is the id of a function that only manual calls."""
    subjects = (
        Subject(description="manual", label="L", stmt="f(x)", functions=(("f", edited),), inputs=X, contention=QUIET),
        Subject(description="sdpa", label="L", stmt="g(x)", inputs=X, contention=QUIET),
    )
    return made(*subjects, medians=(manual, sdpa), seed=seed, **more)  # type: ignore[arg-type]


def texts(result: Comparison, kind: str) -> list[str]:
    return [doubt.text for doubt in result.warnings if doubt.kind == kind]


# ---- inputs ------------------------------------------------------------------------------------------------


def test_a_run_on_other_inputs_is_no_repetition_and_says_in_words_what_differs() -> None:
    before, now = lone(1e-6, inputs=X), lone(1e-4, inputs=(("x", "4000 × 8 float32"),), seed=1)
    assert identity_differences(before, 0, now, 0) == ["`x` was 4 × 8 float32, is 4000 × 8 float32"]
    assert likeness(before, 0) != likeness(now, 0)
    found = since_last(now, {0: (before, 0)})
    assert texts(found, "changed") == ["Since the last stored run: `x` was 4 × 8 float32, is 4000 × 8 float32."]
    assert not texts(found, "unchanged")


def test_inputs_that_were_not_recorded_are_said_not_to_be_known() -> None:
    found = since_last(lone(1e-3, inputs=X, seed=1), {0: (lone(1e-3), 0)})
    (text,) = texts(found, "unchanged")
    assert "the shapes of its inputs were not recorded" in text
    (text,) = texts(since_last(lone(1e-3, inputs=X, seed=1), {0: (lone(1e-3, inputs=X), 0)}), "unchanged")
    assert text == "Since the last stored run: source, inputs, options and environment are the same."


def test_a_value_that_changed_is_told_by_how_the_code_says_it() -> None:
    before = lone(1e-6, inputs=X, values=(("cfg", "contents a", ""), ("cfg['size']", "10", ""), ("mode", "text a", "")))
    now = lone(
        1e-4,
        inputs=X,
        values=(("cfg", "contents b", ""), ("cfg['size']", "10000", ""), ("mode", "text b", "")),
        seed=1,
    )
    told = ["`cfg` holds other values", "`cfg['size']` was 10, is 10000", "`mode` is a different text"]
    assert identity_differences(before, 0, now, 0) == told
    assert likeness(before, 0) != likeness(now, 0)
    assert texts(since_last(now, {0: (before, 0)}), "changed") == [f"Since the last stored run: {'; '.join(told)}."]


def test_what_only_one_of_the_runs_found_is_no_likeness() -> None:
    """As after ``mymod.f = lambda: ...``: the function's own text is not recorded, its replacement is."""
    before = lone(1e-6, inputs=X, values=(("k", "2", ""),))
    now = lone(1e-4, inputs=X, values=(("k", "2", ""), ("mymod.f", "code a", "")), seed=1)
    assert identity_differences(before, 0, now, 0) == ["the code reads other values (`mymod.f`)"]
    assert texts(since_last(now, {0: (before, 0)}), "unchanged") == []


def test_a_difference_is_told_once_by_its_shape_where_that_tells_it() -> None:
    before = lone(1e-6, inputs=(("d", "list of 1"),), values=(("d", "contents a", ""),))
    now = lone(1e-6, inputs=(("d", "list of 2"),), values=(("d", "contents b", ""),), seed=1)
    assert identity_differences(before, 0, now, 0) == ["`d` was list of 1, is list of 2"]


def test_a_run_without_values_has_the_likeness_that_it_had() -> None:
    assert likeness(lone(1e-6, inputs=X, values=()), 0) == likeness(lone(1e-6, inputs=X), 0)


OTHER_WORK = {"cold", "gc", "restore"}
SAME_WORK = {  # how long and how often it is measured, where, what is shown, and what the subject has by itself
    *("threads", "min_run_time", "max_run_time", "number", "repeat", "until", "adaptive", "processes", "engines"),
    *("clock", "label", "sub_label", "description", "env", "baseline", "margin", "device", "check", "seed", "levers"),
}


def test_each_option_is_known_to_leave_the_work_as_it_is_or_makes_it_another() -> None:
    assert {item.name for item in fields(Plan)} == OTHER_WORK | SAME_WORK, "say of a new option which it is"
    one = lone(1e-6)
    for name in OTHER_WORK | SAME_WORK:
        other = replace(one, options={**one.options, name: True})
        assert (likeness(one, 0) != likeness(other, 0)) is (name in OTHER_WORK), name


def test_what_was_not_compared_is_said_where_nothing_else_changed() -> None:
    file, log = ("f", "contents a", "TextIOWrapper"), ("log", "", "the code changes it")
    now = lone(1e-3, inputs=X, values=(file, log, ("k", "2", "")), seed=1)
    (text,) = texts(since_last(now, {0: (lone(1e-3, inputs=X, values=now.subjects[0].values), 0)}), "unchanged")
    said = "`log` (the code changes it), `f` (TextIOWrapper)"
    assert text.endswith(f"environment are the same. Not compared: {said}.")
    (text,) = texts(since_last(now, {0: (lone(1e-3, inputs=X), 0)}), "unchanged")
    assert text.endswith("Not compared: `f` (not recorded then), `log` (not recorded then), `k` (not recorded then).")


def test_inputs_and_sources_are_kept_in_a_store_and_an_old_record_has_none(tmp_path: Path) -> None:
    values = (("cfg['n']", "1", ""), ("f", "contents a", "TextIOWrapper"))
    more: dict[str, object] = {"values": values, "given_values": values}
    result = lone(1e-3, inputs=X, given=X, **more, functions=(("f", "1"),), sources={"1": "def f(x): ..."})
    store = Store(tmp_path / "s.sqlite")
    store.append(result, lone(2e-3, seed=1))
    first, second = load(store.path)
    assert isinstance(first, Comparison)
    assert isinstance(second, Comparison)
    assert (first.subjects[0].inputs, first.subjects[0].given, first.sources) == (X, X, {"1": "def f(x): ..."})
    assert (first.subjects[0].values, first.subjects[0].given_values) == (values, values)
    assert second.subjects[0].inputs is None
    assert second.subjects[0].values is None


# ---- edited source -----------------------------------------------------------------------------------------

OLD = "def f(x):\n    y = x * 2\n    return y.sum()\n"
NEW = "def f(x):\n    y = x * 2\n    y = y + 1\n    return y.mean()\n"


def edited_pair() -> tuple[Comparison, Comparison]:
    before = lone(1e-3, functions=(("f", "1"),), sources={"1": OLD})
    return before, lone(1e-3, functions=(("f", "2"),), sources={"2": NEW}, seed=1)


def test_an_edited_function_is_shown_as_a_diff() -> None:
    before, now = edited_pair()
    context, new = (" def f(x):", "     y = x * 2"), ("+    y = y + 1", "+    return y.mean()")
    diff = ("@@ -1,3 +1,4 @@", *context, "-    return y.sum()", *new)
    assert source_diffs(before, 0, now, 0) == {"source of f": diff}
    found = since_last(now, {0: (before, 0)})
    assert texts(found, "changed") == ["Since the last stored run: source of f, line 3: return y.sum() -> y = y + 1."]
    shown = str(found)
    assert "f was edited: 1 line removed, 2 lines added" in shown
    for line in diff[1:]:
        assert line.strip() in shown


def test_a_diff_is_escaped_in_html() -> None:
    before, now = edited_pair()
    now = replace(now, sources={"2": NEW.replace("y.mean()", "'<script>alert(1)</script>'")})
    html = since_last(now, {0: (before, 0)})._repr_mimebundle_()["text/html"]
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_long_diff_is_cut_and_says_so() -> None:
    before, now = (lone(1e-3, "\n".join(f"f({i + by})" for i in range(100)), label="L") for by in (0, 1000))
    (lines,) = source_diffs(before, 0, now, 0).values()
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == f"… {201 - MOST_LINES} more lines"


# ---- an alternative that did not change --------------------------------------------------------------------


def test_an_unchanged_alternative_is_the_yardstick_between_two_runs() -> None:
    before, now = two(1.21e-3, 1e-3), two(5.04e-3, 2e-3, edited="2", seed=1)  # the machine is at half its speed
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    row = found.frame.iloc[2]
    assert (row["description"], row["verdict"], row["method"]) == ("manual", "slower", "unpaired")
    assert row["ratio"] == pytest.approx(2.52 / 1.21, rel=0.01)
    assert row["ratio_low"] < row["ratio"] / LAYOUT < row["ratio"] * LAYOUT < row["ratio_high"]
    (text,) = texts(found, "unpaired-verdict")
    assert "`manual` is slower: relative to `sdpa`, which did not change: 1.21 times its time then, 2.52 times" in text


def test_no_word_is_explained_that_a_row_does_not_have() -> None:
    before, now = two(1.21e-3, 1e-3), two(5.04e-3, 2e-3, edited="2", seed=1)
    row, other = now.subjects
    now = replace(now, subjects=(replace(row, used_up=(("more", "it"),)), other))
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"
    assert texts(found, "unpaired-verdict") == []


def test_a_ratio_of_ratios_within_what_runs_differ_by_is_undecided_and_said_in_words() -> None:
    found = since_last(two(1.26e-3, 1e-3, edited="2", seed=1), {at: (two(1.21e-3, 1e-3), at) for at in (0, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"
    (text,) = [text for text in texts(found, "unpaired") if "relative to" in text]
    assert "1.21 times its time then, 1.26 times now" in text


@pytest.mark.parametrize(
    "other",
    [
        {"environment": replace(HERE, torch="2.14.0")},
        {"environment": replace(HERE, variables={"OMP_NUM_THREADS": "1"})},
    ],
)
def test_an_alternative_in_another_environment_is_no_yardstick(other: dict[str, object]) -> None:
    before, now = two(1e-3, 1e-3), two(2.2e-3, 1e-3, edited="2", seed=1, **other)
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"
    assert not [d for d in found.warnings if "through" in d.text]


def test_an_alternative_that_was_given_something_else_is_no_yardstick() -> None:
    before, now = two(1e-3, 1e-3), two(2.2e-3, 1e-3, edited="2", seed=1)
    now = replace(now, subjects=tuple(replace(s, inputs=(("x", "5 float32"),)) for s in now.subjects))
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert not [d for d in found.warnings if "through" in d.text]


def test_an_alternative_whose_inputs_are_not_known_is_no_yardstick() -> None:
    before, now = pair(1e-3, 1e-3), pair(2.2e-3, 1e-3, seed=1)
    assert not [d for d in side_by_side({"a": before, "b": now}).warnings if "through" in d.text]


def test_a_yardstick_that_was_held_up_gives_no_verdict() -> None:
    held = replace(QUIET, ext=1.5, wanted=2.0, waiting=0.5)
    before, now = two(1e-3, 1e-3), two(9e-3, 1e-3, edited="2", seed=1)
    before, now = (
        replace(one, subjects=tuple(replace(s, num_threads=2, contention=by) for s in one.subjects))
        for one, by in ((before, QUIET), (now, held))
    )
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"


# ---- environments ------------------------------------------------------------------------------------------


def test_by_env_compares_environments_and_not_ten_runs_with_the_first() -> None:
    old = [lone(1e-3 * (1 + i / 100), env="old", seed=i, contention=QUIET) for i in range(5)]
    new = [lone(4e-3 * (1 + i / 100), env="new", seed=9 + i, contention=QUIET) for i in range(5)]
    mixed = {f"r[{at}]": one for at, one in enumerate(x for both in zip(old, new, strict=True) for x in both)}
    found = side_by_side(mixed, by="env")
    assert list(found.frame["env"]) == ["old", "new"]
    assert list(found.frame["result"]) == ["r[8]", "r[9]"]
    assert list(found.frame["verdict"]) == ["baseline", "slower"]
    (text,) = texts(found, "earlier-runs")
    assert text == "The latest run of each environment is compared; 8 earlier rows are not shown."
    assert math.isclose(found.frame["ratio"].iloc[1], 4, rel_tol=0.01)


def test_the_first_env_stays_the_baseline_when_its_latest_run_is_the_newest() -> None:
    runs = {"a": lone(1e-3, env="old"), "b": lone(1e-3, env="new", seed=1), "c": lone(1e-3, env="old", seed=2)}
    assert list(side_by_side(runs, by="env").frame["env"]) == ["old", "new"]
