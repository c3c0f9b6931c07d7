"""Levers that were tried, as they are shown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.views.builders import comparison_of
from torchbench_magic.results import Doubt
from torchbench_magic.show.document import plain
from torchbench_magic.timing import levers_view
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.levers_view import levers_recommended, recommended, trial_sentence
from torchbench_magic.timing.reports import repeat_cell
from torchbench_magic.timing.samples import Trial
from torchbench_magic.timing.view import document


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
