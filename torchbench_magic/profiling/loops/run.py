"""The run of ``--phases``: a loop with hooks at its phases and a look at its lines now and then, no torch profiler; and
what it recorded as a `Profile` without lines and operations."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Self

import pandas as pd

from torchbench_magic.process.contention import CoreWait, CoreWatch, contention_between, native_io_threads
from torchbench_magic.process.device import wait_for_devices
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.interrupts import interrupts_held
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.recorder import hide_from_compiler, kernel_threads, torch_threads
from torchbench_magic.profiling.schema import LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.profiling.sources import ProfiledBody
from torchbench_magic.profiling.warnings import doubts_of_load, partial, worked_on
from torchbench_magic.profiling.workers.record import Workers, WorkerSeconds, worker_table
from torchbench_magic.result_base import Doubt
from torchbench_magic.units import count, percent, seconds_text

from .hooks import TrainingHooks
from .marks import WIDTH, LineSamples, LoopMarks
from .spans import calls_without_phases, compiled_phases, marking
from .table import sampled_loop

_MARK = 6e-6
"""Seconds that a mark takes, with its share of what the calls of inner modules cost more: some 60 us of a step with ten
marks (``tests/benchmarks``, "cost of --phases"; where nothing empties the processor's caches in between, a third)."""
_DEAR = 0.02
_FEW = 100  # marks: ten steps


class PhasesRun:
    """``with PhasesRun(...) as run: run.enter(); body(); run.leave()``, on the thread that runs the cell.

    Attributes:
        begin, end: Unix ns of entering and leaving the body; what it launched on a device has ended by then too.
        after: ns of this at its end, for which a device worked on when the code had ended.
        marks: of its phases.
        samples: looks at its lines.
        workers: what DataLoader workers did.
        load: how long threads waited for a core; None where that is not known.
        overhead: seconds that starting and stopping took.
        native_id: of the thread.
    """

    begin = 0
    end = 0
    after = 0
    num_threads = 1
    load: CoreWait | None = None

    def __init__(self, options: ProfileOptions) -> None:
        self.marks = LoopMarks()
        self.samples = LineSamples()
        self.workers: WorkerSeconds = {}
        self.overhead = 0.0
        self.native_id = threading.get_native_id()
        self._workers = Workers()
        self._hooks = TrainingHooks(self.marks, with_modules=True)
        self._threads = options.threads
        self._cores = CoreWatch(kernel_threads() | native_io_threads())
        self._wall = [0, 0]
        self._undone = contextlib.ExitStack()

    @property
    def wall_time(self) -> float:
        """Seconds between enter and leave, by the clock that nobody sets."""
        return (self._wall[1] - self._wall[0]) / 1e9

    def __enter__(self) -> Self:
        import torch

        started = time.perf_counter()
        with interrupts_held(), contextlib.ExitStack() as undone:
            undone.enter_context(torch_threads(self._threads))
            self.num_threads = torch.get_num_threads()
            undone.enter_context(marking(self.marks))
            undone.callback(self._stop_workers)
            self._workers.start()
            hide_from_compiler()
            undone.callback(self._hooks.stop)
            self._hooks.start()
            undone.callback(self.samples.stop)
            self.samples.start()
            self._undone = undone.pop_all()
        self.overhead += time.perf_counter() - started
        return self

    def enter(self) -> None:
        wait_for_devices()  # what was launched before is no work of the body's
        self._cores.start()
        self._wall[0] = time.perf_counter_ns()
        self.begin = time.time_ns()

    def leave(self) -> None:
        ended = self.end = time.time_ns()
        self._wall[1] = time.perf_counter_ns()
        if wait_for_devices():
            self.end, self._wall[1] = time.time_ns(), time.perf_counter_ns()
            self.after = self.end - ended
        self.load = self._cores.stop(self.wall_time)

    def __exit__(self, *error: object) -> None:
        started = time.perf_counter()
        with interrupts_held():
            self._undone.close()
        self.overhead += time.perf_counter() - started

    def _stop_workers(self) -> None:
        self.workers = self._workers.stop()


def profile_of_phases(
    run: PhasesRun, options: ProfileOptions, body: ProfiledBody, error: BaseException | None = None
) -> Profile:
    """The profile of a run that has ended, by ``error`` where that ended it early."""
    started = time.perf_counter()
    parts, sources, texts = sampled_loop(run.marks, run.samples, body, run.begin, run.end)
    own = texts.of[texts.own[0].co_filename] if body.own else None
    load = doubts_of_load(run.load, run.num_threads)
    without = _without_steps(run, parts, error)
    doubts = [partial(run.wall_time, error), _full(run), worked_on(run.after / 1e9, run.wall_time), *load, without]
    doubts += [compiled_phases(run.marks.record), _dear(run)]
    return Profile(
        lines=frame_of(LINE_COLUMNS, {}),
        ops=frame_of(OP_COLUMNS, {}),
        wall_time=run.wall_time,
        num_threads=run.num_threads,
        sources=dict(sources),
        source_id=own.source_id if own is not None else None,
        options=options,
        warnings=[doubt for doubt in doubts if doubt is not None],
        environment=read_environment(),
        contention=contention_between(run.load.spent) if run.load is not None else None,
        partial=error is not None,
        line_source="none",
        workers=worker_table(run.workers, run.marks.workers, body.cells),
        phases_by_line=parts,
        profiler_time=run.overhead + time.perf_counter() - started,
    )


def _full(run: PhasesRun) -> Doubt | None:
    if not run.marks.is_full:
        return None
    kept = len(run.marks.record) // WIDTH
    text = f"Recording of phases stopped after {count(kept)} marks: later steps are not shown."
    return Doubt("phases-cut", text, "Profile a shorter part of the job.", {"marks": kept})


def _dear(run: PhasesRun) -> Doubt | None:
    marks = len(run.marks.record) // WIDTH
    share = marks * _MARK / run.wall_time if run.wall_time else 0.0
    if marks < _FEW or share <= _DEAR:
        return None
    text = (
        f"Recording the phases took up to about {percent(share)} % of this time ({count(marks)} marks, each at about"
        f" {seconds_text(_MARK, digits=1)}): the steps are short."
    )
    return Doubt("phases-cost", text, facts={"marks": marks, "share": share})


def _without_steps(run: PhasesRun, parts: pd.DataFrame, error: BaseException | None) -> Doubt | None:
    if error is not None or parts["step"].notna().any():
        return None
    if elsewhere := run.marks.said_elsewhere or run.marks.optimized_elsewhere:  # a loop may have both of a step
        return Doubt(
            "no-steps",
            "No steps were seen: they run on another thread, and phases are recorded only on the cell's own thread.",
            "Run the loop on the cell's own thread, or profile without `--phases`.",
            {"steps_elsewhere": elsewhere},
        )
    outside = " outside of compiled code" if calls_without_phases(run.marks.record) else ""
    return Doubt(
        "no-steps",
        f"No steps were seen: fewer than two steps of an optimizer{outside}, and no call of `torchbench_magic.step()`.",
        "Call `torchbench_magic.step()` at the end of each step, or profile without `--phases`.",
    )
