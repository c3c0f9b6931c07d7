"""What is doubtful about a profile: the load of the machine, lines that wait, what the run recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from torchbench_magic import units
from torchbench_magic.array_types import Ints
from torchbench_magic.process.contention import (
    THROTTLED,
    Contention,
    CoreWait,
    contention_between,
    machine_doubts,
    oversubscribed_text,
)
from torchbench_magic.profiling.memory.holders import Holdings
from torchbench_magic.profiling.memory.tracemalloc_record import HostMemory
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.voids import CO_LOAD
from torchbench_magic.units import seconds_text

from .attribution import COMPILED_REGION, Joined
from .device_times import overlap
from .join import Dropped, RunEvents
from .options import ProfileOptions, Schedule
from .recorder import RecordedRun, unseen_cpu_seconds
from .segments import NO_LINE, ThreadJoin
from .statements import call_name, calls_in, leaves_for_numpy, place_in
from .steps import SteppedRun
from .trace import Source

# ---- machine_load ----------------------------------------------------------------------------------------------------

_LOAD_SHARE, _LOAD_SECONDS = 0.25, 1e-3
"""Of the wall time, and in seconds: from which on waiting for a core is said.

Of 60 profiles of 30 kinds in idle moments of two cores, 55 had less than 3 %, one had 9 %, and four that started
DataLoader workers had 9 to 20 %. A thread that waits a third of its time takes 1.5 times as long.
"""
_AGAIN = "Profile it again on a quiet machine."


def doubts_of_load(load: CoreWait | None, num_threads: int) -> list[Doubt]:
    """Nothing where threads of this process hardly waited for a core, or where that is not known."""
    if load is None or load.wall <= 0:
        return []
    seen = contention_between(load.spent)
    steal = seen.steal if seen.steal >= _LOAD_SHARE else math.nan
    found = list(machine_doubts(steal, seen.throttled, math.nan, "Profile it again later."))
    waited = load.spent.waited
    if waited >= _LOAD_SECONDS and waited >= _LOAD_SHARE * load.wall and not seen.throttled > THROTTLED:
        found = [_waited(load, seen, num_threads), *found]
    return found


def _waited(load: CoreWait, seen: Contention, num_threads: int) -> Doubt:
    """Who had the cores that threads waited for, as far as that is known."""
    together = " in all" if load.active > 1 else ""
    waited = f"threads of this process waited {seconds_text(load.spent.waited)}{together} for a core"
    waited = f"{waited} while this code ran for {seconds_text(load.wall)}"
    stands = "The times are wall time and include this waiting."
    facts: dict[str, object] = {
        "waited": load.spent.waited,
        "wall_time": load.wall,
        "ext": seen.ext,
        "threads": load.active,
        "cores": load.cores,
    }
    if seen.ext >= CO_LOAD:
        others = f"Other processes used {min(seen.ext, load.cores):.1f} of {load.cores} cores."
        return Doubt("busy", f"Busy machine: {waited}. {others} {stands}", _AGAIN, facts)
    if math.isnan(seen.ext):
        several = num_threads > load.cores or load.active > load.cores
        unknown = "The run is too short to tell whether other processes or its own threads used the cores. "
        return Doubt("busy", f"Busy machine: {waited}. {unknown if several else ''}{stands}", _AGAIN, facts)
    children, action = load.spent.children / load.spent.wall, _fewer(num_threads, load.cores)
    if num_threads > load.cores:
        first = oversubscribed_text(str(num_threads), load.cores)
    elif children >= CO_LOAD:
        used = f"{min(children, load.cores):.1f} of {load.cores} cores"
        first = f"Oversubscribed: processes that this one started, such as workers of a loader, used {used}."
        action = "End those that this code does not need, or have fewer workers."
    else:
        first = "Oversubscribed: this process's own threads used the cores."
    text = f"{first} {waited[0].upper()}{waited[1:]}, while other processes used almost nothing. {stands}"
    return Doubt("oversubscribed", text, action, facts)


def _fewer(num_threads: int, cores: int) -> str:
    fewer = cores if num_threads > cores else max(1, num_threads // 2)
    return f"Use fewer threads (`--threads {fewer}`)." if fewer < num_threads else "Run fewer threads at once."


# ---- waiting_lines ---------------------------------------------------------------------------------------------------
# A line that waits, and threads of Python's that run torch meanwhile.

_LEAST_OUTSIDE = 0.2  # of the wall time that the line is outside torch
_BESIDE = 0.25  # of the line's time in which the thread is in torch
_ASLEEP = 0.5  # of the line's time that the thread of the cell cannot have computed


def waits_of_a_line(run: RecordedRun, joined: Joined, sources: Mapping[str, Source]) -> Doubt | None:
    """About the line of the cell's own thread with the most time outside torch, which sleeps, reads, or waits for a
    lock, a process, a device or a thread; None where it does not wait, or where that is not known.

    That it waits is known by the processor time of its thread: the line can have computed no more than that, and it did
    not wait for a core either. Threads that were in torch meanwhile are named: whether the line waits for them is not
    known.
    """
    line, begins, ends = _longest_outside_torch(joined)
    outside = int((ends - begins).sum())
    if line is None or outside < _LEAST_OUTSIDE * joined.wall:
        return None
    waited = (outside - run.own_cpu) / 1e9 - run.own_waited
    if not waited >= _ASLEEP * outside / 1e9:  # NaN where it is not known whether it waited for a core
        return None
    meanwhile, of_threads = _beside(run, joined, sources, begins, ends)
    return Doubt(
        "waits",
        f"{_label(line, joined, sources)} waits, at least {seconds_text(waited)} of {seconds_text(joined.wall / 1e9)}: "
        f"its thread used the CPU for {seconds_text(run.own_cpu / 1e9)} in all. It sleeps, or waits "
        f"for a file, a lock, another thread or process, or a device.{meanwhile}",
        facts={
            "source_id": sources[joined.codes[line[0]].co_filename].source_id,
            "line": line[1],
            "waited": waited,
            "cpu": run.own_cpu / 1e9,
            **of_threads,
        },
    )


def _beside(
    run: RecordedRun, joined: Joined, sources: Mapping[str, Source], begins: Ints, ends: Ints
) -> tuple[str, dict[str, object]]:
    """Which threads of Python's were in torch in these stretches, and where their work stands: in words, as facts."""
    python = run.python_threads | {stream.native_id: stream.name for stream in run.record.streams}
    beside = [
        (_overlap(joined, thread, begins, ends), thread)
        for thread in joined.threads[1:]
        if thread.segments.native_id in python and len(thread.ops)
    ]
    least = _BESIDE * int((ends - begins).sum())
    workers = [thread for ns, thread in sorted(beside, key=lambda each: -each[0]) if ns >= least]
    if not workers:
        return "", {}
    names = [python[thread.segments.native_id] for thread in workers]
    where, seconds = _most_torch(workers, joined, sources)
    who = f"thread {names[0]}" if len(names) == 1 else f"{len(names)} threads ({names[0]}, …)"
    whose = "its" if len(names) == 1 else "most of their"
    work = f"{whose} torch work is {f'at {where}' if where else 'on no line'} ({seconds_text(seconds)})."
    return f" Meanwhile {who} computed: {work}", {"threads": len(names), "who": who, "at": where, "seconds": seconds}


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
    lengths = own.slices.length[outside]
    places = codes * (numbers.max() + 1) + numbers  # one number for both: pairs are slow to sort
    distinct, which = np.unique(places[outside], return_inverse=True)
    top = distinct[np.bincount(which, weights=lengths).argmax()]
    mine = (places == top)[outside]
    code, line = divmod(int(top), int(numbers.max()) + 1)
    return (code, line), (ends[outside] - lengths)[mine], ends[outside][mine]


