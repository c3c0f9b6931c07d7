"""Doubts about a timing: load, clocks, and rare calls that take far longer."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.show.builders import comparison_of
from torchbench_magic import Comparison
from torchbench_magic.process.contention import Contention
from torchbench_magic.process.environment import Environment
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.warnings import doubts_of, is_bimodal, slow_calls

from .samples import lone, pair

# ==== timing doubts ===================================================================================================


QUIET = {"wall": 1.0, "pressure": 0.02, "steal": 0.0, "ext": 0.0, "wanted": 1.0, "waiting": 0.0, "involuntary": 1.0}


def comparison(
    times: list[list[float]], cpu: float = 1.0, threads: int = 1, load: dict[str, float] | None = None
) -> Comparison:
    """Alternatives with these seconds a call, one block of 10 calls a round; ``cpu`` is processor over wall time."""
    contention = Contention(**(QUIET | {"throttled": 0.0, "clock": math.nan} | (load or {})))
    names = "abc"[: len(times)] if len(times) > 1 else [None]
    subjects = tuple(Subject(description=n, num_threads=threads, contention=contention, page_faults=0.0) for n in names)
    rows: list[dict[str, Any]] = [
        {"round": r, "measurement": m, "wall": 10 * t, "cpu": 10 * t * cpu, "number": 10, "position": m}
        for m, series in enumerate(times)
        for r, t in enumerate(series)
    ]
    return Comparison(subjects, pd.DataFrame(rows), Environment("3.11", "2.13", usable_cores=2))


def steady(level: float, n: int = 60, spread: float = 0.01) -> list[float]:
    return list(level * (1 + spread * np.random.default_rng(0).normal(size=n)))


def kinds(made: Comparison) -> list[str]:
    return [doubt.kind for doubt in doubts_of(made)]


def test_a_quiet_run_raises_no_doubt() -> None:
    assert kinds(comparison([steady(1e-5), steady(2e-5)])) == []


def test_pressure_says_what_still_stands() -> None:
    (doubt,) = doubts_of(comparison([steady(1e-5), steady(2e-5)], load={"pressure": 0.62}))
    assert str(doubt) == "Busy machine: CPU pressure 62 %. Absolute times are unreliable. The ratios are still valid."


def test_another_baseline_brings_its_own_doubts_and_keeps_the_others() -> None:
    made = comparison([steady(1e-5), steady(2e-5)], load={"pressure": 0.62})
    other = Doubt("in-place", "`x` was changed.")
    rebased = replace(made, warnings=[other, *doubts_of(made)]).rebase("b")
    assert rebased.warnings == [other, *doubts_of(rebased)]
    assert made.rebase("b").warnings == []  # none were found before, none are added


def test_a_neighbour_beside_several_threads_spoils_the_times_and_takes_no_verdict_away_by_itself() -> None:
    load = {"ext": 0.9, "wanted": 2.0, "pressure": 0.9, "waiting": 0.9}
    made = comparison([steady(1e-5), steady(2e-5)], threads=2, load=load)
    (doubt,) = doubts_of(made)
    assert doubt.kind == "co-load"
    assert "Other processes used up to 0.9 of 2 cores while 2 threads ran" in str(doubt)
    assert "The ratios are still valid." in str(doubt)
    assert made.frame["verdict"][1] == "slower"
    same = comparison([steady(1e-5, spread=0.1), steady(1e-5, spread=0.1)[::-1]], threads=2, load=load)
    assert same.frame["verdict"][1] == "undecided"
    assert "valid" not in " ".join(map(str, doubts_of(same)))
    assert "co-load" not in kinds(comparison([steady(1e-5), steady(2e-5)], threads=1, load=load))


def test_an_interval_that_is_not_known_does_not_need_a_tenth_of_a_second_more() -> None:
    made = comparison([steady(1e-5, 3), steady(2e-5, 3)])
    assert math.isinf(made.frame["ratio_high"][1])
    assert not made.undecided_seconds


def test_no_figure_exceeds_what_the_machine_has() -> None:
    load = {"ext": 23.5, "wanted": 2.0, "waiting": 0.9, "throttled": 4.0}  # of a store of before
    text = " ".join(map(str, doubts_of(comparison([steady(1e-5), steady(2e-5)], threads=2, load=load))))
    assert "up to 2.0 of 2 cores" in text
    assert "stopped the process 100 % of the time" in text


def test_ratios_that_a_neighbour_spoiled_are_not_said_to_be_valid() -> None:
    load = {"ext": 0.9, "wanted": 2.0, "pressure": 0.9, "waiting": 0.9}
    noisy = [steady(1e-5, spread=0.4), steady(2e-5, spread=0.4)]
    made = comparison(noisy, cpu=0.5, threads=2, load=load)
    text = " ".join(map(str, doubts_of(made)))
    assert "Absolute times of a, b are unreliable" in text
    assert "No verdict on b" in text
    assert "valid" not in text
    alone = comparison(noisy, load={**load, "wanted": 0.7})
    one = tuple(replace(subject, num_threads=1, group=1) for subject in alone.subjects)
    samples = pd.concat([made.samples, made.samples.assign(measurement=made.samples["measurement"] + 2)])
    both = Comparison(made.subjects + one, samples.reset_index(drop=True), made.environment)
    assert "The other ratios are still valid." in " ".join(map(str, doubts_of(both)))


def test_code_that_keeps_to_one_thread_has_no_other_to_wait_for() -> None:
    load = {"ext": 0.9, "wanted": 1.0}
    assert "co-load" not in kinds(comparison([steady(1e-5), steady(2e-5)], threads=2, load=load))


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"threads": 2, "load": {"ext": 5.0, "wanted": 2.0, "waiting": 0.0}}, []),  # of a machine of 64 cores
        ({"threads": 8, "load": {"pressure": 0.9}}, ["oversubscribed"]),  # by the code's own threads
        ({"cpu": 0.001, "load": {"ext": 1.0, "waiting": 0.01, "pressure": 0.8}}, []),  # it sleeps
        ({"cpu": 0.1}, []),  # it sleeps on a quiet machine
    ],
)
def test_what_keeps_nothing_of_the_code_waiting_is_neither_busy_nor_preempted(
    how: dict[str, Any], found: list[str]
) -> None:
    assert kinds(comparison([steady(1e-5), steady(2e-5)], **how)) == found


def test_a_preempted_run_tells_wall_over_processor_time_and_switches() -> None:
    load = {"ext": 1.0, "involuntary": 812.0, "waiting": 0.5}
    (doubt, *_) = doubts_of(comparison([steady(1e-5), steady(2e-5)], cpu=0.5, load=load))
    assert "wall time 2.0 times CPU time, 812 involuntary context switches per second" in str(doubt)
    assert doubt.facts["wall_over_cpu"] == pytest.approx(2)


def test_a_lone_time_that_cannot_be_read_says_so_and_what_to_do() -> None:
    made = comparison([steady(1e-5, spread=0.4)], load={"pressure": 0.62})
    text = " ".join(map(str, doubts_of(made)))
    assert "This time is unreliable: IQR" in text
    assert "CPU pressure 62 %" in text
    assert "compare them in one %%timer cell" in text


@pytest.mark.parametrize(
    ("load", "kind"),
    [({"steal": 0.2}, "steal"), ({"throttled": 0.3}, "throttled"), ({"clock": 0.5}, "clock")],
)
def test_what_the_machine_took_is_said(load: dict[str, float], kind: str) -> None:
    assert kind in kinds(comparison([steady(1e-5)], load=load))


def test_one_sample_has_no_spread() -> None:
    (doubt,) = doubts_of(comparison([[1.0]]))
    assert str(doubt).startswith("One sample: the spread is unknown.")


def test_two_speeds_are_noticed_and_one_with_a_tail_is_not() -> None:
    generator = np.random.default_rng(1)
    two = np.concatenate([generator.normal(10, 0.05, 300), generator.normal(10.8, 0.05, 200)])
    assert is_bimodal(two) == pytest.approx((10, 10.8), rel=0.01)
    one = 10 + np.abs(generator.standard_cauchy(500)) * 0.1
    assert is_bimodal(one) is None
    assert is_bimodal(generator.normal(10, 1, 500)) is None
    assert is_bimodal(two[:20]) is None
    assert "bimodal" in kinds(comparison([list(generator.permutation(two) * 1e-6)]))


def test_speeds_and_spreads_far_apart_are_told_by_factors_and_not_by_per_cents() -> None:
    far = [*steady(1e-5, 50), *steady(271e-5, 50)]
    text = " ".join(map(str, doubts_of(comparison([far, far]))))
    assert "a and 1 more row ran at two speeds, 271 times apart" in text
    assert "IQR up to 2.03 times the median" in text
    near = doubts_of(comparison([[*steady(1e-5, 50), *steady(1.08e-5, 50)]]))
    assert "ran at two speeds, 7.9 % apart" in str(near[0])


def test_more_threads_than_cores_are_labelled() -> None:
    (doubt,) = doubts_of(comparison([steady(1e-5)], threads=8))
    assert str(doubt) == "Oversubscribed: 8 threads share 2 usable cores."


def test_page_faults_are_shown_with_the_setting_that_avoids_them() -> None:
    from dataclasses import replace

    made = comparison([steady(14e-3)])
    made = replace(made, subjects=tuple(replace(s, page_faults=12_289.0) for s in made.subjects))
    (doubt,) = doubts_of(made)
    assert doubt.kind == "page-faults"
    assert "12289 page faults per call" in str(doubt)
    assert "MALLOC_MMAP_THRESHOLD_" in doubt.action


def test_a_body_near_the_loops_cost_gets_no_verdict() -> None:
    made = comparison([steady(5e-9), steady(9e-9)])
    assert made.frame["verdict"].isna()[1]
    assert kinds(made) == ["near-loop"]
    assert doubts_of(made)[0].text.startswith("No verdict on a, b: below 20 ns per call")


def test_that_the_ratios_are_valid_is_said_once() -> None:
    load = {"ext": 0.9, "wanted": 1.0, "pressure": 0.62, "steal": 0.2}
    noisy = [steady(1e-5, spread=0.4), steady(2e-5, spread=0.4)]
    found = doubts_of(comparison(noisy, cpu=1.0, load=load))
    assert {"busy", "noisy"} <= {doubt.kind for doubt in found}
    assert " ".join(map(str, found)).count("still valid") == 1


def test_the_frame_carries_the_doubts_of_its_result_as_plain_values() -> None:
    plain = comparison([steady(1e-5), steady(2e-5)], load={"pressure": 0.62})
    assert plain.frame.attrs == {"doubts": []}
    made = replace(plain, warnings=doubts_of(plain))  # which asks for the frame of `plain`
    (said, *_) = made.frame.attrs["doubts"]
    assert sorted(said) == ["kind", "text"]
    assert said["kind"] == "busy"
    assert said["text"].startswith("Busy machine")
    assert plain.frame.attrs == {"doubts": []}
    assert made.frame.copy().attrs == made.frame.attrs
    assert pd.concat([made.frame, made.frame]).attrs == made.frame.attrs
    assert len(pd.concat([made.frame, plain.frame])) == 4


# ==== slow calls ======================================================================================================
# Rare calls that take far longer: a median does not see them, and a mean does.


NO_LOAD = Contention(wall=1.0, pressure=0.0, steal=0.0, ext=0.0, wanted=1.0, waiting=0.0)
BUSY = replace(NO_LOAD, ext=0.9, waiting=0.4)


def with_slow(
    made: Comparison,
    at: Sequence[int],
    *,
    row: int = 1,
    clocks: Sequence[str] = ("wall", "cpu"),
    seen: Contention = NO_LOAD,
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


def test_a_mean_that_a_narrow_interval_leaves_out_is_said() -> None:
    """Every tenth call does twice and a half of the others' work, as every fourth step of an optimizer may."""
    made = with_slow(pair(1e-6, 1.5e-6, blocks=100), range(5, 100, 10), times=2.5, row=0)
    assert made.frame["ratio_low"][1] > 1.4
    (said,) = texts(made)
    assert re.match(r"By the mean `bmm` takes 1\.3\d* times as long as `mul`: some calls of `mul` take ", said)
    assert not texts(with_slow(pair(1e-6, 1.5e-6, blocks=100), [5, 95], times=2.5, row=0)), "a mean 3 % higher"


