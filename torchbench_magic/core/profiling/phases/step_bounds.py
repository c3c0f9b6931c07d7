"""Where the steps of a training loop begin and end, recognised from what its optimizers and its loader do.

A step ends where an iteration does. With every step of an optimizer there is one, or (gradient accumulation) some: so a
step begins where the loop first asks for input after an optimizer's step, and without input with the phase that most
steps begin with, or the first after it. What lies between belongs to the step that was: a checkpoint, logging, an
evaluation. A batch that several steps of an optimizer are made with (PPO: epochs over each rollout) is input of the
first of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from ..loop_marks.marks import BACKWARD, INPUT, OPTIMIZER, ZERO_GRAD
from .spans import Span

__all__ = ["asked_steps", "recognised_steps"]

FEWEST = 2
"""Optimizer steps: one alone is no loop."""
_USUAL = 0.6  # of the stretches between optimizer steps in which the loop's own input is asked for
_IN_TURN = 0.8  # of the steps of one optimizer that have one of every other between them: they are one step
_RARE = 10  # times as many steps as another optimizer has: the other one has nothing to do with this loop

_Key = tuple[int, ...]


def asked_steps(spans: Sequence[Span], ends: Sequence[int]) -> list[tuple[int, int]]:
    """(begin, end) of each step, of a loop that asks for input in each and once more to end; else none.

    Args:
        spans: by their beginning, heads of loops included.
        ends: moments, one in each step.
    """
    if len(ends) < FEWEST:
        return []
    asked, often = _asking(spans, ends, by_line=True)
    edges = [bisect_left(asked, moment) for moment in ends]
    starts = [asked[at - min(often, at)] for at in edges if at]
    rarely = _rarely_asked(spans, ends)
    starts = [_with_rare(start, before, rarely) for start, before in zip(starts, (-1, *ends), strict=False)]
    if len(starts) < len(ends) or len(set(edges)) < len(ends) or edges[-1] >= len(asked):
        return []
    return list(zip(starts, [*starts[1:], asked[edges[-1]]], strict=True))


def recognised_steps(spans: Sequence[Span], end: int) -> list[tuple[int, int]]:
    """(begin, end) of each step, Unix ns, one after the other; none where there are fewer than `FEWEST`.

    Args:
        spans: by their beginning, heads of loops included.
        end: of the body.
    """
    ends = _ends(spans)
    if len(ends) < FEWEST:
        return []
    found = _asking(spans, ends)
    apart = [span for span in spans if not span.is_inner and (span.phase != OPTIMIZER or span.fact >= 0)]
    first = [span.begin for span in apart]
    rarely = _rarely_asked(spans, ends)
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
        starts[-1] = _with_rare(starts[-1], before, rarely)
    return list(zip(starts, [*starts[1:], _last_end(spans, rarely or found[0], ends[-1], end)], strict=True))


def _ends(spans: Sequence[Span]) -> list[int]:
    """When each step of the loop has made its optimizers' steps."""
    steppers = [s for s in spans if s.phase == OPTIMIZER and s.fact >= 0 and not s.is_inner]
    if not steppers:  # optimizers that step within the backward pass, parameter by parameter
        inside = [s.begin for s in spans if s.phase == OPTIMIZER and s.in_backward]
        passes = [s for s in spans if s.phase == BACKWARD and not s.is_inner]
        return [s.end for s in passes if bisect_left(inside, s.end) > bisect_left(inside, s.begin)]
    by_one: dict[int, list[int]] = defaultdict(list)
    anew = _made_anew(spans, steppers)
    for span in steppers:
        by_one[anew.get(span.fact, span.fact)].append(span.end)
    leading = _leading(by_one)
    return sorted(by_one[leading] if leading is not None else [span.end for span in steppers])


def _made_anew(spans: Sequence[Span], steppers: Sequence[Span]) -> dict[int, int]:
    """Of optimizers that step once and on one line, each after a backward pass of its own, the number of the first:
    the loop makes its optimizer anew in each step."""
    often = Counter(span.fact for span in steppers)
    by_place: dict[int, list[Span]] = defaultdict(list)
    for span in steppers:
        if often[span.fact] == 1:
            by_place[span.place].append(span)
    passes = [span.begin for span in spans if span.phase == BACKWARD and not span.is_inner]
    return {
        span.fact: mine[0].fact
        for mine in by_place.values()
        if all(bisect_left(passes, a.end) < bisect_left(passes, b.begin) for a, b in pairwise(mine))
        for span in mine
    }


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


def _asking(spans: Sequence[Span], ends: Sequence[int], *, by_line: bool = False) -> tuple[list[int], int]:
    """(when the loop asks for its input, how often it does so in a step): of all inputs that are asked for in most
    steps, the one that is asked for once, and of these the first; empty where none is.

    Args:
        by_line: loaders of one line are one: each epoch may make its own.
    """
    by_loader: dict[_Key, list[int]] = defaultdict(list)
    by_place: dict[_Key, list[int]] = defaultdict(list)
    last: _Key | None = None
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
    for keys in (by_place,) if by_line else (by_loader, by_place):
        counted = {key: found for key, moments in keys.items() if (found := _per_step(moments, ends)) is not None}
        if counted:
            best = min(counted, key=lambda key: (abs(counted[key][0] - 1), counted[key][1]))
            return keys[best], max(int(counted[best][0]), 1)
    return [], 1


def _rarely_asked(spans: Sequence[Span], ends: Sequence[int]) -> list[int]:
    """When the loop asks a loader for a batch that several steps are made with; empty where each step has its own.

    That is a loader which is asked before the first optimizer's step and then in fewer steps than the loop's own input,
    once in each of these: an evaluation asks for all its batches at once, or not before the first step. Of several it
    is the one that is asked least, around the others.
    """
    around = [span for span in spans if span.phase == INPUT and span.is_head and not span.in_backward]
    begins = [span.begin for span in around]
    by_loader: dict[int, list[int]] = defaultdict(list)
    last: int | None = None
    for span in spans:
        if span.phase != INPUT:
            last = None
        elif span.fact >= 0 and not span.is_inner and not span.in_backward:
            if span.fact != last:
                at = bisect_right(begins, span.begin) - 1  # the head of a loop that asks this loader
                is_asked_by_head = at >= 0 and around[at].end >= span.end
                by_loader[span.fact].append(begins[at] if is_asked_by_head else span.begin)
            last = span.fact
    rare = []
    for moments in by_loader.values():
        edges = [bisect_left(moments, moment) for moment in ends]
        counts = [high - low for low, high in pairwise(edges) if high > low]
        if edges[0] and counts and median(counts) == 1 and len(counts) < _USUAL * (len(ends) - 1):
            rare.append(moments)
    return min(rare, key=len, default=[])


def _with_rare(start: int, before: int, rarely: Sequence[int]) -> int:
    """The beginning of a step: with the batch that is asked for since the step ``before`` and before ``start``."""
    at = bisect_right(rarely, start) - 1
    return rarely[at] if at >= 0 and rarely[at] > before else start


def _per_step(moments: Sequence[int], ends: Sequence[int]) -> tuple[float, float] | None:
    """(how often in a step, how soon after the optimizer's step); None where it is not in most steps."""
    each = [
        (bisect_left(moments, after), bisect_left(moments, before)) for after, before in pairwise(ends)
    ]
    counts = [high - low for low, high in each]
    if sum(count > 0 for count in counts) < _USUAL * len(counts):
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
    return most if often >= _USUAL * len(opened) else None


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