def _overlap(joined: Joined, thread: ThreadJoin, begins: Ints, ends: Ints) -> int:
    """Ns in which the thread was in an op, within the given stretches."""
    time, in_op = thread.nesting.time, thread.nesting.top >= 0
    until = np.append(time[1:], joined.end)
    return int(overlap(begins, ends, time[in_op], until[in_op]).sum())


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


# ---- profile_doubts --------------------------------------------------------------------------------------------------

_AFTER = 0.05  # of the wall time: of less nobody asks where it went
_LEAST_AFTER = 1e-4  # s: to ask a device that has ended takes a tenth of it
_CPU_SLACK = 0.01  # s: what the system's figures of threads are good for


def find_doubts(
    run: RecordedRun,
    read: RunEvents,
    joined: Joined,
    sources: Mapping[str, Source],
    options: ProfileOptions,
    error: BaseException | None = None,
) -> list[Doubt]:
    """All doubts about one run, the gravest first.

    Args:
        sources: by file name.
        error: what ended the body early.
    """
    found = [
        partial((run.end - run.begin) / 1e9, error),
        _events_lost(read.lost),
        _dropped(read.dropped, options),
        _lines(run),
        _lines_cut(run, options),
        _clocks(run, read.offset),
        _unseen_threads(run) if options.memory else None,
        worked_on(run.after / 1e9, (run.end - run.begin) / 1e9),
        *doubts_of_load(run.load, run.num_threads),
        waits_of_a_line(run, joined, sources),
        _threads_without_lines(run, joined),
        _torch_threads(run, joined),
        _compiled_modules(run, joined),
    ]
    if options.memory:
        found.append(_older_unseen(run))
        found += [] if options.host_memory else _outside_torch(joined, sources)
    found.append(_host_memory(run.host))
    return [doubt for doubt in found if doubt is not None]