def test_slow_calls_of_the_baseline_are_its_own() -> None:
    (said,) = texts(with_slow(pair(1e-6, 1e-6, blocks=100), [10, 80], row=0))
    assert "some calls of `mul` take far longer" in said
    assert said.startswith("By the mean `bmm` is 1.98 times as fast as `mul`")


def test_slow_calls_of_the_baseline_are_one_doubt_for_all_rows() -> None:
    made = comparison_of([(None, 1, (1e-6,) * 7)], ("as it is", *"abcdef"), samples=100)
    (said,) = slow_calls(with_slow(made, [10, 80], row=0))
    assert re.match(r"By the mean `a` is [12]\.\d+ times as fast as `as it is` \(5 more likewise\): some ", said.text)
    assert "some calls of `as it is` take far longer" in said.text
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
        ([10], ("wall", "cpu"), NO_LOAD),
        ([10, 20], ("wall", "cpu"), NO_LOAD),
        ([10, 80], ("wall",), BUSY),
        (range(0, 100, 2), ("wall", "cpu"), NO_LOAD),
        ([], ("wall", "cpu"), NO_LOAD),
    ],
    ids=["once", "in one half", "others had the core", "no rarity", "none"],
)
def test_what_the_machine_did_or_is_no_rarity_is_not_called_so(
    at: Sequence[int], clocks: Sequence[str], seen: Contention
) -> None:
    assert texts(with_slow(pair(1e-6, 1e-6, blocks=100), at, clocks=clocks, seen=seen)) == []


