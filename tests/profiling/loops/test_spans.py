"""Marks with given times become spans, steps and phases; and which line ran when."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import FrameType

import numpy as np
import pytest

from torchbench_magic.profiling.loops import marks
from torchbench_magic.profiling.loops.hooks import GRAD
from torchbench_magic.profiling.loops.marks import (
    BACKWARD,
    CLOSURE,
    FORWARD,
    INPUT,
    LOSS,
    OPTIMIZER,
    TRANSFER,
    ZERO_GRAD,
    LineSamples,
)
from torchbench_magic.profiling.loops.phases import phases_of
from torchbench_magic.profiling.loops.spans import (
    Span,
    pieces_of,
    recognised_steps,
    spans_of,
    with_loop_heads,
)
from torchbench_magic.profiling.loops.table import Loop, PlaceNumbers, RecordedLines, SampledLines, loop_rows

# ==== spans and steps =================================================================================================
# Marks with given times become spans, steps and phases: a loop of any shape has its steps where it iterates.


LOADER, OTHER_LOADER = 1, 2
ONE, TWO = 11, 12


class NoLines:
    def shares(self, begin: int, end: int) -> dict[int, float]:
        return {}

    def looks(self, begin: int, end: int) -> None:
        return None

    def added(self, begin: int, end: int) -> float:
        return 0.0

    def added_by_place(self, begin: int, end: int) -> dict[int, float]:
        return {}


class Told:
    """Spans one after the other on a clock that is given: each phase takes as long as said, with 1 ns between."""

    def __init__(self) -> None:
        self.now = 0
        self.spans: list[Span] = []

    def does(self, *phases: tuple[int, int] | tuple[int, int, int]) -> Told:
        for phase, length, *fact in phases:
            self.now += 1
            self.spans.append(Span(self.now, self.now + length, phase, phase, fact[0] if fact else -1))
            self.now += length
        return self

    def waits(self, length: int) -> Told:
        self.now += length
        return self

    @property
    def steps(self) -> list[tuple[int, int]]:
        return recognised_steps(self.spans, self.now)


def begins(told: Told, phase: int, fact: int | None = None) -> list[int]:
    return [s.begin for s in told.spans if s.phase == phase and fact in (None, s.fact)]


def usual(told: Told, number: int = 1) -> Told:
    for _ in range(number):
        told.does((INPUT, 20, LOADER), (ZERO_GRAD, 2), (FORWARD, 10), (BACKWARD, 30), (OPTIMIZER, 5, ONE))
    return told


def test_a_step_begins_with_the_input_that_follows_an_optimizers_step() -> None:
    told = usual(Told(), 4).does((INPUT, 1, LOADER))
    asked = begins(told, INPUT)
    assert told.steps == list(pairwise(asked))


def test_what_a_loop_does_after_the_optimizer_belongs_to_the_step_that_was() -> None:
    told = Told()
    for at in range(5):
        usual(told).waits(1000 if at == 2 else 0)
    lengths = [end - begin for begin, end in told.steps]
    assert lengths.index(max(lengths)) == 2


@pytest.mark.parametrize("first", [[(ZERO_GRAD, 2), (FORWARD, 10)], [(FORWARD, 10), (ZERO_GRAD, 2)]])
def test_without_input_a_step_begins_with_the_first_phase_after_the_optimizer(first: list[tuple[int, int]]) -> None:
    told = Told()
    for _ in range(4):
        told.does(*first, (BACKWARD, 30), (OPTIMIZER, 5, ONE)).waits(7)
    assert [begin for begin, _ in told.steps] == begins(told, first[0][0])


def test_accumulated_gradients_make_one_step_of_several_batches() -> None:
    told = Told()
    for _ in range(3):
        for _ in range(4):
            told.does((INPUT, 20, LOADER), (FORWARD, 10), (BACKWARD, 30))
        told.does((OPTIMIZER, 5, ONE), (ZERO_GRAD, 2))
    told.does((INPUT, 1, LOADER))
    assert [begin for begin, _ in told.steps] == begins(told, INPUT)[:-1:4]


def test_an_evaluation_before_the_usual_beginning_of_a_step_is_of_the_step_that_was() -> None:
    told = Told()
    for at in range(8):
        told.does((ZERO_GRAD, 2), (FORWARD, 10), (BACKWARD, 30), (OPTIMIZER, 5, ONE))
        if at % 4 == 3:
            told.does(*[(FORWARD, 100)] * 6)
    assert [begin for begin, _ in told.steps] == begins(told, ZERO_GRAD)


def test_two_optimizers_that_take_turns_make_one_step() -> None:
    told = Told()
    for _ in range(4):
        told.does((ZERO_GRAD, 1), (FORWARD, 9), (BACKWARD, 9), (OPTIMIZER, 5, ONE))
        told.does((ZERO_GRAD, 1), (FORWARD, 9), (BACKWARD, 9), (OPTIMIZER, 5, TWO))
    assert [begin for begin, _ in told.steps] == begins(told, ZERO_GRAD)[::2]


def test_two_loops_one_after_the_other_are_steps_of_both() -> None:
    told = Told()
    for optimizer in (ONE, TWO):
        for _ in range(4):
            told.does((ZERO_GRAD, 1), (FORWARD, 9), (BACKWARD, 9), (OPTIMIZER, 5, optimizer))
    assert len(told.steps) == 8


@pytest.mark.parametrize("has_head", [False, True])
def test_a_module_that_a_loader_calls_makes_input(has_head: bool) -> None:
    loading = Span(2, 50, INPUT, 1, LOADER)
    spans = [loading, Span(10, 20, FORWARD, 2, is_inner=True), Span(20, 30, LOSS, 2, is_inner=True)]
    spans = with_loop_heads([*spans, Span(60, 70, FORWARD, 3)], [Span(1, 55, INPUT, 1, is_head=True)] * has_head)
    whole = spans[0]
    assert [(piece.phase, piece.begin, piece.end) for piece in pieces_of(spans)] == [
        (INPUT, whole.begin, whole.end),
        (FORWARD, 60, 70),
    ]


def test_a_generator_that_runs_the_model_is_no_input_there() -> None:
    spans = with_loop_heads([Span(10, 20, FORWARD, 2)], [Span(1, 55, INPUT, 1, is_head=True)])
    assert [piece.phase for piece in pieces_of(spans)] == [INPUT, FORWARD, INPUT]


def test_an_evaluation_of_one_batch_is_of_the_step_that_was() -> None:
    told = Told()
    for at in range(8):
        told.does((FORWARD, 10), (BACKWARD, 30), (OPTIMIZER, 5, ONE))
        if at % 3 == 2:
            told.does((INPUT, 20, OTHER_LOADER)).waits(100)
    assert [begin for begin, _ in told.steps] == begins(told, FORWARD)


def test_an_evaluation_within_the_loop_belongs_to_the_step_before_it() -> None:
    told = Told()
    for at in range(10):
        usual(told)
        if at == 4:
            for _ in range(3):
                told.does((INPUT, 20, OTHER_LOADER), (FORWARD, 10))
    told.does((INPUT, 1, LOADER))
    assert [begin for begin, _ in told.steps] == begins(told, INPUT, LOADER)[:-1]


def test_an_evaluation_after_each_epoch_belongs_to_its_last_step() -> None:
    told = Told()
    first_of_epoch = []
    for _ in range(3):
        told.does((INPUT, 50, LOADER))  # the making of the iterator: workers start
        first_of_epoch.append(told.spans[-1].begin)
        usual(told, 5).does((INPUT, 1, LOADER))  # and nothing more comes
        for _ in range(2):
            told.does((INPUT, 20, OTHER_LOADER), (FORWARD, 10))
    steps = told.steps
    assert len(steps) == 15
    assert [begin for begin, _ in steps][::5] == first_of_epoch


def test_an_optimizer_within_the_backward_pass_makes_one_step_of_each_pass() -> None:
    told = Told()
    for _ in range(3):
        told.does((INPUT, 5, LOADER), (FORWARD, 10), (BACKWARD, 30))
        begin = told.spans[-1].begin
        told.spans += [Span(begin + 5 * n, begin + 5 * n + 2, OPTIMIZER, 0, n, True, True) for n in range(1, 4)]
    told.spans.sort(key=lambda span: (span.begin, -span.end))
    assert len(told.steps) == 3


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_steps_of_an_optimizer_are_no_loop(count: int) -> None:
    assert usual(Told(), count).steps == []


def test_a_loop_without_an_optimizer_has_no_steps() -> None:
    told = Told()
    for _ in range(5):
        told.does((INPUT, 20, LOADER), (FORWARD, 10))
    assert told.steps == []


# ---- spans ----------------------------------------------------------------------------------------------------------


def train_on(told: Told, line: int, number: int, *, loader: int | None = None) -> Told:
    """Steps whose phases stand on lines of their own, from this one on; the loader is asked once more at their end."""
    phases = [(ZERO_GRAD, -1), (FORWARD, GRAD), (BACKWARD, -1), (OPTIMIZER, ONE)]
    for _ in range(number):
        for phase, fact in [*([(INPUT, loader)] if loader else []), *phases]:
            told.spans.append(Span(told.now + 1, told.now + 6, phase, line + phase, fact))
            told.now += 6
    if loader:
        told.spans.append(Span(told.now + 1, told.now + 2, INPUT, line + INPUT, loader))
        told.now += 2
    return told


@pytest.mark.parametrize("loader", [None, LOADER])
@pytest.mark.parametrize("passes", [1, 6])
def test_what_lies_between_two_loops_is_of_no_step(loader: int | None, passes: int) -> None:
    told = train_on(Told(), 100, 5, loader=loader)
    first = told.now - (1 if loader else 0)
    evaluation = told.now
    for _ in range(passes):
        told.does((FORWARD, 50, 0))
    second = told.now + 1
    train_on(told, 200, 5, loader=loader)
    steps = told.steps
    assert len(steps) == 10
    assert (steps[4][1], steps[5][0]) == (first, second)
    assert all(end <= evaluation or begin > evaluation + 50 * passes for begin, end in steps)
    assert [a[1] == b[0] for a, b in pairwise(steps)] == [True] * 4 + [False] + [True] * 4


@pytest.mark.parametrize("steps_on", [[(100, 1), (200, 1)] * 3, [(100, 5), (200, 1)], [(100, 1), (200, 5)]])
def test_lines_that_take_turns_and_a_single_step_on_a_line_of_its_own_are_of_one_loop(
    steps_on: list[tuple[int, int]],
) -> None:
    told = Told()
    for line, number in steps_on:
        train_on(told, line, number).waits(20)
    steps = told.steps
    assert len(steps) == 6
    assert all(a[1] == b[0] for a, b in pairwise(steps))


def test_two_loops_that_follow_at_once_share_no_time() -> None:
    """Gradients that the second one clears first are not the end of the first one's last step."""
    told = train_on(train_on(Told(), 100, 3), 200, 3)
    steps = told.steps
    assert len(steps) == 6
    assert all(a[1] <= b[0] for a, b in pairwise(steps))


