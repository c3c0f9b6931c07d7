"""All that was recorded of a run put on its lines: what tables, traces and warnings are made of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints

from .attribution import (
    Bytes,
    DeviceTime,
    HostBytes,
    Joined,
    Launches,
    RunThreads,
    attribute_bytes,
    attribute_device_time,
    attribute_host_bytes,
    find_launches,
    gather_compiling,
    join_ops_and_lines,
    without_repeats,
)
from .call_tree import CallTree, call_tree
from .events import Events, read_events
from .kineto import Kineto
from .line_events import LEAVE, SUSPEND, entered_code
from .module_calls import ModuleRecord
from .options import ProfileOptions
from .recorder import RecordedRun
from .segments import NO_LINE, Codes, nest
from .sources import Cells, CodeSources, ProfiledBody
from .trace import EVENT_COLUMNS, KINDS, NODE_COLUMNS, SEGMENT_COLUMNS, Source, Trace, Track, compact

# ---- run_events ------------------------------------------------------------------------------------------------------
# The events of a run as all else reads them: by the system's clock, each compilation one range, within the budget.
#
# Above ``--max-events`` detail is dropped first, ops last, and the profile says what was dropped.

_CLOCK_SLACK = 2_000  # ns that a marker may lie outside its bracket: kineto's clock is scaled from the TSC


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


@dataclass(frozen=True)
class RunEvents:
    """What torch recorded of a run.

    Attributes:
        every: all events, those of devices that ran on after the body too.
        of_body: those that started in the body.
        changes: of these the changes of memory; None where they were not recorded, or were dropped.
        begin, end: Unix ns of entering and leaving the body.
        offset: ns that kineto's clock was off; the events' times are right.
        lost: another profiler took this one's events.
        dropped: what was left out.
    """

    every: Events
    of_body: Events
    changes: Events | None
    begin: int
    end: int
    offset: int
    lost: bool
    dropped: Dropped


def read_run(run: RecordedRun, options: ProfileOptions, own: Sequence[CodeType]) -> RunEvents:
    """Read what ``run`` recorded, which it does not hold any more then; ``own`` are the code objects of its body."""
    read = read_events(run.results, shapes=options.shapes, memory=options.memory, limit=options.max_events)
    run.results = None  # a kilobyte an event in C++
    markers = read.is_named(Kineto.marker.__eq__)
    offset = _clock_offset(read.start[markers], run.brackets)
    every, dropped = _within_budget(gather_compiling(read.where(~markers).shifted(-offset)), options.max_events)
    begin, end = _body_span(run, own)
    of_body = every.started_in(begin, end)
    changes = of_body.where(of_body.is_memory) if options.memory and not dropped else None
    lost = int(markers.sum()) < len(run.brackets)
    return RunEvents(every, of_body, changes, begin, end, offset=offset, lost=lost, dropped=dropped)


def _clock_offset(markers: NDArray[np.int64], brackets: Sequence[tuple[int, int]]) -> int:
    """Ns to subtract from kineto's times. 0 as long as each marker lies between its two clock readings."""
    if len(markers) != len(brackets) or not len(markers):
        return 0
    before, after = np.array(brackets, dtype=np.int64).T
    if ((markers >= before - _CLOCK_SLACK) & (markers <= after + _CLOCK_SLACK)).all():
        return 0
    return int(np.median(markers - (before + after) // 2))


def _body_span(run: RecordedRun, own: Sequence[CodeType]) -> tuple[int, int]:
    """Unix ns of entering and leaving the body.

    Where the body's own frame was recorded it says so exactly; the clock readings round the call hold some 0.1 ms
    of this package, and whatever else the processor did just then. Where a device was waited for, the end is the
    device's.
    """
    record = run.record
    main = next((stream.record for stream in record.streams if stream.native_id == run.native_id), None)
    if main is None or len(main) < 4 or not record.complete:
        return run.begin, run.end
    first = entered_code(main[1])
    starts_with_body = main[1] < SUSPEND and record.codes[first].co_name == "<module>" and record.codes[first] in own
    if not (starts_with_body and main[-1] == LEAVE):
        return run.begin, run.end
    begin = max(main[0], run.begin)  # a cycle of steps begins inside the body
    return begin, run.end if run.after else min(main[-2], run.end)


def _within_budget(events: Events, limit: int) -> tuple[Events, Dropped]:
    """At most ``limit`` of the events (sorted by start), and what was left out.

    What ran on a device and the calls that launched it stay as long as any op does.
    """
    seen = len(events)
    if seen <= limit:
        return events, Dropped(seen)
    kept = replace(events.where(~events.is_memory), inputs=None)
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


# ---- joined_run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinedRun:
    """A live run, or one that a stored trace is of.

    Attributes:
        joined: its ops and lines.
        every: all events, those of devices that ran on after the body too.
        launches: what set off what on a device.
        on_device: device time of each op and line; None where nothing ran on one.
        held: torch's bytes of each op and line; None where they were not recorded.
        host: Python's own bytes of each line; None where they were not read.
        tree: the frames.
    """

    joined: Joined
    every: Events
    launches: Launches
    on_device: DeviceTime | None
    held: Bytes | None
    host: HostBytes | None
    tree: CallTree


def join_run(
    run: RecordedRun, read: RunEvents, texts: CodeSources, body: ProfiledBody, numbering: list[int] | None = None
) -> JoinedRun:
    """Join what torch recorded (``read``) with the lines that the run did.

    Args:
        numbering: native ids of the threads by the numbers that earlier cycles gave them; new ones are added.
    """
    record, events = run.record, read.of_body
    ops = without_repeats(events.where(events.is_op & ~np.isin(events.native, list(run.ignored))))
    ops = _between(ops, run.native_id, run.between_steps)
    suspends = (i for i, code in enumerate(record.codes) if body.suspends and code in body.own)
    joined = join_ops_and_lines(
        ops,
        record,
        Codes(texts.codes, texts.statements, frozenset(suspends), texts.moved),
        RunThreads(_natives(run, ops, numbering), frozenset(run.python_threads), run.pool, run.between_steps),
        (read.begin, read.end),
    )
    _number_as_shown(joined, body.cells)
    whole = join_the_rest(joined, read.every, read.changes, run.modules)
    if run.host is None or record.source == "none":
        return whole
    return replace(whole, host=attribute_host_bytes(run.host, joined.threads[0].segments, joined.tree))


def join_the_rest(
    joined: Joined, every: Events, changes: Events | None, modules: ModuleRecord | None = None
) -> JoinedRun:
    """Put device time, bytes and calls of modules on the lines and ops too.

    Args:
        every: all events, those of devices that ran on after the body too.
        changes: the changes of memory in the body; None where they were not recorded.
    """
    launches = find_launches(joined, every)
    on_device = attribute_device_time(joined, every, launches)
    return JoinedRun(
        joined,
        every,
        launches,
        on_device,
        held=attribute_bytes(joined, changes) if changes is not None else None,
        host=None,
        tree=call_tree(joined, modules or ModuleRecord(), on_device, changes),
    )


def _between(ops: Events, native: int, left_out: Sequence[tuple[int, int]]) -> Events:
    """The ops, of which those of a thread that begin or end in a stretch that is left out (the ranges of steps) do so
    at its end, or at its beginning."""
    if not left_out:
        return ops
    begins, ends = np.array(left_out, dtype=np.int64).T
    mine = ops.native == native

    def stretch(moments: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        at = np.searchsorted(begins, moments, side="right") - 1
        return at, mine & (at >= 0) & (moments < ends[at])

    (first, starts), (last, stops) = stretch(ops.start), stretch(ops.end)
    start = np.where(starts, ends[first], ops.start)
    end = np.maximum(start, np.where(stops, begins[last], ops.end))
    return replace(ops, start=start, end=end).where(np.lexsort((-end, start)))


def _natives(run: RecordedRun, ops: Events, numbering: list[int] | None) -> tuple[int, ...]:
    """Native ids by thread number: the cell's own, those that ran recorded lines, those that ran ops."""
    with_lines = [stream.native_id for stream in run.record.streams if len(stream.record)]
    with_ops = np.unique(ops.native).tolist()
    found = dict.fromkeys([run.native_id, *(numbering or ()), *with_lines, *with_ops])
    natives = tuple(native for native in found if native == run.native_id or native not in run.ignored)
    if numbering is not None:
        numbering[:] = natives
    return natives


def _number_as_shown(joined: Joined, cells: Cells) -> None:
    """Give the lines the numbers that the user sees: IPython compiles a cell without its leading blank lines, and
    with continued shell lines joined."""
    shown = {number: cells(code.co_filename) for number, code in enumerate(joined.codes)}
    tree = joined.tree
    for node, (code, line) in enumerate(zip(tree.code, tree.line, strict=True)):
        if (cell := shown.get(code)) is not None:
            tree.line[node] = cell.visible_line(line)


# ---- tracks ----------------------------------------------------------------------------------------------------------
# The events and lines of a finished run as a `Trace`.

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
