"""Long jobs: steps, schedules, a trace a cycle, and the sum of the cycles of a profile."""

from __future__ import annotations

import ast
import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from torchbench_magic.errors import BodyError, Busy, OptionError
from torchbench_magic.files import path_of
from torchbench_magic.process.contention import LOAD_KINDS, CoreWait, joined_contention
from torchbench_magic.process.device import wait_for_devices
from torchbench_magic.process.interrupts import Progress, interrupts_held, interrupts_let_through
from torchbench_magic.profiling.cores.verdict import joined_concurrency
from torchbench_magic.profiling.loops.phases import renumbered
from torchbench_magic.profiling.loops.spans import note_step
from torchbench_magic.result_base import Doubt

from .call_tree_tables import sum_of_trees
from .kineto import make_ready, marker
from .line_events import Callers
from .options import Action, ProfileOptions
from .profile import Profile
from .recorder import RecordedRun, torch_threads
from .schema import (
    FRAME_COLUMNS,
    GRAPH_BREAK_COLUMNS,
    LINE_COLUMNS,
    OP_COLUMNS,
    PYTHON_COLUMNS,
    ColumnType,
    combined_by,
    frame_of,
)
from .trace import one_after_the_other

# Long jobs: the steps of a body, of which a schedule says which are recorded.
#
# Between recorded steps nothing is traced and nothing is profiled. Each cycle of recorded steps is a `RecordedRun` of
# its own, which starts and stops in the middle of the user's code, and becomes a `Profile` before the next step.

_current: SteppedRun | None = None
_RARELY = 1.0  # seconds
_RANGE = "ProfilerStep#"  # torch's name for the range of a step


def step() -> None:
    """Tell a scheduled profile that a step of the job ends here and the next one begins.

    Does nothing where no scheduled profile runs, so that a loop with it may run as it is.

    Raises:
        BodyError: called by another thread than the one that runs the job.
        Exception: what the function of ``--on-trace`` raises; its cycle is kept.
    """
    __tracebackhide__ = True
    if _current is not None:
        _current.step(time.time_ns())
    note_step()


def step_num() -> int | None:
    """Number of the step that runs, counted from 0; None where no scheduled profile runs."""
    return None if _current is None or _current.number < 0 else _current.number


