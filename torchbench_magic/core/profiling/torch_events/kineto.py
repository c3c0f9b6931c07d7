"""torch's profiler, started and stopped so that it stays out of the measurement."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from torchbench_magic.core.machine.devices_in_use import note_tracer
from torchbench_magic.core.progress import Progress

from .muted_stderr import allocator_silenced, profiler_silenced
from .older_blocks import OlderBlocks
from .running_profilers import stop_leaked
from .torch_profiler import marker, new_profiler, records_cuda, results_of

__all__ = ["Kineto", "make_ready"]

_warm = False
_warming = threading.Lock()


class Kineto:
    """One start and stop of ``torch.profiler``.

    Args:
        memory: record allocations; excludes ``all_threads`` (torch 2.13 drops every memory event with both).
        shapes: record input shapes.
        all_threads: ops of threads that run already or are started later, too.
    """

    marker = "torchbench_magic::marker"

    def __init__(self, *, memory: bool, shapes: bool, all_threads: bool) -> None:
        self._memory, self._shapes, self._all_threads = memory, shapes, all_threads and not memory
        self._profiler: Any = None
        #: what was there before, with memory
        self.older = OlderBlocks() if memory else None
        self._quiet = contextlib.ExitStack()
        #: (before, after) in Unix ns of each marker: its event must start in between
        self.brackets: list[tuple[int, int]] = []

    def prepare(self) -> None:
        """Get ready to record; nothing is recorded before `start`."""
        self._profiler = new_profiler(memory=self._memory, shapes=self._shapes, all_threads=self._all_threads)
        with profiler_silenced():
            self._profiler.prepare_trace()

    def start(self) -> None:
        """Start, and place the first marker."""
        if self._profiler is None:
            self.prepare()
        quiet = contextlib.ExitStack()
        with contextlib.ExitStack() as undone_on_error:
            undone_on_error.enter_context(quiet)
            if self._memory:
                quiet.enter_context(allocator_silenced())
            with profiler_silenced():
                self._profiler.start_trace()
            undone_on_error.callback(self._stop_quietly)
            if records_cuda():
                note_tracer()
            self._mark()
            if self.older is not None:
                self.older.enter()
            undone_on_error.pop_all()
            self._quiet = quiet

    def _stop_quietly(self) -> None:
        with profiler_silenced():
            self._profiler.stop_trace()

    def stop(self) -> Any:
        """Place the last marker and stop; torch's kineto results, or None where another profiler took them."""
        with self._quiet:
            self._mark()
            if self.older is not None:
                self.older.leave()
            self._stop_quietly()
        results = results_of(self._profiler)
        self._profiler = None
        return results

    def _mark(self) -> None:
        marked = marker(self.marker)
        before = time.time_ns()
        with marked:
            pass
        self.brackets.append((before, time.time_ns()))


def make_ready(progress: Progress) -> bool:
    """See that no profiler runs, and start and stop one once per process: the first loads libraries for seconds.

    Returns whether a profiler that nobody could stop any more was running and was stopped.

    Raises:
        Busy: a profiler of the user's runs already: a second start would take its events in silence.
    """
    global _warm
    stopped = stop_leaked()
    with _warming:
        if not _warm:
            progress.update(0.0, None, "loading torch's profiler")
            kineto = Kineto(memory=False, shapes=False, all_threads=True)
            kineto.start()
            kineto.stop()
            _warm = True
    return stopped