@pytest.mark.parametrize(
    ("at", "how"),
    [
        ([10, 80], {"clocks": ("wall",)}),  # a sleep, on a quiet machine
        ([10, 80], {"seen": BUSY}),  # by processor time, beside other processes too
        (range(0, 100, 3), {}),  # no rarity, but the median is of the others
    ],
)
def test_what_takes_longer_by_itself_is_said(at: Sequence[int], how: dict[str, Any]) -> None:
    assert len(texts(with_slow(pair(1e-6, 1e-6, blocks=100), at, **how))) == 1


def test_a_sleep_is_known_on_a_busy_machine_where_threads_waited_far_less_than_it_took() -> None:
    made = pair(1e-6, 1e-6, blocks=100)
    slow = with_slow(made, [10, 80], clocks=("wall",))
    took = float(slow.samples["wall"].sum() - made.samples["wall"].sum())
    seen = replace(BUSY, wall=took, waiting=0.3)
    assert len(texts(with_slow(made, [10, 80], clocks=("wall",), seen=seen))) == 1
    assert texts(with_slow(made, [10, 80], clocks=("wall",), seen=replace(seen, waiting=0.6))) == []


def test_the_means_are_said_in_the_direction_of_the_table() -> None:
    made = replace(with_slow(pair(1e-6, 0.5e-6, blocks=100), [10, 80]), baseline="mul")
    (said,) = texts(made)
    word = "fast" if "fast" in str(made.frame["verdict"].iloc[1]) else "long"
    assert f"times as {word} as `mul`" in said


def test_threads_that_wait_for_each_other_take_processor_time_too() -> None:
    made = pair(1e-6, 1e-6, blocks=100)
    made = replace(made, subjects=tuple(replace(s, num_threads=2) for s in made.subjects))
    assert texts(with_slow(made, [10, 80], seen=replace(BUSY, wanted=2.0))) == []


def test_alternatives_that_share_their_slow_calls_are_alike() -> None:
    made = with_slow(with_slow(pair(1e-6, 1e-6, blocks=100), [10, 80]), [30, 60], row=0)
    assert texts(made) == []
    assert np.isclose(made.frame["mean"][0], made.frame["mean"][1], rtol=0.02)
