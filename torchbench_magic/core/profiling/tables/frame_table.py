"""``Profile.frames``: the call tree as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType

import numpy as np
import pandas as pd

from torchbench_magic.core.compiler.compile_watch import function_of
from torchbench_magic.results.profiling.columns import FRAME_COLUMNS, frame_of
from torchbench_magic.results.profiling.frames.call_trees import inclusive
from torchbench_magic.results.profiling.profile import Source

from ..joining.attribution import Joined
from ..joining.call_tree import CallTree
from ..joining.joined_run import JoinedRun
from ..joining.segments import NO_LINE
from ..joining.tree_frames import FUNCTION, KINDS, LINE, MODULE, OP, RANGE, THREAD
from .line_rows import place_columns

__all__ = ["frame_table"]



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
