"""``Profile.memory``: what torch's allocators gave and took, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.results.profiling.columns import MEMORY_COLUMNS, frame_of

from ..joining.attribution import Joined
from ..joining.bytes_on_lines import Bytes
from .line_rows import LineRows, place_columns

__all__ = ["memory_timeline"]


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