def marks_of(*given: tuple[int, int, int]) -> list[int]:
    """(time, mark, fact) each, in places that are the marks' phases."""
    return [number for time, mark, fact in given for number in (time, mark, abs(mark), fact)]


def test_what_never_ended_is_left_out_and_the_rest_stands() -> None:
    forward, backward = [(5, FORWARD, -1), (9, -FORWARD, 3)], [(12, BACKWARD, -1), (20, -BACKWARD, -1)]
    found = spans_of(marks_of((0, OPTIMIZER, -1), *forward, *backward))
    assert [(s.begin, s.end, s.phase, s.fact) for s in found] == [(5, 9, FORWARD, 3), (12, 20, BACKWARD, -1)]


def test_an_inner_phase_that_was_cut_off_ends_nothing_of_the_outer_one() -> None:
    found = spans_of(marks_of((0, OPTIMIZER, -1), (5, FORWARD, -1), (9, -OPTIMIZER, ONE)))
    assert [(s.begin, s.end, s.phase) for s in found] == [(0, 9, OPTIMIZER)]


def test_a_transfer_that_moved_nothing_is_none() -> None:
    found = spans_of(marks_of((0, TRANSFER, -1), (5, -TRANSFER, 0), (6, TRANSFER, -1), (9, -TRANSFER, 1)))
    assert [(s.begin, s.end) for s in found] == [(6, 9)]


