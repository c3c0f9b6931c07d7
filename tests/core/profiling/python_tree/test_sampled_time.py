"""What a sample stands for, and how much of that is torch's: by numbers that can be counted by hand (ns)."""

from __future__ import annotations

from functools import partial

import numpy as np

from torchbench_magic.profiling.python.table import active_before, idle_times, sampled_times, waited, without_callers

MS = 1_000_000
HOURS = 1_790_000_000 * 10**9  # Unix ns, where a float has steps of 256 ns


def ints(*values: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([HOURS + round(value * MS) for value in values], dtype=np.int64)


def times(
    samples: list[tuple[str, float, float]], spans: list[tuple[float, float]], **of_run: object
) -> tuple[list[float], list[float]]:
    """(whole, torch) in ms. A sample is ("stretch", its begin, its end) or ("due", when it was due, when it was taken);
    sampling begins at 0."""
    run = {"begin": HOURS, "end": HOURS + 1000 * MS} | of_run
    starts, ends = (ints(*edges) for edges in zip(*spans, strict=True)) if spans else (ints(), ints())
    active = partial(active_before, **run)  # type: ignore[arg-type]
    moments = ints(0, *(taken for _, _, taken in samples))
    firsts = ints(*(first for _, first, _ in samples))
    is_stretch = np.array([kind == "stretch" for kind, _, _ in samples])
    begins, dues = np.where(is_stretch, firsts, 0), np.where(is_stretch, 0, firsts)
    whole, torch = sampled_times(moments, begins, dues, (starts, ends), active)
    return [each / MS for each in whole.tolist()], [each / MS for each in torch.tolist()]


def test_a_sample_that_was_due_stands_for_the_time_since_the_due_moment_before_it() -> None:
    assert times([("due", 1, 1.1), ("due", 2.25, 2.25), ("due", 3, 3.2)], []) == ([1, 1.25, 0.75], [0, 0, 0])


def test_a_stretch_is_its_own_and_no_part_of_what_is_due_around_it() -> None:
    """0.6 ms of short work, a call of 4 ms, 0.5 ms of short work: a sample is due after 1 ms of short work."""
    assert times([("stretch", 0.6, 4.6), ("due", 5, 5.1)], []) == ([4, 1], [0, 0])


def test_of_a_stretch_the_part_in_torch_is_known_and_what_is_due_was_in_torch_or_was_not() -> None:
    assert times([("stretch", 0.6, 4.6)], [(0.9, 4)]) == ([4], [3.1])
    assert times([("due", 1, 1.1), ("due", 2, 2.1)], [(0.9, 1.05), (1.3, 1.9)]) == ([1, 1], [1, 0])


def test_ops_in_ops_count_once_in_any_order() -> None:
    assert times([("stretch", 0, 10)], [(3, 4), (0.5, 9), (8.5, 9.25)]) == ([10], [8.75])


def test_an_op_of_nanoseconds_is_not_lost_in_the_size_of_the_clock() -> None:
    whole, torch = times([("stretch", 0, 1.00002)], [(1.000001, 1.000011)])
    assert (round(whole[0] * MS), round(torch[0] * MS)) == (1_000_020, 10)


def test_only_the_time_of_the_run_counts() -> None:
    of_run = {"begin": HOURS + 2 * MS, "end": HOURS + 8 * MS}
    samples = [("due", 1, 1.0), ("stretch", 1, 4), ("due", 20, 20.0)]
    assert times(samples, [], **of_run) == ([0, 2, 4], [0, 0, 0])
    left_out = [(HOURS + 5 * MS, HOURS + 6 * MS), (HOURS + 5.5 * MS, HOURS + 7 * MS)]
    left_out = [(round(begin), round(end)) for begin, end in left_out]
    assert times(samples, [], **of_run, left_out=left_out) == ([0, 2, 2], [0, 0, 0])


def test_torch_is_never_more_than_the_time_of_the_run() -> None:
    whole, torch = times([("stretch", 0, 20)], [(0, 20)], end=HOURS + 8 * MS)
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


def test_idleness_before_a_stretch_that_has_no_room_for_it_is_of_the_next_sample_between_stretches() -> None:
    """An op of torch of 5 ms is no idleness: the 0.1 ms were a nap before it."""
    idle_ms, room, is_stretch = np.array([3, 2, 1, 0]), np.array([1, 0, 9, 5]), np.array([True, True, False, False])
    assert waited(idle_ms, room, is_stretch).tolist() == [1, 0, 5, 0]
