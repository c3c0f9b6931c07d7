"""What speaks against a verdict, and what of it comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchbench_magic.timing.intervals import Interval
from torchbench_magic.timing.verdict import VERDICTS, Evidence, Ruling, is_open, judged

WHAT = "six windows against six"
SURE = Evidence(Interval(0.5, 0.4, 0.6), 0.01, because=WHAT)
APART = Evidence(None, 0.01, said="faster")
OPEN = replace(SURE, interval=Interval(0.1, -0.1, 0.3))


def test_an_interval_that_nothing_speaks_against_decides() -> None:
    assert judged(SURE) == Ruling("slower", WHAT)
    assert judged(replace(OPEN, if_open="; they overlap")) == Ruling("undecided", f"{WHAT}; they overlap")
    assert judged(replace(SURE, if_open="; they overlap")).reason == WHAT


@pytest.mark.parametrize(
    ("against", "reason", "has_ends"),
    [
        ({"void": "stalled"}, "stalled", False),
        ({"void": "few-rounds", "is_used_up": True}, "few-rounds", False),
        ({"is_used_up": True}, "used-up", True),
        ({"void": "unsteady", "is_used_up": True}, "used-up", True),
        ({"is_loaded": True}, f"{WHAT}; other processes slowed down one of the runs", True),
    ],
)
def test_what_speaks_against_a_verdict_leaves_it_open(
    against: dict[str, bool | str], reason: str, has_ends: bool
) -> None:
    assert judged(replace(SURE, **against)) == Ruling("undecided", reason, has_ends)  # type: ignore[arg-type]
    assert judged(replace(APART, **against)).word == "undecided"  # type: ignore[arg-type]


def test_an_unsteady_ratio_has_an_interval_that_says_so() -> None:
    assert judged(replace(SURE, void="unsteady")).word == "slower"
    assert judged(replace(OPEN, because="", void="unsteady")) == Ruling("undecided", "unsteady")


def test_of_a_row_measured_apart_the_word_is_known_and_a_baseline_stays_one() -> None:
    assert judged(APART) == Ruling("faster", "")
    assert judged(replace(APART, said="baseline", is_used_up=True)) == Ruling("baseline", "")
    assert judged(replace(APART, said=None, void="stalled")) == Ruling(None, "")


def test_near_the_loop_there_is_no_verdict_whatever_else_speaks_against_it() -> None:
    near = replace(SURE, is_near_loop=True, void="stalled", is_used_up=True)
    assert judged(near) == Ruling(None, "near-loop")
    assert not is_open(judged(near).word)


def test_one_of_the_verdicts_is_open() -> None:
    assert [word for word in VERDICTS if is_open(word)] == ["undecided"]
    assert not is_open("baseline")
