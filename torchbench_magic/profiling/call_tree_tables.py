"""The call tree as tables: sums along it, modules, callers, sampled functions, stacks as text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.files import STACKS, whole_file
from torchbench_magic.printable import escaped

from .schema import MODULE_COLUMNS, OP_COLUMNS, ColumnType, combined_by, frame_of
from .trace import Source, line_text

# ---- call_trees ------------------------------------------------------------------------------------------------------


def is_tree(table: pd.DataFrame) -> bool:
    """Whether each caller comes before what it calls, and only the root of a thread (of sampled functions, which have
    no kinds, only the first row) has none."""
    parent = table["parent"].to_numpy()
    rows = np.arange(len(parent))
    roots = table["kind"].to_numpy() == "thread" if "kind" in table else rows == 0
    return bool((parent < rows).all() and ((parent == -1) == roots).all() and (parent >= -1).all())


def inclusive(own: Iterable[Any], parents: Sequence[int]) -> list[Any]:
    """Sums over each node and all below it; ``parents`` has the place of each node's parent, which comes before it."""
    total = list(own)
    for at in range(len(total) - 1, -1, -1):
        if parents[at] >= 0:
            total[parents[at]] += total[at]
    return total


def sum_of_trees(
    tables: Sequence[pd.DataFrame], columns: Mapping[str, ColumnType], *, is_complete: bool = False
) -> pd.DataFrame:
    """The trees of several runs as one: what is in the same place below the same callers adds up.

    Args:
        columns: of the tables.
        is_complete: what is NA in a row is nothing, if some run has that column. Else a sum is NA where it is not known
            of each run that the row was seen in.
    """
    index: dict[tuple[Any, ...], int] = {}
    parents: list[int] = []
    first: list[tuple[int, int]] = []  # (table, row) that a row was first seen in
    rows_of: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    keys = combined_by(columns, "key")
    for number, table in enumerate(tables):
        rows: list[int] = []
        of_key = (table[name].astype(object).where(table[name].notna(), None).tolist() for name in keys)
        for at, (parent, *key) in enumerate(zip(table["parent"].tolist(), *of_key, strict=True)):
            above = rows[parent] if parent >= 0 else -1
            row = index.setdefault((above, *key), len(index))
            if row == len(parents):
                parents.append(above)
                first.append((number, at))
            rows.append(row)
        rows_of.append(np.array(rows, dtype=np.int64))
    values: dict[str, Any] = {"parent": parents}
    for name, kind in columns.items():
        if name == "parent":
            continue
        if kind.combined != "sum":
            values[name] = [tables[number][name].iloc[at] for number, at in first]
            continue
        if is_complete and all(table[name].isna().all() for table in tables):
            continue
        total = np.zeros(len(parents))
        for places, table in zip(rows_of, tables, strict=True):
            numbers = table[name].fillna(0) if is_complete else table[name]
            total += np.bincount(places, numbers.to_numpy(np.float64, na_value=np.nan), len(parents))
        values[name] = total if kind != "int64" else total.astype(np.int64)
    return frame_of(columns, values)


# ---- modules ---------------------------------------------------------------------------------------------------------

_ENGINE = "autograd::engine::evaluate_function: "
_MODULE_NUMBERS = ("self_time", "module_backward_time", "self_device_time", "allocated", "freed")


def modules_of(frames: pd.DataFrame) -> pd.DataFrame:
    """One row per module as called from its parent module, columns of `MODULE_COLUMNS`, in the order they ran.

    Times of a module hold those of the modules it calls, ``self_time`` is without. ``backward_cpu_time`` is the time
    of the backward nodes that its ops caused, and of its calls by a backward pass: a checkpoint calls its module again
    while the gradients wait for it. Such a call stands in the module's row of the forward pass; where it has several
    there, or none, in a row of its own.
    """
    given = {name: frames[name].fillna(0).tolist() for name in _MODULE_NUMBERS}
    stored_before = bool(frames["module_backward_time"].isna().all())  # there was such a column
    if stored_before:  # calls of modules by the pass are in the other one
        given["module_backward_time"] = frames["backward_cpu_time"].fillna(0).tolist()
    tree = _Rows(frames)
    sums = {name: [0.0] * len(tree.names) for name in _MODULE_NUMBERS}
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


