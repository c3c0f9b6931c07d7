"""Rare calls that take far longer: a median does not see them, and a mean does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.views.builders import comparison_of
from torchbench_magic.process.contention import Contention
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.warnings import slow_calls

from ..samples import lone, pair

QUIET = Contention(wall=1.0, pressure=0.0, steal=0.0, ext=0.0, wanted=1.0, waiting=0.0)
BUSY = replace(QUIET, ext=0.9, waiting=0.4)


def with_slow(
    made: Comparison,
    at: Sequence[int],
    *,
    row: int = 1,
    clocks: Sequence[str] = ("wall", "cpu"),
    seen: Contention = QUIET,
    times: float = 50,
) -> Comparison:
    """These blocks of a row take so many times as long."""
    samples = made.samples.copy()
    where = samples.index[samples["measurement"] == row][list(at)]
    samples.loc[where, list(clocks)] *= times
    return replace(made, samples=samples, subjects=tuple(replace(s, contention=seen) for s in made.subjects))


def texts(made: Comparison) -> list[str]:
    return [str(doubt) for doubt in slow_calls(made)]


def test_slow_calls_of_an_alternative_are_said_with_the_ratio_of_the_means() -> None:
    made = with_slow(pair(1e-6, 1.02e-6, blocks=100), [10, 80])
    (said,) = texts(made)
    assert said == (
        "By the mean `bmm` takes 2.02 times as long as `mul`: some calls of `bmm` take far longer, which a"
        " median does not show. If they matter, use `mean` in `.frame`."
    )
    means = made.frame["mean"]
    assert means[1] / means[0] == pytest.approx(2.01, abs=0.02)
    assert made.frame["ratio"][1] == pytest.approx(1.02, abs=0.01)


@pytest.mark.parametrize("row", [0, 1])
def test_nothing_is_said_by_the_mean_where_a_call_is_as_short_as_the_timing_loop(row: int) -> None:
    assert not texts(with_slow(pair(5e-9, 5e-9, blocks=100), [10, 80], row=row))
    assert texts(with_slow(pair(5e-8, 5e-8, blocks=100), [10, 80], row=row))


def test_slow_calls_of_the_baseline_are_its_own() -> None:
    (said,) = texts(with_slow(pair(1e-6, 1e-6, blocks=100), [10, 80], row=0))
    assert "some calls of `mul` take far longer" in said
    assert said.startswith("By the mean `bmm` is 1.98 times as fast as `mul`")


def test_slow_calls_of_the_baseline_are_one_doubt_for_all_rows() -> None:
    made = comparison_of([(None, 1, (1e-6,) * 7)], ("as it is", *"abcdef"), samples=100)
    (said,) = slow_calls(with_slow(made, [10, 80], row=0))
    assert re.match(r"By the mean `a` is [12]\.\d+ times as fast as `as it is`, `b` [12]\.\d+ times, ", said.text)
    assert "`d` " in said.text
    assert ", 2 more likewise: some calls of `as it is` take far longer" in said.text
    assert said.facts["rows"] == [1, 2, 3, 4, 5, 6]


def test_times_of_thousands_are_written_out() -> None:
    (said,) = texts(with_slow(pair(1e-6, 1.2e-6, blocks=100), [10, 80], times=50_000))
    assert re.match(r"By the mean `bmm` takes \d\s\d{3} times as long as `mul`", said)


def test_a_lone_statement_says_it_of_its_mean() -> None:
    (said,) = texts(with_slow(lone(1e-6, blocks=100), [10, 80], row=0))
    assert said.startswith("The mean of the code is 2.0 times its median: some calls take far longer")


@pytest.mark.parametrize(
    ("at", "clocks", "seen"),
    [
        ([10], ("wall", "cpu"), QUIET),
        ([10, 20], ("wall", "cpu"), QUIET),
        ([10, 80], ("wall",), BUSY),
        (range(0, 100, 2), ("wall", "cpu"), QUIET),
        ([], ("wall", "cpu"), QUIET),
    ],
    ids=["once", "in one half", "others had the core", "no rarity", "none"],
)
def test_what_the_machine_did_or_is_no_rarity_is_not_called_so(
    at: Sequence[int], clocks: Sequence[str], seen: Contention
) -> None:
    assert texts(with_slow(pair(1e-6, 1e-6, blocks=100), at, clocks=clocks, seen=seen)) == []


def test_a_sleep_is_known_by_the_wall_clock_of_a_quiet_machine() -> None:
    assert len(texts(with_slow(pair(1e-6, 1e-6, blocks=100), [10, 80], clocks=("wall",)))) == 1


def test_a_sleep_is_known_on_a_busy_machine_where_threads_waited_far_less_than_it_took() -> None:
    made = pair(1e-6, 1e-6, blocks=100)
    slow = with_slow(made, [10, 80], clocks=("wall",))
    took = float(slow.samples["wall"].sum() - made.samples["wall"].sum())
    seen = replace(BUSY, wall=took, waiting=0.3)
    assert len(texts(with_slow(made, [10, 80], clocks=("wall",), seen=seen))) == 1
    assert texts(with_slow(made, [10, 80], clocks=("wall",), seen=replace(seen, waiting=0.6))) == []


def test_slow_calls_that_are_no_rarity_are_said_too_as_long_as_the_median_is_of_the_others() -> None:
    assert len(texts(with_slow(pair(1e-6, 1e-6, blocks=100), range(0, 100, 3)))) == 1


def test_the_means_are_said_in_the_direction_of_the_table() -> None:
    made = replace(with_slow(pair(1e-6, 0.5e-6, blocks=100), [10, 80]), baseline="mul")
    (said,) = texts(made)
    word = "fast" if "fast" in str(made.frame["verdict"].iloc[1]) else "long"
    assert f"times as {word} as `mul`" in said


def test_processor_time_tells_it_beside_other_processes_too() -> None:
    assert len(texts(with_slow(pair(1e-6, 1e-6, blocks=100), [10, 80], seen=BUSY))) == 1


def test_threads_that_wait_for_each_other_take_processor_time_too() -> None:
    made = pair(1e-6, 1e-6, blocks=100)
    made = replace(made, subjects=tuple(replace(s, num_threads=2) for s in made.subjects))
    assert texts(with_slow(made, [10, 80], seen=replace(BUSY, wanted=2.0))) == []


def test_alternatives_that_share_their_slow_calls_are_alike() -> None:
    made = with_slow(with_slow(pair(1e-6, 1e-6, blocks=100), [10, 80]), [30, 60], row=0)
    assert texts(made) == []
    assert np.isclose(made.frame["mean"][0], made.frame["mean"][1], rtol=0.02)