def test_the_innermost_phase_has_the_time_but_within_a_backward_pass() -> None:
    closure = [Span(10, 30, FORWARD, 0, is_inner=True), Span(40, 60, BACKWARD, 0, is_inner=True)]
    closure = [Span(0, 100, OPTIMIZER, 0), *closure]
    inside = [Span(45, 50, FORWARD, 0, is_inner=True, in_backward=True)]
    pieces = pieces_of(sorted([*closure, *inside], key=lambda span: (span.begin, -span.end)))
    found = [(p.begin, p.end, p.phase) for p in pieces]
    assert found == [
        (0, 10, OPTIMIZER),
        (10, 30, FORWARD),
        (30, 40, OPTIMIZER),
        (40, 60, BACKWARD),
        (60, 100, OPTIMIZER),
    ]


def times_of(spans: Sequence[Span], end: int) -> dict[str, int]:
    """ns of each phase, of one step."""
    places = PlaceNumbers()
    for line in range(CLOSURE + 1):
        places.number("cell", line)
    rows = loop_rows(Loop(spans, 0, end, places, NoLines(), [(0, end)]), {})
    phases = phases_of(rows).set_index("phase")["seconds"] * 1e9
    return {str(name): round(ns) for name, ns in phases.items() if ns}


def test_what_a_closure_runs_is_not_the_optimizer_s_however_often_it_runs() -> None:
    """Its time outside of phases is the loss before a backward pass that follows a module, else other code."""
    functional = [(10, CLOSURE, -1), (40, BACKWARD, -1), (60, -BACKWARD, -1), (65, -CLOSURE, -1)]
    modules = [(70, CLOSURE, -1), (75, FORWARD, -1), (80, -FORWARD, 0), (88, BACKWARD, -1), (90, -BACKWARD, -1)]
    marks_ = marks_of((0, OPTIMIZER, -1), *functional, *modules, (92, -CLOSURE, -1), (100, -OPTIMIZER, ONE))
    expected = {"forward": 5, "loss": 8, "backward": 22, "optimizer": 23, "other": 42}
    assert times_of(spans_of(marks_), 100) == expected


