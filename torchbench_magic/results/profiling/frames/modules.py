"""The nn.Modules of a profile as a tree: time forward, time backward and bytes of each, from the call tree."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ..columns import MODULE_COLUMNS, frame_of
from .call_trees import inclusive

__all__ = ["modules_of"]

_ENGINE = "autograd::engine::evaluate_function: "
_SUMS = ("self_time", "module_backward_time", "self_device_time", "allocated", "freed")


def modules_of(frames: pd.DataFrame) -> pd.DataFrame:
    """One row per module as called from its parent module, columns of `MODULE_COLUMNS`, in the order they ran.

    Times of a module hold those of the modules it calls, ``self_time`` is without. ``backward_cpu_time`` is the time
    of the backward nodes that its ops caused, and of its calls by a backward pass: a checkpoint calls its module again
    while the gradients wait for it. Such a call stands in the module's row of the forward pass; where it has several
    there, or none, in a row of its own.
    """
    given = {name: frames[name].fillna(0).tolist() for name in _SUMS}
    stored_before = bool(frames["module_backward_time"].isna().all())  # there was such a column
    if stored_before:  # calls of modules by the pass are in the other one
        given["module_backward_time"] = frames["backward_cpu_time"].fillna(0).tolist()
    tree = _Rows(frames)
    sums = {name: [0.0] * len(tree.names) for name in _SUMS}
    for frame, row in enumerate(tree.row_of):
        if row >= 0:
            for column, values in sums.items():
                if column != "self_time" or not tree.again[frame]:
                    values[row] += given[column][frame]
            if tree.again[frame] and not tree.in_pass[frame] and not stored_before:
                sums["module_backward_time"][row] += given["self_time"][frame]
    total = {column: inclusive(values, tree.parents) for column, values in sums.items()}
    made: dict[str, object] = {
        "name": tree.names,
        "parent": tree.parents,
        "calls": tree.calls,
        "forward_time": total["self_time"],
        "self_time": sums["self_time"],
        "backward_cpu_time": total["module_backward_time"],
    }
    if frames["self_device_time"].notna().any():
        made["device_time"] = total["self_device_time"]
    if frames["allocated"].notna().any():
        made |= {name: [int(value) for value in total[name]] for name in ("allocated", "freed")}
    return frame_of(MODULE_COLUMNS, made)


class _Rows:
    """The rows of the modules, by where they are called.

    Attributes:
        names, parents, calls: of each row.
        row_of: of each frame, the row of the module it is in; -1 for none.
        again: of each frame, whether it is in a backward pass, or in a module that the pass called.
        in_pass: of each frame, whether it is in a backward pass, and in no module that the pass called.
    """

    def __init__(self, frames: pd.DataFrame) -> None:
        self.names: list[str] = []
        self.parents: list[int] = []
        self.calls: list[int] = []
        self._index: dict[tuple[int, str], int] = {}
        self._named: dict[str, list[int]] = {}  # rows of the forward pass
        self._frames = {name: frames[name].tolist() for name in ("parent", "kind", "name", "calls")}
        self.row_of = [-1] * len(frames)
        self.in_pass = [False] * len(frames)
        self.again = [False] * len(frames)
        for frame, parent, kind, name in self._each():
            engine = kind == "op" and name.startswith(_ENGINE)
            self.in_pass[frame] = kind != "module" and (engine or (parent >= 0 and self.in_pass[parent]))
            self.again[frame] = engine or (parent >= 0 and self.again[parent])
        for backward in (False, True):
            for frame, parent, kind, name in self._each():
                if self.again[frame] is backward:
                    above = self.row_of[parent] if parent >= 0 else -1
                    by_pass = parent >= 0 and self.in_pass[parent]
                    self.row_of[frame] = above if kind != "module" else self._row(above, name, by_pass)
                    if kind == "module":
                        self.calls[self.row_of[frame]] += self._frames["calls"][frame]
                        if not backward:
                            self._note(name, self.row_of[frame])

    def _each(self) -> Iterator[tuple[int, int, str, str]]:
        columns = (self._frames[name] for name in ("parent", "kind", "name"))
        return ((frame, *values) for frame, values in enumerate(zip(*columns, strict=True)))

    def _note(self, name: str, row: int) -> None:
        rows = self._named.setdefault(name, [])
        if row not in rows:
            rows.append(row)

    def _row(self, above: int, name: str, by_pass: bool) -> int:
        forward = self._named.get(name, []) if by_pass else []
        if len(forward) == 1:
            return forward[0]
        row = self._index.setdefault((above, name), len(self._index))
        if row == len(self.names):
            self.names.append(name)
            self.parents.append(above)
            self.calls.append(0)
        return row
