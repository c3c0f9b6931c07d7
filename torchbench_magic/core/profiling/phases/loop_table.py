"""A run's marks as the table of its loop, with the sources that its lines stand in."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd

from torchbench_magic.results.profiling.profile import Source
from torchbench_magic.results.profiling.trace import Trace

from ..loop_marks.line_samples import LineSamples
from ..loop_marks.marks import STEP, WIDTH, LoopMarks, PlaceBook
from ..sources.code_sources import CodeSources, ProfiledBody, sources_of
from .compiled_stretches import compiled_steps
from .loop_lines import PlaceNumbers, RecordedLines, SampledLines
from .phase_rows import Loop, loop_rows
from .spans import said_steps, spans_of, with_loop_heads

__all__ = ["recorded_loop", "sampled_loop"]


def recorded_loop(
    marks: LoopMarks,
    body: ProfiledBody,
    trace: Trace,
    known: Mapping[str, Source],
    between_steps: Sequence[tuple[int, int]] = (),
) -> tuple[pd.DataFrame, Mapping[str, Source]]:
    """(the table, sources by their id) of a run whose lines were recorded; its steps are as it said, where it did.

    Args:
        known: sources of its lines.
        between_steps: what lies between its steps, where a schedule says them; see `RecordedRun`.
    """
    places = PlaceNumbers()
    numbers, texts = _numbers(marks.book, body, places)
    record, sources = _with_numbers(marks.record, numbers), {each.source_id: each for each in texts.of.values()}
    every = {**sources, **known}
    lines = RecordedLines.of(trace, every, places)
    spans = with_loop_heads(spans_of(record), lines.heads())
    steps = said_steps(marks.record, spans) or compiled_steps(marks, spans)
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
    steps = said_steps(marks.record, spans) or compiled_steps(marks, spans)
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
