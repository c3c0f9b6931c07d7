"""One profiled stretch of a body: what is switched on before it, and off after it whatever happens."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Self

from torchbench_magic.core.compiler.compile_watch import CompiledFrame, CompileWatch
from torchbench_magic.core.machine.devices_in_use import wait_for_devices
from torchbench_magic.core.machine.proc_files import waited_for_core
from torchbench_magic.core.machine.process_use import ProcessUse, read_use
from torchbench_magic.core.machine.waiting_for_cores import CoreWait, CoreWatch, native_io_threads
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.core.progress import Progress
from torchbench_magic.core.timing.plan import MOST, MOST_THREADS
from torchbench_magic.errors import OptionError
from torchbench_magic.results.profiling.profile import ProfileOptions

from ..concurrency.concurrency_run import ConcurrencyRun
from ..loop_marks.current import marking
from ..loop_marks.marks import LoopMarks
from ..loop_marks.training_hooks import TrainingHooks
from ..python_tree.sampler import PythonSampler, SampleRecord
from ..torch_events.kineto import Kineto, make_ready
from .hidden_from_compile import hide_from_compiler
from .host_memory import HostMemory
from .line_sources import LineSource
from .module_calls import ModuleCalls, ModuleRecord
from .streams import Callers, LineRecord
from .user_threads import CpuReading, busy_threads, kernel_threads, pool_threads, python_threads, read_cpu
from .workers import WorkerRecord, Workers

__all__ = ["RecordedRun", "check_counts", "torch_threads"]

_NEED_EVENTS = (
    *("efficiency", "flops", "shapes", "memory", "lines_of", "schedule", "host_memory", "twice", "python"),
    "concurrency",
)
"""Options that go with torch's profiler, or with the lines."""


