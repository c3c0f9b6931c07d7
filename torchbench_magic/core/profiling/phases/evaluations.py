"""Which forward passes are of an evaluation, told by where they stand among the steps: also where no loader is asked
and the head of the loop is not a line of its own (`for x in held_out: model(x)`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..loop_marks.marks import BACKWARD, FORWARD, OPTIMIZER
from ..loop_marks.outer_modules import GRAD
from .spans import Span

__all__ = ["Leads", "evaluation_passes"]

_FEWEST = 2  # passes of a line in a row: one alone may be the look at a shape, or the extra term of a loss
_USUAL = 0.5  # of the steps: what is in more of them is part of the training, such as a teacher's pass

_Key = tuple[int, bool]  # the line, and whether a graph is recorded


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


def evaluation_passes(spans: Sequence[Span], steps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(begin, end) of each such pass, by its beginning.

    Several of one line in a row, in no more than half of the steps, which cannot lead to a backward pass: they record
    no graph, or no backward pass comes after them, or a step begins before it does. None without steps: a later cell
    may run the backward pass.

    Args:
        spans: by their beginning.
        steps: (begin, end) of each, one after the other.
    """
    if not steps:
        return []
    found = []
    usual = _usual(spans, steps)
    leads = Leads(spans, steps)
    for key, run in _runs(spans):
        if key in usual or len(run) < _FEWEST:
            continue
        if not (key[1] and leads.after(run[-1].end)):
            found += [(span.begin, span.end) for span in run]
    return sorted(found)


def _usual(spans: Sequence[Span], steps: Sequence[tuple[int, int]]) -> set[_Key]:
    """What most steps do."""
    begins = [begin for begin, _ in steps]
    found: dict[_Key, set[int]] = defaultdict(set)
    for span in spans:
        at = bisect_right(begins, span.begin) - 1
        if span.phase == FORWARD and not span.is_inner and at >= 0 and span.begin < steps[at][1]:
            found[_key(span)].add(at)
    return {key for key, inside in found.items() if len(inside) > _USUAL * len(steps)}


def _runs(spans: Sequence[Span]) -> Iterator[tuple[_Key, list[Span]]]:
    """The passes of each line with no backward pass and no optimizer's step between them."""
    running: dict[_Key, list[Span]] = defaultdict(list)
    for span in spans:
        if span.is_inner or span.in_backward:
            continue
        if span.phase == FORWARD:
            running[_key(span)].append(span)
        elif span.phase in (BACKWARD, OPTIMIZER):
            yield from running.items()
            running = defaultdict(list)
    yield from running.items()


def _key(span: Span) -> _Key:
    return span.place, bool(max(span.fact, 0) & GRAD)
