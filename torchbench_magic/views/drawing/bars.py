"""The bars of a timeline, fewer of them where there are more than can be seen, and the module that draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.results.profiling.trace import Ints

from ..carriers.page_modules import es_module

__all__ = ["HUES", "Bars", "distinct_rows", "module"]

HUES = ("line", "torch", "python", "backward", "memory", "other")


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of all tracks in columns of one length, sorted by (track, depth, start).

    Attributes:
        track, depth: int64, where it is drawn; 0 is the top row of a track.
        start, duration: int64, ns since the body was entered.
        name: int64, index of `Timeline.names`.
        hue: int64, index of `HUES`.
        place: int64, index of `Timeline.places`; -1 for none.
        count: int64, how many it stands for.
    """

    track: Ints
    depth: Ints
    start: Ints
    duration: Ints
    name: Ints
    hue: Ints
    place: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: NDArray[Any]) -> Bars:
        return Bars(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @classmethod
    def join(cls, *parts: Bars) -> Bars:
        joined = cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__dataclass_fields__))
        return joined.where(np.lexsort((joined.start, joined.depth, joined.track)))

    def fewer(self, most: int, span: int = 0) -> Bars:
        """At most about ``most`` bars: the shortest are drawn together with their neighbours of the same row.

        ``span``: ns that are seen of them; 0: from the beginning to the end of the last.
        """
        if len(self) <= most:
            return self
        least = np.partition(self.duration, len(self) - most // 2)[len(self) - most // 2]
        short = self.duration <= least
        kept, rest = self.where(~short), self.where(short)
        span = span or int((self.start + self.duration).max()) + 1
        pixel = max(1, span * max(1, len(np.unique(self.track * 1000 + self.depth))) // max(1, most // 2))
        keys = (rest.track, rest.depth, rest.start // pixel)  # bars of one row stand together, by their start
        changes = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        first = np.flatnonzero(np.append(True, changes))
        start, count = rest.start[first], np.add.reduceat(rest.count, first)
        end = np.maximum.reduceat(rest.start + rest.duration, first)
        merged = rest.where(first)
        merged = Bars(
            merged.track, merged.depth, start, end - start, merged.name, merged.hue, merged.place, count
        )  # fmt: skip
        return Bars.join(kept, merged)


def distinct_rows(*columns: Ints) -> tuple[Ints, Ints]:
    """(rows: the distinct ones in the order in which they are first seen [n, columns]; of each entry, its row).

    As ``np.unique(axis=0)``, in a tenth of its time: small numbers, -1 the least, are put together as one.
    """
    together = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        together = together * (int(column.max(initial=0)) + 2) + column + 1
    _, first, which = np.unique(together, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return np.column_stack([column[first[order]] for column in columns]), rank[which.reshape(-1)]


def module() -> str:
    """The text of the module that draws them, as it may stand in a script element."""
    return es_module("timeline_explorer", "canvas_widget")
