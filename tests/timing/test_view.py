"""Timings as a document: sentence, digits, verdicts, doubts, footer, and levers that were tried."""

from __future__ import annotations

import math
import random
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.show.builders import comparison_of, times_of
from torchbench_magic import units
from torchbench_magic.errors import OptionError
from torchbench_magic.result_base import Doubt
from torchbench_magic.show import text
from torchbench_magic.show.document import Document, plain
from torchbench_magic.show.drawing import histogram, span_of, span_text
from torchbench_magic.show.table import Table
from torchbench_magic.timing import levers_view, verdict_words, view
from torchbench_magic.timing.across_runs import join_processes, side_by_side
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.levers_view import levers_recommended, recommended, trial_sentence
from torchbench_magic.timing.reports import facts, repeat_cell
from torchbench_magic.timing.samples import Trial
from torchbench_magic.timing.verdict_words import SaidRow
from torchbench_magic.timing.view import document
from torchbench_magic.timing.warnings import doubts_of, in_this_kernel

from .samples import lone, pair

# ==== comparison ======================================================================================================


BUSY = Doubt("busy", "Busy machine: CPU pressure 62 %. Absolute times are unreliable. The ratios are still valid.")


def column(table: Table, name: str) -> list[str]:
    at = [column.name for column in table.columns].index(name)
    return [row.cells[at].text for row in table.rows()]


def said(document: Document) -> str:
    return plain(document.sentence)


def judged(name: str, *verdicts_and_ratios: tuple[str, float]) -> list[SaidRow]:
    return [SaidRow(name, ratio, ratio * 0.996, ratio * 1.004, verdict) for verdict, ratio in verdicts_and_ratios]


def test_the_sentence_begins_with_the_alternative_that_is_faster_everywhere() -> None:
    points = [
        *judged("einsum", ("slower", 1.69), ("slower", 1.7), ("same", 1.0), ("undecided", 1.01)),
        *judged("mul_sum", *[("faster", ratio) for ratio in (0.599, 0.605, 0.147, 0.52)]),
    ]
    assert plain(verdict_words.sentence(points, "bmm")) == (
        "mul_sum is 1.65 to 6.80 times as fast as bmm at all 4 points; einsum: 2 slower, 1 same, 1 undecided"
    )


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        (judged("b", ("faster", 0.5)), "b is 2.00 times as fast as a (1.99 … 2.01)"),
        (judged("b", ("slower", 1.25)), "b takes 1.25 times as long as a (1.245 … 1.255)"),
        (judged("b", ("same", 1.0), ("same", 1.0)), "b takes the same time as a at both points"),
        (judged("b", ("undecided", 1.02)), "b against a is undecided"),
        ([SaidRow("b", 1.4, 1.02, 241.0, "slower")], "b takes 1.4 times as long as a (1.02 … 241)"),
        ([SaidRow("b", 2.0, 0.0, math.inf, "undecided", "it waited")], "b against a is undecided: it waited"),
        (
            [SaidRow(name, 2.0, 0.0, math.inf, "undecided", why) for name, why in (("b", "x"), ("c", "x"), ("d", "y"))],
            "b and c against a are undecided: x; d is undecided: y",
        ),
        (judged("b", ("faster", 0.5), ("slower", 1.5)), "b against a: 1 faster, 1 slower"),
        (judged("b", ("", 1.0)), "b against a is not judged"),
    ],
)
def test_every_verdict_has_its_own_words(points: list[SaidRow], sentence: str) -> None:
    assert plain(verdict_words.sentence(points, "a")) == sentence


def test_many_alternatives_are_counted_and_not_all_named() -> None:
    points = [one for at in range(7) for one in judged(f"v{at}", ("faster", 0.5 + at / 20))]
    assert plain(verdict_words.sentence(points, "a")).endswith("; 3 more below")


