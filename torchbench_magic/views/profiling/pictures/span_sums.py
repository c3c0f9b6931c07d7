"""Exact sums of a timeline by slots of time: what a chosen span of the picture lists, however few bars are drawn.

The time is cut into equal slots. Of each key (track, name and place) and each slot in which it ran: the calls that
began there, the calls that were open when it began, and the time. A span of whole slots from ``a`` to ``b`` has the
calls that were open at ``a`` and those that began from ``a`` to ``b``, and the sum of the times: a call that lasts over
many slots is one call, and no time is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from torchbench_magic.results.profiling.trace import Ints
from torchbench_magic.views.drawing.bars import Bars, distinct_rows

__all__ = ["SpanSums", "sums_of"]

MOST_SLOTS = 256
"""As fine as what is brushed in a picture 800 pixels wide."""
MOST_KEYS = 1000
"""Names of their own; those with less time of a track are summed as one."""
_BITS = 22  # times are parts of the whole: as many as the picture of the page has


@dataclass(frozen=True, eq=False)
class SpanSums:
    """Columns of one length, sorted by key and slot.

    Attributes:
        track, name, place: of each key, the one with most time first; name -1 for all others of a track.
        others: of each key, how many names it stands for.
        slots: how many there are.
        key, slot: of each entry.
        begun, open: calls.
        time: ns.
    """

    track: Ints
    name: Ints
    place: Ints
    others: Ints
    slots: int
    key: Ints
    slot: Ints
    begun: Ints
    open: Ints
    time: Ints

    def halved(self) -> SpanSums:
        """With half as many slots."""
        slot = self.slot // 2
        first = np.flatnonzero(np.append(True, (np.diff(self.key) != 0) | (np.diff(slot) != 0)))
        open_first = np.where(self.slot % 2 == 0, self.open, 0)  # what was open in the middle is counted already
        begun, opened, time = (np.add.reduceat(column, first) for column in (self.begun, open_first, self.time))
        return SpanSums(
            self.track, self.name, self.place, self.others, self.slots // 2,
            self.key[first], slot[first], begun, opened, time,
        )  # fmt: skip

    def spec(self, duration: int, *, is_exact: bool = False) -> dict[str, Any]:
        """What ``static/timeline_graph.js`` reads: times in ticks of ``tick`` s, slots as distances within a key.

        ``is_exact``: ticks are ns; else as large as what is seen of a picture.
        """
        tick = 1 if is_exact else max(1, duration >> _BITS)
        until = np.cumsum(self.time)  # rounded as sums, so that sums are right
        parts = np.diff(until // tick, prepend=0)
        ahead = np.diff(self.slot, prepend=0)
        ahead[np.append(True, np.diff(self.key) != 0)] = self.slot[np.append(True, np.diff(self.key) != 0)]
        return {
            "slots": self.slots,
            "tick": tick / 1e9,
            "track": self.track.tolist(),
            "name": self.name.tolist(),
            "place": self.place.tolist(),
            "others": self.others.tolist(),
            "of": np.bincount(self.key, minlength=len(self.track)).tolist(),
            "ahead": ahead.tolist(),
            "begun": self.begun.tolist(),
            "open": self.open.tolist(),
            "time": parts.tolist(),
        }


def sums_of(bars: Bars, duration: int, *, slots: int = MOST_SLOTS, keys: int = MOST_KEYS) -> SpanSums:
    """The sums of all bars of a stretch of ``duration`` ns; what lies outside of it is left out.

    Args:
        slots: a power of two.
        keys: with names of their own, at most.
    """
    begin, end = np.clip(bars.start, 0, duration), np.clip(bars.start + bars.duration, 0, duration)
    inside = (bars.start < duration) & (bars.start + bars.duration >= 0)
    begin, end = begin[inside], end[inside]
    key, names, others = _keys(bars.where(inside), end - begin, keys)
    edges = np.arange(slots + 1, dtype=np.int64) * duration // slots
    first = np.searchsorted(edges, begin, "right") - 1
    last = np.maximum(np.searchsorted(edges, end, "left") - 1, first)
    each = last - first + 1
    row = np.repeat(np.arange(len(begin)), each)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each) + first[row]
    time = np.minimum(end[row], edges[slot + 1]) - np.maximum(begin[row], edges[slot])
    is_first = slot == first[row]
    at = key[row] * slots + slot
    which, place = np.unique(at, return_inverse=True)
    place = place.reshape(-1)
    begun, opened, spent = (
        np.bincount(place, weights=column, minlength=len(which)).round().astype(np.int64)
        for column in (is_first, ~is_first, time)
    )
    return SpanSums(*names, others, slots, which // slots, which % slots, begun, opened, spent)


def _keys(bars: Bars, time: Ints, most: int) -> tuple[Ints, tuple[Ints, Ints, Ints], Ints]:
    """(number of the key of each bar; track, name and place of each key; how many names it stands for)."""
    known, which = distinct_rows(bars.track, bars.name, bars.place)
    spent = np.bincount(which, weights=time, minlength=len(known))
    order = np.argsort(-spent, kind="stable")
    rank = np.empty(len(known), dtype=np.int64)
    rank[order] = np.arange(len(known))
    known = known[order]
    if len(known) <= most:
        return rank[which], (known[:, 0], known[:, 1], known[:, 2]), np.ones(len(known), dtype=np.int64)
    tracks, of_track, counts = np.unique(known[most:, 0], return_inverse=True, return_counts=True)
    merged = np.append(np.arange(most), most + of_track.reshape(-1))
    rest = np.column_stack([tracks, np.full(len(tracks), -1), np.full(len(tracks), -1)])
    known = np.concatenate([known[:most], rest])
    others = np.append(np.ones(most, dtype=np.int64), counts)
    return merged[rank[which]], (known[:, 0], known[:, 1], known[:, 2]), others