def doubts_of_holders(held: Holdings | None) -> list[Doubt]:
    """What was not searched for those who hold memory."""
    if held is None or not (held.cut or held.left_out):
        return []
    if held.cut:
        text = f"What holds memory after the cell is only partly known: the search stopped after {held.seconds:.1f} s"
        text += f" and {units.count(held.objects)} objects."
    else:
        text = f"The search for what holds memory covered everything except {', '.join(held.left_out)}."
    facts = {"seconds": held.seconds, "objects": held.objects, "cut": held.cut}
    return [Doubt("holders-in-part", text, "", facts)]


def doubts_of_steps(
    run: SteppedRun, schedule: Schedule, *, in_loop: bool, error: BaseException | None = None
) -> list[Doubt]:
    """Why a scheduled profile has less than its schedule says, or nothing."""
    found: list[Doubt] = []
    if error is not None and not any(each.partial for each in run.cycles):
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
        found.append(Doubt("partial", f"Partial: {what} in step {max(run.number, 0)}, after what was recorded."))
    if run.skipped:
        text = "was not recorded" if run.skipped == 1 else f"and {run.skipped - 1} more were not recorded"
        found.append(
            Doubt(
                "cycles-skipped",
                f"A cycle {text}: the code's own torch profiler was running then.",
                facts={"cycles": run.skipped},
            )
        )
    made = "1 step" if run.made == 1 else f"{units.count(run.made)} steps"
    facts = {"steps": run.made}
    if not in_loop and run.made == 1 and error is None:
        text = "No steps: the code never called torchbench_magic.step(), so all of it was step 0"
        text += "." if run.cycles else ", which the schedule does not record."
        found.append(Doubt("no-steps", text, "Call `torchbench_magic.step()` at the end of each step.", facts))
    elif in_loop and not run.made and error is None:
        found.append(Doubt("no-steps", "No steps: the loop ran no iteration.", facts=facts))
    elif not run.cycles and not run.skipped:
        first = schedule.first_recorded
        text = f"Nothing was recorded: the first recorded step is {first}, and there were {made}, counted from 0."
        found.append(Doubt("no-steps", text, "Use smaller numbers, or run more steps.", facts))
    elif run.cycles and (had := len(run.cycles[-1].steps)) < schedule.active and error is None:
        text = f"The last cycle has {had} of {schedule.active} steps: the job ended in it."
        if in_loop:
            ran = "1 iteration" if run.made == 1 else f"{units.count(run.made)} iterations"
            text = f"{had} of {schedule.active} steps were recorded: the loop ended after {ran}."
        found.append(Doubt("short-cycle", text, facts=facts))
    return [*found, *doubts_of_load(run.load, run.num_threads)]


def partial(wall: float, error: BaseException | None) -> Doubt | None:
    """What is said of a run that ``error`` ended after so many seconds."""
    if error is None:
        return None
    what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
    text = f"Partial: {what} after {seconds_text(wall)}. What ran before is shown."
    return Doubt("partial", text, facts={"wall_time": wall})


def worked_on(after: float, wall: float) -> Doubt | None:
    """What is said of a device that was at work for ``after`` of the ``wall`` seconds when the code had ended."""
    if not after >= max(_AFTER * wall, _LEAST_AFTER):
        return None
    text = (
        f"When the code had ended, after {seconds_text(wall - after)}, the device worked on for {seconds_text(after)}, "
        "which the wall time includes. Times of lines, operations and steps are the host's, which ran ahead of the "
        "device."
    )
    return Doubt("device-after", text, facts={"seconds": after})