def test_alternatives_that_take_the_same_time_share_a_clause() -> None:
    def same(count: int) -> str:
        points = [SaidRow(f"a{nth}", 1.0, 0.995, 1.005, "same") for nth in range(1, count + 1)]
        return plain(verdict_words.sentence(points, "a0"))

    assert same(1) == "a1 takes the same time as a0"
    assert same(2) == "a1 and a2 take the same time as a0"
    assert same(4) == "a1, a2, a3 and a4 take the same time as a0"
    assert same(8) == "a1, a2, a3 and 5 more take the same time as a0"
    mixed = [SaidRow("b", 0.5, 0.49, 0.51, "faster"), *(SaidRow(name, 1.0, 0.995, 1.005, "same") for name in "cd")]
    assert plain(verdict_words.sentence(mixed, "a")).endswith("; c and d take the same time")


def test_rows_of_a_point_stand_together_and_name_it_once() -> None:
    table, *_ = view.document(comparison_of()).tables
    assert [len(group.rows) for group in table.groups] == [2, 2]
    assert [column.name for column in table.columns if column.leading] == ["sub_label", "num_threads"]
    assert column(table, "verdict") == ["baseline", "faster", "baseline", "faster"]


def test_a_sweep_shows_its_axes_instead_of_the_sub_label() -> None:
    made = comparison_of(axes=[(("shape", (64, 64)), ("n", 8)), (("shape", (10000, 64)), ("n", 16))])
    table, *_ = view.document(made).tables
    assert "sub_label" not in [column.name for column in table.columns]
    assert column(table, "shape") == ["64 × 64", "64 × 64", "10000 × 64", "10000 × 64"]
    assert {c.name: c.kind for c in table.columns}["n"] == "number"


def test_an_axis_may_have_a_name_that_is_no_identifier() -> None:
    made = comparison_of(axes=[(("in features", 1),), (("in features", 2),)])
    table, *_ = view.document(made).tables
    assert column(table, "in features") == ["1", "1", "2", "2"]


def test_contaminated_times_have_two_digits_in_quiet_ink_and_ratios_keep_theirs() -> None:
    clean, spoiled = (view.document(comparison_of(warnings=w)).tables[0] for w in ((), [BUSY]))
    at = [column.name for column in clean.columns].index("median")
    assert column(clean, "median") == ["4.62", "2.80", "4.59", "2.81"]
    assert column(spoiled, "median") == ["4.6", "2.8", "4.6", "2.8"]
    assert {row.cells[at].tone for row in spoiled.rows()} == {"quiet"}
    assert column(spoiled, "ratio") == column(clean, "ratio")


@pytest.mark.parametrize(
    ("kind", "about", "medians"),
    [
        ("oversubscribed", {"threads": [2]}, ["4.62", "2.80", "4.6", "2.8"]),
        ("co-load", {"groups": [0]}, ["4.6", "2.8", "4.59", "2.81"]),
        ("noisy", {"rows": [1]}, ["4.62", "2.8", "4.59", "2.81"]),
    ],
)
def test_a_doubt_spoils_only_the_times_it_is_about(kind: str, about: dict[str, object], medians: list[str]) -> None:
    table, *_ = view.document(comparison_of(warnings=[Doubt(kind, "Doubtful.", facts=about)])).tables
    assert column(table, "median") == medians


def test_doubts_are_lines_and_code_in_them_is_code() -> None:
    doubt = Doubt("threads", "Too many threads.", "Fix: `torch.set_num_threads(2)`.")
    (line,) = view.document(comparison_of(warnings=[doubt])).doubts
    assert plain(line) == "Too many threads. Fix: torch.set_num_threads(2)."
    assert [run.style for run in line] == ["", "code", ""]


def test_the_footer_tells_threads_device_versions_and_how_long_it_took_as_far_as_they_are_known() -> None:
    *_, last = view.document(comparison_of()).footer
    assert plain(last) == (
        "1 and 2 of 2 threads · CPU · torch 2.13.0+cpu · Python 3.11.7 · 4 measurements in 11.6 s · seed 0"
    )
    *_, last = view.document(comparison_of(elapsed=math.nan, seed=None)).footer
    assert plain(last) == "1 and 2 of 2 threads · CPU · torch 2.13.0+cpu · Python 3.11.7"


