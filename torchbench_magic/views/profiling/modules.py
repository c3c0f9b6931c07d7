"""The nn.Modules of a profile: time forward and backward of each, and what it allocated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from torchbench_magic import units
from torchbench_magic.results.profiling.profile import Profile

from ..built_columns import BuiltColumn, built_table, counted, measured_columns, share
from ..frame_rows import float_or_none, frame_rows
from ..name_in_notebook import of_result
from ..table import Cell, Column, Table, Tone

__all__ = ["modules_table"]

_MOST_ROWS = 40
_LEAST_SHARE = 1e-3
_INDENT = "\u00a0\u00a0"  # per level; a plain space would be lost in HTML
_SUMMED = ("forward_time", "backward_cpu_time", "both", "device_time", "allocated")
"""Figures of a module that hold those of the modules it calls: modules side by side add up."""


def modules_table(profile: Profile) -> Table | None:
    """A row per module, below the one that called it; None where none was called.

    Shown are the first 40 that take a thousandth of the wall time, forward and backward, and those that called them.
    What is left out of a module is one row after the others that it called: how many, and what they take together.
    """
    modules = profile.modules
    if modules.empty:
        return None
    cost = modules["forward_time"] + modules["backward_cpu_time"]
    tree = _Tree(frame_rows(modules.assign(both=cost)))
    chosen = [row for row in tree.order if cost[row] >= _LEAST_SHARE * profile.wall_time][:_MOST_ROWS]
    time = units.spread_scale([*modules["forward_time"], *modules["backward_cpu_time"]])
    has_backward = bool((modules["backward_cpu_time"] > 0).any())
    top = float(cost.max())

    def bar(module: dict[str, Any]) -> Cell:
        parts = (("torch", module["forward_time"]), ("backward", module["backward_cpu_time"]))
        drawn = tuple((hue, value / top) for hue, value in parts if value and top)
        return Cell(value=module["both"], picture=(drawn, ()) if drawn else ())

    def name(module: dict[str, Any]) -> Cell:
        tone: Tone = "quiet" if module["left_out"] else ""
        return Cell(_INDENT * module["depth"] + str(module["name"]), tone=tone, flat=str(module["flat"]))

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
    rows = list(tree.rows(frozenset(chosen)))
    key = lambda row: "" if row["left_out"] else str(row["name"])
    return built_table("modules", built, rows, key, hidden=hidden, keyed="module")


def _legend(has_backward: bool) -> tuple[tuple[str, str], ...]:
    return (("torch", "forward"), ("backward", "backward it caused")) if has_backward else ()


class _Tree:
    """Modules below the one that called them.

    Args:
        modules: rows of `Profile.modules`, each after the one that it names as its parent.

    Attributes:
        order: row numbers depth first; those of one parent as they ran.
    """

    def __init__(self, modules: Sequence[dict[str, Any]]) -> None:
        self._modules = modules
        self._called: dict[int, list[int]] = defaultdict(list)
        for row, module in enumerate(modules):
            self._called[module["parent"]].append(row)
        self.order = list(self._below(-1))

    def _below(self, parent: int) -> Iterator[int]:
        for row in self._called[parent]:
            yield row
            yield from self._below(row)

    def rows(self, chosen: frozenset[int], parent: int = -1, depth: int = 0) -> Iterator[dict[str, Any]]:
        """The chosen modules, each with its ``depth``; after those of one parent one row for the others."""
        left_out = []
        for row in self._called[parent]:
            if row not in chosen:  # nor is any that it called: none of them takes longer, or comes earlier
                left_out.append(row)
                continue
            module = self._modules[row]
            yield module | {"depth": depth, "flat": module["name"], "left_out": 0}
            yield from self.rows(chosen, row, depth + 1)
        if left_out:
            yield self._together(left_out, parent) | {"depth": depth}

    def _together(self, rows: Sequence[int], parent: int) -> dict[str, Any]:
        """What modules of one parent, which are not shown, take with those that they called."""
        every = [inner for row in rows for inner in (row, *self._below(row))]
        known = {name: [self._modules[row][name] for row in rows] for name in _SUMMED}
        sums = {name: _sum(values) for name, values in known.items()}
        said = f"{units.count(len(every))} more"
        where = f" in {self._modules[parent]['name']}" if parent >= 0 else ""
        return {
            **sums,
            "name": said,
            "flat": said + where,
            "left_out": len(every),
            "calls": None,
            "self_time": _sum([self._modules[row]["self_time"] for row in every]),
        }


def _sum(values: Sequence[Any]) -> float | None:
    """Of the values that are known; None where none is."""
    known = [value for value in map(float_or_none, values) if value is not None]
    return sum(known) if known else None
