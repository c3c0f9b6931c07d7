"""Levers that were tried, as they are shown."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.views.builders import comparison_of
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.proof.trial import Trial
from torchbench_magic.views.document import plain
from torchbench_magic.views.timing.levers_tried import recommended, trial_sentence


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
    assert "with the same result; it has paid after 3 000 calls" in said.replace("\u2009", " ").replace("\u202f", " ")
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
    assert "whether the result is the same was not compared" in plain(trial_sentence(result))
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
    for word in ("result", "difference", "compile time", "pays after", "close", "f = torch.compile(f)"):
        assert word in shown
    assert math.isnan(result.frame["break_even"].iloc[2])


def test_a_comparison_of_sections_has_no_such_columns() -> None:
    assert "result" not in comparison_of().frame
    assert "no lever" not in repr(comparison_of())