def test_an_undecided_row_says_what_would_decide_it() -> None:
    made = comparison_of([(None, 1, (100e-6, 101.5e-6))], spread=0.2)
    table, *_ = view.document(made).tables
    last = list(table.rows())[-1].cells[-1]
    assert last.text == "undecided"
    assert last.note.startswith("needs ~")
    assert last.note.endswith(" s more")


def test_too_few_rounds_give_no_interval() -> None:
    table, *_ = view.document(comparison_of(samples=2)).tables
    assert column(table, "ratio_low")[1] == "not known"


def test_a_word_by_ranges_says_so_in_the_table_below_it_and_in_the_json() -> None:
    far = comparison_of([(None, 1, (100e-6, 1e-6))], samples=5)
    shown = view.document(far)
    last = list(shown.tables[0].rows())[-1].cells[-1]
    assert (last.text, last.note) == ("faster", "by ranges")
    assert "decided by 5 rounds because every block of one took at least 3 times" in plain(shown.footer[0])
    assert "93.8 % or more." in plain(shown.footer[0])  # and so the column does not say 95 %
    assert [each.label for each in shown.tables[0].columns if each.name == "ratio_low"] == ["interval"]
    assert "Other intervals" not in plain(shown.footer[0])
    both = comparison_of([(None, 1, (100e-6, 1e-6)), (None, 2, (100e-6, 40e-6))], samples=5)
    assert both.by_ranges
    assert "Other intervals are of 95 %." in plain(view.document(both).footer[0])
    assert [row.get("decided_by") for row in facts(far)["alternatives"]] == [None, "ranges"]
    ranks = comparison_of([(None, 1, (100e-6, 1e-6))], samples=6)
    assert "ranges" not in plain(view.document(ranks).footer[0])
    assert "decided_by" not in facts(ranks)["alternatives"][1]


def test_a_body_near_the_loops_cost_has_a_ratio_and_no_verdict() -> None:
    table, *_ = view.document(comparison_of([(None, 1, (5e-9, 6e-9))])).tables
    assert column(table, "verdict") == ["baseline", "–"]


def test_all_ratios_are_drawn_on_one_log_axis_that_holds_them() -> None:
    table, *_ = view.document(comparison_of()).tables
    wide, close = next(column for column in table.columns if column.kind == "interval").axes
    assert (wide.name, close.name) == ("full axis", "zoom to ±10 %")
    assert wide.low < 0.6 < 1 < wide.high
    assert [label for _, label in wide.ticks] == ["½", "1", "2"]
    assert wide.band == 0.01


def test_ratios_that_are_all_close_start_with_the_close_axis_and_those_far_apart_do_not_crowd_it() -> None:
    table, *_ = view.document(comparison_of([(None, 1, (100e-6, 101e-6))])).tables
    axes = next(column for column in table.columns if column.kind == "interval").axes
    assert [axis.name for axis in axes] == ["zoom to ±10 %", "full axis"]
    table, *_ = view.document(comparison_of([(None, 1, (1e-6, 5e-3))])).tables
    wide = next(column for column in table.columns if column.kind == "interval").axes[0]
    assert len(wide.ticks) <= 6


def test_timings_without_a_baseline_have_no_ratio_columns() -> None:
    made = comparison_of([(None, 1, (64e-6,)), (None, 2, (40e-6,))], [None])
    table, *_ = view.document(made).tables
    assert [c.name for c in table.columns] == ["num_threads", "description", "median", "iqr", "samples"]
    assert said(view.document(made)).startswith("f(x): 40.")


