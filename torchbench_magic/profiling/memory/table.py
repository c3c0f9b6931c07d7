"""The tables of memory: bytes a line, and what holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.profiling.attribution import Bytes, Joined
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.line_and_op_tables import LineRows, place_columns
from torchbench_magic.profiling.schema import HOLDER_COLUMNS, MEMORY_COLUMNS, frame_of

from .holders import Holdings

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


# ---- holder_table ----------------------------------------------------------------------------------------------------
# ``Profile.holders``: who holds the storages that are there after the body, each with the number of its block.


def holder_table(found: Holdings, changes: Events) -> pd.DataFrame:
    """
    Args:
        changes: of memory within the body, in the order of time.
    """
    numbers = _living_blocks(changes)
    held = found.blocks
    return frame_of(
        HOLDER_COLUMNS,
        {
            "block": [numbers.get(each.address, pd.NA) for each in held],
            "device": [each.device for each in held],
            "bytes": [each.nbytes for each in held],
            "holder": [each.holder for each in held],
            "kind": [each.kind for each in held],
            "name": [each.name for each in held],
            "role": [each.role or None for each in held],
            "through_graph": [each.through_graph for each in held],
            "limit": [pd.NA if each.limit < 0 else each.limit for each in held],
        },
    )


def _living_blocks(changes: Events) -> dict[int, int]:
    """Address -> number of the block that the body allocated there last and did not free."""
    if changes.address is None or changes.block is None:
        return {}
    order = np.argsort(changes.start, kind="stable")
    known = order[(changes.address[order] != 0) & (changes.block[order] >= 0)]
    living: dict[int, int] = {}
    for address, nbytes, block in zip(
        changes.address[known].tolist(), changes.nbytes[known].tolist(), changes.block[known].tolist(), strict=True
    ):
        if nbytes > 0:
            living[address] = block
        else:
            living.pop(address, None)
    return living
