"""``.compilations`` and ``.graph_breaks``: what ``torch.compile`` did, on the lines of the user's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any

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
from torchbench_magic.process.dynamo_internals import CompiledFrame, change_of, switched_off_by
from torchbench_magic.profiling.call_tree_tables import runs_as_it_is
from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, GRAPH_BREAK_COLUMNS, frame_of
from torchbench_magic.profiling.sources import Cells, CodeSources

_LOOKUP = "TorchDynamo Cache Lookup"  # torch's range of a call for which compiled code is looked for


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
    calls = list(zip(ops["op"].tolist(), ops["calls"].tolist(), strict=True))
    in_vain = sum(n for op, n in calls if op == _LOOKUP) - sum(n for op, n in calls if region_of(op))
    of_limits = refused_before(codes, compiled) if in_vain > 0 else []  # looked for compiled code in vain
    return [each for each in (*of_breaks, *of_limits) if runs_as_it_is(frames, each.name)[0]]


def compilation_tables(
    frames: Sequence[CompiledFrame], ops: pd.DataFrame, texts: CodeSources, cells: Cells
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables; ``ops`` are those of the run, which say how often a compiled frame ran."""
    if not frames:
        return frame_of(COMPILATION_COLUMNS, {}), frame_of(GRAPH_BREAK_COLUMNS, {})
    places = _Places(texts, cells)
    ran: Counter[str] = Counter()
    for name, calls in zip(ops["op"], ops["calls"], strict=True):
        ran[region_of(name)] += int(calls)
    same = Counter(frame.compile_id for frame in frames)  # after a reset the compiler counts from 0 again
    names = {(frame.file, frame.name.rpartition(".")[2]): frame.name for frame in reversed(frames)}
    rows = []
    for frame in frames:
        calls = ran[frame.compile_id] if frame.compile_id else 0
        is_known = not calls or same[frame.compile_id] == 1
        rows.append(_row(frame, places, names) | {"calls": calls if is_known else pd.NA})
    compilations = frame_of(COMPILATION_COLUMNS, {name: [row[name] for row in rows] for name in COMPILATION_COLUMNS})
    return compilations, _graph_breaks(frames, places)


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
