"""Ratios over several processes: the verdict, and how it is said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torchbench_magic import load
from torchbench_magic.errors import InputError
from torchbench_magic.process.contention import Contention, joined_contention
from torchbench_magic.show import markdown, text
from torchbench_magic.show.html import static
from torchbench_magic.show.palette import HUES
from torchbench_magic.timing import view
from torchbench_magic.timing.across_runs import join_comparisons, join_processes, take
from torchbench_magic.timing.columns_view import in_how_many
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.intervals import median_interval
from torchbench_magic.timing.process_ratios import least_processes
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.warnings import doubts_of

from .samples import lone, made, pair

# ==== process ratios ==================================================================================================


def of_processes(ratios: Sequence[float], *, blocks: Sequence[int] | None = None, **more: Any) -> Comparison:
    """Two alternatives in as many processes, the second so many times as long as the first in each."""
    sizes = blocks if blocks is not None else [20] * len(ratios)
    parts = [
        pair(1e-6, ratio * 1e-6, seed=seed, blocks=size, **more)
        for seed, (ratio, size) in enumerate(zip(ratios, sizes, strict=True))
    ]
    return join_processes(dict(enumerate(parts, 1)))


def test_six_processes_are_the_fewest_that_have_an_interval() -> None:
    assert [least_processes(comparisons) for comparisons in (0, 1, 2, 3, 20, 30)] == [6, 6, 7, 7, 10, 11]


def test_of_six_processes_the_interval_is_their_range() -> None:
    found = median_interval(np.log([1.01, 1.05, 0.99, 1.02, 1.03, 1.00])).exp()
    assert (found.median, found.low, found.high) == (pytest.approx(1.015, abs=1e-4), pytest.approx(0.99), 1.05)


@pytest.mark.parametrize(("n", "draw"), [(6, "normal"), (6, "exponential"), (8, "standard_cauchy")])
def test_the_interval_holds_the_median_of_all_processes(n: int, draw: str) -> None:
    rng = np.random.default_rng(3)
    true = {"normal": 0.0, "exponential": math.log(2), "standard_cauchy": 0.0}[draw]
    trials = [median_interval(getattr(rng, draw)(size=n)) for _ in range(2000)]
    assert sum(one.low <= true <= one.high for one in trials) / 2000 > 0.94


def test_a_process_is_one_value_however_many_samples_it_took() -> None:
    made = of_processes([1.10, 1.10, 1.10, 1.02, 1.10, 1.10], blocks=[20, 20, 20, 2000, 20, 20])
    row = made.frame.iloc[1]
    assert row["ratio"] == pytest.approx(1.10, rel=0.003)
    assert row["ratio_low"] == pytest.approx(1.02, rel=0.003)
    assert row["method"] == "processes"
    assert row["verdict"] == "slower"


def test_processes_that_disagree_decide_nothing_though_each_is_sure() -> None:
    ratios = [0.97, 1.03, 0.98, 1.02, 1.04, 0.97]
    assert of_processes(ratios).frame["verdict"][1] == "undecided"
    assert {pair(1e-6, r * 1e-6).frame["verdict"][1] for r in ratios} == {"faster", "slower"}


def test_the_table_of_processes_has_a_row_for_each_measurement_and_process() -> None:
    table = of_processes([1.1, 1.2, 1.3]).processes
    assert [*table.columns] == ["measurement", "process", "median", "ratio", "ratio_low", "ratio_high"]
    assert [*zip(table["measurement"], table["process"], strict=True)] == [(m, p) for m in (0, 1) for p in (1, 2, 3)]
    assert table["ratio"].tolist() == pytest.approx([1, 1, 1, 1.1, 1.2, 1.3], rel=0.003)
    assert table["median"].tolist() == pytest.approx([1e-6] * 3 + [1.1e-6, 1.2e-6, 1.3e-6], rel=0.003)
    assert (table["ratio_low"] <= table["ratio"]).all()


def test_without_processes_the_table_is_empty_and_the_samples_have_no_such_column() -> None:
    one = pair(1e-6, 2e-6)
    assert one.processes.empty
    assert "process" not in one.samples
    assert one.frame["method"].tolist() == ["paired", "paired"]


def test_a_ratio_that_decides_nothing_in_its_process_does_not_count_and_that_is_said() -> None:
    whole = of_processes([1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 5.0])
    spoiled = Comparison(
        whole.subjects, whole.samples, whole.environment, void_processes=((1, 7, "stalled"),), options=whole.options
    )
    assert spoiled.frame["ratio_high"][1] == pytest.approx(1.1, rel=0.003)
    assert [*spoiled.ratio_by_process(1)] == [1, 2, 3, 4, 5, 6]
    said = {doubt.kind: doubt.text for doubt in doubts_of(spoiled)}
    assert said["void-process"] == (
        "The ratio of bmm was dropped in 1 process: threads waited for other processes."
        " Up to two more processes replaced them."
    )


def test_too_few_processes_that_count_give_no_verdict() -> None:
    whole = of_processes([1.1, 1.1])
    left = Comparison(whole.subjects, whole.samples, whole.environment, void_processes=((1, 2, "unsteady"),))
    assert left.frame["verdict"][1] == "undecided"
    assert left.voids[1].cause == "few-processes"
    assert "few-processes" in {doubt.kind for doubt in doubts_of(left)}


def test_a_verdict_does_not_stand_on_the_few_processes_that_were_not_disturbed() -> None:
    whole = of_processes([1.1] * 8)
    void = tuple((1, process, "stalled") for process in range(1, 6))
    left = Comparison(whole.subjects, whole.samples, whole.environment, void_processes=void)
    assert left.frame["verdict"][1] == "undecided"
    said = {doubt.kind: doubt.text for doubt in doubts_of(left)}["few-processes"]
    assert said == "No verdict on bmm: 3 processes with a usable ratio are too few, at least 6 are needed."


def test_against_another_baseline_the_same_processes_count() -> None:
    whole = of_processes([1.1] * 7)
    spoiled = Comparison(whole.subjects, whole.samples, whole.environment, void_processes=((1, 7, "stalled"),))
    rebased = spoiled.rebase("bmm")
    assert rebased.frame["verdict"].tolist() == ["faster", "baseline"]
    assert [*rebased.ratio_by_process(0)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("ratio", "said"), [(1.02, True), (0.98, True), (1.05, False), (0.9, False), (1.0, False)])
def test_a_verdict_of_one_kernel_that_the_next_may_turn_round_says_so(ratio: float, said: bool) -> None:
    made = pair(1e-6, ratio * 1e-6)
    assert made.frame["verdict"][1] == ("same" if ratio == 1 else "slower" if ratio > 1 else "faster")
    assert made.of_this_kernel == ((1,) if said else ())
    texts = [doubt.text for doubt in doubts_of(made) if doubt.kind == "this-kernel"]
    text = "bmm: the difference may hold in this session only; memory addresses alone change a ratio by up to 3 %,"
    assert texts == ([f"{text} or a call by 10 ns, rarely by more."] if said else [])


@pytest.mark.parametrize(("low", "high", "said"), [(30e-9, 39e-9, True), (30e-9, 41e-9, False), (90e-9, 99e-9, True)])
def test_so_does_one_by_a_few_nanoseconds(low: float, high: float, said: bool) -> None:
    assert pair(low, high).of_this_kernel == pair(high, low).of_this_kernel == ((1,) if said else ())


def test_a_stored_result_has_its_processes(tmp_path: Path) -> None:
    whole = of_processes([1.1, 1.12, 1.3])
    whole.save(tmp_path / "runs.sqlite")
    (back,) = load(tmp_path / "runs.sqlite")
    assert back.processes.equals(whole.processes)
    assert back.frame.equals(whole.frame)


def test_joined_to_a_result_of_this_kernel_each_keeps_its_own_method() -> None:
    processes, here = of_processes([1.1] * 6), pair(1e-6, 2e-6)
    both = join_comparisons([here, processes])
    assert both.frame["method"].tolist() == ["paired", "paired", "processes", "processes"]
    assert both.frame["ratio"].tolist() == pytest.approx([1, 2, 1, 1.1], rel=0.003)
    assert take(both, [2, 3]).frame["ratio"].tolist() == pytest.approx([1, 1.1], rel=0.003)
    assert take(both, [0, 1]).frame["method"].tolist() == ["paired", "paired"]


def test_rows_that_are_taken_keep_their_void_processes() -> None:
    first, second = of_processes([1.1] * 3), of_processes([1.2, 1.2, 9.0])
    second = Comparison(second.subjects, second.samples, second.environment, void_processes=((1, 3, "stalled"),))
    both = join_comparisons([first, second])
    assert both.void_processes == ((3, 3, "stalled"),)
    assert take(both, [2, 3]).void_processes == ((1, 3, "stalled"),)
    assert take(both, [0, 1]).void_processes == ()


def test_processes_that_measured_other_things_are_not_joined() -> None:
    other = made(Subject(description="mul"), Subject(description="einsum"), medians=(1e-6, 1e-6))
    with pytest.raises(InputError, match="did not measure the same"):
        join_processes({1: pair(1e-6, 1e-6), 2: other})
    with pytest.raises(InputError, match="nothing to join"):
        join_processes({})


def test_a_lone_statement_repeats_within_the_medians_of_its_processes() -> None:
    def known(*medians: float, span: float = 5.0) -> Any:
        of = Subject(stmt="f(x)", span=span)
        parts = {p: made(of, medians=(median,), seed=p) for p, median in enumerate(medians, 1)}
        return join_processes(parts).known_range(0)

    four = known(1e-6, 3e-6, 2e-6, 2e-6)
    assert (four.low, four.high) == (pytest.approx(1e-6, rel=0.01), pytest.approx(3e-6, rel=0.01))
    assert str(four) == "4 processes"
    assert known(1e-6, 3e-6, 2e-6, 2e-6, span=4.9) is None  # does not see the machine drift
    assert known(1e-6, 3e-6, 2e-6, span=10.0) is None  # three and three do not overlap by chance in one case of ten


def test_loads_of_several_processes_are_means_by_their_seconds() -> None:
    both = joined_contention([Contention(1.0, ext=1.0), Contention(3.0, ext=0.0, waiting=0.5)])
    assert both is not None
    assert (both.wall, both.ext, both.waiting) == (4.0, 0.25, 0.5)
    assert math.isnan(both.steal)
    assert joined_contention([]) is None


# ==== across processes ================================================================================================
# How many processes a verdict is from, in the sentence over a comparison.


@pytest.mark.parametrize(("ratio", "said"), [(1.02, True), (0.98, True), (1.05, False), (0.9, False), (1.0, False)])
def test_the_sentence_says_so_of_a_verdict_that_the_next_kernel_may_turn_round(ratio: float, said: bool) -> None:
    assert [str(phrase.text) for phrase in in_how_many(pair(1e-6, ratio * 1e-6))] == [", in this session"] * said


def test_processes_have_decided_for_the_next_kernel_too() -> None:
    made = join_processes({n: pair(1e-6, 1.02e-6, seed=n) for n in range(1, 7)})
    assert made.frame["verdict"][1] == "slower"
    assert made.of_this_kernel == ()
    assert [str(phrase.text) for phrase in in_how_many(made)] == [", over 6 processes"]


def test_each_process_is_a_dot_wherever_the_table_is_read() -> None:
    made = join_processes({n: pair(1e-6, ratio * 1e-6, seed=n) for n, ratio in enumerate((0.9, 0.96, 1.1), 1)})
    document = view.document(made)
    html = static(document)
    dots = f'<span style=display:inline-block;height:8px;width:3px;background-color:{HUES["torch"]}></span>'
    at_1 = f'<span style=display:inline-block;height:8px;width:1px;background-color:{HUES["other"]}></span>'
    assert html.count(dots) == 3
    first, rest = html.split(at_1)
    assert (first.count(dots), rest.count(dots)) == (1, 2)
    assert "`·      \\| ·    ·`" in markdown.render(document)
    assert "·      | ·    ·" in text.render(document)


def test_of_a_lone_statement_the_medians_of_the_processes_are_said() -> None:
    made = join_processes({n: lone(n * 1e-6, seed=n) for n in (1, 2, 3)})
    said = " ".join(repr(made).split())
    assert "medians of 3 processes 1.0" in said
    assert "one run" not in said
