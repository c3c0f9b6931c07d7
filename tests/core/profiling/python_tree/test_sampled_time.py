"""What a sample stands for, and how much of that is torch's: by numbers that can be counted by hand (ns)."""

from __future__ import annotations

from functools import partial

import numpy as np

from torchbench_magic.core.profiling.python_tree.sampled_time import (
    active_before,
    idle_times,
    sampled_times,
    without_callers,
)

MS = 1_000_000
HOURS = 1_790_000_000 * 10**9  # Unix ns, where a float has steps of 256 ns


def ints(*values: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([HOURS + round(value * MS) for value in values], dtype=np.int64)


def times(moments: list[float], spans: list[tuple[float, float]], **of_run: object) -> tuple[list[float], list[float]]:
    """(whole, torch) in ms, of samples at ``moments`` (the first is the start), with an interval of 1 ms."""
    run = {"begin": HOURS, "end": HOURS + 1000 * MS} | of_run
    starts, ends = (ints(*edges) for edges in zip(*spans, strict=True)) if spans else (ints(), ints())
    active = partial(active_before, **run)  # type: ignore[arg-type]
    whole, torch = sampled_times(ints(*moments), MS, (starts, ends), active)
    return [each / MS for each in whole.tolist()], [each / MS for each in torch.tolist()]


def test_without_ops_a_sample_stands_for_the_time_since_the_last_one() -> None:
    assert times([0, 1, 2.25, 5], []) == ([1, 1.25, 2.75], [0, 0, 0])


def test_what_runs_as_the_interval_is_over_stands_for_it_and_the_rest_is_exact() -> None:
    # an op runs from 0.9 to 4 ms, and its call returns at 4.5: the interval ended at 1 ms, within the op
    assert times([0, 4.5], [(0.9, 4)]) == ([4.5], [1 + 3])
    # another one ended before the interval did: what ran at its end was no op, and none ran after it
    assert times([0, 1.5], [(0.1, 0.95)]) == ([1.5], [0])


def test_ops_in_ops_count_once_in_any_order() -> None:
    assert times([0, 10], [(3, 4), (0.5, 9), (8.5, 9.25)]) == ([10], [1 + 8.25])


def test_an_op_of_nanoseconds_is_not_lost_in_the_size_of_the_clock() -> None:
    whole, torch = times([0, 1.00002], [(1.000001, 1.000011)])
    assert (round(whole[0] * MS), round(torch[0] * MS)) == (1_000_020, 10)


def test_only_the_time_of_the_run_counts() -> None:
    of_run = {"begin": HOURS + 2 * MS, "end": HOURS + 8 * MS}
    assert times([0, 1, 4, 20], [], **of_run) == ([0, 2, 4], [0, 0, 0])
    left_out = [(HOURS + 5 * MS, HOURS + 6 * MS), (HOURS + 5.5 * MS, HOURS + 7 * MS)]
    left_out = [(round(begin), round(end)) for begin, end in left_out]
    assert times([0, 1, 4, 20], [], **of_run, left_out=left_out) == ([0, 2, 2], [0, 0, 0])


def test_torch_is_never_more_than_the_time_of_the_run() -> None:
    whole, torch = times([0, 20], [(0, 20)], end=HOURS + 8 * MS)
    assert (whole, torch) == ([8], [8])


def test_an_op_in_which_a_sample_was_taken_runs_python_itself() -> None:
    starts, ends = ints(0, 1, 5), ints(10, 2, 6)
    assert without_callers(starts, ends, ints(0, 3, 5.999)).tolist() == [False, True, True]  # 3 lies within the first


def idle(moments: list[float], wanted: list[float]) -> list[float]:
    return [each / MS for each in idle_times(ints(*moments), ints(*wanted)).tolist()]


def test_idle_is_what_the_wall_clock_moved_and_the_wish_for_a_core_did_not() -> None:
    assert idle([0, 1, 2, 12], [5, 6, 6.5, 6.5]) == [0, 0.5, 10]


def test_a_wait_between_the_two_readings_of_a_sample_is_no_idleness() -> None:
    """The thread is set aside for 3 ms after the wall clock was read: it is on the other clock first."""
    assert idle([0, 1, 2, 6, 7], [0, 1, 5, 6, 7]) == [0, 0, 0, 0]
    assert idle([0, 1, 2, 16, 17], [0, 1, 5, 6, 7]) == [0, 0, 10, 0]
