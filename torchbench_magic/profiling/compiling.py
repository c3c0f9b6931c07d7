"""``.compilations`` and ``.graph_breaks``: what ``torch.compile`` did, on the lines of the user's code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from types import CodeType
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.process.compile_watch import (
    break_in_words,
    broken_before,
    function_of,
    is_broken_for_good,
    refused_before,
    region_of,
    why_given_up,
)
from torchbench_magic.process.dynamo import CompiledFrame, change_of, switched_off_by
from torchbench_magic.profiling.attribution import COMPILING
from torchbench_magic.profiling.call_tree_tables import runs_as_it_is
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.line_events import Stream
from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, GRAPH_BREAK_COLUMNS, frame_of
from torchbench_magic.profiling.sources import Cells, CodeSources

_LOOKUP = "TorchDynamo Cache Lookup"  # torch's range of a call for which compiled code is looked for
_LONGEST_GAP = 50_000_000  # ns: longer is no formatting of an error
_SLACK = 1_000_000  # ns: the compiler notes microseconds of another clock reading


def cells_compiled(frames: Sequence[CompiledFrame], known: Sequence[CodeType], cells: Cells) -> list[CodeType]:
    """The codes that were compiled whose text is a cell, or a file that has lines in the run anyway."""
    files = {code.co_filename for code in known}
    codes = [frame.code for frame in frames if frame.code is not None]
    return [code for code in codes if cells(code.co_filename) is not None or code.co_filename in files]


def given_up_before(
    compiled: Sequence[CompiledFrame],
    codes: Collection[CodeType],
    asked: Collection[CodeType | None],
    frames: pd.DataFrame,
    ops: pd.DataFrame,
) -> list[CompiledFrame]:
    """Functions that the compiler had given up before the run, and that ran in it as they are though the compiler was
    asked: at a limit it looks for compiled code in vain, at a graph break it does not look any more.

    Args:
        codes: that ran; ``asked``: that were called as compiled ones.
        frames, ops: the tables of the run.
    """
    if switched_off_by():
        return []  # nothing is asked: what was noted before is of no code that ran now
    of_breaks = broken_before([code for code in codes if code in asked], compiled)
    of_limits = _at_limits(compiled, codes, ops)
    return [each for each in (*of_breaks, *of_limits) if runs_as_it_is(frames, each.name)[0]]


def _at_limits(compiled: Sequence[CompiledFrame], codes: Iterable[CodeType], ops: pd.DataFrame) -> list[CompiledFrame]:
    """Those that have reached a limit: without a look for compiled code in vain, they were called as they are."""
    calls = list(zip(ops["op"].tolist(), ops["calls"].tolist(), strict=True))
    in_vain = sum(n for op, n in calls if op == _LOOKUP) - sum(n for op, n in calls if region_of(op))
    return refused_before(codes, compiled) if in_vain > 0 else []


def with_time_around(frames: Sequence[CompiledFrame], events: Events, streams: Sequence[Stream]) -> list[CompiledFrame]:
    """The frames with the seconds until what was compiled, or given up, began to run.

    The compiler's own account ends before it has written that down (7 ms a frame), the profiler's range before what an
    error takes to be formatted. What comes next on the thread, an op or a line, is the end. Where one range holds
    several frames, each has its share.
    """
    ranges = np.flatnonzero(events.is_named(COMPILING.__eq__))
    begins = events.start[ranges]
    ends = np.array([_next(int(at), events, streams) for at in ranges], dtype=np.int64)
    inside: dict[int, list[tuple[int, int]]] = {}  # range -> (frame, ns) of each span in it
    more = [0.0 for _ in frames]
    for number, frame in enumerate(frames):
        for begin, end in frame.spans:
            around = np.flatnonzero((begins <= begin + _SLACK) & (ends >= end - _SLACK) & (begin > 0))
            if len(around):
                inside.setdefault(int(around[-1]), []).append((number, end - begin))
    for of, spans in inside.items():
        whole = sum(ns for _, ns in spans)
        left = float(ends[of] - begins[of]) - whole
        for number, ns in spans:
            more[number] += max(left, 0.0) / 1e9 * (ns / whole if whole else 1 / len(spans))
    return [replace(frame, seconds=frame.seconds + added) for frame, added in zip(frames, more, strict=True)]


def _next(at: int, events: Events, streams: Sequence[Stream]) -> int:
    """When the next op or line of the thread began after a range; the end of the range where that is long after."""
    native, end = int(events.native[at]), int(events.end[at])
    later = events.start[(events.native == native) & (events.start >= end)]
    marks = [np.array(stream.record, dtype=np.int64)[::2] for stream in streams if stream.native_id == native]
    found = [int(times.min()) for times in (later, *(m[m >= end] for m in marks)) if len(times)]
    next_ns = min(found, default=end)
    return next_ns if next_ns - end <= _LONGEST_GAP else end


def compilation_tables(
    frames: Sequence[CompiledFrame], ops: pd.DataFrame, events: Events, texts: CodeSources, cells: Cells
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables; ``ops`` and ``events`` are those of the run, which say how often a compiled frame ran."""
    if not frames:
        return frame_of(COMPILATION_COLUMNS, {}), frame_of(GRAPH_BREAK_COLUMNS, {})
    places = _Places(texts, cells)
    regions: dict[str, int] = {}
    for name, calls in zip(ops["op"], ops["calls"], strict=True):
        if of := region_of(name):
            regions[of] = regions.get(of, 0) + int(calls)
    names = {(frame.file, frame.name.rpartition(".")[2]): frame.name for frame in reversed(frames)}
    calls = _calls(frames, regions, events)
    rows = [_row(frame, places, names) | {"calls": calls[at]} for at, frame in enumerate(frames)]
    compilations = frame_of(COMPILATION_COLUMNS, {name: [row[name] for row in rows] for name in COMPILATION_COLUMNS})
    return compilations, _graph_breaks(frames, places)


