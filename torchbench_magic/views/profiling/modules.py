"""The nn.Modules of a profile: time forward and backward of each, and what it allocated."""

from __future__ import annotations

from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.profile import Profile

from ..built_columns import BuiltColumn, built_table, counted, measured_columns, share
from ..frame_rows import float_or_none, frame_rows
from ..name_in_notebook import of_result
from ..table import Cell, Column, Table

__all__ = ["modules_table"]

_MOST_ROWS = 40
_LEAST_SHARE = 1e-3
_INDENT = "\u00a0\u00a0"  # per level; a plain space would be lost in HTML


def modules_table(profile: Profile) -> Table | None:
    """A row per module, below the one that called it; None where none was called.

    Shown are the first 40 that take a thousandth of the wall time, forward and backward, and those that called them.
    """
    modules = profile.modules
    if modules.empty:
        return None
    cost = modules["forward_time"] + modules["backward_cpu_time"]
    chosen = modules[cost >= _LEAST_SHARE * profile.wall_time].head(_MOST_ROWS)
    time = units.spread_scale([*modules["forward_time"], *modules["backward_cpu_time"]])
    has_backward = bool((modules["backward_cpu_time"] > 0).any())
    chosen = chosen.assign(depth=_depths(modules), both=cost)
    top = float(cost.max())

    def bar(module: dict[str, Any]) -> Cell:
        parts = (("torch", module["forward_time"]), ("backward", module["backward_cpu_time"]))
        drawn = tuple((hue, value / top) for hue, value in parts if value and top)
        return Cell(value=module["both"], picture=(drawn, ()) if drawn else ())

    def name(module: dict[str, Any]) -> Cell:
        return Cell(_INDENT * int(module["depth"]) + str(module["name"]), flat=str(module["name"]))

    built = [
        BuiltColumn(Column("module", "module", kind="code", widest=60), name),
        counted("calls", "calls"),
        BuiltColumn(Column("bar", "", kind="bar", legend=_legend(has_backward)), bar),
        measured_columns("forward", "forward", time, "forward_time"),
        measured_columns("self", "self", time, "self_time"),
        *([measured_columns("backward", "backward", time, "backward_cpu_time")] if has_backward else []),
        share("both", lambda module: module["both"] / profile.wall_time if profile.wall_time else 0.0),
    ]
    for label, field, scale in (
        ("device", "device_time", units.spread_scale),
        ("allocated", "allocated", units.bytes_scale),
    ):
        if modules[field].notna().any():
            built.append(
                measured_columns(label, label, scale([float_or_none(value) for value in modules[field]]), field)
            )
    said = f"{units.count(len(chosen))} of {units.count(len(modules))} modules. All rows: {of_result('.modules')}"
    hidden = said if len(chosen) < len(modules) else ""
    return built_table("modules", built, frame_rows(chosen), lambda module: str(module["name"]), hidden=hidden)


def _legend(has_backward: bool) -> tuple[tuple[str, str], ...]:
    return (("torch", "forward"), ("backward", "backward that it caused")) if has_backward else ()


def _depths(modules: pd.DataFrame) -> pd.Series:
    found: list[int] = []
    for parent in modules["parent"]:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return pd.Series(found, index=modules.index)
