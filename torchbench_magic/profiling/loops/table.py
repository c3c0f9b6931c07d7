"""A run's marks as the table of its loop: steps, phases, lines."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.profiling.schema import LOOP_COLUMNS, frame_of
from torchbench_magic.profiling.sources import CodeSources, ProfiledBody, sources_of
from torchbench_magic.profiling.statements import place_in
from torchbench_magic.profiling.trace import Source, Trace

from . import hooks, phases
from .marks import BACKWARD, CLOSURE, FORWARD, INPUT, LOSS, OPTIMIZER, STEP, WIDTH, LineSamples, LoopMarks, PlaceBook
from .phases import PHASES
from .spans import (
    Leads,
    Span,
    pieces_of,
    recognised_steps,
    said_steps,
    spans_of,
    with_loop_heads,
)

# ---- loop_lines ------------------------------------------------------------------------------------------------------
# Which line of the user's runs when, for what a loop does between its phases and within its input.


class PlaceNumbers:
    """Numbers of lines: equal lines have one."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def number(self, source_id: str, line: int) -> int:
        key = source_id, line
        if key not in self._numbers:
            self._numbers[key] = len(self.lines)
            self.lines.append(key)
        return self._numbers[key]


class LinesSeen(Protocol):
    """Tells of a stretch of time, on which lines it was spent."""

    def shares(self, begin: int, end: int) -> Mapping[int, float]:
        """Number of a place (-1: no line) -> ns; they add up to the stretch, or are empty where nothing is known."""

    def looks(self, begin: int, end: int) -> Mapping[int, int] | None:
        """Number of a place (-1: no line) -> looks that saw it; None where lines are known without looks."""

    def added(self, begin: int, end: int) -> float:
        """ns of the stretch that recording may have added; NaN: not known."""

    def added_by_place(self, begin: int, end: int) -> Mapping[int, float]:
        """The same by the number of a place (-1: no line)."""


class SampledLines:
    """From looks at the stack: a stretch in which nobody looked is not known.

    Args:
        record: ``[Unix ns, place, ...]``.
    """

    def __init__(self, record: Sequence[int]) -> None:
        flat = np.array(record, dtype=np.int64).reshape(-1, 2)
        self._times, self._places = flat[:, 0], flat[:, 1]

    def shares(self, begin: int, end: int) -> Mapping[int, float]:
        seen = self.looks(begin, end)
        whole = sum(seen.values())
        return {place: (end - begin) * count / whole for place, count in seen.items()}

    def looks(self, begin: int, end: int) -> Mapping[int, int]:
        first, last = np.searchsorted(self._times, (begin, end))
        return Counter(self._places[first:last].tolist())

    def added(self, begin: int, end: int) -> float:
        return float("nan")

    def added_by_place(self, begin: int, end: int) -> Mapping[int, float]:
        return dict.fromkeys(self.shares(begin, end), float("nan"))


