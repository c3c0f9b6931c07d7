"""The time of a thread, cut at every change of op or line; the replay of line marks."""

from __future__ import annotations

from array import array
from types import CodeType

import numpy as np
import pytest

from torchbench_magic.profiling.file_texts import read_statements
from torchbench_magic.profiling.line_events import LEAVE, SUSPEND, Stream, entered
from torchbench_magic.profiling.segments import Codes, LineTree, Segments, ancestors, lay_over, nest, repeats, replay

# ==== nesting =========================================================================================================
# Ops of a thread as a stack, and the cutting of a thread's time at every change of op or line.


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_an_op_runs_in_the_innermost_op_that_holds_it() -> None:
    #        0----------------20
    #          2----9  10--15        20--25
    #           3-5
    nesting = nest(ints(0, 2, 3, 10, 20), ints(20, 9, 5, 15, 25))
    assert nesting.parent.tolist() == [-1, 0, 1, 0, -1]
    assert nesting.time.tolist() == [0, 2, 3, 5, 9, 10, 15, 20, 20, 25]
    assert nesting.top.tolist() == [0, 1, 2, 1, 0, 3, 0, -1, 4, -1]


def test_an_op_that_outlasts_its_parent_ends_with_it_and_one_without_duration_is_no_parent() -> None:
    nesting = nest(ints(0, 5, 11), ints(10, 12, 13))
    assert nesting.parent.tolist() == [-1, 0, -1]
    assert nesting.time.tolist() == sorted(nesting.time.tolist())
    nesting = nest(ints(5, 5, 6, 9), ints(8, 5, 7, 9))
    assert nesting.parent.tolist() == [-1, 0, 0, -1]


def test_the_slices_add_up_and_each_has_its_op_and_its_line() -> None:
    nesting = nest(ints(2, 3), ints(8, 5))
    slices = lay_over(nesting, ints(1, 4, 9), begin=0, end=10)
    assert slices.length.sum() == 10
    cut = np.cumsum(np.append(0, slices.length)).tolist()
    assert cut == [0, 1, 2, 3, 4, 5, 8, 9, 10]
    assert slices.op.tolist() == [-1, -1, 0, 1, 1, 0, -1, -1]
    assert slices.segment.tolist() == [-1, 0, 0, 0, 1, 1, 1, 2]


def test_what_lies_outside_the_body_is_cut_off() -> None:
    slices = lay_over(nest(ints(0, 8), ints(3, 30)), ints(-5, 9), begin=2, end=10)
    assert slices.length.tolist() == [1, 5, 1, 1]
    assert slices.op.tolist() == [0, -1, 1, 1]
    assert slices.segment.tolist() == [0, 0, 0, 1]


def test_without_ops_and_lines_there_is_one_slice() -> None:
    slices = lay_over(nest(ints(), ints()), ints(), begin=3, end=10)
    assert (slices.length.tolist(), slices.op.tolist(), slices.segment.tolist()) == ([7], [-1], [-1])


def test_ranges_of_interleaved_tasks_are_cut_at_the_end_of_the_outer_one() -> None:
    nesting = nest(ints(0, 5, 30), ints(10, 20, 40))
    assert nesting.parent.tolist() == [-1, 0, -1]
    slices = lay_over(nesting, ints(), begin=0, end=40)
    assert np.bincount(slices.op + 1, weights=slices.length).tolist() == [20, 5, 5, 10]


@pytest.mark.parametrize("seed", range(5))
def test_random_nests_are_the_same_as_by_looking_at_each_moment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spans = [(0, 400)]
    for _ in range(60):  # a random proper nest: each span inside one that exists, apart from its children
        low, high = spans[rng.integers(len(spans))]
        a, b = sorted(rng.integers(low, high + 1, size=2).tolist())
        if a < b and all(b <= c or a >= d or (a <= c and d <= b) or (c <= a and b <= d) for c, d in spans):
            spans.append((a, b))
    spans = sorted(set(spans), key=lambda span: (span[0], -span[1]))
    start, end = (np.array(side, dtype=np.int64) for side in zip(*spans, strict=True))
    slices = lay_over(nest(start, end), np.unique(rng.integers(0, 400, size=30)), begin=-10, end=410)
    at = -10
    for length, op in zip(slices.length.tolist(), slices.op.tolist(), strict=True):
        inside = [i for i, (a, b) in enumerate(spans) if a <= at and at + length <= b]
        assert op == (max(inside) if inside else -1)
        at += length
    assert at == 410