def check_counts(options: ProfileOptions) -> None:
    """OptionError where threads or events are no whole numbers, or too many; and where phases alone are asked for with
    something that needs torch's profiler."""
    for name, value, most in (("threads", options.threads, MOST_THREADS), ("max_events", options.max_events, MOST)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise OptionError(f"{name}: give a whole number from 1 to {most}")
    more = [name for name in _NEED_EVENTS if getattr(options, name)]
    if options.phases and more:
        asked = f"--{more[0].replace('_', '-')}"
        raise OptionError(f"--phases records no operations, and {asked} is of these: leave out one of them")


def _threads_now() -> int:
    import torch

    return int(torch.get_num_threads())


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """torch's thread count (None: as it is), put back unless the code set a number of its own."""
    import torch

    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() == count:
            torch.set_num_threads(before)


class RecordedRun:
    """``with RecordedRun(...) as run: run.enter(); body(); run.leave()``, on the thread that runs the cell.

    Args:
        callers: the frames below the body, where the run starts in the middle of it.
        host: reads Python's own memory, as the clock of ``source``.
        modules: notes the calls of modules; None: of none by a variable's name.

    Raises Busy, before anything is changed, where a profiler of the user's runs already.

    Attributes:
        begin, end: Unix ns of entering and leaving the body; the profiler starts before and stops after. What the body
            launched on a device has ended by then too.
        after: ns of this at its end, for which a device worked on when the code had ended.
        record: the line events.
        modules: the calls of modules.
        marks: the phases of a training loop.
        workers: where DataLoader workers spent their time.
        samples: of the Python stack; None where they were not asked for.
        concurrency: how the cores were used; None where that was not asked for.
        results: kineto's results; None where another profiler took them.
        brackets: clock readings round each marker event.
        num_threads, threads_after: torch's threads as the body was entered, and left.
        overhead: seconds that starting and stopping took.
        between_steps: stretches from `begin` to `end` in which a step was ended and the next one begun, (from, to) in
            Unix ns: no time of the body's.
        busy: native ids of threads that may have been at work as the recording began; None where that is not known.
        pool: native ids of the threads of torch's pool for work beside the caller's.
        spent: page faults and processor time of the process between enter and leave.
        load: how long threads waited for a core between enter and leave; None where that is not known.
        compiled: what ``torch.compile`` compiled meanwhile.
        unseen: what looking at it raised; None where nothing was.
        stopped_leaked: a profiler that nobody could stop any more was running and was stopped first.
    """

    begin = 0
    end = 0
    after = 0
    load: CoreWait | None = None
    spent: ProcessUse | None = None
    results: Any = None
    num_threads = threads_after = 1

    def __init__(
        self,
        source: LineSource,
        options: ProfileOptions,
        progress: Progress,
        callers: Callers | None = None,
        *,
        host: HostMemory | None = None,
        modules: ModuleCalls | None = None,
    ) -> None:
        self.stopped_leaked = make_ready(progress)
        self.record = LineRecord(source.name)
        self.brackets: list[tuple[int, int]] = []
        self.native_id = threading.get_native_id()
        self.ignored = kernel_threads()
        self.python_threads = python_threads()
        self._cores = CoreWatch(self.ignored | native_io_threads())
        self.overhead = 0.0
        self.between_steps: list[tuple[int, int]] = []
        self.cpu: list[CpuReading] = []
        self.busy: frozenset[int] | None = None
        self.pool: frozenset[int] = frozenset()
        self._wall = [0, 0]
        self._around = [0, 0]
        self._own = [0, 0]
        self._own_waited = [0.0, 0.0]
        self._outside = [0, 0]
        self._used = ProcessUse()
        self._source, self._callers = source, callers
        self._below: Callers | None = None  # held while it samples: their ids are not used again then
        self.samples: SampleRecord | None = None
        self._sampler = PythonSampler() if options.python else None
        self.concurrency = ConcurrencyRun(self.ignored | native_io_threads()) if options.concurrency else None
        self._threads, self._undone = options.threads, contextlib.ExitStack()
        self.host = host
        self.modules = ModuleRecord()
        self.workers = WorkerRecord({}, {})
        self._workers = Workers()
        self.compiled: tuple[CompiledFrame, ...] = ()
        self.unseen: Exception | None = None
        self._compiler = CompileWatch(progress)
        self._modules = modules if modules is not None else ModuleCalls({}, ())
        self.marks = LoopMarks()
        self._hooks = TrainingHooks(self.marks, with_modules=False)
        self._modules.outer = self._hooks.outer
        self._kineto = Kineto(memory=options.memory, shapes=options.shapes, all_threads=not options.memory)

    def running(self, wanted: Callable[[CodeType], bool]) -> tuple[FrameType, ...]:
        """Frames of this thread that began before the recording's end and still run, of a run that ends in the middle
        of them."""
        return () if self._callers is None else tuple(self._callers.running_above(wanted))

    def prepare(self) -> None:
        """Let the profiler get ready ahead of its start."""
        self._kineto.prepare()

    def __enter__(self) -> Self:
        import torch

        started = time.perf_counter()
        with interrupts_held(), contextlib.ExitStack() as undone:
            undone.enter_context(torch_threads(self._threads))
            self.num_threads = self.threads_after = torch.get_num_threads()
            undone.enter_context(marking(self.marks))
            self.cpu.append(read_cpu())
            if self.concurrency is not None:
                undone.callback(self.concurrency.stop)
                self.concurrency.start()
            self._kineto.start()
            self.overhead += time.perf_counter() - started
            try:
                if self.host is not None:
                    self.host.start(self._source.held)
                self._modules.start()
                self._compiler.start()
                hide_from_compiler()
                self._workers.start()
                self._hooks.start()
                self.busy = busy_threads(self.cpu[0])
                self._source.start(self._callers, self._modules)
                if self._sampler is not None:
                    self._below = self._callers or Callers.of_this_call()
                    self._sampler.start(self._below.frames)
            except BaseException:
                self._hooks.stop()
                self._workers.stop()
                self._compiler.stop()
                if self.host is not None:
                    self.host.stop()
                self._kineto.stop()
                raise
            self._undone = undone.pop_all()
        return self

    @property
    def bytes_before(self) -> float:
        """Bytes of CPU tensors that were there before; NaN where they were not looked for."""
        older = self._kineto.older
        return float(older.nbytes) if older is not None and older.known else math.nan

    @property
    def own_cpu(self) -> int:
        """Processor time of the cell's own thread between enter and leave, ns."""
        return self._own[1] - self._own[0]

    @property
    def own_waited(self) -> float:
        """Seconds for which the cell's own thread waited for a core meanwhile; NaN where that is not known."""
        return self._own_waited[1] - self._own_waited[0]

    def enter(self) -> None:
        started = time.perf_counter()
        wait_for_devices()  # what was launched before is no work of the body's
        self._cores.start()
        if self.concurrency is not None:
            self.concurrency.enter()
        self.overhead += time.perf_counter() - started
        self._used = read_use()
        self._outside[0] = self._source.outside_calls()
        self._own_waited[0] = waited_for_core()
        self._own[0] = time.thread_time_ns()
        self._around[0] = time.time_ns()
        self._wall[0] = time.perf_counter_ns()
        self.begin = time.time_ns()

    def leave(self) -> None:
        self._read_end()
        ended = self.end
        if wait_for_devices():
            self._read_end()
            self.after += self.end - ended
        self._own[1] = time.thread_time_ns()
        self._own_waited[1] = waited_for_core()
        self._outside[1] = self._source.outside_calls()
        if self.concurrency is not None:
            self.concurrency.leave()
        self.spent = read_use() - self._used
        self.load = self._cores.stop(self.wall_by_other_clock)
        self.overhead += (time.perf_counter_ns() - self._wall[1]) / 1e9

    def _read_end(self) -> None:
        self.end = time.time_ns()
        self._wall[1] = time.perf_counter_ns()
        self._around[1] = time.time_ns()

    @property
    def outside_calls(self) -> int:
        """Calls of code that is not recorded, between enter and leave, which the line source looked at."""
        return self._outside[1] - self._outside[0]

    @property
    def moments(self) -> tuple[int, int]:
        """Of entering and leaving, ns of ``time.perf_counter_ns``."""
        return self._wall[0], self._wall[1]

    @property
    def wall_by_other_clock(self) -> float:
        """Seconds between enter and leave by the clock that nobody sets."""
        return (self._wall[1] - self._wall[0]) / 1e9

    @property
    def clock_set_by(self) -> float:
        """Seconds by which the system's clock was set between enter and leave, at the least: the process may have been
        stopped between any two readings, so it is read before and after the other clock."""
        (first, last), (around_first, around_last) = self._wall, self._around
        forward = (self.end - last) - (self.begin - first)
        back = (around_first - first) - (around_last - last)
        return max(forward, back, 0) / 1e9

    def __exit__(self, *error: object) -> None:
        with interrupts_held():
            self._stop()

    def _stop(self) -> None:
        started = time.perf_counter()
        try:
            if self._sampler is not None:
                self.samples, self._below = self._sampler.stop(), None
            self.record = self._source.stop()
        finally:
            self._hooks.stop()
            self.modules = self._modules.stop()
            self.workers = self._workers.stop()
            self.compiled = self._compiler.stop()
            self.unseen = self._compiler.failed
            if self.host is not None:
                self.host.stop()
            try:
                self.results = self._kineto.stop()
                self.brackets = self._kineto.brackets
            finally:
                self.cpu.append(read_cpu())
                self.threads_after = _threads_now()
                self.python_threads |= python_threads()
                self.pool = pool_threads()
                self._undone.close()
                self.overhead += time.perf_counter() - started
