"""The stays on lines of a trace as ranges: what its segments say of one line at a time, with the lines that it calls.

A loop of half a million operations has more than a million segments: they are put together by numpy, one depth of the
calls after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .trace import Ints, Trace

__all__ = ["LineRanges", "line_ranges"]

_DEEPEST = 200  # lines above a line that ranges are made of; a deeper recursion stands on the last of them


@dataclass(frozen=True, eq=False)
class LineRanges:
    """One range per stay on a line, the lines it calls included: int64 columns of one length.

    Those of a thread nest and are in the order of their start; of two that start together the outer one comes first.

    Attributes:
        thread: number in the tables.
        node: row of ``Trace.nodes``.
        start, end: ns since the body was entered.
    """

    thread: Ints
    node: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.node)


def line_ranges(trace: Trace) -> LineRanges:
    """Each stay on a line as one range; a stay of no length is left out.

    At each depth of the calls a range goes on as long as the line there is the same: those above it are the same then.
    """
    thread, start, node = (trace.segments[name].to_numpy().astype(np.int64) for name in ("thread", "start", "node"))
    order = np.argsort(thread, kind="stable")
    thread, start, node = thread[order], start[order], node[order]
    is_last = np.append(thread[1:] != thread[:-1], np.ones(len(thread[:1]), dtype=bool))
    until = np.where(is_last, np.maximum(start, trace.duration), np.append(start[1:], 0))
    found = [np.zeros((5, 0), dtype=np.int64)]
    for level, of_node in _lines_by_depth(trace):
        line = of_node[node]
        goes_on = np.append(False, (line[1:] == line[:-1]) & ~is_last[:-1])[: len(line)]
        first = np.flatnonzero((line >= 0) & ~goes_on)
        ends = np.flatnonzero((line >= 0) & ~np.append(goes_on[1:], False))
        lasting = until[ends] > start[first]
        first, ends = first[lasting], ends[lasting]
        found.append(np.stack([thread[first], start[first], until[ends], line[first], np.full(len(first), level)]))
    threads, starts, stops, nodes, levels = np.concatenate(found, axis=1)
    order = np.lexsort((levels, -stops, starts, threads))
    return LineRanges(threads[order], nodes[order], starts[order], stops[order])


def _lines_by_depth(trace: Trace) -> Iterator[tuple[int, Ints]]:
    """(depth, of each node and at the end of none the line that is open at that depth, -1 for none), the deepest first.

    The root of a thread is no line.
    """
    parents = trace.nodes["parent"].tolist()
    depth = np.full(len(parents) + 1, -1, dtype=np.int64)
    here = np.full(len(parents) + 1, -1, dtype=np.int64)  # the line that a node is drawn as
    for node, parent in enumerate(parents):  # a parent comes before its children
        if parent >= 0:
            is_deep = depth[parent] + 1 >= _DEEPEST
            depth[node] = depth[parent] if is_deep else depth[parent] + 1
            here[node] = here[parent] if is_deep else node
    above = np.append(np.array(parents, dtype=np.int64), -1)
    for level in range(int(depth.max()), -1, -1):
        is_open = depth[here] == level  # -1 finds the entry of none
        yield level, np.where(is_open, here, -1)
        here = np.where(is_open, above[here], here)