def _calls(frames: Sequence[CompiledFrame], regions: Mapping[str, int], events: Events) -> list[int]:
    """Of each frame, how often it ran. After a reset the compiler counts from 0 again: a call is then of the newest of
    those of the same number that had been compiled when it began."""
    calls = [regions.get(frame.compile_id, 0) for frame in frames]
    same: dict[str, list[int]] = {}
    for at, frame in enumerate(frames):
        if frame.spans:
            same.setdefault(frame.compile_id, []).append(at)
    for compile_id, of_it in same.items():
        if len(of_it) > 1:
            of_it.sort(key=lambda at: frames[at].spans[0][1])
            ends = np.array([frames[at].spans[0][1] for at in of_it]) - _SLACK
            numbers = [number for number, name in enumerate(events.names) if region_of(name) == compile_id]
            began = events.start[np.isin(events.name, numbers)]
            newest = np.maximum(np.searchsorted(ends, began, side="right") - 1, 0)
            for at, count in zip(of_it, np.bincount(newest, minlength=len(of_it)), strict=True):
                calls[at] = int(count)
    return calls


class _Places:
    """Where a line of a file is, as the user sees it."""

    def __init__(self, texts: CodeSources, cells: Cells) -> None:
        self._texts, self._cells = texts, cells

    def of_break(self, stack: Sequence[tuple[str, int]]) -> tuple[str, int]:
        """Of the frames that were being traced, the innermost with a text of the user's: a function of a library that
        cannot be compiled was called there."""
        known = (at for at in reversed(stack) if self._cells(at[0]) is not None or at[0] in self._texts.of)
        return next(known, stack[0] if stack else ("", 0))

    def of(self, file: str, line: int) -> dict[str, Any]:
        cell, source = self._cells(file), self._texts.of.get(file)
        return {
            "cell": pd.NA if cell is None else cell.number,
            "line": pd.NA if not line else line if cell is None else cell.visible_line(line),
            "file": file,
            "source_id": None if source is None else source.source_id,
        }


def _row(frame: CompiledFrame, places: _Places, names: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """
    Args:
        names: (file, name) -> qualified name, which the rest of a function does not have.
    """
    function = function_of(frame.name)
    is_rest = function != frame.name
    change = change_of(frame.guard, frame.after) if frame.guard else None
    kind = "recompile" if change is not None else "resume" if is_rest else "first"
    if frame.refused_before:
        kind = "earlier"
    return {
        **places.of(frame.file, frame.line),
        "compile_id": frame.compile_id,
        "function": names.get((frame.file, function), function),
        "seconds": frame.seconds,
        "kind": kind,
        "reason": change.text if change is not None else None,
        "argument": (change.argument or None) if change is not None else None,
        "before": (change.before or None) if change is not None else None,
        "after": (change.after or None) if change is not None else None,
        "guard": frame.guard or None,
        "fell_back": f"{why_given_up(frame)}{_broken_at(frame, places)}" or None,
    }


def _broken_at(frame: CompiledFrame, places: _Places) -> str:
    """``, at `In[3]:5```: of a graph break before the run, which the table of breaks does not have."""
    if not frame.refused_before or not frame.failed_at[1]:
        return ""
    found = places.of(*frame.failed_at)
    label = PurePath(frame.failed_at[0]).name if pd.isna(found["cell"]) else f"In[{found['cell']}]"
    return f", at `{label}:{found['line']}`"


def _graph_breaks(frames: Sequence[CompiledFrame], places: _Places) -> pd.DataFrame:
    """A row for each line and reason, in the order in which they were met."""
    counts: dict[tuple[str, int, str, tuple[str, int]], int] = {}  # the last: the code that broke it
    for frame in frames:
        at_lines = ((*places.of_break(stack), text, stack[-1] if stack else ("", 0)) for text, stack in frame.breaks)
        broken = dict.fromkeys((file or frame.file, line, text, innermost) for file, line, text, innermost in at_lines)
        if is_broken_for_good(frame):
            file, line = frame.failed_at
            broken[file or frame.file, line or frame.line, frame.why, frame.failed_at] = None
        for at in broken:
            counts[at] = counts.get(at, 0) + 1
    rows: list[dict[str, Any]] = []
    for (file, line, text, innermost), count in counts.items():
        reason, hint = break_in_words(text, *innermost)
        rows.append({**places.of(file, line), "reason": reason, "hint": hint or None, "count": count})
    return frame_of(GRAPH_BREAK_COLUMNS, {name: [row[name] for row in rows] for name in GRAPH_BREAK_COLUMNS})
