"""What opens under an operation: the lines, modules and shapes it is called with, and the time of each."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.profile import Profile

from ..built_columns import built_table, counted, measured_columns, share, texts
from ..frame_rows import float_or_none, frame_rows
from ..name_in_notebook import of_result
from ..table import Table
from .place_names import place, shapes_text

__all__ = ["callers"]

_MOST_ROWS = 12


def callers(profile: Profile, names: Sequence[str], *, by_shape: bool, shapes: bool) -> dict[tuple[str, str], Table]:
    """(op, its shapes if ``by_shape`` else empty) -> where it is called, for ops that more than one row stands for."""
    mine = profile.ops[profile.ops["op"].isin(list(names)) & profile.ops["line"].notna()]
    if mine.empty:
        return {}
    has_modules, has_memory = bool(mine["module"].notna().any()), bool(mine["allocated"].notna().any())
    by = ["op", "input_shapes", "cell", "file", "line", "module"]
    filled = mine.assign(input_shapes=mine["input_shapes"].fillna(""), module=mine["module"].fillna(""))
    columns = ["calls", "self_cpu_time", "cpu_time", "allocated"]
    sums = filled.groupby(by, dropna=False, sort=False)[columns].sum(min_count=1).reset_index()
    ordered = sums.sort_values("cpu_time", ascending=False, kind="stable")
    found: dict[tuple[str, str], Table] = {}
    keys = ["op", "input_shapes"] if by_shape else ["op"]
    for key, group in ordered.groupby(keys, sort=False):
        name, of_shape = (str(key[0]), str(key[1]) if by_shape else "")
        found[name, of_shape] = _table(name, group, modules=has_modules, memory=has_memory, shapes=shapes)
    return found


def _table(name: str, calls: pd.DataFrame, *, modules: bool, memory: bool, shapes: bool) -> Table:
    time = units.spread_scale([*calls["cpu_time"], *calls["self_cpu_time"]])
    scale = units.bytes_scale([float_or_none(value) for value in calls["allocated"]])
    whole = float(calls["cpu_time"].sum())
    built = [
        texts("line", f"{name} is called from", 36, lambda call: place(call["cell"], call["file"], call["line"])),
        *([texts("module", "module", 30, lambda call: str(call["module"]))] if modules else []),
        counted("calls", "calls"),
        measured_columns("self", "self", time, "self_cpu_time"),
        measured_columns("total", "total", time, "cpu_time"),
        share("total", lambda call: float(call["cpu_time"]) / whole if whole else 0.0),
        *([measured_columns("allocated", "allocated", scale)] if memory else []),
    ]
    if shapes:
        shape = lambda call: shapes_text(str(call["input_shapes"]))
        built.append(texts("input_shapes", "input shapes", 60, shape, quiet=True))
    rest = calls.iloc[_MOST_ROWS:]
    left = units.seconds_text(float(rest["cpu_time"].sum()), digits=2)
    hidden = f"{units.count(len(rest))} more take {left}. All: {of_result(f'.where({name!r})')}" if len(rest) else ""
    return built_table("callers of an operation", built, frame_rows(calls.head(_MOST_ROWS)), hidden=hidden)
