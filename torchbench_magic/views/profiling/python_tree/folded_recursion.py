"""Functions that call themselves: one row instead of one for each level of the recursion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from torchbench_magic.results.profiling.columns import PYTHON_COLUMNS

__all__ = ["folded_recursion"]

_SAME = ("function", "module", "file", "line")
_INCLUSIVE = ("samples", "total_time", "torch_time", "python_time", "waiting_time")
_OWN = tuple(name for name, dtype in PYTHON_COLUMNS.items() if dtype == "float64" and name not in _INCLUSIVE)


def folded_recursion(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `PYTHON_COLUMNS` with each function that calls itself as one, ``deep`` levels in all (1: no recursion).

    It calls itself where it stands below itself and all between is of the same file: a generator expression, or
    functions that call each other. What it calls at any level stands below the one row, and adds up there. *total* of
    what stands between is then without what it calls again; so rows still add up to what they stand below.
    """
    made: list[dict[str, Any]] = []
    number_of: list[int] = []  # of each row the one that it is part of
    level: list[int] = []
    index: dict[tuple[Any, ...], int] = {}
    for row in rows:
        above = number_of[row["parent"]] if row["parent"] >= 0 else -1
        key = tuple(row[name] for name in _SAME)
        between = _between(made, above, row, key)
        if between is not None:
            number = between[-1]
            for each in between[:-1]:
                _add(made[each], row, _INCLUSIVE, -1)
            _add(made[number], row, _OWN, 1)
            level.append(_level_of(rows, number_of, level, row["parent"], number) + 1)
        else:
            number = index.setdefault((above, key), len(made))
            level.append(1)
            if number == len(made):
                made.append(row | {"parent": above, "deep": 1})
                number_of.append(number)
                continue
            _add(made[number], row, (*_INCLUSIVE, *_OWN), 1)
        made[number]["calls"] = _sum(made[number]["calls"], row["calls"])
        made[number]["deep"] = max(made[number]["deep"], level[-1])
        number_of.append(number)
    return made


def _between(
    made: Sequence[dict[str, Any]], above: int, row: dict[str, Any], key: tuple[Any, ...]
) -> list[int] | None:
    """The rows from the caller up to the one that has the same function, this one last; None where there is none."""
    passed = []
    while above >= 0 and row["file"] and made[above]["file"] == row["file"]:
        passed.append(above)
        if tuple(made[above][name] for name in _SAME) == key:
            return passed
        above = made[above]["parent"]
    return None


def _level_of(
    rows: Sequence[dict[str, Any]], number_of: Sequence[int], level: Sequence[int], at: int, number: int
) -> int:
    while number_of[at] != number:
        at = rows[at]["parent"]
    return level[at]


def _add(row: dict[str, Any], other: dict[str, Any], names: Sequence[str], sign: int) -> None:
    for name in names:
        row[name] += sign * other[name]


def _sum(one: Any, other: Any) -> Any:
    return pd.NA if pd.isna(one) or pd.isna(other) else one + other