def test_another_metric_can_stand_in_the_time_column() -> None:
    table, *_ = view.document(comparison_of(), metric="cpu_clock_median").tables
    assert "CPU clock" in [column.label for column in table.columns]
    with pytest.raises(OptionError, match=r"metric 'speed' is unknown; use one of median, mean, cpu_clock_median"):
        view.document(comparison_of(), metric="speed")


# ---- one statement ------------------------------------------------------------------------------------------


def single(**fields: object) -> Comparison:
    return comparison_of([(None, 1, (64.3e-6,))], [None], stmt="batched_dot_bmm(x, x)", **fields)  # type: ignore[arg-type]


def test_a_lone_statement_is_one_line() -> None:
    document = view.document(single(samples=1512))
    assert document.folded
    assert said(document).replace("\u202f", " ") == (
        "batched_dot_bmm(x, x)  64.3 µs median · IQR 2.2 % · 95 % interval in this run 64.2 … 64.4"
        " · one run: reproducibility unknown · 1 512 samples, 1 thread"
    )


def test_a_run_of_twenty_seconds_knows_within_what_it_repeats() -> None:
    sentence = said(view.document(single(samples=600, span=25.0)))
    assert "repeats within" in sentence
    assert "reproducibility" not in sentence


def test_one_sample_has_no_spread_and_says_so() -> None:
    document = view.document(single(samples=1))
    assert said(document).endswith("one sample: spread unknown · 1 thread")
    assert "–" not in said(document)


def test_a_contaminated_single_time_is_marked_as_rough() -> None:
    assert "~65 µs" in said(view.document(single(warnings=[BUSY])))


def test_the_facts_of_a_single_time_unfold() -> None:
    table, *_ = view.document(single()).tables
    facts = {row.cells[0].text: row.cells[1].text for row in table.rows()}
    assert facts["samples"] == "40 blocks of 100 calls"
    assert facts["loop overhead"] == "3.4 ns"
    assert facts["first call"] == "2.70 ms"
    assert facts["page faults"] == "0 per call"


def test_a_partial_result_says_so_first() -> None:
    document = view.document(comparison_of(partial=True, elapsed=0.2, warnings=[BUSY]))
    assert plain(document.doubts[0]).startswith("Partial: interrupted after 200 ms.")
    told = Doubt("partial", "Partial: interrupted after 0.2 s of 1.0 s.")
    assert len(view.document(comparison_of(partial=True, warnings=[told])).doubts) == 1


# ---- samples ------------------------------------------------------------------------------------------------


def test_a_histogram_counts_the_samples_round_their_median() -> None:
    times = np.array(times_of(1.0, 1000, 0.02))
    span = span_of([times])
    counts, more, centre, samples = histogram(times, float(np.median(times)), span)
    assert samples[2] == 1000  # type: ignore[index]
    assert span_text(span) == "−1.5 … +5 %"
    assert len(counts) == 30
    assert sum(counts) == np.sum(times / np.median(times) - 1 <= span[1])
    assert more == bool(np.any(times / np.median(times) - 1 > span[1]))
    assert centre == pytest.approx(0.015 / 0.065 * 30)


def test_one_sample_has_no_histogram() -> None:
    assert histogram(np.array([1.0]), 1.0, (-0.1, 0.1)) == ()


def test_a_lone_statements_figures_have_bounds() -> None:
    made = comparison_of([(None, 2, (1e-3,))], [None])
    slow = tuple(replace(subject, first_call=42.0) for subject in made.subjects)
    ticks = made.samples["wall"].where(made.samples["round"] > 0, 900 * made.samples["wall"])
    (table,) = view.document(replace(made, subjects=slow, samples=made.samples.assign(cpu=ticks))).tables
    facts = " ".join(cell.text for row in table.rows() for cell in row.cells)
    assert "over 1000 times the median" in facts
    assert "2.0 cores busy" in facts, "never more than there are; of all blocks, not of the median one"


