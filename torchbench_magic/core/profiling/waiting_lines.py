"""A line that waits: for threads of Python's that run torch, and where their work stands, or for something else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.profile import Source
from torchbench_magic.units import seconds_text

from .joining.attribution import Joined
from .joining.segments import NO_LINE
from .joining.thread_join import ThreadJoin
from .recording.recorded_run import RecordedRun
from .tables.sampled_functions import sampled_waits
from .torch_events.events import Ints

__all__ = ["waits_of_a_line"]

_LEAST = 0.2  # of the wall time that the line is outside torch
_BESIDE = 0.25  # of the line's time in which the thread is in torch
_ASLEEP = 0.5  # of the line's time that the thread of the cell cannot have computed


def waits_of_a_line(run: RecordedRun, joined: Joined, sources: Mapping[str, Source]) -> Doubt | None:
    """About the line of the cell's own thread with the most time outside torch; None where it does not wait.

    That it waits is known by the samples of the thread where there are any, else by its processor time: the line can
    have computed no more than that.
    """
    line, begins, ends = _longest_outside_torch(joined)
    outside = int((ends - begins).sum())
    if line is None or outside < _LEAST * joined.wall:
        return None
    waited = None if run.samples is None else sampled_waits(run.samples, joined)
    sampled = None if waited is None else _waited_within(begins, ends, *waited)
    if (outside - run.own_cpu if sampled is None else sampled) < _ASLEEP * outside:
        return None
    python = run.python_threads | {stream.native_id: stream.name for stream in run.record.streams}
    beside = [
        (_overlap(joined, thread, begins, ends), thread)
        for thread in joined.threads[1:]
        if thread.segments.native_id in python and len(thread.ops)
    ]
    workers = sorted(((ns, t) for ns, t in beside if ns >= _BESIDE * outside), key=lambda each: -each[0])
    if not workers:
        return _waits_for_something(run, outside, line, joined, sources, sampled)
    names = [python[thread.segments.native_id] for _, thread in workers]
    where, seconds = _most_torch([thread for _, thread in workers], joined, sources)
    label = _label(line, joined, sources)
    who = f"thread {names[0]}" if len(names) == 1 else f"{len(names)} threads ({names[0]}, …)"
    whose = "its" if len(names) == 1 else "most of their"
    place = f"at {where}" if where else "on no line"
    return Doubt(
        "waits-for-threads",
        f"{label} waits for {who}, {seconds_text(outside / 1e9)} of {seconds_text(joined.wall / 1e9)}; "
        f"{whose} torch work is {place} ({seconds_text(seconds)}).",
        facts={
            "source_id": sources[joined.codes[line[0]].co_filename].source_id,
            "line": line[1],
            "waited": outside / 1e9,
            "threads": len(names),
            "who": who,
            "at": where,
            "seconds": seconds,
        },
    )


def _waited_within(begins: Ints, ends: Ints, of: Ints, until: Ints, waiting: Ints) -> int:
    """Ns of waiting in the given stretches: of each sampled one the share that lies in them."""
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    lengths = np.append(0, np.cumsum(ends - begins))

    def before(moments: Ints) -> Ints:
        at = np.searchsorted(begins, moments, side="right")
        last = np.maximum(at - 1, 0)
        over = np.where(at > 0, np.maximum(ends[last] - moments, 0), 0)  # a stretch that lasts on
        return np.asarray(lengths[at] - over, dtype=np.int64)

    inside = before(until) - before(of)
    return int((waiting * (inside / np.maximum(until - of, 1))).sum())


def _waits_for_something(
    run: RecordedRun,
    outside: int,
    line: tuple[int, int],
    joined: Joined,
    sources: Mapping[str, Source],
    sampled: int | None,
) -> Doubt | None:
    """About a line that sleeps, reads, or waits for a lock, a process or a device: its thread used little of a core and
    did not wait for one either. None where the latter is not known."""
    if math.isnan(run.own_waited) and sampled is None:
        return None
    not_waited = run.own_waited if sampled is None else 0.0
    waited = (outside - run.own_cpu) / 1e9 - not_waited if sampled is None else sampled / 1e9
    if not waited >= _ASLEEP * outside / 1e9:
        return None
    least = "at least " if sampled is None else ""
    return Doubt(
        "waits",
        f"{_label(line, joined, sources)} waits, {least}{seconds_text(waited)} of {seconds_text(joined.wall / 1e9)}: "
        f"its thread used the CPU for {seconds_text(run.own_cpu / 1e9)} in all. It sleeps, or waits "
        "for a file, a lock, another process or a device.",
        facts={
            "source_id": sources[joined.codes[line[0]].co_filename].source_id,
            "line": line[1],
            "waited": waited,
            "is_least": sampled is None,
            "cpu": run.own_cpu / 1e9,
        },
    )


def _longest_outside_torch(joined: Joined) -> tuple[tuple[int, int] | None, Ints, Ints]:
    """(code, line) with the most time outside ops on the cell's own thread, and when that is, Unix ns."""
    own = joined.threads[0]
    ends = own.slices.end
    node = np.append(own.segments.node, own.segments.root)[own.slices.segment]
    codes, numbers = np.array(joined.tree.code)[node], np.array(joined.tree.line)[node]
    outside = (own.slices.op < 0) & (codes != NO_LINE)
    none = np.zeros(0, dtype=np.int64)
    if not outside.any():
        return None, none, none
    distinct, which = np.unique(np.stack([codes[outside], numbers[outside]]), axis=1, return_inverse=True)
    lengths = own.slices.length[outside]
    top = int(np.bincount(which.reshape(-1), weights=lengths).argmax())
    mine = which.reshape(-1) == top
    code, line = distinct[:, top].tolist()
    return (code, line), (ends[outside] - lengths)[mine], ends[outside][mine]


def _overlap(joined: Joined, thread: ThreadJoin, begins: Ints, ends: Ints) -> int:
    """Ns in which the thread was in an op, within the given stretches."""
    time, in_op = thread.nesting.time, thread.nesting.top >= 0
    length = np.append(time[1:], joined.end) - time
    spent = np.append(0, np.cumsum(length * in_op))  # until time[i]

    def until(moments: Ints) -> Ints:
        at = np.searchsorted(time, moments, side="right") - 1
        inside = np.where(at >= 0, (moments - time[at]) * in_op[at], 0)
        return np.where(at >= 0, spent[at] + inside, 0)

    return int((until(ends) - until(begins)).sum())


def _most_torch(threads: Sequence[ThreadJoin], joined: Joined, sources: Mapping[str, Source]) -> tuple[str, float]:
    """The line with the most torch time of these threads, empty for none, and its seconds."""
    sums: dict[str, float] = {}
    is_range = joined.ops.is_range
    for thread in threads:
        ops = thread.ops[~is_range[thread.ops]]
        for node in np.unique(joined.node[ops]).tolist():
            line = (joined.tree.code[node], joined.tree.line[node])
            label = _label(line, joined, sources)
            sums[label] = sums.get(label, 0.0) + float(joined.self_time[ops[joined.node[ops] == node]].sum()) / 1e9
    most = max(sums, key=sums.__getitem__)
    return most, sums[most]


def _label(line: tuple[int, int], joined: Joined, sources: Mapping[str, Source]) -> str:
    code, number = line
    return "" if code == NO_LINE else f"{sources[joined.codes[code].co_filename].label}:{number}"