def _dropped(dropped: Dropped, options: ProfileOptions) -> Doubt | None:
    if not dropped:
        return None
    limit = f"--max-events {units.count(options.max_events)}"
    said = f"torch recorded {units.count(dropped.seen)} events, more than {limit}"
    went = ["memory and shapes are left out"] if dropped.detail else []
    if dropped.inner:
        went.append(f"{units.count(dropped.inner)} nested operations are counted in those that called them")
    if dropped.ops:
        went.append(f"the last {units.count(dropped.ops)} operations are missing")
        went.append("and how much of a line is torch is unknown")
    else:
        went.append("times and calls of what is shown are valid")
    return Doubt(
        "events-dropped",
        f"{said}: {', '.join(went)}.",
        "Profile fewer steps (`--schedule`, `--steps`), or raise `--max-events`.",
        {"seen": dropped.seen, "detail": dropped.detail, "inner": dropped.inner, "ops": dropped.ops},
    )


def _lines_cut(run: RecordedRun, options: ProfileOptions) -> Doubt | None:
    if not run.record.full:
        return None
    after = max(0.0, (min(run.record.full.values()) - run.begin) / 1e9)
    return Doubt(
        "lines-cut",
        f"More than --max-events {units.count(options.max_events)} line events of a thread: from "
        f"{seconds_text(after)} on what it runs is on no line. Times per op are valid.",
        "Profile fewer steps (`--schedule`, `--steps`), or raise `--max-events`.",
        {"after": after},
    )


def _events_lost(lost: bool) -> Doubt | None:
    if not lost:
        return None
    return Doubt(
        "events-lost",
        "The code started a torch profiler of its own, which took this one's events: no ops and no op times. "
        "Wall times and calls are valid.",
        "Use only one of the two profilers.",
    )


def _lines(run: RecordedRun) -> Doubt | None:
    record = run.record
    if record.source == "none":
        text = f"No lines and no modules: {record.reason}. Times per op are valid."
        return Doubt("no-lines", text, "Detach it and run the code again to see lines.")
    if not record.complete:
        return Doubt(
            "lines-lost",
            "Python's trace hook went during the run (`sys.settrace`, a debugger, a caught interrupt, RecursionError):"
            " what ran after it is on no line, and the slowest line may be one of those. Times per op are valid.",
        )
    return None


def _clocks(run: RecordedRun, offset: int) -> Doubt | None:
    wall, other = (run.end - run.begin) / 1e9, run.wall_by_other_clock
    if run.clock_set_by > 0.001 + 0.01 * other:
        shown = f"{seconds_text(other)} passed, but it shows {seconds_text(wall)}"
        text = f"The system clock was changed during the run: {shown}. No time here is valid."
        return Doubt("clock-set", text, "Run it again.", {"seconds": other})
    if offset:
        text = f"torch's profiler clock was {offset / 1e3:.0f} us off; its times were corrected by that."
        return Doubt("clock-offset", text, "Lines shorter than that may be mixed up.", {"offset": offset / 1e9})
    return None


def _without_lines(joined: Joined) -> list[ThreadJoin]:
    """Threads besides the cell's own that ran ops and none of the code whose lines are recorded."""
    return [t for t in joined.threads if t.number and len(t.ops) and not len(t.segments.start)]


def _threads_without_lines(run: RecordedRun, joined: Joined) -> Doubt | None:
    if run.record.source == "none":
        return None
    blind = [t for t in _without_lines(joined) if t.segments.native_id in run.python_threads]
    if not blind:
        return None
    count = sum(len(thread.ops) for thread in blind)
    names = ", ".join(run.python_threads[thread.segments.native_id] for thread in blind)
    return Doubt(
        "thread-lines",
        f"{count} ops are on no line: their threads ({names}) ran none of the code whose lines are recorded, or "
        "ran before the profiler, which Python 3.11 cannot trace. The cell's own lines are valid.",
        facts={"ops": count},
    )


def _torch_threads(run: RecordedRun, joined: Joined) -> Doubt | None:
    """Ops on no line, of torch's own threads that do no backward work: forks, or work of an unknown cause."""
    if run.record.source == "none":
        return None
    pool = [t for t in _without_lines(joined) if t.segments.native_id not in run.python_threads]
    on_none = [thread.ops[joined.node[thread.ops] == thread.segments.root] for thread in pool]
    mine = np.concatenate([np.zeros(0, dtype=np.int64), *on_none])
    if not len(mine):
        return None
    seconds = float(joined.self_time[mine].sum()) / 1e9
    return Doubt(
        "torch-threads",
        f"{units.counted(len(mine), 'op')} ({seconds_text(seconds)}) ran on threads of torch's own, as after "
        "`torch.jit.fork`, and not within one operation of one line: torch does not record what launched them, so they "
        "are on no line. The other times are valid; the time that a line waits for them counts on that line.",
        "See the rows of `.ops` where `line` is empty.",
        {"ops": len(mine), "seconds": seconds},
    )