def test_times_of_nothing_are_shown_without_a_warning_of_numpy_or_a_share_of_nothing() -> None:
    half = sampled([0.0] * 30 + [1e-9] * 20)
    results = [lone(0.0), pair(0.0, 0.0), pair(0.0, 1e-6), half]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results.append(side_by_side({"before": lone(0.0), "after": lone(0.0, seed=1)}))
        results.append(side_by_side({"before": lone(1e-6), "after": lone(0.0, seed=1)}))
        for result in results:
            said = text.render(view.document(replace(result, warnings=doubts_of(result))))
            assert "nan" not in said
            assert "inf" not in said
    assert "IQR" not in plain(view.document(half).sentence)


def sampled(times: list[float]) -> Comparison:
    """One statement with these seconds a call."""
    made = lone(1e-6)
    rows = {"round": range(len(times)), "measurement": 0, "wall": times, "cpu": times, "number": 1, "position": 0}
    return replace(made, samples=pd.DataFrame(rows))


@pytest.mark.parametrize("seed", range(40))
def test_a_figure_never_seems_to_lie_outside_of_its_own_interval(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(50):
        value, width = 10 ** drawn.uniform(-1.5, 1.5), 10 ** drawn.uniform(-4.5, -0.5)
        low, high = value * (1 - width * drawn.random()), value * (1 + width * drawn.random())
        verdict = "slower" if value > 1 else "faster"
        said = plain(verdict_words.sentence([SaidRow("b", value, low, high, verdict)], "a"))
        figure, ends = re.fullmatch(r"b (?:is|takes) (\S+) times as (?:fast|long) as a \((.*)\)", said).groups()  # type: ignore[union-attr]
        assert units.reads_within(figure, ends), said


def test_a_median_never_seems_to_lie_outside_of_its_own_interval() -> None:
    """As 3.00 would, in 3.004 ... 3.005."""
    made = lone(3.0044e-6)
    detail = made.details.assign(precision_low=3.0041e-6, precision_high=3.0049e-6)
    object.__setattr__(made, "details", detail)
    made.frame.loc[0, "median"] = 3.0044e-6
    assert "3.004 µs median" in plain(view.document(made).sentence)
    assert "3.004 … 3.005" in plain(view.document(made).sentence)


def test_without_a_common_baseline_each_is_said_to_be_compared_with_its_own() -> None:
    points = [
        SaidRow("a in two", 1.5, 1.4, 1.6, "slower", base="a in one"),
        SaidRow("b in two", 1, 0.5, 2, "undecided", base="b in one"),
    ]
    assert plain(verdict_words.sentence(points, None)) == (
        "a in two takes 1.50 times as long as a in one (1.40 … 1.60); b in two against b in one is undecided"
    )
    same = [SaidRow(f"{name} in two", 1, 0.99, 1.01, "same", base=f"{name} in one") for name in "ab"]
    assert plain(verdict_words.sentence(same, None)) == (
        "a in two takes the same time as a in one; b in two takes the same time as b in one"
    )


def test_a_cell_of_several_lines_is_not_called_by_its_first_one_alone() -> None:
    several = lone(1e-6, "# comment\nx = 3\n\nfor i in range(x):\n    i + 1")
    assert plain(view.document(several).sentence).startswith("x = 3 …  1.00 µs median")
    assert plain(view.document(lone(1e-6, "\n# comment\nf(x)\n")).sentence).startswith("f(x)  1.00 µs median")


def test_alternatives_without_a_ratio_are_each_said_with_their_own_time() -> None:
    whole = join_processes({n: pair(0.0155, 0.0313, seed=n) for n in (1, 2)})
    spoiled = replace(whole, void_processes=((1, 1, "stalled"), (1, 2, "stalled")))
    sentence = said(view.document(spoiled))
    assert sentence.startswith("mul 15.5 ms, bmm 31.3 ms (medians); no ratio yet"), sentence
    assert "points" not in sentence


def test_long_names_that_begin_alike_are_told_apart_in_the_sentence() -> None:
    long = "a_very_long_name_" * 8
    said = plain(view.document(comparison_of([(None, 1, (1e-3, 2e-3))], (f"{long}1", f"{long}2"))).sentence)
    assert said.count("…") >= 2
    assert "long_name_1" in said
    assert "long_name_2" in said


def test_a_name_with_a_percent_sign_stays_as_it_is_in_a_warning() -> None:
    made = comparison_of([(None, 1, (1e-3, 1.02e-3))], ("base", "3 % slower"))
    (said,) = (doubt.text for doubt in in_this_kernel(made))
    assert said.startswith("3 % slower: the difference")
    assert " up to 3 %, or" in said


# ==== levers tried ====================================================================================================
# Levers that were tried, as they are shown.


def tried(**levers: tuple[float, Trial]) -> Comparison:
    """A cell of a millisecond, and levers: (milliseconds, what was seen)."""
    names = ("as it is", *levers)
    times = (1e-3, *(milliseconds * 1e-3 for milliseconds, _ in levers.values()))
    made = comparison_of([(None, 1, times)], names)
    trials = (Trial(), *(trial for _, trial in levers.values()))
    subjects = tuple(replace(subject, trial=trial) for subject, trial in zip(made.subjects, trials, strict=True))
    return replace(made, subjects=subjects)


EQUAL = Trial("equal", 0.0, how="with torch.no_grad():")
DIFFERS = Trial("differs", 0.03)
COMPILED = Trial("close", 1e-6, 1.5, "f = torch.compile(f)")


def test_the_one_that_helps_comes_first_and_what_did_nothing_is_said() -> None:
    said = plain(trial_sentence(tried(compile=(0.5, COMPILED), bf16=(2.0, DIFFERS), no_grad=(1.3, EQUAL))))
    assert said.startswith("compile makes it 2.0")
    assert "times as fast (" in said
    assert "with the same result; it pays off after 3 000 calls" in said.replace("\u2009", " ").replace("\u202f", " ")
    assert said.endswith("bf16, no_grad: no faster")


def test_one_that_differs_is_not_among_those_that_help() -> None:
    result = tried(bf16=(0.4, DIFFERS), no_grad=(0.8, EQUAL))
    said = plain(trial_sentence(result))
    assert said.startswith("no_grad makes it 1.2")
    assert "bf16 is 2.5" in said
    assert "but its result differs (by up to 0.030)" in said
    assert recommended(result) == ["no_grad"]


def test_one_whose_result_could_not_be_compared_is_said_apart() -> None:
    result = tried(no_grad=(0.5, Trial()))
    assert "results were not compared" in plain(trial_sentence(result))
    assert recommended(result) == []


def test_a_gain_that_one_kernel_cannot_settle_is_no_recommendation() -> None:
    result = tried(no_grad=(0.985, EQUAL))
    assert recommended(result) == []
    assert "no lever makes it faster" in plain(trial_sentence(result))


def test_where_nothing_helps_it_says_so() -> None:
    said = plain(trial_sentence(tried(no_grad=(1.3, EQUAL))))
    assert said == "no lever makes it faster with the same result. no_grad: no faster"


def test_the_table_has_result_difference_compile_time_and_calls() -> None:
    result = tried(compile=(0.5, COMPILED), slow=(2.0, replace(COMPILED, compile_time=0.1)))
    shown = " ".join(repr(result).split())
    for word in ("result", "difference", "compile time", "pays off after", "close", "f = torch.compile(f)"):
        assert word in shown
    assert math.isnan(result.frame["break_even"].iloc[2])


def test_a_comparison_of_sections_has_no_such_columns() -> None:
    assert "result" not in comparison_of().frame
    assert "no lever" not in repr(comparison_of())


def test_what_is_recommended_is_known_by_row_of_one_run_against_the_cell_as_it_is() -> None:
    result = tried(bf16=(0.4, DIFFERS), no_grad=(0.5, EQUAL))
    assert levers_recommended(result) == {1: False, 2: True}
    assert levers_recommended(result.rebase("bf16")) == {}
    assert levers_recommended(comparison_of()) == {}


def test_the_cell_that_repeats_a_trial_is_the_body_under_try_with_the_levers() -> None:
    result = tried(bf16=(0.4, DIFFERS), no_grad=(0.8, EQUAL))
    assert repeat_cell(result) == "%%timer -t 1 --try bf16,no_grad\nf(x)"
    asked = replace(result, options={"levers": ("bf16", "foreach", "no_grad"), "restore": True})
    assert repeat_cell(asked) == "%%timer -t 1 --try bf16,foreach,no_grad\nf(x)"
    after = replace(result, subjects=tuple(replace(each, setup="x = 1") for each in result.subjects))
    assert repeat_cell(after) == "%%timer -t 1 --try bf16,no_grad\n# --- setup\nx = 1\n# --- statement\nf(x)"
    assert "--try bf16,no_grad\nf(x)" in result.to_markdown()


def test_where_no_lever_was_timed_the_first_thing_said_is_why() -> None:
    why = "the cell reads no module with a 2-d convolution"
    alone = comparison_of([(None, 1, (1e-3,))], ("as it is",))
    subjects = (replace(alone.subjects[0], trial=Trial()),)
    one = Doubt("lever", f"`channels_last` was not timed: {why}.", "", {"name": "channels_last", "reason": why})
    said = str(replace(alone, subjects=subjects, warnings=[one])).splitlines()[0]
    assert said.startswith(f"channels_last was not timed: {why}. as it is")
    several = Doubt("lever", "Not timed.", "", {"reasons": {"bf16": "no product", "foreach": "no", "fp16": "no"}})
    said = plain_sentence(replace(alone, subjects=subjects, warnings=[several]))
    assert said.startswith("bf16 was not timed: no product (and 2 more levers, see below). as it is")
    assert "not timed" not in plain_sentence(alone)


def plain_sentence(result: Comparison) -> str:
    return plain(document(result).sentence)


def test_a_result_of_another_kind_is_said_by_it_and_no_empty_figure_is() -> None:
    double = Trial("differs", 0.0, differs_in="dtype float64, not float32")
    result = tried(no_grad=(0.5, double), bf16=(0.4, Trial("differs", 0.0)))
    said = plain(trial_sentence(result))
    assert "but its result differs (dtype float64, not float32)" in said
    assert said.endswith("but its result differs")
    assert "other dtype" in repr(result)


def test_a_close_result_in_a_shorter_dtype_is_not_called_the_same() -> None:
    said = plain(trial_sentence(tried(bf16=(0.5, Trial("close", 0.01, differs_in="dtype bfloat16, not float32")))))
    assert "with a close result (dtype bfloat16, not float32)" in said
    assert "the same result" not in said


def test_of_levers_that_are_undecided_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    result, of_all = tried(no_grad=(1.3, EQUAL), threads=(1.3, EQUAL)), levers_view._tried

    def said(*undecided: str) -> str:
        rows = of_all(result)
        for each in rows:
            each.verdict = "undecided" if each.name in undecided else each.verdict
        monkeypatch.setattr(levers_view, "_tried", lambda _: rows)
        return plain(trial_sentence(result))

    of_one = "no lever with a verdict makes it faster with the same result. threads: no faster. no_grad: undecided"
    assert said("no_grad") == of_one
    assert said("no_grad", "threads") == "no_grad, threads: undecided"


def test_after_another_sentence_it_begins_with_a_capital() -> None:
    result = tried(no_grad=(1.3, EQUAL), threads=(1.3, EQUAL))
    *others, last = result.subjects
    used_up = replace(result, subjects=(*others, replace(last, used_up=(("first", "it"),))))
    assert ". No lever with a verdict makes it faster" in plain(document(used_up).sentence)
