"""From marks to phases: spans, where steps begin and end, evaluations, what compiled code leaves untold."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median

from torchbench_magic.errors import Busy
from torchbench_magic.result_base import Doubt
from torchbench_magic.units import count

from .marks import (
    BACKWARD,
    COMPILED,
    FORWARD,
    INPUT,
    LOSS,
    OPTIMIZER,
    STEP,
    TRANSFER,
    UNCLEARED,
    WIDTH,
    ZERO_GRAD,
    LoopMarks,
)

# ---- current ---------------------------------------------------------------------------------------------------------

_current: LoopMarks | None = None


@contextlib.contextmanager
def marking(marks: LoopMarks) -> Iterator[None]:
    """Steps that the code says go into ``marks``.

    Raises:
        Busy: another one's do already.
    """
    global _current
    if _current is not None:
        raise Busy("a profile of phases is already running; a second one cannot start inside it")
    _current = marks
    try:
        yield
    finally:
        _current = None


def note_step() -> None:
    """The code says that a step ends here; nothing where no phases are recorded."""
    if _current is not None:
        _current.step()


# ---- spans -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """One phase from its beginning to its end.

    Attributes:
        begin, end: Unix ns.
        phase: number of the phase, or `CLOSURE`, as in `marks`.
        place: number of its line; -1 for none.
        fact: number of the loader or the optimizer, or the flags of a module's call; -1 where there is none.
        is_inner: it ran within another phase.
        in_backward: within a backward pass.
        is_uncleared: the step of an optimizer whose gradients nothing has cleared since its step before.
        is_head: the head of a ``for`` loop; another input is a DataLoader's.
    """

    begin: int
    end: int
    phase: int
    place: int
    fact: int = -1
    is_inner: bool = False
    in_backward: bool = False
    is_uncleared: bool = False
    is_head: bool = False


def spans_of(record: Sequence[int]) -> list[Span]:
    """All spans of a record of `LoopMarks`, by their beginning. What never ended (a Ctrl-C) is left out, and so is a
    transfer that moved nothing."""
    running: list[tuple[int, int, int]] = []  # (begin, phase, place)
    found: list[Span] = []
    uncleared: set[int] = set()  # when these began
    for at in range(0, len(record) - WIDTH + 1, WIDTH):
        time, mark, place, fact = record[at], record[at + 1], record[at + 2], record[at + 3]
        if mark in (STEP, COMPILED):
            continue
        if mark == UNCLEARED:
            uncleared.update(begin for begin, _, _ in running[-1:])
        elif mark > 0:
            running.append((time, mark, place))
        elif any(phase == -mark for _, phase, _ in running):
            while running[-1][1] != -mark:
                running.pop()
            begin, phase, where = running.pop()
            if phase != TRANSFER or fact == 1:
                backward = any(around == BACKWARD for _, around, _ in running)
                found.append(Span(begin, time, phase, where, fact, bool(running), backward, begin in uncleared))
    return sorted(found, key=lambda span: (span.begin, -span.end))


def said_steps(record: Sequence[int], spans: Sequence[Span]) -> list[tuple[int, int]] | None:
    """(begin, end) of each step where the code itself said that a step ends, Unix ns; None where it never did.

    Args:
        spans: by their beginning; the first step begins with the first of them.
    """
    said = [record[at] for at in range(0, len(record) - WIDTH + 1, WIDTH) if record[at + 1] == STEP]
    if not said:
        return None
    first = min([span.begin for span in spans[:1]] + [said[0]])
    return list(zip([first, *said], said, strict=False))


def with_loop_heads(spans: Sequence[Span], heads: Iterable[Span]) -> list[Span]:
    """The spans, and those of the heads of ``for`` loops in which a loop gets its next item: input too.

    A head that runs the training itself (a generator of losses) is none, and one within another phase (a model's loop
    over its layers) is part of that.
    """
    work = sorted(span.begin for span in spans if span.phase in (BACKWARD, OPTIMIZER))
    around = [span for span in spans if not span.is_inner]
    begins = [span.begin for span in around]

    def is_apart(head: Span) -> bool:
        at = bisect_right(begins, head.begin) - 1
        inside = at >= 0 and around[at].end > head.begin
        first = bisect_left(work, head.begin)
        return not inside and not (first < len(work) and work[first] < head.end)

    return sorted([*spans, *filter(is_apart, heads)], key=lambda span: (span.begin, -span.end))


def pieces_of(spans: Iterable[Span]) -> list[Span]:
    """The spans (by their beginning) without what they have in common: the innermost has the time.

    What a backward pass runs (a checkpoint calls its module again) is backward, an input within an input is one, and a
    module that a loader calls (a data set that encodes its samples) makes input.
    """
    pieces: list[Span] = []
    stack: list[Span] = []
    at, loads_until = 0, 0

    def until(moment: int) -> None:
        nonlocal at
        if stack and moment > at:
            pieces.append(replace(stack[-1], begin=at, end=moment))
        at = max(at, moment)

    for span in spans:
        while stack and stack[-1].end <= span.begin:
            until(stack[-1].end)
            stack.pop()
        if span.phase == INPUT and not span.is_head:
            loads_until = max(loads_until, span.end)
        if stack and (stack[-1].phase == BACKWARD or (stack[-1].phase == INPUT and span.phase == INPUT)):
            continue
        if stack and span.phase in (FORWARD, LOSS) and span.begin < loads_until:
            continue
        until(span.begin)
        if not stack:
            at = span.begin
        stack.append(replace(span, end=min(span.end, stack[-1].end)) if stack else span)
    while stack:
        until(stack[-1].end)
        stack.pop()
    return pieces


# ---- step_bounds -----------------------------------------------------------------------------------------------------
# Where the steps of a training loop begin and end, recognised from what its optimizers and its loader do.
#
# A step ends where an iteration does. With every step of an optimizer there is one, or (gradient accumulation) some: so
# a step begins where the loop first asks for input after an optimizer's step, and without input with the phase that
# most steps begin with, or the first after it. What lies between belongs to the step that was: a checkpoint, logging,
# an evaluation. Another loop steps its optimizer on a line of its own.

FEWEST = 2
"""Optimizer steps: one alone is no loop."""
_MOST_STEPS = 0.6  # of the stretches between optimizer steps in which the loop's own input is asked for
_IN_TURN = 0.8  # of the steps of one optimizer that have one of every other between them: they are one step
_RARE = 10  # times as many steps as another optimizer has: the other one has nothing to do with this loop

_InputKey = tuple[int, ...]


def recognised_steps(spans: Sequence[Span], end: int) -> list[tuple[int, int]]:
    """(begin, end) of each step, Unix ns, one after the other; none where there are fewer than `FEWEST`. What lies
    between two loops is in no step.

    Args:
        spans: by their beginning, heads of loops included.
        end: of the body.
    """
    loops = _loops(_ends(spans))
    begins = [span.begin for span in spans]
    steps: list[tuple[int, int]] = []
    for at, ends in enumerate(loops):
        first = bisect_left(begins, loops[at - 1][-1]) if at else 0
        until = loops[at + 1][0] if at + 1 < len(loops) else end
        mine = _steps_of_loop(spans[first : bisect_left(begins, until)], ends, until)
        if steps:
            steps[-1] = steps[-1][0], min(steps[-1][1], mine[0][0])
        steps += mine
    return steps


def _loops(ends: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The moments, apart for each loop: those that one line makes one after the other, and no others between them.
    Lines that take turns are of one loop; fewer than `FEWEST` (what is left of a loop's last batches) are part of the
    loop before, or else the next one."""
    if len(ends) < FEWEST:
        return []
    runs = [[moment for moment, _ in run] for _, run in groupby(ends, key=lambda each: each[1])]
    if len(runs) > len({place for _, place in ends}):
        return [[moment for moment, _ in ends]]
    loops: list[list[int]] = []
    for run in runs:
        if loops and min(len(run), len(loops[-1])) < FEWEST:
            loops[-1] += run
        else:
            loops.append(run)
    return loops


