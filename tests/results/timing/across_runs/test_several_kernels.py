"""Runs of one pair in several kernels are processes of one measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from torchbench_magic.results import Doubt
from torchbench_magic.storage.store import Store
from torchbench_magic.timing.across_runs import (
    join_comparisons,
    join_processes,
    of_several_kernels,
    ratios_by_kernel,
    side_by_side,
    since_last,
    with_kernels,
)
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.warnings import doubts_of

from ...samples import pair

TURNS = [0.98, 0.985, 0.99, 1.005, 1.02, 1.03]


def runs(ratios: Sequence[float], *, kernels: Sequence[str] = "abcdefghij") -> list[Comparison]:
    return [pair(1e-6, r * 1e-6, seed=n, kernel=k) for n, (r, k) in enumerate(zip(ratios, kernels, strict=False))]


def named(results: Sequence[Comparison]) -> dict[str, Comparison]:
    return {f"run {n}": result for n, result in enumerate(results, 1)}


def of_kind(made: Comparison, kind: str) -> list[Doubt]:
    return [doubt for doubt in made.warnings if doubt.kind == kind]


def test_kernels_that_say_opposite_things_decide_nothing_together() -> None:
    made = side_by_side(named(runs(TURNS)))
    (doubt,) = of_kind(made, "kernels")
    assert doubt.facts["verdict"] == "undecided"
    assert doubt.text.startswith("Over 6 sessions `bmm` is undecided against `mul`: 1.0")
    assert doubt.text.endswith(" (0.98 … 1.03). Within one session it was faster in 2 and slower in 2.")
    assert made.warnings[0] is doubt
    assert not of_kind(made, "this-kernel")


def test_a_ratio_at_another_thread_count_is_still_of_one_kernel() -> None:
    doubts = of_several_kernels(runs([1.02, 1.021]))
    threads = tuple(replace(subject, num_threads=2) for subject in pair(1e-6, 1.02e-6).subjects)
    for subjects, kept in ((pair(1e-6, 1.02e-6).subjects, 0), (threads, 1)):
        made = replace(pair(1e-6, 1.02e-6), subjects=subjects)
        made = with_kernels(replace(made, warnings=doubts_of(made)), doubts)
        assert len(of_kind(made, "kernels")) == 1
        assert len(of_kind(made, "this-kernel")) == kept


def test_kernels_that_agree_decide_though_each_alone_may_be_an_accident() -> None:
    (doubt,) = of_several_kernels(runs([1.02, 1.021, 1.022, 1.023, 1.024, 1.025]))
    assert doubt.facts["verdict"] == "slower"
    assert doubt.text.startswith("Over 6 sessions `bmm` is slower than `mul`: 1.02")
    assert "Alone" not in doubt.text


def test_kernels_that_agree_on_no_difference_say_within_what() -> None:
    (doubt,) = of_several_kernels(runs([0.998, 0.999, 1.0, 1.001, 1.002, 1.003]))
    assert doubt.text.startswith("Over 6 sessions `bmm` is the same as `mul` within 1 %: 1.0")


def test_few_kernels_say_what_they_assume() -> None:
    (doubt,) = of_several_kernels(runs([1.1, 1.11, 1.12]))
    assert "Over 3 sessions" in doubt.text
    assert doubt.text.endswith("few sessions the interval assumes a normal distribution; 6 need no such assumption.")


@pytest.mark.parametrize(
    "results",
    [runs([1.1, 1.2], kernels="aa"), runs([1.1]), runs([1.1, 1.2], kernels=["", ""])],
    ids=["one kernel twice", "one run", "not known"],
)
def test_one_kernel_is_not_several(results: Sequence[Comparison]) -> None:
    assert of_several_kernels(results) == []


def test_the_latest_run_of_a_kernel_counts() -> None:
    (found,) = ratios_by_kernel(runs([1.1, 1.3, 1.2], kernels="aba")).values()
    assert found.logs["a"] == pytest.approx(0.182, abs=2e-3)
    assert list(found.logs) == ["a", "b"]


def test_other_work_under_the_same_name_is_not_the_same_pair() -> None:
    first, second = runs([1.1, 1.2])
    edited = tuple(replace(subject, stmt="other(x)") for subject in second.subjects)
    assert of_several_kernels([first, replace(second, subjects=edited)]) == []


def test_a_ratio_that_is_not_of_the_codes_work_does_not_count() -> None:
    first, second, third = runs([1.1, 1.11, 1.5])
    base, row = third.subjects
    spoiled = replace(third, subjects=(base, replace(row, used_up=(("it", "iterator"),))))
    assert "Over 3 sessions" in of_several_kernels([first, second, third])[0].text
    assert "Over 2 sessions" in of_several_kernels([first, second, spoiled])[0].text


def test_alternatives_that_were_compared_together_share_the_error_rate() -> None:
    alone = of_several_kernels(runs(TURNS))[0]
    (shared,) = of_several_kernels([replace(one, family=2) for one in runs(TURNS)])
    assert "normal distribution" in shared.text
    assert "7 need no such assumption" in shared.text
    assert "normal distribution" not in alone.text


def test_each_process_of_a_run_over_processes_is_a_kernel() -> None:
    over = join_processes(dict(enumerate(runs(TURNS[:5], kernels="k" * 5), 1)))
    (found,) = ratios_by_kernel([over, *runs([1.03], kernels="z")]).values()
    assert len(found.logs) == 6


def test_results_of_several_kernels_that_are_joined_are_of_none() -> None:
    assert join_comparisons(runs([1.1, 1.2])).kernel == ""
    assert join_comparisons(runs([1.1, 1.2], kernels="kk")).kernel == "k"


def test_a_store_remembers_the_kernels(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite")
    *stored, current = runs(TURNS)
    store.append(*stored)
    assert [one.kernel for one in store.comparisons()] == list("abcde")
    made = since_last(current, store.last(current), {}, store.alike(current))
    (doubt,) = of_kind(made, "kernels")
    assert doubt.facts["kernels"] == 6
    assert len(store.alike(pair(1e-6, 1e-6, kernel="x"))) == 5
    assert made.warnings[0] is doubt
