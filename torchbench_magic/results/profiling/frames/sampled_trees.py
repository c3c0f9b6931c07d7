"""The sampled tree of Python functions as a table: whether it is sound, and several added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..columns import PYTHON_COLUMNS, frame_of

__all__ = ["is_sampled_tree", "sum_of_sampled"]

_KEYS = ("function", "cell", "line", "file", "module")
_SUMS = ("samples", *(name for name, dtype in PYTHON_COLUMNS.items() if dtype == "float64"))


def is_sampled_tree(table: pd.DataFrame) -> bool:
    """Whether the first row alone has no caller, and each caller comes before what it calls."""
    parent = table["parent"].to_numpy()
    rows = np.arange(len(parent))
    return bool((parent < rows).all() and ((parent == -1) == (rows == 0)).all() and (parent >= -1).all())


def sum_of_sampled(tables: Sequence[pd.DataFrame]) -> pd.DataFrame | None:
    """The trees of several runs as one: what is in the same place below the same callers adds up; None of none.

    A caller comes before what it calls; the order is else that in which the functions were first seen. ``calls`` is NA
    where it is not known of each run that the function was seen in.
    """
    if not tables:
        return None
    index: dict[tuple[Any, ...], int] = {}
    rows: list[dict[str, Any]] = []
    for table in tables:
        numbers: list[int] = []
        known_values = table.astype(object).where(table.notna(), None)
        for values in zip(*(known_values[name].tolist() for name in PYTHON_COLUMNS), strict=True):
            record = dict(zip(PYTHON_COLUMNS, values, strict=True))
            above = numbers[record["parent"]] if record["parent"] >= 0 else -1
            number = index.setdefault((above, *(record[name] for name in _KEYS)), len(index))
            numbers.append(number)
            if number == len(rows):
                rows.append(record | {"parent": above})
                continue
            row = rows[number]
            for name in _SUMS:
                row[name] = None if row[name] is None or record[name] is None else row[name] + record[name]
            known = row["calls"] is not None and record["calls"] is not None
            row["calls"] = row["calls"] + record["calls"] if known else None
    return frame_of(PYTHON_COLUMNS, {name: [_filled(row[name], name) for row in rows] for name in PYTHON_COLUMNS})


def _filled(value: Any, name: str) -> Any:
    if value is not None or PYTHON_COLUMNS[name] == "object":
        return value
    return pd.NA if PYTHON_COLUMNS[name] == "Int64" else float("nan")