@dataclass(frozen=True)
class RecordedLines:
    """From the lines that were recorded, of the cell's own thread.

    Attributes:
        starts: int64 [n], Unix ns: when each segment starts; it ends with the next.
        nodes: int64 [n], the node of the trace.
        place_of: int64 [nodes], number of its line; -1 for none.
        parent: int64 [nodes], the caller of each; -1 for none. It comes before.
        is_head: bool [nodes], it is the head of a ``for`` loop, where that gets its next item.
        end: Unix ns.
        recording: float64 [nodes], the part of its time that recording may have added; NaN: not known.
    """

    starts: NDArray[np.int64]
    nodes: NDArray[np.int64]
    place_of: NDArray[np.int64]
    parent: NDArray[np.int64]
    is_head: NDArray[np.bool_]
    end: int
    recording: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        trace: Trace,
        sources: Mapping[str, Source],
        places: PlaceNumbers,
        added: NDArray[np.float64] | None = None,
    ) -> RecordedLines:
        """
        Args:
            added: seconds that recording is estimated to have added to each node; None: not known.
        """
        mine = trace.segments[trace.segments["thread"] == 0]
        found, heads = [], []
        is_head: dict[tuple[str, int], bool] = {}
        for at, line in zip(trace.nodes["source"].tolist(), trace.nodes["line"].tolist(), strict=True):
            if at < 0:
                found.append(-1)
                heads.append(False)
                continue
            key = trace.sources[at], line
            if key not in is_head:
                is_head[key] = _is_head(sources.get(key[0]), line)
            found.append(places.number(*key))
            heads.append(is_head[key])
        starts, nodes = mine["start"].to_numpy(np.int64), mine["node"].to_numpy(np.int64)
        took = np.bincount(nodes, weights=np.diff(np.append(starts, trace.duration)), minlength=len(found))
        added = np.full(len(found), np.nan) if added is None else added * 1e9
        return cls(
            starts + trace.begin,
            nodes,
            np.array(found, dtype=np.int64),
            trace.nodes["parent"].to_numpy(np.int64),
            np.array(heads, dtype=bool),
            trace.begin + trace.duration,
            np.divide(added, took, out=np.zeros(len(found)), where=took > 0),
        )

    def shares(self, begin: int, end: int) -> Mapping[int, float]:
        lengths, nodes = self._cut(begin, end)
        return self._by_place(lengths, nodes)

    def added(self, begin: int, end: int) -> float:
        lengths, nodes = self._cut(begin, end)
        return float((lengths * self.recording[nodes]).sum())

    def added_by_place(self, begin: int, end: int) -> Mapping[int, float]:
        lengths, nodes = self._cut(begin, end)
        return self._by_place(lengths * self.recording[nodes], nodes)

    def _cut(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(ns, node) of each segment of a stretch."""
        first = max(int(np.searchsorted(self.starts, begin, side="right")) - 1, 0)
        last = int(np.searchsorted(self.starts, end, side="left"))
        edges = np.clip(np.append(self.starts[first:last], end), begin, end)
        return np.diff(edges), self.nodes[first:last]

    def _by_place(self, ns: NDArray[np.float64 | np.int64], nodes: NDArray[np.int64]) -> Mapping[int, float]:
        sums = np.bincount(self.place_of[nodes] + 1, weights=ns)
        return {int(at) - 1: float(sums[at]) for at in np.nonzero(sums)[0]}

    def looks(self, begin: int, end: int) -> None:
        return None

    def heads(self) -> Iterator[Span]:
        """Each time that a ``for`` loop got its next item: the head and all that it called."""
        chains = self._chains()
        if not any(chains):
            return
        inside = np.array([chain[-1] if chain else -1 for chain in chains])[self.nodes]
        changes = np.nonzero(np.diff(inside))[0] + 1
        firsts = np.concatenate(([0], changes)) if len(inside) else changes
        running: dict[int, int] = {}  # head -> since when
        for first in firsts.tolist():
            moment, chain = int(self.starts[first]), chains[self.nodes[first]]
            yield from (self._span(head, running.pop(head), moment) for head in [*running] if head not in chain)
            for head in chain:
                running.setdefault(head, moment)
        yield from (self._span(head, since, self.end) for head, since in running.items())

    def _chains(self) -> list[tuple[int, ...]]:
        """Of each node, the heads of loops that it runs in, the outermost first, its own among them."""
        found: list[tuple[int, ...]] = []
        for node, (parent, is_head) in enumerate(zip(self.parent.tolist(), self.is_head.tolist(), strict=True)):
            above = found[parent] if parent >= 0 else ()
            found.append((*above, node) if is_head else above)
        return found

    def _span(self, head: int, begin: int, end: int) -> Span:
        return Span(begin, end, INPUT, int(self.place_of[head]), is_head=True)


def _is_head(source: Source | None, line: int) -> bool:
    """Whether a line is the head of a ``for`` loop and nothing else."""
    import ast

    place = place_in(source, line)
    if place is None or source is None:
        return False
    number = line - source.first_line + 1
    loops = [each for each in place.statements if isinstance(each, ast.For | ast.AsyncFor)]
    if not loops or len(place.statements) != 1:
        return False
    head = loops[0].iter
    return loops[0].lineno <= number <= (head.end_lineno or head.lineno)


# ---- phase_rows ------------------------------------------------------------------------------------------------------

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
    added: float = 0.0
    calls: int = 0
    inner: Counter[int] = field(default_factory=Counter)
    looks: Counter[int] | None = None
    loader_ns: int = 0

    def add(self, ns: float, added: float, place: int, seen: Mapping[int, int] | None) -> None:
        """What a place took, what recording added to that, and how many looks saw it there."""
        self.ns += ns
        self.added += added
        if seen is not None:
            self.looks = (self.looks or Counter()) + Counter({place: seen.get(place, 0)})


def loop_rows(loop: Loop, sources: Mapping[str, Source]) -> pd.DataFrame:
    """The table. Rows of a step add up to it; outside of steps stand only the phases themselves."""
    steps = recognised_steps(loop.spans, loop.end) if loop.steps is None else list(loop.steps)
    roles = _roles(loop.spans, Leads(loop.spans, steps))
    # what a closure runs outside of phases is left as a gap: the loss, or other code
    pieces = [piece for piece in pieces_of(loop.spans) if piece.phase != CLOSURE]
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    begins = [begin for begin, _ in steps]
    loaders = pieces_of(span for span in loop.spans if span.phase == INPUT and not span.is_head)
    entered = {(span.begin, span.phase) for span in loop.spans}
    for piece in _cut(pieces, steps):
        at = bisect_right(begins, piece.begin) - 1
        number = at if at >= 0 and piece.begin < steps[at][1] else -1
        mode = phases.UNCLEARED if piece.is_uncleared else ""
        if piece.phase == FORWARD:
            mode = _mode(piece, _role(piece, roles))
        mine = sums[number, PHASES[piece.phase - 1], piece.place, mode, False]
        mine.ns += piece.end - piece.begin
        mine.added += loop.lines.added(piece.begin, piece.end)
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
        lines, is_one = loop.lines, len(shares) == 1
        added = {next(iter(shares)): lines.added(begin, end)} if is_one else lines.added_by_place(begin, end)
        seen = loop.lines.looks(begin, end)
        if seen is not None and len(shares) == 1:
            seen = dict.fromkeys(shares, sum(seen.values()))
        for place, ns in shares.items():
            mine = sums[number, _LOSS if is_loss else _OTHER, place, "", seen is not None]
            mine.add(ns, added.get(place, 0.0), place, seen)
    return _table(sums, loop.places, sources)


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


def _gaps(pieces: Sequence[Span], steps: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int, bool]]:
    """(begin, end, step, whether it is the loss) of what lies between the phases of steps.

    The loss is what follows a forward pass and leads to a backward pass, with nothing but clearing gradients, moving
    tensors and modules that compute a loss between. What leads to another forward pass may be an evaluation, a metric
    or a part of the model that is no module: other code.
    """
    leads = [False] * (len(pieces) + 1)
    for at in range(len(pieces) - 1, -1, -1):
        phase = pieces[at].phase
        leads[at] = True if phase == BACKWARD else phase not in (INPUT, OPTIMIZER, FORWARD) and leads[at + 1]
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
    """(when the loop asks for input, what becomes of the forward passes until it asks again); see `TRAINED`.

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
            is_graph = span.phase == FORWARD and not span.is_inner and max(span.fact, 0) & hooks.GRAD
            if span.phase == BACKWARD or (is_graph and leads.after(span.end)):
                trained.add(place)
    turns: Counter[int] = Counter(place for _, place, forward, _ in asked if forward)
    roles = []
    for _, place, forward, backward in asked:
        is_evaluation = forward and place not in trained and turns[place] >= _FEWEST_EVALUATIONS
        roles.append(phases.TRAINED if backward else phases.EVALUATION if is_evaluation else "")
    return [begin for begin, _, _, _ in asked], roles


def _role(piece: Span, roles: tuple[list[int], list[str]]) -> str:
    at = bisect_right(roles[0], piece.begin) - 1
    return roles[1][at] if at >= 0 else ""


def _mode(piece: Span, role: str) -> str:
    flags = max(piece.fact, 0)
    return phases.mode_text(
        {
            phases.TRAIN_MODE: bool(flags & hooks.TRAINING),
            phases.GRAPH: bool(flags & hooks.GRAD),
            phases.VARIES: bool(flags & hooks.VARIES),
            role: True,
        }
    )


def _table(sums: Mapping[_Key, _Sum], places: PlaceNumbers, sources: Mapping[str, Source]) -> pd.DataFrame:
    columns: dict[str, list[object]] = {name: [] for name in LOOP_COLUMNS}
    for (step, phase, place, mode, _), sum_ in sorted(sums.items(), key=lambda each: each[0]):
        source_id, line = places.lines[place] if place >= 0 else (None, None)
        source = sources.get(source_id) if source_id is not None else None
        inner, inner_ns = max(sum_.inner.items(), key=lambda each: each[1], default=(-1, 0))
        row = {
            "step": None if step < 0 else step,
            "phase": phase,
            "seconds": sum_.ns / 1e9,
            "recording_seconds": sum_.added / 1e9,
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


# ---- loop_table ------------------------------------------------------------------------------------------------------


def recorded_loop(
    marks: LoopMarks,
    body: ProfiledBody,
    trace: Trace,
    known: Mapping[str, Source],
    added: NDArray[np.float64] | None = None,
    between_steps: Sequence[tuple[int, int]] = (),
) -> tuple[pd.DataFrame, Mapping[str, Source]]:
    """(the table, sources by their id) of a run whose lines were recorded; its steps are as it said, where it did.

    Args:
        known: sources of its lines.
        added: seconds that recording is estimated to have added to each node of the trace; None: not known.
        between_steps: what lies between its steps, where a schedule says them; see `RecordedRun`.
    """
    places = PlaceNumbers()
    numbers, texts = _numbers(marks.book, body, places)
    record, sources = _with_numbers(marks.record, numbers), {each.source_id: each for each in texts.of.values()}
    every = {**sources, **known}
    lines = RecordedLines.of(trace, every, places, added)
    spans = spans_of(record)
    if spans or marks.record or between_steps:  # else a plain loop, of perhaps a million iterations
        spans = with_loop_heads(spans, lines.heads())
    steps = said_steps(marks.record, spans)
    if between_steps:
        steps = [(a[1], b[0]) for a, b in pairwise(between_steps)]
    loop = Loop(spans, trace.begin, trace.begin + trace.duration, places, lines, steps)
    return loop_rows(loop, every), every


def sampled_loop(
    marks: LoopMarks, samples: LineSamples, body: ProfiledBody, begin: int, end: int
) -> tuple[pd.DataFrame, Mapping[str, Source], CodeSources]:
    """The same of a run without lines, whose stack was looked at; its steps are as the code said, where it did."""
    places = PlaceNumbers()
    numbers, texts = _numbers(marks.book, body, places)
    of_samples, others = _numbers(samples.book, body, places)
    sources = {each.source_id: each for known in (others, texts) for each in known.of.values()}
    looked = array("q", samples.record)
    for at in range(1, len(looked), 2):
        looked[at] = of_samples[looked[at]] if looked[at] >= 0 else -1
    spans = spans_of(_with_numbers(marks.record, numbers))
    steps = said_steps(marks.record, spans)
    loop = Loop(spans, begin, end, places, SampledLines(looked), steps)
    return loop_rows(loop, sources), sources, texts


def _with_numbers(record: Sequence[int], numbers: Sequence[int]) -> array[int]:
    """The record with these numbers of places in place of its own."""
    made = array("q", record)
    for at in range(2, len(made), WIDTH):
        if made[at - 1] != STEP and made[at] >= 0:
            made[at] = numbers[made[at]]
    return made


def _numbers(book: PlaceBook, body: ProfiledBody, places: PlaceNumbers) -> tuple[list[int], CodeSources]:
    """Of each place of a book, its number in ``places``: lines as the reader sees them."""
    codes = [code for code, _ in book.places]
    texts = sources_of(codes, body.own, body.cells)
    numbers = []
    for at, (code, line) in enumerate(book.places):
        source = texts.of.get(texts.codes[at].co_filename)
        cell = body.cells(code.co_filename)
        shown = cell.visible_line(line) if cell is not None else texts.moved.get(at, {}).get(line, line)
        numbers.append(places.number(source.source_id, shown) if source is not None else -1)
    return numbers, texts
