"""Where Python time goes, as a table, and a clause of the sentence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.profiling.ops_view import place_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.document import Phrase, clipped, code, of_result
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    Table,
    built_table,
    counted,
    float_or_none,
    frame_rows,
    measured_columns,
    share,
    texts,
)

# ---- python_time -----------------------------------------------------------------------------------------------------

_LEAST_SHARE = 0.01
_MOST_ROWS = 40
_INDENT = "\u00a0"  # per level, of which there are many; a plain space would be lost in HTML
_DEEPEST = 16  # levels that are indented: a name is still read then
_PLUMBING = frozenset(
    {"torch.nn.modules.module", "torch.utils._contextlib", "torch._compile", "contextlib", "functools", "runpy"}
)
"""Modules whose functions only call what is looked for."""
_NEARLY_ALL = 0.9
_SMALL_SELF = 0.02  # of the wall time
_NAMED = 2  # libraries that the sentence names


def python_table(profile: Profile) -> Table | None:
    """A row per function in its place, below its caller; None where nothing was sampled.

    Left out are places of less than 1 % of the wall time, and functions that only hand on to another one (a library's
    within itself, a call of itself, and what torch puts round every module): what they call stands in their place.
    """
    tree = profile.python
    if tree is None or tree.empty:
        return None
    shown = list(_shown(frame_rows(tree), profile.wall_time))
    rows = shown[:_MOST_ROWS]
    time = units.spread_scale([float(row["total_time"]) for row in rows])
    built = [
        BuiltColumn(
            Column("function", "where Python time goes", kind="code", widest=60),
            lambda row: Cell(_INDENT * min(row["depth"], _DEEPEST) + str(row["function"]), flat=str(row["function"])),
        ),
        texts("place", "where", 26, _place, quiet=True),
        *([counted("calls", "calls")] if tree["calls"].notna().any() else []),
        BuiltColumn(
            Column("bar", "", kind="bar", legend=(("torch", "torch"), ("python", "Python"))),
            partial(_bar, whole=float(tree["total_time"].iloc[0])),
        ),
        measured_columns("total", "total", time, "total_time"),
        measured_columns("torch", "torch", time, "torch_time"),
        measured_columns("python", "Python", time, "python_time"),
        *([measured_columns("waiting", "waiting", time, "waiting_time")] if _waits(tree, profile) else []),
        measured_columns("self", "self", time, "self_time"),
        share("total", lambda row: row["total_time"] / profile.wall_time if profile.wall_time else 0.0),
    ]
    said = f"{units.count(len(rows))} of {units.count(len(tree))} places. All rows: {of_result('.python')}"
    key = lambda row: str(row["function"])
    return built_table("python", built, rows, key, hidden=said * (len(rows) < len(tree)), keyed="frame")


def _waits(tree: pd.DataFrame, profile: Profile) -> bool:
    """Whether the thread waited for a part of the time that is worth a column; it does not where that is not known."""
    return float(tree["waiting_time"].iloc[0]) >= _LEAST_SHARE * profile.wall_time


def _place(row: dict[str, Any]) -> str:
    """``In[3]:4``, ``modeling_llama.py:250``; empty for a C function."""
    return place_of(row | {"file": str(row["file"]).replace("\\", "/")})


def _bar(row: dict[str, Any], *, whole: float) -> Cell:
    parts = (("torch", float_or_none(row["torch_time"])), ("python", float_or_none(row["python_time"])))
    drawn = tuple((hue, value / whole) for hue, value in parts if value and whole)
    return Cell(value=float(row["total_time"]), picture=(drawn, ()) if drawn else ())


def _shown(rows: list[dict[str, Any]], wall: float) -> Iterator[dict[str, Any]]:
    """The rows to show, depth first, with their ``depth``."""
    below: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        if number == 0 or row["total_time"] >= _LEAST_SHARE * wall:
            below[row["parent"]].append(number)
    waiting = [(0, 0)]
    while waiting:
        number, depth = waiting.pop()
        row = rows[number]
        is_shown = not _hands_on(row, rows, below[number], wall)
        if is_shown:
            yield row | {"depth": depth}
        called = sorted(below[number], key=lambda each: rows[each]["total_time"])
        waiting += [(each, depth + is_shown) for each in called]


def _hands_on(row: dict[str, Any], rows: list[dict[str, Any]], called: list[int], wall: float) -> bool:
    """Whether a function does next to nothing but call what stands below it."""
    if row["parent"] < 0 or not called or row["self_time"] > _SMALL_SELF * wall:
        return False
    if all(row[name] == rows[row["parent"]][name] for name in ("function", "module", "file")):
        return True  # it calls itself
    if row["module"] in _PLUMBING:
        return True
    if len(called) > 1 or not row["library"] or row["library"] != _caller_library(row, rows):
        return False
    return bool(rows[called[0]]["total_time"] >= _NEARLY_ALL * row["total_time"])


def _caller_library(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Library of the nearest caller that is no plumbing."""
    above = rows[row["parent"]]
    while above["module"] in _PLUMBING and above["parent"] >= 0:
        above = rows[above["parent"]]
    return str(above["library"])