class SteppedRun:
    """``with SteppedRun(...) as run: run.enter(); body(); run.leave()``, then `finish`; as a `RecordedRun`, in cycles.

    Args:
        options: the schedule (number of a step -> what happens in it), torch's thread count for the whole body, and
            whether the first step begins with the body's loop, see `loop`; else with the body.
        make_run: a new cycle's run, above these callers.
        make_profile: of a run that has ended, and what ended it early.
        on_trace: given the profile of each cycle that ends between two steps.

    Attributes:
        number: of the step that runs; -1 before the first.
        num_threads: torch's threads at the beginning.
        idle_until: number of the first step that takes more to begin than to count it: between two of those before it
            nothing is to be done.
        tell_at: by ``perf_counter``, when the reader is to be told of such a step; see `tell`.
        cycles: the profile of each, as soon as it has ended.
        load: how long threads waited for a core in the cycles together; None where that is not known.
        skipped: cycles that could not be recorded, since a profiler of the code's own was running.
    """

    def __init__(
        self,
        options: ProfileOptions,
        make_run: Callable[[Callers], RecordedRun],
        make_profile: Callable[[RecordedRun, BaseException | None], Profile],
        on_trace: Callable[[Profile], object] | None,
        progress: Progress,
    ) -> None:
        if _current is not None:
            raise Busy("a profile with a schedule is already running; a second one cannot start inside it")
        make_ready(progress)
        self.number, self.skipped, self.num_threads = -1, 0, 1
        self.idle_until = self.tell_at = 0.0
        self.cycles: list[Profile] = []
        self.load: CoreWait | None = None
        assert options.schedule is not None
        self._schedule, self._in_loop = options.schedule, options.in_loop
        self._make_run, self._make_profile, self._on_trace = make_run, make_profile, on_trace
        self._progress, self._threads = progress, options.threads
        self._undone = contextlib.ExitStack()
        self._thread = threading.get_ident()
        self._started = time.perf_counter()
        self._callers: Callers | None = None
        self._action = Action.NONE
        self._recording: RecordedRun | None = None
        self._range: Any = None
        self._ended = 0  # Unix ns at which the step before ended
        self._steps: list[int] = []
        self._is_between = False
        self._empty = 0
        self._most = ""
        self._told_of: tuple[Action | bool, int] = (False, -1)

    @property
    def made(self) -> int:
        """How many steps were begun."""
        return self.number + 1 - self._empty

    def __enter__(self) -> Self:
        global _current
        import torch

        self._undone.enter_context(torch_threads(self._threads))
        self.num_threads = torch.get_num_threads()
        _current = self
        return self

    def enter(self) -> None:
        """The body begins; the frames that called this are no part of it."""
        self._callers = Callers.of_this_call()
        if not self._in_loop:
            self.begin()

    def begin(self) -> None:
        """The first step begins."""
        self._move_to(0, time.time_ns())

    def step(self, ended: int) -> None:
        """A step ends, at this Unix ns, and the next one begins."""
        __tracebackhide__ = True
        if threading.get_ident() != self._thread:
            raise BodyError("torchbench_magic.step() must be called by the thread that runs the cell")
        if self._is_between:
            raise BodyError("torchbench_magic.step() was called between two steps, by the function of --on-trace")
        if not self.count():
            self._move_to(self.number + 1, ended)

    def count(self) -> bool:
        """Begin the next step where that takes no more than to count it. Whether it did."""
        if self.number + 1 >= self.idle_until:
            return False
        self.number += 1
        if time.perf_counter() >= self.tell_at:
            self.tell()
        return True

    def end_of_loop(self, ended: int, *, is_empty: bool) -> None:
        """The body's loop has ended, at this Unix ns; ``is_empty``: the step that it began last has nothing in it."""
        with interrupts_held():
            if is_empty:
                self._empty += 1
                self._steps = [number for number in self._steps if number != self.number]
            self._close_range(self._step_ended(ended))
            self._action = Action.NONE
            self._end_cycle()

    def leave(self) -> None:
        self._close_range(self._step_ended(time.time_ns()))
        if self._recording is not None:
            self._leave(self._recording)

    def __exit__(self, *error: object) -> None:
        global _current
        _current, self._callers = None, None
        with self._undone:
            if self._recording is not None:
                self._recording.__exit__(None, None, None)

    def finish(self, error: BaseException | None) -> Profile | None:
        """The profile of a cycle that the end of the body, or ``error``, has ended; None where none was recording."""
        run, self._recording = self._recording, None
        return self._keep(run, error) if run is not None and self._steps else None

    # ---- between two steps --------------------------------------------------------------------------------------

    def _move_to(self, number: int, ended: int) -> None:
        """Close the step before, which ended at this Unix ns, do what the schedule says lies between the two, open this
        one."""
        __tracebackhide__ = True
        with interrupts_held():
            self._is_between, self.idle_until = True, 0.0
            try:
                is_last = self._action is Action.RECORD_AND_SAVE or not self._schedule(number).records
                self._close_range(self._step_ended(ended) if is_last else ended)
                before, self.number = self._action, number
                self._action = self._schedule(number)
                if before is Action.RECORD_AND_SAVE or not self._action.records:
                    self._end_cycle()
                self.tell()
                if self._action.records and self._recording is None:
                    self._start_cycle()
            finally:
                self._is_between = False
            if self._action is Action.NONE:
                awake = self._schedule.awake(number + 1)
                self.idle_until = math.inf if awake is None else awake
            if self._recording is not None:
                self._steps.append(number)
                self._range = marker(f"{_RANGE}{number}")
                self._range.__enter__()
        if self._recording is not None:  # last of all: what stands above is no time of the step
            self._recording.between_steps.append((max(self._ended, self._recording.begin), time.time_ns()))

    def _step_ended(self, ended: int) -> int:
        """Unix ns at which the last step of a cycle ended, whose code did at ``ended``: when the device has."""
        if self._recording is not None and wait_for_devices():
            self._recording.after, ended = time.time_ns() - ended, time.time_ns()
        return ended

    def _start_cycle(self) -> None:
        assert self._callers is not None
        try:
            run = self._make_run(self._callers)
        except Busy:
            self.skipped += 1
            self._action = Action.NONE
            return
        run.__enter__()
        self._recording = run
        run.enter()

    def _end_cycle(self) -> None:
        __tracebackhide__ = True
        run, self._recording = self._recording, None
        if run is not None:
            self._leave(run)
            run.__exit__(None, None, None)
            if self._steps:
                made = self._keep(run, None)
                if self._on_trace is not None:
                    with interrupts_let_through():
                        self._on_trace(made)

    def _keep(self, run: RecordedRun, error: BaseException | None) -> Profile:
        made, steps = self._make_profile(run, error), tuple(self._steps)
        profile = replace(made, steps=steps, phases_by_line=renumbered(made.phases_by_line, steps))
        if run.load is not None:
            self.load = run.load if self.load is None else self.load + run.load
        self._steps = []
        self.cycles.append(profile)
        self._most = _most_time_in(profile)
        return profile

    def _leave(self, run: RecordedRun) -> None:
        run.leave()
        run.between_steps.append((max(self._ended, run.begin), run.end))
        run.overhead += sum(end - begin for begin, end in run.between_steps) / 1e9

    def _close_range(self, ended: int) -> None:
        """
        Args:
            ended: Unix ns at which the step did.
        """
        self._ended = ended
        opened, self._range = self._range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def tell(self) -> None:
        """What a reader sees while it runs: where the job is, and what the last cycle spent most time in.

        As recording begins or ends, and else rarely: it takes the time of a step.
        """
        now, state = time.perf_counter(), (self._action.records or self._action, len(self.cycles))
        if state == self._told_of and now < self.tell_at:
            return
        self.tell_at, self._told_of = now + _RARELY, state
        of = getattr(self._schedule, "steps", None)
        said = f"step {self.number}" + (f" of {of}" if of is not None and self.number < of else "")
        if self._action.records:
            said += f", recording cycle {len(self.cycles) + 1}"
        self._progress.update(now - self._started, None, said + self._most)


