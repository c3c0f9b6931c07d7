"""The events of a run as all else reads them: by the system's clock, each compilation one range, within the budget.

Above ``--max-events`` detail is dropped first, ops last, and the profile says what was dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.results.profiling.profile_options import ProfileOptions

from ..recording.recorded_run import RecordedRun
from ..recording.streams import LEAVE, SUSPEND, entered_code
from ..torch_events.events import Events, read_events
from ..torch_events.kineto import Kineto
from .compiling import gather_compiling
from .nesting import nest

__all__ = ["Dropped", "RunEvents", "read_run"]

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
