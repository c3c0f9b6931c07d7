"""The run of ``--phases``: a loop with hooks at its phases and a look at its lines now and then, no torch profiler."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Self

from torchbench_magic.core.machine.waiting_for_cores import CoreWait, CoreWatch, native_io_threads
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.results.profiling.profile import ProfileOptions

from ..loop_marks.current import marking
from ..loop_marks.line_samples import LineSamples
from ..loop_marks.marks import LoopMarks
from ..loop_marks.training_hooks import TrainingHooks
from ..recording.hidden_from_compile import hide_from_compiler
from ..recording.recorded_run import torch_threads
from ..recording.user_threads import kernel_threads
from ..recording.workers import WorkerRecord, Workers

__all__ = ["PhasesRun"]


class PhasesRun:
    """``with PhasesRun(...) as run: run.enter(); body(); run.leave()``, on the thread that runs the cell.

    Attributes:
        begin, end: Unix ns of entering and leaving the body.
        marks: of its phases.
        samples: looks at its lines.
        workers: what DataLoader workers did.
        load: how long threads waited for a core; None where that is not known.
        overhead: seconds that starting and stopping took.
        native_id: of the thread.
    """

    begin = 0
    end = 0
    num_threads = 1
    load: CoreWait | None = None

    def __init__(self, options: ProfileOptions) -> None:
        self.marks = LoopMarks()
        self.samples = LineSamples(self.marks)
        self.workers = WorkerRecord({}, {})
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
        self._cores.start()
        self._wall[0] = time.perf_counter_ns()
        self.begin = time.time_ns()

    def leave(self) -> None:
        self.end = time.time_ns()
        self._wall[1] = time.perf_counter_ns()
        self.load = self._cores.stop(self.wall_time)

    def __exit__(self, *error: object) -> None:
        started = time.perf_counter()
        with interrupts_held():
            self._undone.close()
        self.overhead += time.perf_counter() - started

    def _stop_workers(self) -> None:
        self.workers = self._workers.stop()