def _most_time_in(cycle: Profile) -> str:
    """The two ops that took most of a cycle, as the end of a sentence."""
    times = cycle.ops[~cycle.ops["op"].isin(cycle.ranges)].groupby("op")["self_cpu_time"].sum().nlargest(2)
    shares = [f"{op} {100 * seconds / cycle.wall_time:.0f} %" for op, seconds in times.items()]
    return f", most time in {', '.join(shares)}" if shares else ""


# ---- what `mark_loop` puts into the body's loop -----------------------------------------------------------


def loop(items: Iterable[Any]) -> Iterator[Any]:
    """``items``, each a step: what fetches an item is part of its step, and nothing of what is done here."""
    each = iter(items)
    while True:
        going()
        try:
            item = next(each)
        except StopIteration:
            left(is_empty=True)
            return
        yield item


def going() -> bool:
    """A ``while`` is about to test its condition: a step begins. Always False."""
    now, run = time.time_ns(), _current
    if run is not None and not run.count():
        if run.number < 0:
            run.begin()
        else:
            run.step(now)
    return False


def left(is_empty: bool = False) -> bool:
    """The loop is left, by ``break`` or (``is_empty``) because there is no more to do. Always False."""
    if _current is not None:
        _current.end_of_loop(time.time_ns(), is_empty=is_empty)
    return False


# ---- loop_steps ------------------------------------------------------------------------------------------------------
# Makes each iteration of a cell's loop a step, for ``--steps``.

_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_PACKAGE, _, _STEPS = "torchbench_magic.profiling.steps".partition(".")
_LOOPS = (ast.For, ast.While)


def mark_loop(tree: ast.Module) -> ast.Module:
    """The body with its only outermost loop telling `steps` where an iteration begins; lines stay as they are.

    Raises:
        BodyError: there is none, or more than one.
    """
    found = list(_outermost(tree))
    if len(found) != 1:
        lines = ", ".join(str(each.lineno) for each in found)
        has = f"has {len(found)} (lines {lines})" if found else "has none"
        raise BodyError(
            f"--steps records iterations of the one loop at the top level of the cell, and this cell {has}: "
            "call torchbench_magic.step() at the end of each step, and give --schedule instead"
        )
    (loop,) = found
    loop.body = [made for statement in loop.body for made in _with_breaks(statement)]
    if isinstance(loop, ast.While):
        parts = [_call("going()", loop.test), loop.test, _call("left(True)", loop.test)]
        loop.test = ast.copy_location(ast.BoolOp(ast.Or(), parts), loop.test)
    else:
        called = _call("loop(None)", loop.iter)
        called.args = [loop.iter]
        loop.iter = called
    return ast.fix_missing_locations(tree)


