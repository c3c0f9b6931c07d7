"""From a joined run to the tables of a `Profile`: all of them, and that of frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import CodeType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.process.compile_watch import function_of
from torchbench_magic.profiling.efficiency.flops import attribute_flops, recorded_calls
from torchbench_magic.profiling.memory.table import memory_timeline

from .attribution import Joined
from .call_tree import FUNCTION, KINDS, LINE, MODULE, OP, RANGE, THREAD, CallTree
from .call_tree_tables import inclusive
from .join import JoinedRun, trace_of
from .line_and_op_tables import line_rows, place_columns, table_of_lines, table_of_ops
from .profile import Profile
from .schema import FRAME_COLUMNS, frame_of
from .segments import NO_LINE
from .trace import Source

# ---- frame_table -----------------------------------------------------------------------------------------------------
# ``Profile.frames``: the call tree as a table.


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
# From a joined run to the tables of a `Profile`: what a live run and a stored trace have in common.


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
