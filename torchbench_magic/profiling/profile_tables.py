"""From a joined run to the tables of a `Profile`: lines, ops, memory over time, frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints
from torchbench_magic.process.compile_watch import function_of
from torchbench_magic.profiling.efficiency.op_work import Flops, attribute_flops, recorded_calls

from .attribution import Bytes, Joined, highest
from .call_tree import FUNCTION, KINDS, LINE, MODULE, OP, RANGE, THREAD, CallTree
from .call_tree_tables import inclusive
from .join import JoinedRun, trace_of
from .profile import NOT_ATTRIBUTED, Profile
from .schema import FRAME_COLUMNS, LINE_COLUMNS, MEMORY_COLUMNS, OP_COLUMNS, frame_of
from .segments import NO_LINE, ancestors
from .trace import Source

Line = tuple[str | None, int, int]
"""(source_id, line, thread); source_id None and line 0 for a thread's time on no line."""


@dataclass(frozen=True)
class LineRows:
    """The rows of ``.lines``: nodes of the tree that are the same line of the same text on the same thread.

    Attributes:
        keys: by row.
        of_node: int64 [nodes], row of each node.
        outermost: bool [nodes], no node above it is of the same row (recursion): its total counts.
        sources: source_id -> text.
    """

    keys: tuple[Line, ...]
    of_node: Ints
    outermost: NDArray[np.bool_]
    sources: Mapping[str, Source]


def line_rows(joined: Joined, source_of: Mapping[str, Source]) -> LineRows:
    """Number the rows. ``source_of`` gives the text of each code's file."""
    tree = joined.tree
    numbers: dict[Line, int] = {}
    of_node = np.zeros(len(tree), dtype=np.int64)
    outermost = np.ones(len(tree), dtype=bool)
    above: list[frozenset[int]] = []  # rows of the nodes above each node, itself included
    for node, (parent, code, line, thread) in enumerate(
        zip(tree.parent, tree.code, tree.line, tree.thread, strict=True)
    ):
        source_id = None if code == NO_LINE else source_of[joined.codes[code].co_filename].source_id
        row = numbers.setdefault((source_id, line, thread), len(numbers))
        of_node[node] = row
        rows = above[parent] if parent >= 0 else frozenset()
        outermost[node] = row not in rows
        above.append(rows if row in rows else rows | {row})
    return LineRows(tuple(numbers), of_node, outermost, {s.source_id: s for s in source_of.values()})


def place_columns(places: Sequence[Line], sources: Mapping[str, Source]) -> dict[str, list[object]]:
    """The columns that say of each row which line it is of: ``cell line source file source_id thread``."""
    found = [sources[source_id] if source_id is not None else None for source_id, _, _ in places]
    return {
        "cell": [s.cell if s is not None and s.cell is not None else pd.NA for s in found],
        "line": [line if source_id is not None else pd.NA for source_id, line, _ in places],
        "source": [
            s.line(line) if s is not None else NOT_ATTRIBUTED for s, (_, line, _) in zip(found, places, strict=True)
        ],
        "file": [s.file if s is not None else None for s in found],
        "source_id": [source_id for source_id, _, _ in places],
        "thread": [thread for _, _, thread in places],
    }


# ---- lines_and_ops ---------------------------------------------------------------------------------------------------


def _sums(index: Ints, weights: NDArray[Any], count: int) -> NDArray[np.float64]:
    return np.bincount(index, weights=weights, minlength=count).astype(np.float64)


