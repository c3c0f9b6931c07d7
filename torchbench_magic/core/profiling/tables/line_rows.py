"""The rows of ``.lines``: which nodes of the line tree are the same line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.results.profiling.profile import NOT_ATTRIBUTED, Source

from ..joining.attribution import Joined
from ..joining.segments import NO_LINE
from ..torch_events.events import Ints

__all__ = ["Line", "LineRows", "line_rows", "place_columns"]

Line = tuple[str | None, int, int]
"""(source_id, line, thread); source_id None and line 0 for a thread's time on no line."""



@dataclass(frozen=True)
class LineRows:
    """The rows of ``.lines``: nodes of the tree that are the same line of the same text on the same thread.

    Attributes:
        keys: by row.
        of_node: int64 [nodes], row of each node.
        outermost: bool [nodes], no node above it is of the same row (recursion): its total counts.
        sources: source_id -> text.
    """

    keys: tuple[Line, ...]
    of_node: Ints
    outermost: NDArray[np.bool_]
    sources: Mapping[str, Source]


def line_rows(joined: Joined, source_of: Mapping[str, Source]) -> LineRows:
    """Number the rows. ``source_of`` gives the text of each code's file."""
    tree = joined.tree
    numbers: dict[Line, int] = {}
    of_node = np.zeros(len(tree), dtype=np.int64)
    outermost = np.ones(len(tree), dtype=bool)
    above: list[frozenset[int]] = []  # rows of the nodes above each node, itself included
    for node, (parent, code, line, thread) in enumerate(
        zip(tree.parent, tree.code, tree.line, tree.thread, strict=True)
    ):
        source_id = None if code == NO_LINE else source_of[joined.codes[code].co_filename].source_id
        row = numbers.setdefault((source_id, line, thread), len(numbers))
        of_node[node] = row
        rows = above[parent] if parent >= 0 else frozenset()
        outermost[node] = row not in rows
        above.append(rows if row in rows else rows | {row})
    return LineRows(tuple(numbers), of_node, outermost, {s.source_id: s for s in source_of.values()})


def place_columns(places: Sequence[Line], sources: Mapping[str, Source]) -> dict[str, list[object]]:
    """The columns that say of each row which line it is of: ``cell line source file source_id thread``."""
    found = [sources[source_id] if source_id is not None else None for source_id, _, _ in places]
    return {
        "cell": [s.cell if s is not None and s.cell is not None else pd.NA for s in found],
        "line": [line if source_id is not None else pd.NA for source_id, line, _ in places],
        "source": [
            s.line(line) if s is not None else NOT_ATTRIBUTED
            for s, (_, line, _) in zip(found, places, strict=True)
        ],
        "file": [s.file if s is not None else None for s in found],
        "source_id": [source_id for source_id, _, _ in places],
        "thread": [thread for _, _, thread in places],
    }