def test_the_head_of_a_loop_is_input_unless_it_trains_or_is_of_the_model() -> None:
    spans = [Span(10, 20, FORWARD, 0), Span(30, 40, BACKWARD, 0)]
    heads = [Span(0, 9, INPUT, 1), Span(12, 13, INPUT, 2), Span(25, 45, INPUT, 3)]
    assert [s.place for s in with_loop_heads(spans, heads) if s.phase == INPUT] == [1]


# ---- rows -----------------------------------------------------------------------------------------------------------


def seconds(told: Told, steps: Iterable[tuple[int, int]] | None = None) -> dict[int, dict[str, float]]:
    loop = Loop(told.spans, 0, told.now, PlaceNumbers(), NoLines(), None if steps is None else list(steps))
    for number in range(20):
        loop.places.number("source", number)
    found: dict[int, dict[str, float]] = {}
    for step, phase, took in phases_of(loop_rows(loop, {})).itertuples(index=False):
        found.setdefault(step, {})[phase] = round(took * 1e9)
    return found


def test_the_phases_of_a_step_add_up_to_it() -> None:
    told = usual(Told(), 4).does((INPUT, 1, LOADER))
    found = seconds(told)
    assert [sum(each.values()) for each in found.values()] == [end - begin for begin, end in told.steps]
    assert list(found[0]) == ["input", "transfer", "forward", "loss", "backward", "optimizer", "zero_grad", "other"]


def test_what_lies_between_forward_and_backward_is_the_loss() -> None:
    told = Told()
    for _ in range(3):
        told.does((INPUT, 20, LOADER), (FORWARD, 10)).waits(40)
        told.does((ZERO_GRAD, 2), (BACKWARD, 30), (OPTIMIZER, 5, ONE))
    found = seconds(told)
    assert found[1]["loss"] == 42  # 40, and 1 on either side of what clears the gradients
    assert found[1]["other"] == 3


def test_a_forward_pass_that_no_backward_pass_follows_has_no_loss() -> None:
    told = Told()
    for _ in range(3):
        usual(told).does((FORWARD, 10)).waits(40)
    assert seconds(told)[1]["loss"] == 1  # between forward and backward of the training
    assert seconds(told)[1]["other"] > 40


def test_steps_that_the_code_said_are_taken_as_they_are_and_cut_a_phase() -> None:
    told = Told().does((INPUT, 20, LOADER), (FORWARD, 10))
    found = seconds(told, [(0, 15), (15, 32)])
    assert [found[0]["input"], found[1]["input"], found[1]["forward"]] == [14, 6, 10]
    assert [sum(each.values()) for each in found.values()] == [15, 17]


def test_without_steps_the_table_of_phases_is_empty() -> None:
    assert seconds(Told().does((INPUT, 20, LOADER), (FORWARD, 10))) == {}


# ==== loop lines ======================================================================================================
# Which line ran when: shares of a stretch, and the times at which loops got their next item.