def table_of_lines(run: JoinedRun, rows: LineRows, added: NDArray[np.float64] | None = None) -> pd.DataFrame:
    """``.lines``: the rows of all threads, and of the time on no line that of thread 0.

    Bytes that another thread took on no line stand in that row too: those of all rows add up to torch's total.

    Args:
        added: seconds that recording is estimated to have added to each node; None: not known.
    """
    joined, held, on_device, host = run.joined, run.held, run.on_device, run.host
    tree, of_node, count = joined.tree, rows.of_node, len(rows.keys)

    def own(values: NDArray[Any]) -> NDArray[np.float64]:
        return _sums(of_node, values, count)

    def total(values: Ints) -> NDArray[np.float64]:
        # a root holds all lines of its thread; its own row is the time on none of them
        counted = np.where(rows.outermost, inclusive(values.tolist(), tree.parent), 0)
        return _sums(of_node, np.where(np.array(tree.parent) < 0, values, counted), count)

    backward = joined.caused_by >= 0
    caused = _sums(of_node[joined.caused_by[backward]], joined.self_time[backward], count)
    order: dict[str | None, int] = {source_id: i for i, source_id in enumerate(rows.sources)}
    kept = [i for i, (source_id, _, thread) in enumerate(rows.keys) if source_id is not None or thread == 0]
    kept.sort(key=lambda i: (order.get(rows.keys[i][0], len(order)), *rows.keys[i][1:]))
    kept_root = rows.keys.index((None, 0, 0))
    values: dict[str, object] = {
        "calls": own(np.array(tree.calls)).astype(int),
        "wall_time": total(joined.torch_time + joined.python_time) / 1e9,
        "self_cpu_time": own(joined.torch_time) / 1e9,
        "cpu_time": total(joined.torch_time) / 1e9,
        "python_time": own(joined.python_time) / 1e9,
        "backward_cpu_time": caused / 1e9,
    }
    if added is not None:
        values["recording_time"] = own(added)
    if on_device is not None:
        values |= {"self_device_time": own(on_device.node) / 1e9, "device_time": total(on_device.node) / 1e9}
    if held is not None:
        values |= {"allocated": own(held.node_allocated), "freed": own(held.node_freed)}
        values |= {
            "net": own(held.node_allocated - held.node_freed),
            "peak": highest(held.node_peak, of_node, count),
        }
        left_out = np.ones(count, dtype=bool)
        left_out[kept] = False
        for name in ("allocated", "freed", "net"):
            values[name][kept_root] += values[name][left_out].sum()  # type: ignore[index]
    if host is not None:
        on_main = np.array([thread == 0 for _, _, thread in rows.keys])
        values["host_net"] = np.where(on_main, own(host.net), np.nan)
        values["host_peak"] = highest(host.peak, of_node, count)
    columns: dict[str, object] = {name: np.asarray(column)[kept] for name, column in values.items()}
    places = [rows.keys[i] for i in kept]
    return frame_of(LINE_COLUMNS, columns | place_columns(places, rows.sources))


def table_of_ops(run: JoinedRun, rows: LineRows, flops: Flops | None = None) -> pd.DataFrame:
    """``.ops``: one row per (op, inputs, line, thread, module), the largest self time first."""
    joined, held, on_device = run.joined, run.held, run.on_device
    ops, row_of = joined.ops, rows.of_node[joined.node]
    inputs = ops.inputs.index if ops.inputs is not None else np.zeros(len(ops), dtype=np.int64)
    modules = (*run.tree.module_names, None)  # the last: -1, none
    key = (ops.name * (inputs.max(initial=0) + 1) + inputs) * len(rows.keys) + row_of
    distinct, group = np.unique(key * len(modules) + run.tree.op_module + 1, return_inverse=True)
    rest, its_module = np.divmod(distinct, len(modules))
    rest, its_row = np.divmod(rest, len(rows.keys))
    its_name, its_inputs = np.divmod(rest, inputs.max(initial=0) + 1)
    count = len(distinct)

    def sums(values: NDArray[np.generic]) -> NDArray[np.float64]:
        return _sums(group, values, count)

    outermost = np.ones(len(ops), dtype=bool)  # an op inside one of its own row is counted with that one
    for inside, above in ancestors(joined.parent):
        outermost[inside] &= group[above] != group[inside]
    columns: dict[str, object] = {
        "op": [ops.names[name] for name in its_name],
        "calls": np.bincount(group, minlength=count),
        "self_cpu_time": sums(joined.self_time) / 1e9,
        "cpu_time": sums((ops.end - ops.start) * outermost) / 1e9,
        "module": [modules[number - 1] for number in its_module.tolist()],
    }
    if ops.inputs is not None:
        texts = [ops.inputs.texts[i] for i in its_inputs]
        for i, name in enumerate(("input_shapes", "input_dtypes", "input_strides")):
            columns[name] = [text[i] for text in texts]
    if on_device is not None:
        columns["self_device_time"] = sums(on_device.op) / 1e9
        columns["device_time"] = sums(on_device.op_total * outermost) / 1e9
    if held is not None:
        columns |= {
            "allocated": sums(held.op_allocated).astype(int),
            "freed": sums(held.op_freed).astype(int),
        }
        columns["peak"] = highest(held.op_peak, group, count)
    if flops is not None:
        counted = np.bincount(group, weights=~np.isnan(flops.op), minlength=count) > 0
        total = sums(np.nan_to_num(flops.op))
        columns["flops"] = [int(v) if known else pd.NA for v, known in zip(total, counted, strict=True)]
    places = place_columns([rows.keys[i] for i in its_row], rows.sources)
    del places["source"]
    frame = frame_of(OP_COLUMNS, columns | places)
    return frame.sort_values("self_cpu_time", ascending=False, kind="stable").reset_index(drop=True)


