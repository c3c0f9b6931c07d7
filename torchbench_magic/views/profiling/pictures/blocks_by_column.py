"""The blocks of memory that are alive at each moment that a picture of memory shows, for who clicks on it.

A block is alive in a run of columns. Blocks of one line, one size and one run are one entry with their count, so that
thousands of them are few numbers; the smallest, where there are very many, are summed per column. Nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from torchbench_magic.results.profiling.trace import Ints
from torchbench_magic.views.drawing.bars import distinct_rows

__all__ = ["BlocksByColumn", "blocks_by_column"]

MOST_ENTRIES = 3_000  # with names of their own: about 20 KB


@dataclass(frozen=True, eq=False)
class BlocksByColumn:
    """Entries, the largest first: int64 columns of one length.

    Attributes:
        owner: number of the line that allocated them.
        size: bytes of one.
        first, end: columns of the picture, from the first in which it is alive to that after the last.
        count: blocks.
        rest_bytes, rest_blocks: of all smaller ones, per column of the picture.
        unseen: blocks that were given and freed between the moments of two columns.
    """

    owner: Ints
    size: Ints
    first: Ints
    end: Ints
    count: Ints
    rest_bytes: Ints
    rest_blocks: Ints
    unseen: int

    def spec(self) -> dict[str, Any]:
        """What ``static/memory.js`` reads."""
        names = ("owner", "size", "first", "end", "count")
        made: dict[str, Any] = {name: getattr(self, name).tolist() for name in names}
        made["unseen"] = self.unseen
        if self.rest_blocks.any():
            made |= {"restBytes": self.rest_bytes.tolist(), "restBlocks": self.rest_blocks.tolist()}
        return made


def blocks_by_column(
    change: Ints, given_at: Ints, owner: Ints, shown: Ints, most: int = MOST_ENTRIES
) -> BlocksByColumn:
    """The blocks of one device.

    Args:
        change: bytes of each change, in the order of time.
        given_at: of each change, the row that allocated its block.
        owner: of each change, the number of the line that allocated its block; -1: it was there before.
        shown: of each column, the row after which it is shown; -1: before the first. It does not decrease.
        most: entries.
    """
    rows = np.arange(len(change))
    born = rows[(change > 0) & (owner >= 0)]
    freed = rows[(change < 0) & (owner >= 0)]
    death = np.full(len(change), len(change), dtype=np.int64)
    death[given_at[freed]] = freed
    first, end = np.searchsorted(shown, born, "left"), np.searchsorted(shown, death[born], "left")
    seen = end > first
    entries = np.column_stack([owner[born], change[born], first, end])[seen]
    entries, which = distinct_rows(*entries.T)
    count = np.bincount(which, minlength=len(entries))
    order = np.argsort(-entries[:, 1] * count, kind="stable")
    entries, count = entries[order], count[order].astype(np.int64)
    rest_bytes, rest_blocks = (np.zeros(len(shown) + 1, dtype=np.int64) for _ in range(2))
    for values, sums in ((entries[most:, 1] * count[most:], rest_bytes), (count[most:], rest_blocks)):
        np.add.at(sums, entries[most:, 2], values)
        np.subtract.at(sums, entries[most:, 3], values)
    owners, sizes, firsts, ends = entries[:most].T
    return BlocksByColumn(
        owners, sizes, firsts, ends, count[:most],
        np.cumsum(rest_bytes)[:-1], np.cumsum(rest_blocks)[:-1], int((~seen).sum()),
    )  # fmt: skip
