"""What Python and numpy hold, per line: the readings of `host_memory` on the lines that were active."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..recording.host_memory import HostMemory
from .segments import LineTree, Segments

__all__ = ["HostBytes", "attribute_host_bytes"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HostBytes:
    """Python's and numpy's bytes by node of the line tree.

    Attributes:
        net: int64 [nodes], what was held more after the line than before, on the line itself.
        peak: int64 [nodes], highest total while the line, or one it calls, was active, above that at the start; the
            smallest int64 for a node that was never active.
    """

    net: Ints
    peak: Ints


def attribute_host_bytes(host: HostMemory, segments: Segments, tree: LineTree) -> HostBytes:
    """Put the readings on the lines of the cell's own thread, whose ``segments`` are given."""
    times, current, peak = host.readings()
    nodes = np.append(segments.node, segments.root).astype(np.int64)[segments.at(times)]
    net = np.zeros(len(tree), dtype=np.int64)
    np.add.at(net, nodes, np.diff(current))
    highest = np.full(len(tree), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(highest, nodes, np.maximum(peak, current[:-1]) - current[0])
    for child in range(len(tree) - 1, -1, -1):  # a parent comes before its children
        above = tree.parent[child]
        if above >= 0 and tree.parent[above] >= 0:
            highest[above] = max(highest[above], highest[child])
    return HostBytes(net, highest)