# ---- run_uncompiled --------------------------------------------------------------------------------------------------

_REGION = "Torch-Compiled Region"  # begins the name of the range in which compiled code runs


def runs_as_it_is(frames: pd.DataFrame, function: str) -> tuple[int, float]:
    """(calls, seconds) of a function as it is: one that is compiled runs within the range of its region."""
    name = function.rpartition(".")[2]
    names, kinds = frames["name"].tolist(), frames["kind"].tolist()
    calls, found = 0, 0.0
    for own, kind, parent, count, seconds in zip(
        names, kinds, frames["parent"], frames["calls"], frames["wall_time"], strict=True
    ):
        if kind == "function" and own.rpartition(".")[2] == name and not names[parent].startswith(_REGION):
            calls, found = calls + int(count), found + float(seconds)
    return calls, found


_MOST_OF_LINE = 0.5


def compiled_from(frames: pd.DataFrame) -> frozenset[tuple[str, int]]:
    """(source_id, line) of lines from which on code is compiled as one piece, if that has most of their time.

    What such a piece does stands on the first line of its function, or on the one that broke the graph before it: which
    of the lines after it took the time is not known.
    """
    if not frames["name"].astype(str).str.startswith(_REGION).any():
        return frozenset()
    names, kinds, parents = frames["name"].tolist(), frames["kind"].tolist(), frames["parent"].tolist()
    is_piece: list[bool] = []
    for kind, parent in zip(kinds, parents, strict=True):
        if kind == "line":
            above = parents[parent] if parent >= 0 else -1
            is_piece.append(above >= 0 and kinds[parent] == "function" and names[above].startswith(_REGION))
        else:
            is_piece.append(parent >= 0 and is_piece[parent])
    seconds = frames["self_time"].fillna(0.0)
    of_lines = pd.DataFrame({"whole": seconds, "compiled": seconds * is_piece})
    sums = of_lines.groupby([frames["source_id"], frames["line"]]).sum()
    most = sums[(sums["compiled"] > 0) & (sums["compiled"] >= _MOST_OF_LINE * sums["whole"])]
    return frozenset((str(source_id), int(line)) for source_id, line in most.index)


# ---- stack_groups ----------------------------------------------------------------------------------------------------

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


# ---- stacks ----------------------------------------------------------------------------------------------------------
# Stacks of a profile as text, one a line with its own cost: what flamegraph.pl and speedscope read.
#
# The format is Brendan Gregg's "folded": ``outermost;...;innermost 123``, as torch's ``export_stacks`` writes it.

_DEVICES = ("device", "cuda", "xpu", "privateuse1")
STACK_METRICS: dict[str, str] = {
    "self_cpu_time_total": "self_cpu_time",
    "self_cpu_time": "self_cpu_time",
    "self_time": "self_time",
    "wall_time": "self_time",
    "time": "self_time",
    **{f"self_{device}_time{end}": "self_device_time" for device in _DEVICES for end in ("_total", "")},
    "device": "self_device_time",
    "allocated": "allocated",
    "bytes": "allocated",
}
"""What ``metric`` may be, torch's names and ours -> the column of ``.frames``."""

_MEANING = {
    "self_cpu_time": "time in ops of torch",
    "self_time": "time",
    "self_device_time": "device time",
    "allocated": "bytes (profile with --memory)",
}


