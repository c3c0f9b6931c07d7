"""The events and lines of a finished run as a `Trace`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.results.profiling.profile import Source
from torchbench_magic.results.profiling.trace import (
    EVENT_COLUMNS,
    KINDS,
    NODE_COLUMNS,
    SEGMENT_COLUMNS,
    Trace,
    Track,
    compact,
)

from ..joining.attribution import Joined
from ..joining.joined_run import JoinedRun
from ..joining.segments import NO_LINE
from ..torch_events.events import Events, Ints

__all__ = ["trace_of"]

_KIND_OF = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def trace_of(run: JoinedRun, source_of: Mapping[str, Source], thread_names: Sequence[str]) -> Trace:
    """Lay out what ran: the ops, then the runtime calls, then what they launched.

    Args:
        source_of: the text of each code's file.
        thread_names: by thread number.
    """
    joined, events, launches = run.joined, run.every, run.launches
    ops, begin = joined.ops, joined.begin
    n_ops, n_calls = len(ops), len(launches.call)
    streams, stream = _streams(events, launches.ran)
    n_threads = len(joined.threads)
    threads = [
        Track(thread_names[thread.number], thread.number, thread.segments.native_id) for thread in joined.threads
    ]
    op_track = np.zeros(n_ops, dtype=np.int64)
    for thread in joined.threads:
        op_track[thread.ops] = thread.number
    kind_of = np.array([KINDS.index(_KIND_OF.get(kind, "runtime")) for kind in events.kinds] or [0], dtype=np.int64)
    op_kind = np.where(ops.is_range, KINDS.index("range"), KINDS.index("op"))
    none_ops, none_calls, none_ran = (np.full(n, -1, dtype=np.int64) for n in (n_ops, n_calls, len(launches.ran)))
    launched_by = np.where(launches.by >= 0, n_ops + launches.by, launches.op)
    then = (launches.call, launches.ran)
    inputs = ops.inputs.index if ops.inputs is not None else none_ops
    names, numbers = _used_names(ops, events, then)
    caused_by = np.append(joined.caused_by, -1)  # what is in no op has no cause
    parts: dict[str, tuple[NDArray[Any], ...]] = {
        "name": numbers,
        "kind": (op_kind, *(kind_of[events.kind[chosen]] for chosen in then)),
        "start": (ops.start - begin, *(events.start[chosen] - begin for chosen in then)),
        "duration": (ops.end - ops.start, *(events.end[chosen] - events.start[chosen] for chosen in then)),
        "track": (op_track, launches.call_thread, n_threads + stream),
        "parent": (joined.parent, launches.call_op, none_ran),
        "launched_by": (none_ops, none_calls, launched_by),
        "node": (joined.node, launches.call_node, launches.node),
        "caused_by": (joined.caused_by, *(caused_by[op] for op in (launches.call_op, launches.op))),
        "inputs": (inputs, none_calls, none_ran),
    }
    sources = tuple(dict.fromkeys(source.source_id for source in source_of.values()))
    nodes, functions = _nodes(joined, source_of, sources)
    return Trace(
        events=compact(EVENT_COLUMNS, {name: np.concatenate(columns) for name, columns in parts.items()}),
        nodes=compact(NODE_COLUMNS, nodes),
        segments=compact(SEGMENT_COLUMNS, _segments(joined)),
        names=names,
        tracks=(*threads, *streams),
        sources=sources,
        functions=functions,
        inputs=ops.inputs.texts if ops.inputs is not None else (),
        begin=begin,
        duration=joined.end - begin,
        process=os.getpid(),
    )


def _used_names(
    ops: Events, events: Events, then: tuple[Ints, Ints]
) -> tuple[tuple[str, ...], tuple[Ints, Ints, Ints]]:
    """The names that occur, and the number of each event's; ``ops`` and ``events`` number the same names alike."""
    all_three = (ops.name, events.name[then[0]], events.name[then[1]])
    used, index = np.unique(np.concatenate(all_three), return_inverse=True)
    first, second, third = np.split(index, np.cumsum([len(part) for part in all_three[:2]]))
    return tuple(events.names[number] for number in used.tolist()), (first, second, third)


def _streams(events: Events, ran: Ints) -> tuple[list[Track], Ints]:
    """The streams that were used, by device and number, and the one of each of ``ran``."""
    if not len(ran):
        return [], np.zeros(0, dtype=np.int64)
    places, index = np.unique(np.stack([events.device[ran], events.native[ran]], axis=1), axis=0, return_inverse=True)
    tracks = [
        Track(f"stream {number}", ident=number, device=events.devices[device]) for device, number in places.tolist()
    ]
    return tracks, index.reshape(-1)


def _nodes(
    joined: Joined, source_of: Mapping[str, Source], sources: Sequence[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    tree = joined.tree
    place = {source_id: number for number, source_id in enumerate(sources)}
    source_of_code = [place[source_of[code.co_filename].source_id] for code in joined.codes] + [-1]  # NO_LINE is -1
    functions = tuple(dict.fromkeys(code.co_qualname for code in joined.codes))
    number = {name: at for at, name in enumerate(functions)}
    function_of_code = [number[code.co_qualname] for code in joined.codes] + [-1]
    codes = np.array(tree.code, dtype=np.int64)
    values = {
        "parent": np.array(tree.parent, dtype=np.int64),
        "thread": np.array(tree.thread, dtype=np.int64),
        "source": np.array(source_of_code, dtype=np.int64)[codes],
        "line": np.where(codes == NO_LINE, 0, np.array(tree.line, dtype=np.int64)),
        "function": np.array(function_of_code, dtype=np.int64)[codes],
        "calls": np.array(tree.calls, dtype=np.int64),
    }
    return values, functions


def _segments(joined: Joined) -> dict[str, Ints]:
    """The lines over time; a stretch in which the line does not change is one segment."""
    threads, starts, nodes = [], [], []
    for thread in joined.threads:
        node = thread.segments.node.astype(np.int64)
        changes = np.append(True, node[1:] != node[:-1]) if len(node) else np.zeros(0, dtype=bool)
        starts.append(np.clip(thread.segments.start[changes], joined.begin, joined.end) - joined.begin)
        nodes.append(node[changes])
        threads.append(np.full(int(changes.sum()), thread.number, dtype=np.int64))
    none = [np.zeros(0, dtype=np.int64)]
    return {
        "thread": np.concatenate(threads or none),
        "start": np.concatenate(starts or none),
        "node": np.concatenate(nodes or none),
    }