# ---- memory_table ----------------------------------------------------------------------------------------------------
# ``Profile.memory``: what torch's allocators gave and took, over time.


def memory_timeline(joined: Joined, rows: LineRows, held: Bytes) -> pd.DataFrame:
    """Each change, with the total of its device after it, its line and its op."""
    memory = held.events
    totals = np.zeros(len(memory), dtype=np.int64)
    for device in range(len(memory.devices)):
        mine = memory.device == device
        totals[mine] = np.cumsum(memory.nbytes[mine])
    block = memory.block if memory.block is not None else np.full(len(memory), -1, dtype=np.int64)
    own = np.isin(block, block[memory.nbytes > 0]) & (block >= 0)  # a block of which the body saw the allocation
    row = rows.of_node[held.event_node]
    places = place_columns([*rows.keys, (None, 0, 0)], rows.sources)
    del places["source"]

    def by_row(values: list[Any]) -> NDArray[np.object_]:
        taken = np.empty(len(values), dtype=object)
        taken[:] = values
        return taken[row]

    names = np.array([*joined.ops.names, None], dtype=object)
    op = np.append(joined.ops.name, -1)[held.event_op]
    return frame_of(
        MEMORY_COLUMNS,
        {
            "time": (memory.start - joined.begin) / 1e9,
            "bytes": totals,
            "device": np.array(memory.devices, dtype=object)[memory.device],
            "change": memory.nbytes,
            "block": pd.arrays.IntegerArray(block.copy(), ~own),
            "op": names[op],
            **{name: by_row(values) for name, values in places.items()},
        },
    )


# ---- frame_table -----------------------------------------------------------------------------------------------------


