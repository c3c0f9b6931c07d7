"""The nn.Modules of a profile as a tree: time forward, time backward and bytes of each, from the call tree."""

from __future__ import annotations

import pandas as pd

from ..columns import MODULE_COLUMNS, frame_of
from .call_trees import inclusive

__all__ = ["modules_of"]

_ENGINE = "autograd::engine::evaluate_function: "
_SUMS = ("self_time", "backward_cpu_time", "self_device_time", "allocated", "freed")


def modules_of(frames: pd.DataFrame) -> pd.DataFrame:
    """One row per module as called from its parent module, columns of `MODULE_COLUMNS`, in the order they ran.

    Times of a module hold those of the modules it calls, ``self_time`` is without. ``backward_cpu_time`` is the time
    of the backward ops that its ops caused; gradients being accumulated are not in it. A module that a backward pass
    calls again (a checkpoint does) is called, but its time is that pass's already, and so it is not time forward.
    """
    index: dict[tuple[int, str], int] = {}
    parents: list[int] = []
    names: list[str] = []
    calls: list[int] = []
    sums: dict[str, list[float]] = {name: [] for name in _SUMS}
    given = {name: frames[name].fillna(0).tolist() for name in _SUMS}
    row_of: list[int] = []  # of each frame, the module it is in
    in_backward: list[bool] = []
    columns = (frames[name].tolist() for name in ("parent", "kind", "name", "calls"))
    for frame, (parent, kind, name, count) in enumerate(zip(*columns, strict=True)):
        row = row_of[parent] if parent >= 0 else -1
        if kind == "module":
            above, row = row, index.setdefault((row, name), len(index))
            if row == len(names):
                parents.append(above)
                names.append(name)
                calls.append(0)
                for values in sums.values():
                    values.append(0)
            calls[row] += count
        row_of.append(row)
        in_backward.append((parent >= 0 and in_backward[parent]) or (kind == "op" and name.startswith(_ENGINE)))
        if row >= 0:
            for column, values in sums.items():
                if column != "self_time" or not in_backward[frame]:
                    values[row] += given[column][frame]
    total = {column: inclusive(values, parents) for column, values in sums.items()}
    made: dict[str, object] = {
        "name": names,
        "parent": parents,
        "calls": calls,
        "forward_time": total["self_time"],
        "self_time": sums["self_time"],
        "backward_cpu_time": total["backward_cpu_time"],
    }
    if frames["self_device_time"].notna().any():
        made["device_time"] = total["self_device_time"]
    if frames["allocated"].notna().any():
        made |= {name: [int(value) for value in total[name]] for name in ("allocated", "freed")}
    return frame_of(MODULE_COLUMNS, made)