def _outermost(node: ast.AST) -> Iterator[ast.For | ast.While]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LOOPS):
            yield child
        elif not isinstance(child, (*_OWN_SCOPE, ast.AsyncFor)):
            yield from _outermost(child)


def _call(text: str, at: ast.expr) -> ast.Call:
    """A call of a function of `steps`, wherever the code runs; no name is added to its namespace.

    The package is asked for by itself: an import with a ``fromlist`` takes eight times as long, in each round of a
    ``while``. Who runs the code has imported the module.
    """
    found = ast.parse(f"__import__({_PACKAGE!r}).{_STEPS}.{text}", mode="eval").body
    assert isinstance(found, ast.Call)
    for node in ast.walk(found):
        if isinstance(node, ast.expr):
            ast.copy_location(node, at)
            node.end_lineno, node.end_col_offset = at.lineno, at.col_offset
    return found


def _with_breaks(statement: ast.stmt) -> list[ast.stmt]:
    """``statement``, in which a ``break`` of the loop first says that the loop is left, on the same line."""
    if isinstance(statement, ast.Break):
        place = ast.copy_location(ast.Name("_"), statement)
        return [ast.copy_location(ast.Expr(_call("left()", place)), statement), statement]
    if isinstance(statement, _OWN_SCOPE):
        return [statement]
    inner = ("orelse",) if isinstance(statement, (*_LOOPS, ast.AsyncFor)) else ("body", "orelse", "finalbody")
    for name in inner:
        if isinstance(getattr(statement, name, None), list):
            made = [each for part in getattr(statement, name) for each in _with_breaks(part)]
            setattr(statement, name, made)
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        part.body = [each for one in part.body for each in _with_breaks(one)]
    return [statement]


# ---- cycle_traces ----------------------------------------------------------------------------------------------------


def traces_into(folder: str | os.PathLike[str]) -> Callable[[Profile], Path]:
    """What writes the profile of each cycle into ``folder`` (made where there is none), and says where.

    Files are named by the cycle and its steps, ``cycle-1-steps-2-4.json.gz``; without a schedule ``trace.json.gz``.

    Raises:
        OptionError: the folder cannot be made.
    """
    path = path_of(folder, OptionError)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--on-trace {folder}: {error.strerror}; give a folder, or the name of a function") from None
    written = 0

    def write(profile: Profile) -> Path:
        nonlocal written
        written += 1
        steps = f"cycle-{written}-steps-{profile.steps[0]}-{profile.steps[-1]}" if profile.steps else "trace"
        file = path / f"{steps}.json.gz"
        profile.export_trace(file)
        return file

    return write


# ---- cycles ----------------------------------------------------------------------------------------------------------

_SUMS = ("n_events", "n_line_events", "profiler_time")
_COSTS = (None, "little", "noticeable", "most")


_OF_LONGEST = "device-after"
"""Of these the one is kept that is about the longest time."""


