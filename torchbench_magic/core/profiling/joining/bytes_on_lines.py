"""Bytes on the lines and ops that took them and gave them back: torch's, and those of Python and numpy.

Only torch's allocators report to its profiler: what numpy or Python hold is read by `host_memory`. Totals are relative
to the start of the body. Lines and ops add devices up; `tables.memory_table` keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..recording.host_memory import HostMemory
from ..torch_events.events import Events, Ints
from .attribution import Joined, sums
from .nesting import ancestors
from .segments import LineTree, Segments

__all__ = ["Bytes", "HostBytes", "attribute_bytes", "attribute_host_bytes", "highest"]

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Bytes:
    """Bytes by node of the line tree and by op.

    Attributes:
        node_allocated, node_freed: int64 [nodes], on the line itself.
        node_peak: int64 [nodes], highest total while the line, or one it calls, was active.
        op_allocated, op_freed: int64 [ops], in the op itself.
        op_peak: int64 [ops], highest total while the op ran.
        events: the changes of memory, in the order of time.
        event_node, event_op: int64 [memory events], line and innermost op of each; -1 for no op.
    """

    node_allocated: Ints
    node_freed: Ints
    node_peak: Ints
    op_allocated: Ints
    op_freed: Ints
    op_peak: Ints
    events: Events
    event_node: Ints
    event_op: Ints


def highest(values: Ints, group: Ints, count: int) -> NDArray[np.float64]:
    """The largest value by group; NaN for a group in which nothing was ever active."""
    peak = np.full(count, _NEVER, dtype=np.int64)
    np.maximum.at(peak, group, values)
    return np.where(peak == _NEVER, np.nan, peak.astype(float))


def attribute_bytes(joined: Joined, memory: Events) -> Bytes:
    """Put each memory event on the line and into the innermost op that were active on its thread.

    ``memory`` holds the events of the body in the order of time. What a thread without lines and ops does is on no
    line of the cell's own thread.
    """
    tree, ops, begin, end = joined.tree, joined.ops, joined.begin, joined.end
    running_total = np.cumsum(memory.nbytes)
    of_node = np.full(len(memory), joined.threads[0].segments.root, dtype=np.int64)
    of_op = np.full(len(memory), -1, dtype=np.int64)
    node_peak, op_peak = np.full(len(tree), _NEVER, np.int64), np.full(len(ops), _NEVER, np.int64)
    for thread in joined.threads:
        segments, nesting = thread.segments, thread.nesting
        mine = memory.native == segments.native_id
        when = memory.start[mine]
        local = np.append(nesting.top, -1)[np.searchsorted(nesting.time, when, side="right") - 1]
        its_op = np.append(thread.ops, -1)[local]
        of_op[mine] = its_op
        on_lines = np.append(segments.node, segments.root)[segments.at(when)]
        # a thread without Python, such as autograd's, has the line of the one that waits for it: that of its op
        of_node[mine] = on_lines if len(segments.start) else np.append(joined.node, segments.root)[its_op]
        starts = np.concatenate([[begin], segments.start]) if thread.number == 0 else segments.start
        nodes_then = np.concatenate([[segments.root], segments.node]) if thread.number == 0 else segments.node
        np.maximum.at(node_peak, nodes_then, _peaks(starts, end, memory.start, running_total))
        if len(nesting.time):
            peaks = _peaks(nesting.time, end, memory.start, running_total)
            running = nesting.top >= 0
            np.maximum.at(op_peak, thread.ops[nesting.top[running]], peaks[running])
    _raise_callers(node_peak, tree)
    own_peak = op_peak.copy()
    for inside, around in ancestors(joined.parent):
        np.maximum.at(op_peak, around, own_peak[inside])
    given, taken = np.maximum(memory.nbytes, 0), np.maximum(-memory.nbytes, 0)
    in_op = of_op >= 0
    return Bytes(
        node_allocated=sums(of_node, given, len(tree)),
        node_freed=sums(of_node, taken, len(tree)),
        node_peak=node_peak,
        op_allocated=sums(of_op[in_op], given[in_op], len(ops)),
        op_freed=sums(of_op[in_op], taken[in_op], len(ops)),
        op_peak=op_peak,
        events=memory,
        event_node=of_node,
        event_op=of_op,
    )


def _peaks(starts: Ints, end: int, when: Ints, total: Ints) -> Ints:
    """Highest total in each stretch from one start to the next (the last ends at ``end``)."""
    totals = np.append(0, total)  # before the first event nothing has changed
    first = np.searchsorted(when, starts, side="right")  # index into totals of the value at the start
    last = np.searchsorted(when, np.append(starts[1:], end), side="left")
    peaks = totals[first]
    some = last > first
    if some.any():
        # reduceat over pairs (first + 1, last + 1): odd results are the gaps between stretches
        padded = np.append(totals, _NEVER)
        pairs = np.stack([first[some] + 1, last[some] + 1], axis=1).reshape(-1)
        peaks[some] = np.maximum(peaks[some], np.maximum.reduceat(padded, pairs)[::2])
    return peaks


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
    node_peak = np.full(len(tree), _NEVER, dtype=np.int64)
    np.maximum.at(node_peak, nodes, np.maximum(peak, current[:-1]) - current[0])
    _raise_callers(node_peak, tree)
    return HostBytes(net, node_peak)


def _raise_callers(node_peak: Ints, tree: LineTree) -> None:
    """Give each line at least the peak of the lines that it calls."""
    for child in range(len(tree) - 1, -1, -1):  # a parent comes before its children
        above = tree.parent[child]
        # a thread's root stands for the time on no line, not for all lines below it
        if above >= 0 and tree.parent[above] >= 0 and node_peak[child] > node_peak[above]:
            node_peak[above] = node_peak[child]