def test_an_overload_that_only_calls_its_like_is_one_call() -> None:
    # sum(sum(fill_)) is one sum; abs(empty, abs) is two
    parent, name = ints(-1, 0, 1, -1, 3, 3), ints(7, 7, 8, 9, 5, 9)
    assert repeats(parent, name).tolist() == [False, True, False, False, False, False]


def test_three_of_a_name_in_a_row_are_one() -> None:
    assert repeats(ints(-1, 0, 1, 2), ints(7, 7, 7, 8)).tolist() == [False, True, True, False]


def test_ancestors_come_level_by_level_the_outermost_last() -> None:
    found = [(op.tolist(), above.tolist()) for op, above in ancestors(ints(-1, 0, 1, 0, -1, 2))]
    assert found == [([1, 2, 3, 5], [0, 1, 0, 2]), ([2, 5], [0, 1]), ([5], [0])]
    assert list(ancestors(ints(-1, -1))) == []


def test_what_is_left_out_is_no_time_of_any_op_or_line() -> None:
    nesting = nest(ints(2, 12), ints(10, 18))
    slices = lay_over(nesting, ints(1, 4, 9), 0, 20, [(0, 1), (3, 6), (9, 14), (19, 20)])
    assert slices.length.sum() == 20 - (1 + 3 + 5 + 1)
    assert slices.end.tolist() == [2, 4, 9, 18, 20]
    assert slices.length.tolist() == [1, 1, 3, 4, 1]
    assert slices.op.tolist() == [-1, 0, 0, 1, -1]
    assert slices.segment.tolist() == [0, 0, 1, 2, 2]


# ==== replay ==========================================================================================================
# The replay of line marks.


TEXT = """def f():
    def g():
        pass
    a
    b
"""


def codes_of(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(found for each in inner for found in codes_of(each))]


def replayed(marks: list[int], thread: int = 0) -> tuple[LineTree, Segments]:
    record = array("q", [number for at, mark in enumerate(marks) for number in (1000 + at, mark)])
    codes, tree = codes_of(compile(TEXT, "<cell>", "exec")), LineTree()
    return tree, replay(Stream(1, "a thread", record), thread, Codes(codes, {"<cell>": read_statements(TEXT)}), tree)


def test_depth_never_falls_below_the_first_frame_that_was_seen() -> None:
    _, found = replayed([LEAVE, LEAVE, entered(1), 4, entered(2), LEAVE, SUSPEND, LEAVE, entered(1)], 1)
    assert found.depth.tolist() == [0, 0, 1, 1, 2, 1, 0, 0, 1]


def test_events_are_paid_for_by_the_line_that_waits_for_them() -> None:
    """Beginnings and ends of frames by the line that ran, a line event in halves by the line before and its own."""
    marks = [entered(1), 4, 5, entered(2), LEAVE, 5, LEAVE]
    tree, found = replayed(marks)
    lines, begins = found.events_of(len(tree))
    first, fourth, fifth, inner = (found.node[at] for at in (0, 1, 2, 3))
    assert lines[[first, fourth, fifth, inner]].tolist() == [0.5, 1.0, 2.5, 1.0]
    assert lines.sum() == len(marks) - 2
    assert begins[[found.root, fifth]].tolist() == [1.0, 1.0]
    assert begins.sum() == 2


def test_without_events_nobody_pays() -> None:
    tree = LineTree()
    found = replay(Stream(1, "a thread"), 0, Codes([], {}), tree)
    assert [each.tolist() for each in found.events_of(len(tree))] == [[0.0], [0.0]]
