"""Sets of moments: int64 [n, 2], ns, begin and end of each stretch, sorted and apart from each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..profiling.trace import Ints

__all__ = ["FOREVER", "Floats", "common", "joined_stretches", "nanoseconds", "within", "without"]

Floats = NDArray[np.float64]

FOREVER = 2**61
"""ns beyond any time of a trace."""


def joined_stretches(begin: Ints, end: Ints) -> Ints:
    """All that lies between a ``begin`` and its ``end``, in whatever order they come and however they overlap."""
    some = end > begin
    begin, end = begin[some], end[some]
    if not len(begin):
        return np.zeros((0, 2), dtype=np.int64)
    order = np.argsort(begin, kind="stable")
    begin, until = begin[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.append(True, begin[1:] > until[:-1]))
    return np.stack([begin[first], until[np.append(first[1:] - 1, len(begin) - 1)]], axis=1)


def common(one: Ints, other: Ints) -> Ints:
    """What lies in both."""
    moments = np.concatenate([one[:, 0], other[:, 0], one[:, 1], other[:, 1]])
    begins = len(one) + len(other)
    change = np.where(np.arange(len(moments)) < begins, 1, -1)
    order = np.lexsort((change, moments))  # at one moment ends come first
    moments, depth = moments[order], np.cumsum(change[order])
    inside = np.flatnonzero(depth == 2)  # each set holds a moment once
    return joined_stretches(moments[inside], moments[inside + 1]) if len(inside) else np.zeros((0, 2), dtype=np.int64)


def without(one: Ints, other: Ints) -> Ints:
    """What lies in ``one`` and not in ``other``."""
    rest = np.stack([np.append(-FOREVER, other[:, 1]), np.append(other[:, 0], FOREVER)], axis=1)
    return common(one, rest)


def nanoseconds(stretches: Ints) -> int:
    """How long they are together."""
    return int((stretches[:, 1] - stretches[:, 0]).sum())


def within(stretches: Ints, begin: int, end: int) -> Ints:
    """The part between two moments."""
    return common(stretches, np.array([[begin, end]], dtype=np.int64))
