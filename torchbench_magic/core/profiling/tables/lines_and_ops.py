"""From the join to the two tables of a profile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.results.profiling.columns import LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.results.profiling.frames.call_trees import inclusive

from ..joining.bytes_on_lines import highest
from ..joining.joined_run import JoinedRun
from ..joining.nesting import ancestors
from ..torch_events.events import Ints
from .flops import Flops
from .line_rows import LineRows, place_columns

__all__ = ["table_of_lines", "table_of_ops"]



def _sums(index: Ints, weights: NDArray[Any], count: int) -> NDArray[np.float64]:
    return np.bincount(index, weights=weights, minlength=count).astype(np.float64)


def table_of_lines(run: JoinedRun, rows: LineRows) -> pd.DataFrame:
    """``.lines``: the rows of all threads, and of the time on no line that of thread 0.

    Bytes that another thread took on no line stand in that row too: those of all rows add up to torch's total.
    """
    joined, held, on_device, host = run.joined, run.held, run.on_device, run.host
    tree, of_node, count = joined.tree, rows.of_node, len(rows.keys)

    def own(values: Ints) -> NDArray[np.float64]:
        return _sums(of_node, values, count)

    def total(values: Ints) -> NDArray[np.float64]:
        # a root holds all lines of its thread; its own row is the time on none of them
        counted = np.where(rows.outermost, inclusive(values.tolist(), tree.parent), 0)
        return _sums(of_node, np.where(np.array(tree.parent) < 0, values, counted), count)

    backward = joined.caused_by >= 0
    caused = _sums(of_node[joined.caused_by[backward]], joined.self_time[backward], count)
    kept = [i for i, (source_id, _, thread) in enumerate(rows.keys) if source_id is not None or thread == 0]
    kept_root = rows.keys.index((None, 0, 0))
    values: dict[str, object] = {
        "calls": own(np.array(tree.calls)).astype(int),
        "wall_time": total(joined.torch_time + joined.python_time) / 1e9,
        "self_cpu_time": own(joined.torch_time) / 1e9,
        "cpu_time": total(joined.torch_time) / 1e9,
        "python_time": own(joined.python_time) / 1e9,
        "backward_cpu_time": caused / 1e9,
    }
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
    for name in ("allocated", "freed", "net", "peak", "host_net", "host_peak"):
        if name in columns:
            columns[name] = [pd.NA if np.isnan(v) else int(v) for v in columns[name]]  # type: ignore[attr-defined]
    places = [rows.keys[i] for i in kept]
    frame = frame_of(LINE_COLUMNS, columns | place_columns(places, rows.sources))
    order = {source_id: i for i, source_id in enumerate(rows.sources)}
    frame["_source"] = [order.get(source_id, len(order)) for source_id in frame["source_id"]]
    frame = frame.sort_values(["_source", "line", "thread"], kind="stable", na_position="last")
    return frame.drop(columns="_source").reset_index(drop=True)


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
        columns["peak"] = [pd.NA if np.isnan(v) else int(v) for v in highest(held.op_peak, group, count)]
    if flops is not None:
        counted = np.bincount(group, weights=~np.isnan(flops.op), minlength=count) > 0
        total = sums(np.nan_to_num(flops.op))
        columns["flops"] = [int(v) if known else pd.NA for v, known in zip(total, counted, strict=True)]
    places = place_columns([rows.keys[i] for i in its_row], rows.sources)
    del places["source"]
    frame = frame_of(OP_COLUMNS, columns | places)
    return frame.sort_values("self_cpu_time", ascending=False, kind="stable").reset_index(drop=True)
