"""How places, names and shapes are written, the same in every table of a profile."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

__all__ = ["first_and_more", "op_text", "place", "place_of", "runs_text", "shapes_text"]


def op_text(op: str) -> str:
    """The name as it is shown: the engine's own frames lose their long prefix, a kernel that torch.compile fused is
    named by the operations in it (``graph_0_cpp_fused_add_sin_0``: ``fused add, sin``), and so on."""
    if (fused := _FUSED.match(op)) is not None:
        return f"fused {', '.join(_fused_ops(fused['ops']))}"
    if (graph := _GRAPH.match(op)) is not None:  # its hash says nothing to a reader
        return f"compiled graph {graph[1]}"
    return op.replace("autograd::engine::evaluate_function: ", "engine: ")


_FUSED = re.compile(r"(?:graph_\d+_)?(?:cpp|triton|mps|halide)_(?:\w+?_)?fused_(?P<ops>\w+?)(?:_\d+)?$")
_GRAPH = re.compile(r"## Call CompiledFxGraph (\w{6})")


def _fused_ops(names: str) -> list[str]:
    """The operations of ``add_sin``; a name of torch's that has ``_`` in it (``_to_copy``, ``native_layer_norm``) stays
    one."""
    parts = names.split("_")
    found: list[str] = []
    at = 0
    while at < len(parts):
        for end in range(len(parts), at, -1):
            name = "_".join(parts[at:end])
            if end == at + 1 or name in _LONG_OPS or name.lstrip("_") in _LONG_OPS:
                if name:
                    found.append(name)
                at = end
                break
    return found


_LONG_OPS = frozenset(
    {
        *("to_copy", "native_layer_norm", "native_batch_norm", "native_group_norm", "native_dropout", "log_softmax"),
        *("unsafe_view", "unsafe_index", "layer_norm", "batch_norm", "group_norm", "index_put", "index_select"),
        *("masked_fill", "constant_pad_nd", "max_pool2d_with_indices", "avg_pool2d", "adaptive_avg_pool2d"),
        *("threshold_backward", "native_layer_norm_backward", "softmax_backward_data", "log_softmax_backward_data"),
        *("nll_loss_forward", "nll_loss_backward", "mse_loss", "gelu_backward", "silu_backward", "tanh_backward"),
        *("sigmoid_backward", "leaky_relu", "hardtanh", "slice_scatter", "select_scatter", "new_zeros", "full_like"),
        *("zeros_like", "ones_like", "convolution_backward", "logical_not", "logical_and", "logical_or", "bitwise_and"),
    }
)
"""Operations whose own names have ``_`` in them; one that is missing here is shown in its parts."""


def first_and_more(texts: Sequence[str]) -> str:
    """The first text, and how many others there are: ``In[3]:4 +9``."""
    return f"{texts[0]} and {len(texts) - 1} more" if len(texts) > 1 else "".join(texts)


def place(cell: Any, file: Any, line: Any) -> str:
    """``In[3]:4``, or ``model.py:4``."""
    source = f"In[{cell}]" if cell is not None and not pd.isna(cell) else str(file).rsplit("/", 1)[-1]
    return f"{source}:{line}"


def place_of(record: Any) -> str:
    """The place of a row that stands on a line; empty for one that stands on none."""
    return "" if pd.isna(record["line"]) else place(record["cell"], record["file"], record["line"])


def shapes_text(shapes: str) -> str:
    """``[[3, 4], []]`` as ``[3, 4] []``: the outer brackets say nothing."""
    inner = shapes[1:-1] if shapes.startswith("[") and shapes.endswith("]") else shapes
    return re.sub(r"\],\s*", "] ", inner)


def runs_text(numbers: Sequence[int]) -> str:
    """``2 … 4 and 7`` for 2, 3, 4, 7; two in a row are ``2 and 3``; of many runs the first two and the last."""
    breaks = [i for i, (a, b) in enumerate(itertools.pairwise(numbers), 1) if b != a + 1]
    parts = [numbers[i:j] for i, j in itertools.pairwise([0, *breaks, len(numbers)])]
    words = [
        word
        for part in parts
        for word in ([f"{part[0]} … {part[-1]}"] if len(part) > 2 else [str(number) for number in part])
    ]
    if len(words) > 4:
        words = [*words[:2], "…", words[-1]]
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