def recorded(
    nodes: list[int], parent: list[int], is_head: list[bool], recording: Sequence[float] | None = None
) -> RecordedLines:
    """Segments of 10 ns each, of nodes whose place is their number, and this part of which recording added."""
    starts = 10 * np.arange(len(nodes), dtype=np.int64)
    places = np.arange(len(parent), dtype=np.int64)
    of_nodes = np.array(nodes, dtype=np.int64)
    parts = np.zeros(len(parent)) if recording is None else np.array(recording)
    return RecordedLines(starts, of_nodes, places, np.array(parent), np.array(is_head), 10 * len(nodes), parts)


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


def test_what_recording_added_to_a_stretch_is_by_the_lines_that_ran_in_it() -> None:
    lines = recorded([1, 2, 1, 2], [-1, 0, 0], [False] * 3, [0.0, 0.5, 0.1])
    assert lines.added_by_place(5, 32) == {1: 7.5, 2: pytest.approx(1.2)}
    assert lines.added(5, 32) == pytest.approx(8.7)
    assert lines.added(-9, 5) == lines.added(12, 17) * 5 == pytest.approx(2.5)
    assert recorded([], [-1], [False]).added(0, 10) == 0
    samples = SampledLines([10, 1])
    assert np.isnan([samples.added(5, 15), *samples.added_by_place(5, 15).values()]).all()


def test_each_phase_has_what_recording_added_to_it() -> None:
    """10 ns of forward between two stretches of a line to which recording added nine tenths."""
    lines = recorded([1] * 5 + [2] + [1] * 5, [-1, 0, 0], [False] * 3, [0.0, 0.9, 0.1])
    places = PlaceNumbers()
    for line in range(3):
        places.number("cell", line)
    rows = loop_rows(Loop([Span(50, 60, FORWARD, 2, 0)], 0, 110, places, lines, [(0, 110)]), {})
    found = {row.phase: (row.seconds * 1e9, row.recording_seconds * 1e9) for row in rows.itertuples()}
    assert found == {"forward": pytest.approx((10, 1)), "other": pytest.approx((100, 90))}


def test_samples_divide_a_stretch_and_say_nothing_of_one_without() -> None:
    lines = SampledLines([10, 1, 20, 1, 30, 2])
    assert lines.shares(5, 35) == {1: 20.0, 2: 10.0}
    assert lines.shares(11, 19) == {}
    assert lines.looks(5, 35) == {1: 2, 2: 1}
    assert SampledLines([]).shares(0, 10) == {}


# ==== line samples ====================================================================================================
# Which line runs, looked at by another thread: a look that came late, and what is known then. By planted waits.


LATE, IN_TIME = 0.002, 0.0001


def places(monkeypatch: pytest.MonkeyPatch, *late: float) -> list[int]:
    """Of each look, with waits that are so late one after another: 0 for the line that ran, -1 where it is unknown."""
    samples, left = LineSamples(), iter(late)
    monkeypatch.setattr(samples, "_wait", lambda pause: next(left, None))
    monkeypatch.setattr(samples.book, "place_of", lambda frame: 0 if isinstance(frame, FrameType) else 1)
    samples._look()
    assert next(left, None) is None, "all of them were waited for"
    return list(samples.record[1::2])


def test_a_late_look_is_believed_where_the_next_one_is_late_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, IN_TIME, IN_TIME) == [0, 0]
    assert places(monkeypatch, LATE, LATE, IN_TIME) == [0, 0], "the code held the lock, and wanted it back"
    assert places(monkeypatch, LATE, IN_TIME, IN_TIME) == [-1, 0], "it let go of the lock: where, is not known"


def test_looks_lie_a_tenth_of_a_second_apart_in_the_mean_and_never_equally_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, pauses = LineSamples(), list[float]()
    monkeypatch.setattr(samples, "_wait", lambda pause: pauses.append(pause) or (None if len(pauses) > 200 else 0.0))
    samples._look()
    assert 0.06 <= min(pauses) <= max(pauses) <= 0.14
    assert sum(pauses) / len(pauses) == pytest.approx(0.1, rel=0.02)
    assert all(abs(one - other) > 0.01 for one, other in itertools.pairwise(pauses))


def test_it_looks_at_the_thread_that_made_it_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_SHORTEST", 0.0)
    monkeypatch.setattr(marks, "_SPREAD", 0.0)
    samples = LineSamples()
    before = threading.active_count()
    samples.start()
    here = sys._getframe().f_code
    while here not in {code for code, _ in samples.book.places}:
        sum(range(1000))
    samples.stop()
    while threading.active_count() > before:  # `stop` waits for a second
        sum(range(1000))
