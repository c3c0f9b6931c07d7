"""The table of a loop's phases: `LOOP_COLUMNS`, from the spans, the steps and the lines."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from torchbench_magic.results.profiling.columns import LOOP_COLUMNS, frame_of
from torchbench_magic.results.profiling.loops import modes
from torchbench_magic.results.profiling.loops.phases import PHASES
from torchbench_magic.results.profiling.profile import Source

from ..loop_marks import outer_modules
from ..loop_marks.marks import BACKWARD, FORWARD, INPUT, LOSS, OPTIMIZER
from .evaluations import Leads, evaluation_passes
from .loop_lines import LinesSeen, PlaceNumbers
from .spans import Span, pieces_of
from .step_bounds import recognised_steps

__all__ = ["Loop", "loop_rows"]

_LOSS, _OTHER = "loss", "other"
_LOOKED_INTO = 1_000_000  # ns of an input from which on it is asked which line within takes them
_DIVIDED = 100_000  # ns between two phases from which on they are divided among lines; less is of the line with most
_FEWEST_EVALUATIONS = 2  # iterations: one alone may be the look at a shape

_Key = tuple[int, str, int, str, bool]  # step (-1: none), phase, place, mode, whether the place is from looks alone


@dataclass(frozen=True)
class Loop:
    """What was seen of a loop.

    Attributes:
        spans: by their beginning, heads of loops included; places by the numbers of ``places``.
        begin, end: of the body, Unix ns.
        steps: (begin, end) where somebody said it; None: to be recognised.
        lines: on which lines time was spent.
    """

    spans: Sequence[Span]
    begin: int
    end: int
    places: PlaceNumbers
    lines: LinesSeen
    steps: Sequence[tuple[int, int]] | None = None


@dataclass
class _Sum:
    ns: float = 0.0
    calls: int = 0
    inner: Counter[int] = field(default_factory=Counter)
    looks: Counter[int] | None = None
    loader_ns: int = 0


def loop_rows(loop: Loop, sources: Mapping[str, Source], numbers: Sequence[int] | None = None) -> pd.DataFrame:
    """The table. Rows of a step add up to it; outside of steps stand only the phases themselves.

    Args:
        numbers: of the steps; None: 0, 1, ...
    """
    steps = recognised_steps(loop.spans, loop.end) if loop.steps is None else list(loop.steps)
    roles = _roles(loop.spans, Leads(loop.spans, steps))
    evaluated = evaluation_passes(loop.spans, steps)
    pieces = _without_loss(pieces_of(loop.spans))
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    begins = [begin for begin, _ in steps]
    loaders = pieces_of(span for span in loop.spans if span.phase == INPUT and not span.is_head)
    entered = {(span.begin, span.phase) for span in loop.spans}
    for piece in _cut(pieces, steps):
        at = bisect_right(begins, piece.begin) - 1
        number = at if at >= 0 and piece.begin < steps[at][1] else -1
        mode = modes.UNCLEARED if piece.is_uncleared else ""
        if piece.phase == FORWARD:
            mode = _mode(piece, modes.EVALUATION if _is_within(piece, evaluated) else _role(piece, roles))
        mine = sums[number, PHASES[piece.phase - 1], piece.place, mode, False]
        mine.ns += piece.end - piece.begin
        mine.calls += (piece.begin, piece.phase) in entered
        if piece.phase == INPUT:
            mine.loader_ns += _common(piece, loaders)
        if piece.phase == INPUT and (seen := loop.lines.looks(piece.begin, piece.end)) is not None:
            mine.looks = (mine.looks or Counter()) + Counter(seen)
        if piece.phase == INPUT and piece.end - piece.begin >= _LOOKED_INTO:
            inside = loop.lines.shares(piece.begin, piece.end)
            mine.inner.update({place: int(ns) for place, ns in inside.items() if place not in (-1, piece.place)})
    for begin, end, number, is_loss in _gaps(pieces, steps):
        shares = loop.lines.shares(begin, end) or {-1: float(end - begin)}
        if end - begin < _DIVIDED:
            shares = {max(shares, key=lambda place: shares[place]): float(end - begin)}
        seen = loop.lines.looks(begin, end)
        if seen is not None and len(shares) == 1:
            seen = dict.fromkeys(shares, sum(seen.values()))
        for place, ns in shares.items():
            mine = sums[number, _LOSS if is_loss else _OTHER, place, "", seen is not None]
            mine.ns += ns
            if seen is not None:
                mine.looks = (mine.looks or Counter()) + Counter({place: seen.get(place, 0)})
    return _table(sums, loop.places, sources, numbers)


def _common(piece: Span, others: Sequence[Span]) -> int:
    """How long the piece is also in one of the others, which come one after the other."""
    at = max(bisect_right(others, piece.begin, key=lambda each: each.begin) - 1, 0)
    common = 0
    while at < len(others) and others[at].begin < piece.end:
        common += max(min(others[at].end, piece.end) - max(others[at].begin, piece.begin), 0)
        at += 1
    return common


def _cut(pieces: Sequence[Span], steps: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """The pieces, cut where a step begins or ends."""
    edges = sorted({moment for step in steps for moment in step})
    for piece in pieces:
        begin, at = piece.begin, bisect_right(edges, piece.begin)
        while at < len(edges) and edges[at] < piece.end:
            yield replace(piece, begin=begin, end=edges[at])
            begin, at = edges[at], at + 1
        yield replace(piece, begin=begin)


def _without_loss(pieces: Sequence[Span]) -> list[Span]:
    """The pieces but for those of an optimizer that lie between a forward pass and a backward pass within its step: its
    closure runs there, and the gap that is left is the loss."""
    left_out: set[int] = set()
    held: list[int] = []  # pieces of the optimizer since the forward pass
    after_forward, until = False, -1
    for at, piece in enumerate(pieces):
        if piece.begin != until or not (piece.is_inner or piece.phase == OPTIMIZER):
            held, after_forward = [], False
        until = piece.end
        if piece.phase == OPTIMIZER:
            held += [at] * after_forward
            continue
        if piece.phase == BACKWARD:
            left_out.update(held)
        after_forward = piece.is_inner and _is_after_forward(piece, after_forward)
        held = held if after_forward else []
    return [piece for at, piece in enumerate(pieces) if at not in left_out]


def _gaps(pieces: Sequence[Span], steps: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int, bool]]:
    """(begin, end, step, whether it is the loss) of what lies between the phases of steps.

    The loss is what follows a forward pass and leads to a backward pass, with nothing but clearing gradients, moving
    tensors and more forward passes between.
    """
    leads = [False] * (len(pieces) + 1)
    for at in range(len(pieces) - 1, -1, -1):
        phase = pieces[at].phase
        leads[at] = True if phase == BACKWARD else False if phase in (INPUT, OPTIMIZER) else leads[at + 1]
    first, after_forward = 0, False
    for number, (begin, end) in enumerate(steps):
        moment = begin
        while first < len(pieces) and pieces[first].end <= begin:
            after_forward = _is_after_forward(pieces[first], after_forward)
            first += 1
        while first < len(pieces) and pieces[first].begin < end:
            piece = pieces[first]
            if piece.begin > moment:
                yield moment, piece.begin, number, after_forward and leads[first]
            moment = max(moment, min(piece.end, end))
            if piece.end > end:
                break
            after_forward = _is_after_forward(piece, after_forward)
            first += 1
        if moment < end:
            yield moment, end, number, False


def _is_after_forward(piece: Span, before: bool) -> bool:
    if piece.phase in (FORWARD, LOSS):
        return True
    return before and piece.phase not in (BACKWARD, OPTIMIZER, INPUT)


def _roles(spans: Sequence[Span], leads: Leads) -> tuple[list[int], list[str]]:
    """(when the loop asks for input, what becomes of the forward passes until it asks again), see `modes`.

    An input that is nested in another one is none of its own; so are the two that follow each other at once. Where a
    graph is recorded, another input may be asked for before the backward pass that uses it.
    """
    asked: list[tuple[int, int, bool, bool]] = []  # (begin, place, a forward follows, a backward follows)
    trained: set[int] = set()
    for span in spans:
        if span.phase == INPUT and not span.is_inner and not span.in_backward:
            asked.append((span.begin, span.place, False, False))
        elif asked and span.phase in (FORWARD, BACKWARD):
            begin, place, forward, backward = asked[-1]
            asked[-1] = begin, place, forward or span.phase == FORWARD, backward or span.phase == BACKWARD
            is_graph = span.phase == FORWARD and not span.is_inner and max(span.fact, 0) & outer_modules.GRAD
            if span.phase == BACKWARD or (is_graph and leads.after(span.end)):
                trained.add(place)
    turns: Counter[int] = Counter(place for _, place, forward, _ in asked if forward)
    roles = []
    for _, place, forward, backward in asked:
        is_evaluation = forward and place not in trained and turns[place] >= _FEWEST_EVALUATIONS
        roles.append(modes.TRAINED if backward else modes.EVALUATION if is_evaluation else "")
    return [begin for begin, _, _, _ in asked], roles


def _role(piece: Span, roles: tuple[list[int], list[str]]) -> str:
    at = bisect_right(roles[0], piece.begin) - 1
    return roles[1][at] if at >= 0 else ""


def _is_within(piece: Span, passes: Sequence[tuple[int, int]]) -> bool:
    at = bisect_right(passes, piece.begin, key=lambda each: each[0]) - 1
    return at >= 0 and piece.begin < passes[at][1]


def _mode(piece: Span, role: str) -> str:
    flags = max(piece.fact, 0)
    return modes.mode_text(
        {
            modes.TRAIN_MODE: bool(flags & outer_modules.TRAINING),
            modes.GRAPH: bool(flags & outer_modules.GRAD),
            modes.VARIES: bool(flags & outer_modules.VARIES),
            role: True,
        }
    )


def _table(
    sums: Mapping[_Key, _Sum], places: PlaceNumbers, sources: Mapping[str, Source], numbers: Sequence[int] | None
) -> pd.DataFrame:
    columns: dict[str, list[object]] = {name: [] for name in LOOP_COLUMNS}
    for (step, phase, place, mode, _), sum_ in sorted(sums.items(), key=lambda each: each[0]):
        source_id, line = places.lines[place] if place >= 0 else (None, None)
        source = sources.get(source_id) if source_id is not None else None
        inner, inner_ns = max(sum_.inner.items(), key=lambda each: each[1], default=(-1, 0))
        row = {
            "step": None if step < 0 else step if numbers is None else numbers[step],
            "phase": phase,
            "seconds": sum_.ns / 1e9,
            "calls": sum_.calls,
            "cell": source.cell if source is not None else None,
            "line": line,
            "file": source.file if source is not None else None,
            "source_id": source_id,
            "inner_source_id": places.lines[inner][0] if inner >= 0 else None,
            "inner_line": places.lines[inner][1] if inner >= 0 else None,
            "inner_seconds": inner_ns / 1e9 if inner >= 0 else float("nan"),
            "loader_seconds": sum_.loader_ns / 1e9 if phase == PHASES[INPUT - 1] else float("nan"),
            "looks": sum(sum_.looks.values()) if sum_.looks is not None else None,
            "inner_looks": sum_.looks[inner] if sum_.looks is not None and inner >= 0 else None,
            "mode": mode or None,
        }
        for name, value in row.items():
            columns[name].append(value)
    return frame_of(LOOP_COLUMNS, columns)
