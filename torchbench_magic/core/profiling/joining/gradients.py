"""Which backward node made a gradient that is then accumulated into a parameter's ``.grad``.

AccumulateGrad carries no sequence number. But autograd's queue gives it the highest priority, so it runs right after
the node that completed the gradient (``torch/csrc/autograd/engine.cpp``, CompareNodeTaskTime). Of a parameter that is
used several times that is the node of its first use, which comes last in the backward pass.
"""

from __future__ import annotations

import numpy as np

from ..torch_events.events import Events, Ints

__all__ = ["nodes_before_gradients"]

_ENGINE = "autograd::engine::evaluate_function: "
_ACCUMULATE = "torch::autograd::AccumulateGrad"


def nodes_before_gradients(ops: Events, parent: Ints) -> tuple[Ints, Ints]:
    """(ops in which the engine accumulates a gradient, of each the engine's op for the node that made it; -1: none).

    Args:
        parent: int64 [ops], the op that each runs in.
    """
    engine = ops.is_named(lambda name: name.startswith(_ENGINE))
    gradient = ops.is_named((_ENGINE + _ACCUMULATE).__eq__)
    found, made_in = np.flatnonzero(gradient), np.full(len(ops), -1, dtype=np.int64)
    beside = engine | np.isin(parent, np.unique(parent[engine]))
    for native in np.unique(ops.native[gradient]):
        before: dict[int, int] = {}  # op that the engine runs in -> its last node
        for op in np.flatnonzero(beside & (ops.native == native)).tolist():
            around = int(parent[op])
            if not engine[op]:
                before.pop(around, None)  # another backward pass
            elif gradient[op]:
                made_in[op] = before.get(around, -1)
            else:
                before[around] = op
    return found, made_in[found]
