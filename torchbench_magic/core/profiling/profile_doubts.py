"""What is doubtful about a profile, found in what the run recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from torchbench_magic import units
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.profile import ProfileOptions, Source
from torchbench_magic.results.profiling.schedule import Schedule

from .holding.holder_search import Holdings
from .joining.attribution import Joined, ThreadJoin
from .joining.compiling import COMPILED_REGION
from .joining.forks import FORKED
from .joining.run_events import Dropped, RunEvents
from .machine_load import doubts_of_load
from .recording.host_memory import HostMemory
from .recording.recorded_run import RecordedRun
from .recording.steps import SteppedRun
from .recording.user_threads import unseen_cpu_seconds
from .sources.statement_lines import read_statements
from .waiting_lines import waits_of_a_line

__all__ = ["did_not_begin", "doubts_of_holders", "doubts_of_steps", "find_doubts", "worked_on"]

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
        _partial(run, error),
        _leaked(run),
        _events_lost(read.lost),
        _dropped(read.dropped, options),
        _lines(run),
        _lines_cut(run, options),
        _clocks(run, read.offset),
        worked_on(run.after / 1e9, (run.end - run.begin) / 1e9),
        *doubts_of_load(run.load, run.num_threads),
        waits_of_a_line(run, joined, sources),
        _threads_without_lines(run, joined),
        _forked(run, joined),
        _compiled_modules(run, joined),
    ]
    if options.memory:
        found += [_unseen_threads(run), _older_unseen(run)]
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
    found = [_leaked(run)]
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
    found += doubts_of_load(run.load, run.num_threads)
    return [doubt for doubt in found if doubt is not None]


def _partial(run: RecordedRun, error: BaseException | None) -> Doubt | None:
    if error is None:
        return None
    wall = (run.end - run.begin) / 1e9
    what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
    text = f"Partial: {what} after {_seconds(wall)}. What ran before is shown."
    return Doubt("partial", text, facts={"wall_time": wall})


def worked_on(after: float, wall: float) -> Doubt | None:
    """What is said of a device that was at work for ``after`` of the ``wall`` seconds when the code had ended."""
    if not after >= max(_AFTER * wall, _LEAST_AFTER):
        return None
    text = (
        f"When the code had ended, after {_seconds(wall - after)}, the device worked on for {_seconds(after)}, which "
        "the wall time includes. Times of lines, operations and steps are the host's, which ran ahead of the device."
    )
    return Doubt("device-after", text, facts={"seconds": after})


def _leaked(run: RecordedRun | SteppedRun) -> Doubt | None:
    if not run.stopped_leaked:
        return None
    return Doubt(
        "leaked-profiler",
        "An earlier torch profiler, which nothing refers to any longer, was still running; it was stopped first. "
        "This profile is not affected.",
        "Use `with torch.profiler.profile()`, which stops even if its code fails.",
    )


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
    full = run.record.full
    if not full:
        return None
    after = max(0.0, (full - run.begin) / 1e9)
    return Doubt(
        "lines-cut",
        f"More than --max-events {units.count(options.max_events)} line events: from {_seconds(after)} on what runs in "
        "a function counts on its `def` line, and what runs at the top of a cell on no line. Times per op are valid.",
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
            "The code replaced Python's trace hook (`sys.settrace`, a debugger, a caught interrupt): what ran "
            "after that is on no line. Times per op are valid.",
        )
    return None


def _clocks(run: RecordedRun, offset: int) -> Doubt | None:
    wall, other = (run.end - run.begin) / 1e9, run.wall_by_other_clock
    if run.clock_set_by > 0.001 + 0.01 * other:
        text = f"The system clock was changed during the run: {_seconds(other)} passed, but it shows {_seconds(wall)}."
        return Doubt("clock-set", text + " No time here is valid.", "Run it again.", {"seconds": other})
    if offset:
        text = f"torch's profiler clock was {offset / 1e3:.0f} us off; its times were corrected by that."
        return Doubt(
            "clock-offset", text, "Lines shorter than that may be mixed up.", {"offset": offset / 1e9}
        )
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


def _forked(run: RecordedRun, joined: Joined) -> Doubt | None:
    """Ops on no line, of torch's own threads that do no backward work: forks that several calls can have launched, or,
    where nothing forked, work of an unknown cause."""
    if run.record.source == "none":
        return None
    pool = [t for t in _without_lines(joined) if t.segments.native_id not in run.python_threads]
    on_none = [thread.ops[joined.node[thread.ops] == thread.segments.root] for thread in pool]
    mine = np.concatenate([np.zeros(0, dtype=np.int64), *on_none])
    if not len(mine):
        return None
    seconds = float(joined.self_time[mine].sum()) / 1e9
    made = f"{units.count(len(mine))} op{'' if len(mine) == 1 else 's'}"
    of_pool = any(thread.segments.native_id in run.pool for thread in pool)
    if not of_pool and not joined.ops.is_named(FORKED.__eq__).any():
        return Doubt(
            "torch-threads",
            f"{made} ({_seconds(seconds)}) ran on threads of torch's own, and not within one operation of one line: "
            "what launched them is not known, so they are on no line. The other times are valid.",
            "See the rows of `.ops` where `line` is empty.",
            {"ops": len(mine), "seconds": seconds},
        )
    return Doubt(
        "forked-work",
        f"Forked work: {made} ({_seconds(seconds)}) ran on threads of torch's own, as after `torch.jit.fork`. "
        "torch does not record which line launched them, and the other events do not show it, so they are on no line. "
        "The other times are valid; the time that a line waits for them counts on that line.",
        "See the rows of `.ops` where `line` is empty; call the functions without a fork to see their lines.",
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
    took = "an unknown CPU time" if seconds is None else f"{_seconds(seconds)} of CPU time"
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
        calls = read_statements(source.text).numpy_calls.get(line, ())
        named = f" ({', '.join(f'`{call}`' for call in calls)})" if calls else ""
        text = (
            f"{source.label}:{line} passes a tensor to NumPy{named}: NumPy allocates outside torch, so its memory"
        )
        facts = {"source_id": source.source_id, "line": line}
        found.append(Doubt("outside-torch", f"{text} is in no byte column.", facts=facts))
    return found


def _older_unseen(run: RecordedRun) -> Doubt | None:
    """Only where torch's library does not show what `older_blocks` needs."""
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
    text = f"Counting Python's memory made each of its allocations {host.cost * 1e9:.0f} ns slower: bytes are right,"
    return Doubt(
        "host-memory",
        f"{text} Python's times are too long.",
        "For times, run without `--host-memory`.",
        {"per_allocation": host.cost},
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def did_not_begin(kind: str) -> Doubt:
    """Of a body whose value is a generator or coroutine that has not begun."""
    way = "Profile `list(...)` of it" if kind == "generator" else "Await it (in a script: `asyncio.run(...)`)"
    text = f"The code returned a {kind} that has not started: this profile contains nothing of it."
    return Doubt("not-run", text, f"{way}.", {"kind": kind})