def sum_of_cycles(
    cycles: Sequence[Profile], options: ProfileOptions, warnings: Sequence[Doubt], **known: Any
) -> Profile:
    """Add up cycles: times, calls and bytes are sums, a peak is the highest of them, a doubt is said once.

    ``.memory``, ``.bytes_before`` and ``.holders`` are those of the cycle with the highest peak: what was freed between
    two cycles nobody saw. Without a cycle the tables are empty.

    Args:
        warnings: of the whole run, what the machine did in all cycles together included; they come before those of
            the cycles.
        known: other fields of the sum.
    """
    if not cycles:
        empty = {"lines": frame_of(LINE_COLUMNS, {}), "ops": frame_of(OP_COLUMNS, {})}
        return Profile(**{"wall_time": 0.0, "num_threads": 0, **empty, **known}, options=options, warnings=[*warnings])
    sources = {source_id: source for each in cycles for source_id, source in each.sources.items()}
    ops = _combined([each.ops for each in cycles], OP_COLUMNS)
    highest = highest_cycle(cycles)
    sampled = [each.python for each in cycles if each.python is not None]
    every = [doubt for each in cycles for doubt in each.warnings if doubt.kind not in LOAD_KINDS]
    every.sort(key=lambda doubt: float(str(doubt.facts.get("seconds", 0))) if doubt.kind == _OF_LONGEST else 0.0)
    of_cycles = {(doubt.kind, doubt.text if doubt.kind != _OF_LONGEST else ""): doubt for doubt in every}
    values: dict[str, Any] = {
        "lines": _in_order(_combined([each.lines for each in cycles], LINE_COLUMNS), list(sources)),
        "ops": ops.sort_values("self_cpu_time", ascending=False, kind="stable").reset_index(drop=True),
        "wall_time": sum(each.wall_time for each in cycles),
        "num_threads": cycles[-1].num_threads,
        "sources": sources,
        "source_id": cycles[0].source_id,
        "memory": highest.memory,
        "bytes_before": highest.bytes_before,
        "holders": highest.holders,
        "frames": sum_of_trees([each.frames for each in cycles], FRAME_COLUMNS, is_complete=True),
        "compilations": _one_after_the_other([each.compilations for each in cycles]),
        "graph_breaks": _combined([each.graph_breaks for each in cycles], GRAPH_BREAK_COLUMNS),
        "phases_by_line": pd.concat([each.phases_by_line for each in cycles], ignore_index=True),
        "python": sum_of_trees(sampled, PYTHON_COLUMNS) if sampled else None,
        "concurrency": joined_concurrency([each.concurrency for each in cycles if each.concurrency is not None]),
        "trace": one_after_the_other([each.trace for each in cycles if each.trace is not None]),
        "calls": _calls(cycles),
        "flops_coverage": _coverage(cycles),
        "profiler_cost": max((each.profiler_cost for each in cycles), key=_COSTS.index),
        "ranges": tuple(sorted({name for each in cycles for name in each.ranges})),
        "threads": max((each.threads for each in cycles), key=len),
        "options": options,
        "contention": joined_contention([each.contention for each in cycles if each.contention is not None]),
        "warnings": [*warnings, *of_cycles.values()],
        "partial": any(each.partial for each in cycles),
        "steps": tuple(number for each in cycles for number in each.steps),
        "cycles": tuple(cycles),
        **{name: sum(getattr(each, name) for each in cycles) for name in _SUMS},
    }
    return replace(cycles[0], **{**values, **known})


def _combined(frames: Sequence[pd.DataFrame], columns: Mapping[str, ColumnType]) -> pd.DataFrame:
    """One row for all that are alike in the keys of ``columns``; what is NA in each of them stays NA."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return frames[0]
    keys = combined_by(columns, "key")
    groups = pd.concat(filled, ignore_index=True).groupby(keys, dropna=False, sort=False)
    made = groups.first()[[]]
    for name, kind in columns.items():
        if name not in keys:
            made[name] = getattr(groups[name], kind.combined)(min_count=1)
    return made.reset_index()[list(columns)].astype(frames[0].dtypes.to_dict())


def _one_after_the_other(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows; what one cycle compiled another may run, and each row has the calls of its own cycle."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True).astype(tables[0].dtypes.to_dict()) if filled else tables[0]


def _in_order(lines: pd.DataFrame, sources: list[str]) -> pd.DataFrame:
    order = {source_id: i for i, source_id in enumerate(sources)}
    at = lines["source_id"].map(lambda source_id: order.get(source_id, len(order)))
    ordered = lines.assign(_source=at).sort_values(["_source", "line", "thread"], kind="stable", na_position="last")
    return ordered.drop(columns="_source").reset_index(drop=True)


def highest_cycle(cycles: Sequence[Profile]) -> Profile:
    """The first of those that held the most bytes; where none recorded bytes, the first of all."""
    return max((each for each in cycles if each.memory is not None), key=_peak, default=cycles[0])


def _peak(cycle: Profile) -> int:
    return int(cycle.memory["bytes"].max()) if cycle.memory is not None and len(cycle.memory) else 0


def _calls(cycles: Sequence[Profile]) -> tuple[tuple[str, str, str, str, str, str, int], ...]:
    """Distinct calls, each with how often it was seen in all cycles."""
    seen: dict[tuple[str, str, str, str, str, str], int] = {}
    for *what, count in (call for each in cycles for call in each.calls):
        key = (what[0], what[1], what[2], what[3], what[4], what[5])
        seen[key] = seen.get(key, 0) + count
    return tuple((*what, count) for what, count in seen.items())


def _coverage(cycles: Sequence[Profile]) -> float:
    """Share of all op time that has a formula."""
    times = [float(each.ops.loc[~each.ops["op"].isin(each.ranges), "self_cpu_time"].sum()) for each in cycles]
    covered = [each.flops_coverage * seconds for each, seconds in zip(cycles, times, strict=True) if seconds]
    return sum(covered) / sum(times) if covered else math.nan
