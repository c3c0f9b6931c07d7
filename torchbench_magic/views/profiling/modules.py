"""The nn.Modules of a profile: time forward and backward of each, and what it allocated."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.profile import Profile

from ..frame_rows import number, records
from ..name_in_notebook import of_result
from ..table import Cell, Column, Group, Row, Table

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
    memory = units.bytes_scale([number(value) for value in modules["allocated"]])
    device = units.spread_scale([number(value) for value in modules["device_time"]])
    has_memory, has_device = (bool(modules[name].notna().any()) for name in ("allocated", "device_time"))
    has_backward = bool((modules["backward_cpu_time"] > 0).any())
    columns = [
        Column("module", "module", kind="code", widest=60),
        Column("calls", "calls", kind="number"),
        Column("bar", "", kind="bar", legend=_legend(has_backward)),
        Column("forward", "forward", time.unit, "number"),
        Column("self", "self", time.unit, "number"),
        *([Column("backward", "backward", time.unit, "number")] if has_backward else []),
        Column("share", "both", "%", "number"),
        *([Column("device", "device", device.unit, "number")] if has_device else []),
        *([Column("allocated", "allocated", memory.unit, "number")] if has_memory else []),
    ]
    top = float(cost.max())
    rows = []
    for record, depth in zip(records(chosen), _depths(modules).loc[chosen.index], strict=True):
        forward, backward = float(record["forward_time"]), float(record["backward_cpu_time"])
        share = (forward + backward) / profile.wall_time if profile.wall_time else 0.0
        name = str(record["name"])
        bar = tuple((hue, value / top) for hue, value in (("torch", forward), ("backward", backward)) if value and top)
        cells = [
            Cell(_INDENT * int(depth) + name, flat=name),
            Cell(units.count(record["calls"]), float(record["calls"])),
            Cell(value=forward + backward, picture=(bar, ()) if bar else ()),
            Cell(units.number(forward, time), forward),
            Cell(units.number(record["self_time"], time), float(record["self_time"])),
            *([Cell(units.number(backward, time), backward)] if has_backward else []),
            Cell(units.number(share * 100, units.Scale("%", 1.0, 1)), share),
        ]
        if has_device:
            cells.append(Cell(units.number(number(record["device_time"]), device), number(record["device_time"])))
        if has_memory:
            cells.append(Cell(units.number(number(record["allocated"]), memory), number(record["allocated"])))
        rows.append(Row(tuple(cells), key=name))
    left = len(modules) - len(rows)
    counted = f"{units.count(len(rows))} of {units.count(len(modules))} modules"
    hidden = f"{counted}. All rows: {of_result('.modules')}" if left else ""
    return Table("modules", tuple(columns), (Group(tuple(rows)),) if rows else (), hidden=hidden)


def _legend(has_backward: bool) -> tuple[tuple[str, str], ...]:
    return (("torch", "forward"), ("backward", "backward that it caused")) if has_backward else ()


def _depths(modules: pd.DataFrame) -> pd.Series:
    def each() -> Iterator[int]:
        found: list[int] = []
        for parent in modules["parent"]:
            found.append(found[parent] + 1 if parent >= 0 else 0)
            yield found[-1]

    return pd.Series(list(each()), index=modules.index)
