"""``Profile.holders``: who holds the storages that are there after the body, each with the number of its block."""

from __future__ import annotations

import numpy as np
import pandas as pd

from torchbench_magic.results.profiling.columns import HOLDER_COLUMNS, frame_of

from ..holding.holder_search import Holdings
from ..torch_events.events import Events

__all__ = ["holder_table"]


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
