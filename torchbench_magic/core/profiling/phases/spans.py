"""From marks to the stretches of phases: what began and ended, and what of it was inside what."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..loop_marks.marks import BACKWARD, COMPILED, FORWARD, INPUT, LOSS, OPTIMIZER, STEP, TRANSFER, UNCLEARED, WIDTH

__all__ = ["Span", "pieces_of", "said_steps", "spans_of", "with_loop_heads"]


@dataclass(frozen=True, slots=True)
class Span:
    """One phase from its beginning to its end.

    Attributes:
        begin, end: Unix ns.
        phase: number of the phase, as in `marks`.
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
