"""Keeps a profile within ``--max-events``: detail is dropped first, ops last, and the profile says what was dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..torch_events.events import Events
from .nesting import nest

__all__ = ["Dropped", "within_budget"]


@dataclass(frozen=True)
class Dropped:
    """What was left out of a run's events, each step only where the one before was not enough.

    Attributes:
        seen: events that torch recorded.
        detail: memory events, and the inputs of ops.
        inner: ops inside others; what they took is self time of the op they ran in.
        ops: ops that started after the ones that are kept.
    """

    seen: int
    detail: int = 0
    inner: int = 0
    ops: int = 0

    def __bool__(self) -> bool:
        return bool(self.detail or self.inner or self.ops)


def within_budget(events: Events, limit: int) -> tuple[Events, Dropped]:
    """At most ``limit`` of the events (sorted by start), and what was left out.

    What ran on a device and the calls that launched it stay as long as any op does.
    """
    seen = len(events)
    if seen <= limit:
        return events, Dropped(seen)
    kept = events.where(~events.is_memory).without_inputs()
    detail = seen - len(kept) + (events.inputs is not None)
    if len(kept) <= limit:
        return kept, Dropped(seen, detail)
    outer = kept.where(_shallow(kept, limit))
    inner = len(kept) - len(outer)
    if len(outer) <= limit:
        return outer, Dropped(seen, detail, inner)
    return outer.where(np.arange(limit)), Dropped(seen, detail, inner, len(outer) - limit)


def _shallow(events: Events, limit: int) -> NDArray[np.bool_]:
    """Which events are no ops, or ops at most as deep as ``limit`` allows; top-level ops always."""
    depth = np.zeros(len(events), dtype=np.int64)
    is_op = events.is_op
    for native in np.unique(events.native[is_op]):
        mine = np.flatnonzero(is_op & (events.native == native))
        parent = nest(events.start[mine], events.end[mine]).parent
        above = parent.copy()
        while (inside := above >= 0).any():
            depth[mine[inside]] += 1
            above[inside] = parent[above[inside]]
    by_depth = np.bincount(depth)  # the first holds what is no op too
    deepest = max(0, int(np.searchsorted(np.cumsum(by_depth), limit, side="right")) - 1)
    chosen: NDArray[np.bool_] = depth <= deepest
    return chosen
