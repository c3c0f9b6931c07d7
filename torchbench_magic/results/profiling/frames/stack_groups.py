"""Operations by the stack that called them: `.ops` counted in frames of the call tree."""

from __future__ import annotations

import pandas as pd

from ..columns import OP_COLUMNS, frame_of
from .call_trees import inclusive

__all__ = ["ops_by_stack"]

_THINGS = ("op", "python")


def ops_by_stack(frames: pd.DataFrame, depth: int) -> pd.DataFrame:
    """One row per operation, inputs, and stack of at most ``depth`` frames above it: columns of `OP_COLUMNS`, and
    ``stack``, the innermost frame first, one a line, and ``net_total``, the bytes that were kept in it and below.

    A frame of the stack is a line of code, with its function, or a call of a module; operations that an operation
    calls stand on the stack of that one. FLOP are not known per stack.
    """
    columns = ("parent", "kind", "name", "self_time", "self_cpu_time", "wall_time")
    given = {name: frames[name].tolist() for name in columns}
    above: list[tuple[str, ...]] = []  # of each frame, the stack with itself
    function: list[str] = []  # the function that each frame is in
    thing: list[int] = []  # the innermost operation or range, itself included; -1 for none
    own = [0.0] * len(frames)
    for at, (parent, kind, name) in enumerate(zip(*(given[c] for c in columns[:3]), strict=True)):
        outer = above[parent] if parent >= 0 else ()
        inside = function[parent] if parent >= 0 else ""
        if kind == "line":
            said = f"{name} in {inside}" if inside else name
            outer = (said, *outer)[:depth]
        elif kind == "module":
            outer = (name, *outer)[:depth]
        above.append(outer)
        function.append(name if kind == "function" else "" if kind == "line" and parent < 0 else inside)
        thing.append(at if kind in _THINGS else thing[parent] if parent >= 0 else -1)
        if thing[at] >= 0:  # what runs in a range is the range's own, as in .ops
            is_range = given["kind"][thing[at]] == "python"
            own[thing[at]] += given["self_time" if is_range else "self_cpu_time"][at]
    chosen = [at for at, kind in enumerate(given["kind"]) if kind in _THINGS]
    picked = frames.iloc[chosen]
    stacks = ["\n".join(above[at]) for at in chosen]
    outermost = _outermost(given["parent"], given["kind"], list(zip(given["name"], above, strict=True)))
    kept = inclusive((frames["allocated"] - frames["freed"]).tolist(), given["parent"])
    total = [given["wall_time"][at] if outermost[at] else 0.0 for at in chosen]
    values: dict[str, object] = {
        "op": picked["name"].tolist(),
        "self_cpu_time": [own[at] for at in chosen],
        "cpu_time": total,
    }
    same = ("calls", "self_device_time", "device_time", "allocated", "freed", "input_shapes")
    values |= {name: picked[name].tolist() for name in (*same, "cell", "line", "source_id", "file", "thread")}
    made = frame_of(OP_COLUMNS, values)
    made["stack"] = pd.Series(stacks, dtype=object)
    made["net_total"] = pd.Series([kept[at] if outermost[at] else 0 for at in chosen], dtype="Int64")
    if not kept or kept[0] is pd.NA:
        made["net_total"] = pd.NA
    return made


def _outermost(parents: list[int], kinds: list[str], keys: list[tuple[str, tuple[str, ...]]]) -> list[bool]:
    """Whether no frame above is an operation of the same name on the same stack: its total is in that one's."""
    found: list[bool] = []
    over: list[frozenset[tuple[str, tuple[str, ...]]]] = []
    for parent, kind, key in zip(parents, kinds, keys, strict=True):
        outer = over[parent] if parent >= 0 else frozenset()
        found.append(key not in outer)
        over.append(outer | {key} if kind in _THINGS and key not in outer else outer)
    return found