def frame_table(run: JoinedRun, source_of: Mapping[str, Source], thread_names: Sequence[str]) -> pd.DataFrame:
    """One row per frame, columns of `FRAME_COLUMNS`.

    Args:
        source_of: the text of each code's file.
        thread_names: by thread number.
    """
    tree, joined = run.tree, run.joined
    lines = joined.tree
    sources = [source_of[code.co_filename] for code in joined.codes]
    nodes = tree.node.tolist()
    found = [sources[lines.code[node]] if lines.code[node] != NO_LINE else None for node in nodes]
    ids = [source.source_id if source is not None else None for source in found]
    on = [(source_id, lines.line[node], lines.thread[node]) for source_id, node in zip(ids, nodes, strict=True)]
    inputs = joined.ops.inputs
    is_op = tree.kind == OP
    shapes = [text[0] for text in inputs.texts] if inputs is not None else None
    places = [(source, line) for source, (_, line, _) in zip(found, on, strict=True)]
    parents = tree.parent.tolist()
    columns: dict[str, object] = {
        "parent": tree.parent,
        **place_columns(on, {source.source_id: source for source in sources}),
        "kind": [KINDS[kind] for kind in tree.kind.tolist()],
        "name": _names(tree, joined, places, thread_names),
        "source": [
            source.line(line).strip() if source is not None and kind == LINE else None
            for (source, line), kind in zip(places, tree.kind.tolist(), strict=True)
        ],
        "calls": tree.calls,
        "wall_time": np.array(inclusive(tree.own.tolist(), parents), dtype=np.int64) / 1e9,
        "self_time": tree.own / 1e9,
        "self_cpu_time": tree.torch / 1e9,
        "backward_cpu_time": tree.backward / 1e9,
        "module_backward_time": tree.module_backward / 1e9,
    }
    if tree.device is not None:
        columns["self_device_time"] = tree.device / 1e9
        columns["device_time"] = np.array(inclusive(tree.device.tolist(), parents), dtype=np.int64) / 1e9
    if tree.allocated is not None:
        columns |= {"allocated": tree.allocated, "freed": tree.freed}
    if shapes is not None:
        columns["input_shapes"] = [
            shapes[label % tree.inputs] if op else None
            for label, op in zip(tree.label.tolist(), is_op.tolist(), strict=True)
        ]
    return frame_of(FRAME_COLUMNS, columns)


def _function_name(code: CodeType) -> str:
    """``Net.forward``; ``the rest of f`` for what torch.compile made of it after a graph break."""
    if (function := function_of(code.co_name)) != code.co_name:
        return f"the rest of {function}"
    return code.co_qualname.replace("<locals>.", "")


def _names(
    tree: CallTree, joined: Joined, places: list[tuple[Source | None, int]], thread_names: Sequence[str]
) -> list[str]:
    names = []
    for kind, label, (source, line) in zip(tree.kind.tolist(), tree.label.tolist(), places, strict=True):
        if kind == LINE:
            names.append(f"{source.label}:{line}" if source is not None else "")
        elif kind == THREAD:
            names.append(thread_names[label])
        elif kind == FUNCTION:
            names.append(_function_name(joined.codes[label]))
        elif kind == MODULE:
            names.append(tree.module_names[label])
        else:
            assert kind in (OP, RANGE)
            names.append(joined.ops.names[label // tree.inputs])
    return names


# ---- profile_tables --------------------------------------------------------------------------------------------------


def lay_out(
    run: JoinedRun,
    sources: Mapping[str, Source],
    names: Sequence[str],
    *,
    with_flops: bool = False,
    added: NDArray[np.float64] | None = None,
) -> Profile:
    """The tables, the memory over time and the trace; the rest of the profile is its caller's to fill in.

    Args:
        sources: the text of each code's file.
        names: of the threads, by number.
        added: seconds that recording is estimated to have added to each node of the lines; None: not known.
        with_flops: count the ops' FLOPs; needs their shapes.
    """
    joined, ops = run.joined, run.joined.ops
    rows, calls = line_rows(joined, sources), recorded_calls(ops)
    launched = run.on_device.op if run.on_device is not None else None
    flops = attribute_flops(joined, calls, launched) if with_flops else None
    return Profile(
        lines=table_of_lines(run, rows, added),
        ops=table_of_ops(run, rows, flops),
        frames=frame_table(run, sources, names),
        memory=memory_timeline(joined, rows, run.held) if run.held is not None else None,
        trace=trace_of(run, sources, names),
        wall_time=joined.wall / 1e9,
        num_threads=0,
        sources={source.source_id: source for source in sources.values()},
        ranges=tuple(sorted({ops.names[i] for i in np.unique(ops.name[ops.is_range])})),
        threads=tuple(names),
        calls=calls,
        flops_coverage=flops.coverage if flops is not None else math.nan,
    )