def metric_column(metric: str) -> str:
    """The column that ``metric`` means.

    Raises:
        OptionError: no such metric; the message lists those there are.
    """
    if metric not in STACK_METRICS:
        raise OptionError(f"metric {metric!r} is unknown; use one of {', '.join(STACK_METRICS)}")
    return STACK_METRICS[metric]


def folded(frames: pd.DataFrame, metric: str = "self_cpu_time_total") -> str:
    """The stacks with a cost, one a line: whole nanoseconds, or bytes. Never empty.

    In names ``;`` (which parts the frames) is written ``\\x3b``, a control or direction character as its escape,
    and a double quote as a single one; a line of code is its place and its text.

    Raises:
        OptionError: an unknown metric.
        InputError: nothing of it was recorded.
    """
    column = metric_column(metric)
    values = frames[column]
    cost = (values.fillna(0).astype(float) * (1 if column == "allocated" else 1e9)).round().astype("int64").tolist()
    if not any(value > 0 for value in cost):
        known = [name for name, other in STACK_METRICS.items() if frames[other].fillna(0).sum() > 0]
        there = f"metrics with values: {', '.join(known)}" if known else "nothing was"
        raise InputError(f"no {_MEANING[column]} was recorded ({metric}), so there are no stacks to write; {there}")
    stacks: list[str] = []
    lines: list[str] = []
    columns = (frames[name].tolist() for name in ("parent", "name", "source"))
    for parent, name, source, value in zip(*columns, cost, strict=True):
        own = _frame_name(f"{name} {source}" if source else str(name))
        stacks.append(f"{stacks[parent]};{own}" if parent >= 0 else own)
        if value > 0:
            lines.append(f"{stacks[-1]} {value}\n")
    return "".join(lines)


def write_stacks(
    frames: pd.DataFrame,
    path: str | os.PathLike[str],
    metric: str = "self_cpu_time_total",
    *,
    overwrite: bool = False,
) -> None:
    """Write `folded` to a file, see `Profile.export_stacks`; where there is nothing to write, no file is."""
    text = folded(frames, metric)
    with whole_file(path, STACKS, overwrite=overwrite) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def _frame_name(name: str) -> str:
    name = name.replace(";", "\\x3b").replace('"', "'")
    return escaped(name).strip() or "?"


# ---- callers ---------------------------------------------------------------------------------------------------------

_BY = ["cell", "file", "source_id", "line", "module", "input_shapes", "thread"]
_SHOWN = [
    "cell",
    "line",
    "source",
    "file",
    "module",
    "input_shapes",
    "thread",
    "calls",
    "self_cpu_time",
    "cpu_time",
    "share",
]


def full_name(ops: pd.Series[Any], op: str) -> str:
    """The name as the table has it; ``aten::`` may be left out.

    Raises:
        InputError: there is none; the message names those near it.
    """
    known = set(ops)
    for name in (op, f"aten::{op}"):
        if name in known:
            return name
    short = {name.removeprefix("aten::"): name for name in sorted(known)}
    near = get_close_matches(op.removeprefix("aten::"), short, n=3) or [n for n in short if op.lower() in n.lower()][:3]
    raise InputError(f"no op {op!r} in this profile" + (f"; similar names: {', '.join(near)}" if near else ""))


def calls_of(ops: pd.DataFrame, sources: Mapping[str, Source], op: str) -> pd.DataFrame:
    """See `Profile.where`."""
    mine = ops[ops["op"] == full_name(ops["op"], op)]
    sums = mine.groupby(_BY, dropna=False, sort=False)[["calls", "self_cpu_time", "cpu_time"]].sum().reset_index()
    whole = float(sums["cpu_time"].sum())
    sums["share"] = sums["cpu_time"] / whole if whole else 0.0
    sums["source"] = [line_text(sources, *place) for place in zip(sums["source_id"], sums["line"], strict=True)]
    ordered = sums.sort_values(["cpu_time", "self_cpu_time"], ascending=False, kind="stable")
    return ordered[_SHOWN].reset_index(drop=True)
