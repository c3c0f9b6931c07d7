"""The work of ``torch.compile`` itself, told apart from the code that it makes.

While a function is compiled, torch traces it with tensors that hold nothing: hundreds of ops run that compute
nothing. Together with the Python round them they are one range, ``compiling``, on the line whose call set it off.
What the compiled code runs later is not in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..torch_events.events import Events
from .nesting import nest

__all__ = ["COMPILED_REGION", "COMPILING", "gather_compiling"]

COMPILING = "compiling"
COMPILED_REGION = "Torch-Compiled Region"  # begins torch's name for the range of a compiled frame that runs
# The compiler's own ranges, which torch records as ops: the whole, and each of its phases by itself.
_WHOLE, _PHASE = "dynamo", "(dynamo_timed)"


def gather_compiling(events: Events) -> Events:
    """The events, with all of one compilation as one range. Events of code that compiles nothing stay as they are."""
    is_op = events.is_op
    marked = events.is_named(lambda name: name == _WHOLE or name.endswith(_PHASE)) & events.is_kind("cpu_op")
    if not marked.any():
        return events
    inside = np.zeros(len(events), dtype=bool)
    for native in np.unique(events.native[marked]):
        mine = np.flatnonzero(is_op & (events.native == native))
        parent = nest(events.start[mine], events.end[mine]).parent
        for op, above in enumerate(parent.tolist()):  # a parent comes before its children
            if above >= 0:
                inside[mine[op]] = inside[mine[above]] or marked[mine[above]]
    outermost = marked & ~inside
    kinds = events.kinds if "user_annotation" in events.kinds else (*events.kinds, "user_annotation")
    named = replace(
        events,
        names=(*events.names, COMPILING),
        kinds=kinds,
        name=np.where(outermost, len(events.names), events.name),
        kind=np.where(outermost, kinds.index("user_annotation"), events.kind),
    )
    return named.where(~inside)
