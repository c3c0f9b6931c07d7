"""All that was recorded of a run, put on its lines: what its tables, its trace and its doubts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..recording.module_calls import ModuleRecord
from ..recording.recorded_run import RecordedRun
from ..recording.scripted_functions import read_scripted
from ..sources.code_sources import Cells, CodeSources, ProfiledBody
from ..torch_events.events import Events
from .attribution import Joined, RunThreads, join_ops_and_lines, without_repeats
from .bytes_on_lines import Bytes, HostBytes, attribute_bytes, attribute_host_bytes
from .call_tree import CallTree, call_tree
from .device_time import DeviceTime, Launches, attribute_device_time, find_launches
from .forks import FORKED, Forking
from .run_events import RunEvents
from .segments import Codes

__all__ = ["JoinedRun", "join_run", "join_the_rest"]

Ints = NDArray[np.int64]


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
        Forking(read_scripted(), run.busy, run.pool) if ops.is_named(FORKED.__eq__).any() else None,
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