def _compiled_modules(run: RecordedRun, joined: Joined) -> Doubt | None:
    """Compiled code ran, and there are modules that may have been in it."""
    if not run.modules.names or not joined.ops.is_named(lambda name: name.startswith(COMPILED_REGION)).any():
        return None
    text = "Modules inside compiled code have no rows: their ops count on the compiled call."
    return Doubt("compiled-modules", text)


def _unseen_threads(run: RecordedRun) -> Doubt | None:
    """torch 2.13 records memory or other threads, not both."""
    user = frozenset(run.python_threads) - run.ignored - {run.native_id}
    seconds = unseen_cpu_seconds(run.cpu[0], run.cpu[1], user)
    others = any(s.native_id != run.native_id and len(s.record) for s in run.record.streams)
    wall = (run.end - run.begin) / 1e9
    if not others and (seconds is None or seconds < _CPU_SLACK + 0.01 * wall):
        return None
    took = "an unknown CPU time" if seconds is None else f"{seconds_text(seconds)} of CPU time"
    return Doubt(
        "threads-unseen",
        f"Other threads took {took}: with --memory torch records the cell's own thread only. Ops and bytes of the "
        "others are in no table, and what their lines spend in torch counts as Python. The cell's own thread is right.",
        "Without --memory, the ops of all threads are recorded.",
        {"cpu_seconds": float("nan") if seconds is None else seconds},
    )


def _outside_torch(joined: Joined, sources: Mapping[str, Source]) -> list[Doubt]:
    """Lines that handed a tensor to numpy: ``.numpy()`` and ``np.asarray`` run these four ops in a row."""
    ops, tree = joined.ops, joined.tree
    trail = ({"aten::detach", "detach"}, {"aten::to"}, {"aten::resolve_conj"}, {"aten::resolve_neg"})
    marks = [ops.is_named(names.__contains__) for names in trail]
    nodes: set[int] = set()
    for thread in joined.threads:
        mine = thread.ops
        count = len(mine) - len(marks) + 1
        if count > 0:
            followed = np.logical_and.reduce([mark[mine][i : i + count] for i, mark in enumerate(marks)])
            nodes.update(joined.node[mine[len(marks) - 1 :][followed]].tolist())
    places: dict[tuple[str, int], Source] = {}
    for node in sorted(nodes):
        if tree.code[node] >= 0:
            source = sources[joined.codes[tree.code[node]].co_filename]
            places[source.source_id, tree.line[node]] = source
    found = []
    for (_, line), source in places.items():
        place = place_in(source, line)
        calls = [] if place is None else [c for c in calls_in(place.head) if leaves_for_numpy(c, place.module)]
        names = dict.fromkeys(".numpy()" if name.endswith(".numpy") else name for name in map(call_name, calls))
        named = f" ({', '.join(f'`{name}`' for name in names)})" if names else ""
        text = f"{source.label}:{line} passes a tensor to NumPy{named}: NumPy allocates outside torch, so its memory"
        facts = {"source_id": source.source_id, "line": line}
        found.append(Doubt("outside-torch", f"{text} is in no byte column.", facts=facts))
    return found


def _older_unseen(run: RecordedRun) -> Doubt | None:
    """Only where torch's library does not show what `OlderBlocks` needs."""
    if not math.isnan(run.bytes_before):
        return None
    text = "Frees of blocks from before the cell are missing, or have a wrong size: this torch does not report"
    return Doubt("older-unseen", f"{text} them. Allocations, and frees of the cell's own blocks, are right.")


def _host_memory(host: HostMemory | None) -> Doubt | None:
    if host is None:
        return None
    if host.was_running:
        text = "tracemalloc was already running: it goes on, with its peak reset. Bytes are what it counts;"
        return Doubt("host-memory", f"{text} the times include its overhead.")
    text = "Counting Python's memory made each of its allocations slower: bytes are right, Python's times are too long."
    return Doubt("host-memory", text, "For times, run without `--host-memory`.")


def did_not_begin(kind: str) -> Doubt:
    """Of a body whose value is a generator or coroutine that has not begun."""
    way = "Profile `list(...)` of it" if kind == "generator" else "Await it (in a script: `asyncio.run(...)`)"
    text = f"The code returned a {kind} that has not started: this profile contains nothing of it."
    return Doubt("not-run", text, f"{way}.", {"kind": kind})