def _steps_of_loop(spans: Sequence[Span], ends: Sequence[int], end: int) -> list[tuple[int, int]]:
    """The steps of one loop.

    Args:
        ends: when each step has made its optimizers' steps.
        end: of the loop at the latest.
    """
    found = _asking(spans, ends)
    apart = [span for span in spans if not span.is_inner and (span.phase != OPTIMIZER or span.fact >= 0)]
    first = [span.begin for span in apart]
    opening = _opening(apart, first, ends)
    starts = []
    for at, last in enumerate(ends):
        before = ends[at - 1] if at else -1
        asked = found[0][bisect_left(found[0], before) : bisect_left(found[0], last)]
        after = bisect_left(first, before)
        if asked:
            starts.append(asked[-min(found[1], len(asked))])
        elif at:
            mine = apart[after : bisect_left(first, last)]
            opens = (span.begin for span in mine if (span.phase, span.place) == opening)
            starts.append(next(opens, mine[0].begin if mine else before))
        else:
            starts.append(_first_start(apart, ends))
    return list(zip(starts, [*starts[1:], _last_end(spans, found[0], ends[-1], end)], strict=True))


def _ends(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """(when each step of the loop has made its optimizers' steps, place of the last of these)"""
    steppers = [s for s in spans if s.phase == OPTIMIZER and s.fact >= 0 and not s.is_inner]
    if not steppers:  # optimizers that step within the backward pass, parameter by parameter
        inside = [s.begin for s in spans if s.phase == OPTIMIZER and s.in_backward]
        passes = [s for s in spans if s.phase == BACKWARD and not s.is_inner]
        return [(s.end, s.place) for s in passes if bisect_left(inside, s.end) > bisect_left(inside, s.begin)]
    places = {span.end: span.place for span in steppers}
    by_one: dict[int, list[int]] = defaultdict(list)
    for span in steppers:
        by_one[span.fact].append(span.end)
    leading = _leading(by_one)
    ends = by_one[leading] if leading is not None else list(places)
    return [(moment, places[moment]) for moment in sorted(ends)]


def _leading(by_one: Mapping[int, Sequence[int]]) -> int | None:
    """The optimizer whose step is the last of each of the loop's steps, of several that take turns; else None."""
    most = max(len(ends) for ends in by_one.values())
    counted = {one: ends for one, ends in by_one.items() if len(ends) * _RARE >= most}
    fewest = min(len(ends) for ends in counted.values())
    rarest = [one for one, ends in counted.items() if len(ends) <= fewest + 1]
    leading = max(rarest, key=lambda one: counted[one][0])
    ends = counted[leading]
    for other, moments in counted.items():
        if other == leading:
            continue
        between = sum(bisect_left(moments, b) > bisect_right(moments, a) for a, b in pairwise(ends))
        if between < _IN_TURN * (len(ends) - 1):
            return None
    return leading


def _asking(spans: Sequence[Span], ends: Sequence[int]) -> tuple[list[int], int]:
    """(when the loop asks for its input, how often it does so in a step): of all inputs that are asked for in most
    steps, the one that is asked for once, and of these the first; empty where none is. Loaders of one line are one
    where none of them is asked in most steps: each epoch may make its own."""
    by_loader: dict[_InputKey, list[int]] = defaultdict(list)
    by_place: dict[_InputKey, list[int]] = defaultdict(list)
    last: _InputKey | None = None
    for span in spans:
        if span.in_backward:
            continue
        if span.phase != INPUT:
            last = None
            continue
        if span.is_inner:
            continue
        key = (span.place, span.fact)
        if key != last:  # the making of an iterator, and its first batch, are one
            by_loader[key].append(span.begin)
            by_place[(span.place,)].append(span.begin)
        last = key
    for keys in (by_loader, by_place):
        counted = {key: found for key, moments in keys.items() if (found := _per_step(moments, ends)) is not None}
        if counted:
            best = min(counted, key=lambda key: (abs(counted[key][0] - 1), counted[key][1]))
            return keys[best], max(int(counted[best][0]), 1)
    return [], 1


def _per_step(moments: Sequence[int], ends: Sequence[int]) -> tuple[float, float] | None:
    """(how often in a step, how soon after the optimizer's step); None where it is not in most steps."""
    each = [(bisect_left(moments, after), bisect_left(moments, before)) for after, before in pairwise(ends)]
    counts = [high - low for low, high in each]
    if sum(count > 0 for count in counts) < _MOST_STEPS * len(counts):
        return None
    soon = [moments[low] - after for (low, high), after in zip(each, ends, strict=False) if high > low]
    return median(count for count in counts if count), median(soon)


def _opening(apart: Sequence[Span], first: Sequence[int], ends: Sequence[int]) -> tuple[int, int] | None:
    """(phase, place) that most steps begin with after an optimizer's step; None where there is no such one. What comes
    before it, as an evaluation, is of the step that was."""
    found = ((bisect_left(first, before), bisect_left(first, last)) for before, last in pairwise(ends))
    opened = [apart[at] for at, end in found if at < end]
    if not opened:
        return None
    counted = Counter((span.phase, span.place) for span in opened)
    most, often = counted.most_common(1)[0]
    return most if often >= _MOST_STEPS * len(opened) else None


def _first_start(apart: Sequence[Span], ends: Sequence[int]) -> int:
    """The beginning of the first step, where no input says it: with the phase that the second one begins with.

    Args:
        apart: the spans that a step can begin with.
    """
    before = [span for span in apart if span.begin < ends[0]]
    second = [span for span in apart if ends[0] <= span.begin < ends[1]]
    if not before or not second:
        return before[0].begin if before else ends[0]
    opening = second[0].phase, second[0].place
    often = sum((span.phase, span.place) == opening for span in second)
    alike = [span.begin for span in before if (span.phase, span.place) == opening]
    return alike[-min(often, len(alike))] if alike else before[0].begin


def _last_end(spans: Sequence[Span], asked: Sequence[int], last: int, end: int) -> int:
    """Where the last step ends: as the loop asks once more and gets nothing; without input, with a `zero_grad` that
    comes next, or the optimizer's step."""
    after = bisect_left(asked, last)
    if after < len(asked):
        return asked[after]
    following = next((s for s in spans if s.begin >= last), None)
    return min(following.end, end) if following is not None and following.phase == ZERO_GRAD else last


class Leads:
    """Whether the graph that a forward pass has recorded may still be used: a backward pass comes after it, and no step
    begins before that. Without steps any backward pass after it may use it.

    Args:
        spans: by their beginning.
        steps: (begin, end) of each, one after the other.
    """

    def __init__(self, spans: Sequence[Span], steps: Sequence[tuple[int, int]]) -> None:
        self._backward = [span.begin for span in spans if span.phase == BACKWARD and not span.is_inner]
        self._begins = [begin for begin, _ in steps]

    def after(self, moment: int) -> bool:
        after = bisect_left(self._backward, moment)
        if after == len(self._backward):
            return False
        return bisect_left(self._begins, moment) == bisect_right(self._begins, self._backward[after])


# ---- compiled_stretches ----------------------------------------------------------------------------------------------


def calls_without_phases(record: Sequence[int]) -> int:
    """How many calls of compiled code began outside of every phase: a compiled module is a forward pass, and what
    compiled code calls compiled is part of it."""
    moments = [record[at] for at in range(0, len(record) - WIDTH + 1, WIDTH) if record[at + 1] == COMPILED]
    spans = [span for span in spans_of(record) if not span.is_inner] if moments else []
    before = [bisect_right(spans, moment, key=lambda span: span.begin) - 1 for moment in moments]
    return sum(at < 0 or spans[at].end < moment for at, moment in zip(before, moments, strict=True))


def compiled_phases(record: Sequence[int]) -> Doubt | None:
    """The time of compiled functions is in no phase of its own."""
    calls = calls_without_phases(record)
    if not calls:
        return None
    times = "1 call" if calls == 1 else f"{count(calls)} calls"
    return Doubt(
        "compiled-phases",
        f"Phases within compiled functions are not told apart ({times}): their time is in “other” or “loss”, and their "
        "forward passes and optimizer steps are not seen.",
        facts={"calls": calls},
    )
