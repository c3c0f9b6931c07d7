"""Which line ran when: shares of a stretch, and the times at which loops got their next item."""

from __future__ import annotations

import numpy as np

from torchbench_magic.profiling.loops.table import RecordedLines, SampledLines


def recorded(nodes: list[int], parent: list[int], is_head: list[bool]) -> RecordedLines:
    """Segments of 10 ns each, of nodes whose place is their number."""
    starts = 10 * np.arange(len(nodes), dtype=np.int64)
    places = np.arange(len(parent), dtype=np.int64)
    of_nodes = np.array(nodes, dtype=np.int64)
    return RecordedLines(starts, of_nodes, places, np.array(parent), np.array(is_head), 10 * len(nodes))


def heads(lines: RecordedLines) -> list[tuple[int, int, int]]:
    return sorted((span.begin, span.end, span.place) for span in lines.heads())


def test_a_head_with_what_it_calls_is_one_span_for_each_item() -> None:
    """Node 1 is the head, 2 its body, 3 the line of a generator that the head runs."""
    lines = recorded([1, 3, 1, 2, 1, 3, 2, 1], [-1, 0, 0, 1], [False, True, False, False])
    assert heads(lines) == [(0, 30, 1), (40, 60, 1), (70, 80, 1)]


def test_a_loop_within_what_a_head_calls_has_spans_of_its_own() -> None:
    """Head 1 runs a generator whose own loop has head 2 and body 3."""
    lines = recorded([1, 2, 3, 1, 0], [-1, 0, 1, 1], [False, True, True, False])
    assert heads(lines) == [(0, 40, 1), (10, 20, 2)]


def test_without_heads_there_are_no_spans() -> None:
    assert heads(recorded([0, 1], [-1, 0], [False, False])) == []
    assert heads(recorded([], [-1, 0], [False, True])) == []


def test_the_shares_of_a_stretch_add_up_to_it() -> None:
    lines = recorded([1, 2, 1, 2], [-1, 0, 0], [False] * 3)
    assert lines.shares(5, 32) == {1: 15.0, 2: 12.0}
    assert lines.shares(12, 18) == {2: 6.0}


def test_samples_divide_a_stretch_and_say_nothing_of_one_without() -> None:
    lines = SampledLines([10, 1, 20, 1, 30, 2])
    assert lines.shares(5, 35) == {1: 20.0, 2: 10.0}
    assert lines.shares(11, 19) == {}
    assert lines.looks(5, 35) == {1: 2, 2: 1}
    assert SampledLines([]).shares(0, 10) == {}
