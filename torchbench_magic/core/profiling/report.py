"""From a finished run to a `Profile`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from types import CodeType

import numpy as np

from torchbench_magic.core.machine.environment import read_environment
from torchbench_magic.results.profiling.columns import LINE_COLUMNS, frame_of
from torchbench_magic.results.profiling.profile import Profile, ProfileOptions

from .joining.attribution import Joined, join_ops_and_lines, without_repeats
from .joining.compiling import gather_compiling
from .joining.event_budget import within_budget
from .joining.forks import FORKED, Forking
from .joining.host_bytes import attribute_host_bytes
from .layout import lay_out
from .profile_doubts import clock_offset, find_doubts
from .profiler_cost import EventNumbers, profiler_cost
from .recording.recorded_run import RecordedRun
from .recording.scripted_functions import read_scripted
from .recording.streams import LEAVE, SUSPEND, LineRecord, entered_code
from .recording.workers import worker_table
from .sources.code_sources import Cells, sources_of
from .tables.flops import attribute_flops, recorded_calls
from .torch_events.events import Events, read_events
from .torch_events.kineto import Kineto
from .torch_events.paused_collector import collector_paused
from .waiting_for_workers import waits_for_workers

__all__ = ["Cells", "report"]


@collector_paused()
def report(
    run: RecordedRun,
    options: ProfileOptions,
    cells: Cells,
    own: Sequence[CodeType],
    *,
    suspends: bool = False,
    error: BaseException | None = None,
    numbering: list[int] | None = None,
) -> Profile:
    """Read, join and lay out what ``run`` recorded.

    Args:
        cells: file name -> the cell's text.
        own: code objects of the body, the first of which names the source profiled.
        suspends: the body awaits at its top level.
        error: what ended the body early.
        numbering: native ids of the threads by the numbers that earlier cycles gave them; new ones are added.
    """
    started = time.perf_counter()
    record = run.record
    events = read_events(run.results, shapes=options.shapes, memory=options.memory, limit=options.max_events)
    markers = events.is_named(Kineto.marker.__eq__)
    lost = int(markers.sum()) < len(run.brackets)
    offset = clock_offset(events, run.brackets, Kineto.marker)
    every, dropped = within_budget(gather_compiling(events.where(~markers).shifted(-offset)), options.max_events)
    if dropped:
        options = replace(options, memory=False, shapes=False)
    begin, end = _body_span(run, record, own)
    events = every.started_in(begin, end)
    ops = without_repeats(events.where(events.is_op & ~np.isin(events.native, list(run.ignored))))
    by_text = sources_of(record.codes, own, cells)
    sources = by_text.of
    joined = join_ops_and_lines(
        ops,
        replace(record, codes=by_text.codes),
        by_text.statements,
        _natives(run, record, ops, numbering),
        begin=begin,
        end=end,
        suspends=frozenset(i for i, code in enumerate(record.codes) if suspends and code in own),
        python_threads=frozenset(run.python_threads),
        moved=by_text.moved,
        forking=Forking(read_scripted(), run.busy, run.pool) if ops.is_named(FORKED.__eq__).any() else None,
    )
    _number_as_shown(joined, cells)
    host = None
    if run.host is not None and record.source != "none":
        host = attribute_host_bytes(run.host, joined.threads[0].segments, joined.tree)
    calls = recorded_calls(ops)
    flops = attribute_flops(joined, calls) if options.flops else None
    changes = events.where(events.is_memory) if options.memory else None
    names = _thread_names(run, record, joined)
    laid = lay_out(joined, every, sources, names, changes, modules=run.modules, host=host, flops=flops)
    unknown = lost or dropped or run.host is not None  # what tracemalloc costs is in no table
    recorded = None if unknown else _recorded(run, options, events)
    lines = laid.lines if record.source != "none" else frame_of(LINE_COLUMNS, {})
    stands_still = lines["line"].notna() & (lines["calls"] == 0) & (lines["wall_time"] == 0)
    lines = lines[~stands_still].reset_index(drop=True)  # the `def` of a function that ran before the recording began
    if lost or dropped.ops:  # what was torch and what was Python is not known
        lines[["self_cpu_time", "cpu_time", "python_time", "backward_cpu_time"]] = np.nan
        laid.frames[["self_cpu_time", "backward_cpu_time"]] = np.nan
    workers = worker_table(run.workers, lambda file, line: _as_shown(file, line, cells))
    waits = waits_for_workers(laid.ops, workers, run.workers, laid.wall_time)
    return replace(
        laid,
        lines=lines,
        workers=workers,
        num_threads=run.num_threads,
        source_id=sources[by_text.own[0].co_filename].source_id if own else None,
        options=options,
        warnings=[
            *([waits] if waits is not None else []),
            *find_doubts(
                run,
                joined,
                options,
                sources,
                offset=offset,
                events_lost=lost,
                dropped=dropped,
                error=error,
                recorded=recorded,
            ),
            *by_text.doubts,
        ],
        environment=read_environment(),
        partial=error is not None,
        n_events=len(events),
        n_line_events=record.n_events,
        line_source=record.source,
        calls=calls,
        bytes_before=run.bytes_before,
        flops_coverage=flops.coverage if flops is not None else math.nan,
        profiler_cost=profiler_cost(laid.wall_time, recorded) if recorded is not None else None,
        profiler_time=run.overhead + time.perf_counter() - started,
    )


def _recorded(run: RecordedRun, options: ProfileOptions, events: Events) -> EventNumbers:
    """What the observers of this run had to record."""
    return EventNumbers(
        ops=int(events.is_kind("cpu_op", "user_annotation").sum()),
        allocations=int(events.is_memory.sum()),
        lines=run.record.n_events,
        calls=run.record.outside_calls,
        modules=sum(len(marks) for marks in run.modules.streams.values()) // 4,
        shapes=options.shapes,
    )


def _body_span(run: RecordedRun, record: LineRecord, own: Sequence[CodeType]) -> tuple[int, int]:
    """Unix ns of entering and leaving the body.

    Where the body's own frame was recorded it says so exactly; the clock readings round the call hold some 0.1 ms
    of this package, and whatever else the processor did just then.
    """
    main = next((stream.record for stream in record.streams if stream.native_id == run.native_id), None)
    if main is None or len(main) < 4 or not record.complete:
        return run.begin, run.end
    first = entered_code(main[1])
    starts_with_body = main[1] < SUSPEND and record.codes[first].co_name == "<module>" and record.codes[first] in own
    return (main[0], main[-2]) if starts_with_body and main[-1] == LEAVE else (run.begin, run.end)


def _natives(run: RecordedRun, record: LineRecord, ops: Events, numbering: list[int] | None) -> tuple[int, ...]:
    """Native ids by thread number: the cell's own, those that ran recorded lines, those that ran ops."""
    with_lines = [stream.native_id for stream in record.streams if len(stream.record)]
    with_ops = np.unique(ops.native).tolist()
    found = dict.fromkeys([run.native_id, *(numbering or ()), *with_lines, *with_ops])
    natives = tuple(native for native in found if native == run.native_id or native not in run.ignored)
    if numbering is not None:
        numbering[:] = natives
    return natives


def _thread_names(run: RecordedRun, record: LineRecord, joined: Joined) -> list[str]:
    names = {stream.native_id: stream.name for stream in record.streams} | run.python_threads
    natives = [thread.segments.native_id for thread in joined.threads]
    return [names.get(native, f"thread {native}, not Python's") for native in natives]


def _number_as_shown(joined: Joined, cells: Cells) -> None:
    """Give the lines the numbers that the user sees: IPython compiles a cell without its leading blank lines, and
    with continued shell lines joined."""
    shown = {number: cells(code.co_filename) for number, code in enumerate(joined.codes)}
    tree = joined.tree
    for node, (code, line) in enumerate(zip(tree.code, tree.line, strict=True)):
        if (cell := shown.get(code)) is not None:
            tree.line[node] = cell.visible_line(line)


def _as_shown(file: str, line: int, cells: Cells) -> tuple[int | None, int]:
    """(cell, line) as the user sees them."""
    cell = cells(file)
    return (None, line) if cell is None else (cell.number, cell.visible_line(line))
