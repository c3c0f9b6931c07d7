"""Call trees as tables: whether one is sound, sums along it, and several added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..columns import FRAME_COLUMNS, frame_of

__all__ = ["inclusive", "is_tree", "sum_of_frames"]

_KEYS = ("kind", "name", "thread", "source_id", "line", "input_shapes")
_NUMBERS = (*(name for name, dtype in FRAME_COLUMNS.items() if dtype == "float64"), "calls", "allocated", "freed")


def is_tree(frames: pd.DataFrame) -> bool:
    """Whether each frame's caller comes before it, and only the root of a thread has none."""
    parent = frames["parent"].to_numpy()
    roots = (frames["kind"] == "thread").to_numpy()
    return bool((parent < np.arange(len(parent))).all() and ((parent == -1) == roots).all() and (parent >= -1).all())


def inclusive(own: Iterable[Any], parents: Sequence[int]) -> list[Any]:
    """Sums over each node and all below it; ``parents`` has the place of each node's parent, which comes before it."""
    total = list(own)
    for at in range(len(total) - 1, -1, -1):
        if parents[at] >= 0:
            total[parents[at]] += total[at]
    return total


def sum_of_frames(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The frames of several runs as one tree: what is in the same place below the same callers adds up."""
    index: dict[tuple[Any, ...], int] = {}
    parents: list[int] = []
    first: list[tuple[int, int]] = []  # (table, row) that a frame was first seen in
    rows_of: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    for number, table in enumerate(tables):
        rows: list[int] = []
        columns = (table[name].astype(object).where(table[name].notna(), None).tolist() for name in _KEYS)
        for at, (parent, *key) in enumerate(zip(table["parent"].tolist(), *columns, strict=True)):
            above = rows[parent] if parent >= 0 else -1
            row = index.setdefault((above, *key), len(index))
            if row == len(parents):
                parents.append(above)
                first.append((number, at))
            rows.append(row)
        rows_of.append(np.array(rows, dtype=np.int64))
    values: dict[str, Any] = {"parent": parents}
    for name, dtype in FRAME_COLUMNS.items():
        if name == "parent":
            continue
        if name not in _NUMBERS:
            values[name] = [tables[number][name].iloc[at] for number, at in first]
            continue
        given = [(at_rows, table[name]) for at_rows, table in zip(rows_of, tables, strict=True)]
        known = [(at_rows, column) for at_rows, column in given if column.notna().any()]
        if not known:
            continue
        total = np.zeros(len(parents))
        for places, column in known:
            total += np.bincount(places, weights=column.fillna(0).to_numpy(np.float64), minlength=len(parents))
        values[name] = total if dtype == "float64" else total.astype(np.int64)
    return frame_of(FRAME_COLUMNS, values)