# ---- in words -------------------------------------------------------------------------------------------------------


def python_clause(profile: Profile) -> Iterator[Phrase]:
    """``; generate spends 39 % of its time in torch's operations and 61 % outside them (transformers 40 %, torch 9 %)``

    ``; load spends 10 % of its time in torch's operations, 70 % waiting and 20 % in other code (torch 15 %)``

    Of the function that nearly all time goes through. Outside is told by whose code it was.
    """
    tree = profile.python
    if tree is None or tree.empty or tree["torch_time"].isna().any():
        return
    rows = frame_rows(tree)
    top = _subject(rows)
    whole = float(top["total_time"])
    if not whole:
        return
    yield Phrase("; ")
    yield code(clipped(str(top["function"]), 60))
    python = float(top["python_time"]) / whole
    inside = _percent(top["torch_time"] / whole) if top["torch_time"] else "none"
    rest = f" and {_percent(python)} outside them"
    if _waits(tree, profile):
        rest = f", {_percent(top['waiting_time'] / whole)} waiting and {_percent(python)} in other code"
    yield Phrase(f" spends {inside} of its time in torch operations{rest}")
    names = _libraries(rows, rows.index(top))
    largest = sorted(names.items(), key=lambda item: -item[1])[:_NAMED]
    said = [f"{name} {_percent(seconds / whole)}" for name, seconds in largest if seconds >= _LEAST_SHARE * whole]
    yield Phrase(f" ({', '.join(said)})" if said else "")


def _subject(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The outermost function that nearly all time goes through: as far as it is the code's own, and the first one of
    a library; the root where there is none."""
    found, number = rows[0], 0
    while found["library"] == "":
        called = [at for at, row in enumerate(rows) if row["parent"] == number and row["file"]]
        large = [at for at in called if rows[at]["total_time"] >= _NEARLY_ALL * rows[0]["total_time"]]
        if not large:
            return found
        number = large[0]
        if rows[number]["module"] not in _PLUMBING:
            found = rows[number]
        elif not any(row["parent"] == number for row in rows):
            return found
    return found


def _libraries(rows: list[dict[str, Any]], top: int) -> dict[str, float]:
    """Library -> seconds outside torch's operations and without waiting, of ``top`` and all that it calls."""
    inside = {top}
    seconds: dict[str, float] = defaultdict(float)
    for number, row in enumerate(rows):
        if number == top or row["parent"] in inside:
            inside.add(number)
            named = {"": "the code itself", "python": "Python's library"}.get(row["library"], row["library"])
            waiting = row["self_waiting_time"]
            seconds[named] += row["self_time"] - row["self_torch_time"] - (0.0 if math.isnan(waiting) else waiting)
    return seconds


def _percent(share_of: float) -> str:
    return f"{units.number(share_of * 100, units.Scale('%', 1.0, 0), digits=2)} %"


def python_footer(profile: Profile) -> str:
    """What the tree is of; empty without one."""
    tree = profile.python
    if tree is None or tree.empty:
        return ""
    python = "Python is all time outside torch operations, including waiting"
    if _waits(tree, profile):
        python = (
            "waiting is time outside torch operations in which the thread needs no CPU (it sleeps, or waits"
            " for a lock, a file, another thread), Python is the rest"
        )
    return (
        f"Where Python time goes: {units.count(int(tree['samples'].iloc[0]))} samples of the cell's own thread;"
        f" {python}; places below 1 % are left out."
    )
