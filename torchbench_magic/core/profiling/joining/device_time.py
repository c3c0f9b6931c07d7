"""Device time on the op and the line that launched it.

A kernel runs microseconds to milliseconds after its launch, so never is its own time looked up: its correlation
id leads to the op it was launched in, or to the runtime call that launched it, and that call's thread and time
to the op and the line. The kernels of a graph that is replayed carry the id of the one call that replayed it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchbench_magic.results.profiling.frames.call_trees import inclusive

from ..torch_events.events import ON_DEVICE, Events, Ints
from .attribution import Joined, sums

__all__ = ["LAUNCHES", "DeviceTime", "Launches", "attribute_device_time", "find_launches"]

LAUNCHES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver")


@dataclass(frozen=True)
class Launches:
    """Runtime calls within the body, and what ran on a device because of it.

    Attributes:
        call: int64 [calls], runtime calls, as indices of the events; in the order of time.
        call_op, call_node, call_thread: int64 [calls], innermost op, line and thread number at the call; -1 for no op.
        ran: int64 [ran], kernels, copies and fills, as indices of the events.
        op, node: int64 [ran], the op and the line that launched it; -1 where not known.
        by: int64 [ran], the runtime call that launched it, as an index of ``call``; -1 where it was not recorded.
    """

    call: Ints
    call_op: Ints
    call_node: Ints
    call_thread: Ints
    ran: Ints
    op: Ints
    node: Ints
    by: Ints


@dataclass(frozen=True)
class DeviceTime:
    """Ns of kernels and copies, by what launched them. Streams that run side by side are added up, as torch does.

    Attributes:
        op: int64 [ops], launched by the op itself.
        op_total: int64 [ops], with the ops it calls.
        node: int64 [nodes], launched on the line itself.
    """

    op: Ints
    op_total: Ints
    node: Ints


def find_launches(joined: Joined, events: Events) -> Launches:
    """Find what launched what. ``events`` are all events of the run; work launched outside the body is left out."""
    ops = joined.ops
    call = np.flatnonzero(events.is_kind(*LAUNCHES))
    thread, call_op, call_node = _active(joined, events.native[call], events.start[call])
    mine = thread >= 0
    call, thread, call_op, call_node = call[mine], thread[mine], call_op[mine], call_node[mine]
    ran = np.flatnonzero(events.is_kind(*ON_DEVICE))
    by = _index_of(events.corr[ran], events.corr[call])
    op = np.where(events.link[ran] > 0, _index_of(events.link[ran], ops.corr), -1)
    node = np.append(joined.node, -1)[op]
    through_call = (op < 0) & (by >= 0)
    op[through_call], node[through_call] = call_op[by[through_call]], call_node[by[through_call]]
    known = (node >= 0) | (by >= 0)
    return Launches(call, call_op, call_node, thread, ran[known], op[known], node[known], by[known])


def attribute_device_time(joined: Joined, events: Events, launches: Launches) -> DeviceTime | None:
    """Put what ran on a device on its op and line; None where nothing did."""
    if not len(launches.ran):
        return None
    took = events.end[launches.ran] - events.start[launches.ran]
    in_op, on_line = launches.op >= 0, launches.node >= 0
    by_op = sums(launches.op[in_op], took[in_op], len(joined.ops))
    by_node = sums(launches.node[on_line], took[on_line], len(joined.tree))
    total = inclusive(by_op.tolist(), joined.parent.tolist())
    return DeviceTime(by_op, np.array(total, dtype=np.int64), by_node)


def _index_of(wanted: Ints, ids: Ints) -> Ints:
    """Place in ``ids`` of each of ``wanted`` (of the last one, where an id comes twice); -1 where it is not there."""
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids[order], wanted, side="right") - 1
    return np.where((at >= 0) & (ids[order][at] == wanted), order[at], -1)


def _active(joined: Joined, native: Ints, moment: Ints) -> tuple[Ints, Ints, Ints]:
    """Number of the thread, innermost op (-1 for none) and line at each moment; all -1 outside the body."""
    thread, op, node = (np.full(len(native), -1, dtype=np.int64) for _ in range(3))
    inside = (moment >= joined.begin) & (moment < joined.end)
    for each in joined.threads:
        segments, nesting = each.segments, each.nesting
        mine = np.flatnonzero(inside & (native == segments.native_id))
        at = np.searchsorted(nesting.time, moment[mine], side="right") - 1
        top = np.append(nesting.top, -1)[at]
        thread[mine] = each.number
        op[mine] = np.append(each.ops, -1)[top]
        on_lines = np.append(segments.node, segments.root)[segments.at(moment[mine])]
        # a thread without Python, such as autograd's, has the line of the one that waits for it: that of its op
        node[mine] = on_lines if len(segments.start) else np.append(joined.node, segments.root)[op[mine]]
    return thread, op, node
