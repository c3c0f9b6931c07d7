"""One profiled stretch of a body: line source, profiler and hooks on before it, off after it whatever happens."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Protocol, Self

from torchbench_magic.errors import OptionError
from torchbench_magic.process import dynamo_internals
from torchbench_magic.process.code import codes_within
from torchbench_magic.process.compile_watch import CompileWatch
from torchbench_magic.process.contention import CoreWait, CoreWatch, ProcessUse, native_io_threads, read_use
from torchbench_magic.process.device import wait_for_devices
from torchbench_magic.process.interrupts import Progress, interrupts_held
from torchbench_magic.process.machine import thread_names, thread_times, waited_for_core
from torchbench_magic.profiling.cores.record import ConcurrencyRun
from torchbench_magic.profiling.loops import marks
from torchbench_magic.profiling.loops.hooks import TrainingHooks
from torchbench_magic.profiling.loops.marks import LoopMarks
from torchbench_magic.profiling.loops.spans import marking
from torchbench_magic.profiling.memory.tracemalloc_record import HostMemory
from torchbench_magic.profiling.python import sampler
from torchbench_magic.profiling.python.sampler import PythonSampler, SampleRecord
from torchbench_magic.profiling.workers.record import Workers, WorkerSeconds
from torchbench_magic.timing.plan import MOST, MOST_THREADS

from . import kineto
from .kineto import Kineto, make_ready
from .line_events import NO_LIMIT, Callers, LineRecord, Watch
from .module_calls import ModuleCalls, ModuleRecord
from .options import ProfileOptions

# ---- user_threads ----------------------------------------------------------------------------------------------------
# Which threads are the user's, and what processor time they took.

# A thread whose Python frames include one of these runs the kernel, not the user's code.
_KERNEL_PACKAGES = frozenset(
    {
        "ipykernel",
        "IPython",
        "zmq",
        "tornado",
        "jupyter_client",
        "ipyparallel",
        "debugpy",
        "pydevd",
        "torchbench_magic",
    }
)
_POOL = "PTThreadPool"  # ATen/PTThreadPool.h: the pool of `at::launch`


def python_threads() -> dict[int, str]:
    """Native id -> name of the threads that run Python now."""
    return {t.native_id: t.name for t in threading.enumerate() if t.native_id is not None}


def kernel_threads() -> frozenset[int]:
    """Native ids of the kernel's own threads (heartbeat, output, control, ...), without the calling one."""
    natives = {t.ident: t.native_id for t in threading.enumerate() if t is not threading.current_thread()}
    # no name here may hold a frame: its own is among them, and would keep all that its callers hold until a collection
    found = (natives.get(ident) for ident, frame in sys._current_frames().items() if _is_kernels(frame))
    return frozenset(native for native in found if native is not None)


def _is_kernels(frame: FrameType | None) -> bool:
    """Whether a function of the kernel's called ``frame``, directly or not."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _KERNEL_PACKAGES:
            return True
        frame = frame.f_back
    return False


@dataclass(frozen=True)
class CpuReading:
    """Processor time so far, in seconds: of the process, of this thread, of each living thread by native id."""

    process: float
    own: float
    tasks: dict[int, float]


def read_cpu() -> CpuReading:
    return CpuReading(time.process_time(), time.thread_time(), {task: ran for task, (ran, _) in thread_times().items()})


def unseen_cpu_seconds(before: CpuReading, after: CpuReading, user_threads: frozenset[int]) -> float | None:
    """Processor time of the user's other threads between two readings, threads that ended included.

    It is what the process used, without this thread and without the living threads that are not the user's
    (the kernel's, torch's thread pools). None where the system does not tell.
    """
    if not before.tasks or not after.tasks:
        return None
    others = sum(
        seconds - before.tasks.get(task, 0.0)
        for task, seconds in after.tasks.items()
        if task != threading.get_native_id() and task not in user_threads
    )
    return max(0.0, (after.process - before.process) - (after.own - before.own) - others)


# ---- line_sources ----------------------------------------------------------------------------------------------------

SOURCE_MODULES = ("torchbench_magic.profiling.line_events", sampler.__name__, marks.__name__)
"""Where the functions stand that the interpreter calls for each line, and for samples: an event has two numbers, and a
hook that raises is taken away."""


class LineSource(Protocol):
    """Records line events between ``start`` and ``stop``, both called on the thread that runs the cell.

    ``callers`` are the frames below the code that is recorded, where it is in the middle of running; without them
    all frames of ``start``'s caller are. ``watch`` is told of the frames of one function, in scope or not.
    """

    name: str

    def start(self, callers: Callers | None = None, watch: Watch | None = None) -> None: ...

    def stop(self) -> LineRecord: ...

    def outside_calls(self) -> int:
        """Calls of code that is not recorded, which the source has looked at so far (``sys.settrace`` only)."""

    def held(self) -> int:
        """Bytes of the record of the thread that started the source."""


class NoLines:
    """Records nothing, for a ``reason`` that the result shows."""

    name = "none"

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self, callers: Callers | None = None, watch: Watch | None = None) -> None:
        return

    def outside_calls(self) -> int:
        return 0

    def held(self) -> int:
        return 0

    def stop(self) -> LineRecord:
        return LineRecord(self.name, reason=self._reason)


def choose_line_source(
    in_scope: Callable[[str], bool], limit: int = NO_LIMIT, now: Callable[[], int] = time.time_ns
) -> LineSource:
    """``sys.monitoring`` from Python 3.12 on, ``sys.settrace`` before; none where another tool holds the hook.

    Of each thread about ``limit`` events are recorded. ``now`` is asked once an event, on its thread.
    """
    if hasattr(sys, "monitoring"):
        from .line_events import MonitoringSource, free_tool

        tool = free_tool()
        if tool is None:
            return NoLines("other tools use every tool id of sys.monitoring")
        return MonitoringSource(in_scope, tool, limit, now)
    hook = sys.gettrace()
    if hook is not None:
        holder = getattr(hook, "__module__", None) or type(hook).__module__
        return NoLines(f"a debugger or coverage tool ({holder}) uses Python's trace hook")
    from .line_events import SettraceSource

    return SettraceSource(in_scope, limit, now)


# ---- hidden_from_compile ---------------------------------------------------------------------------------------------
# Hides the hooks that record a run from ``torch.compile``.
#
# Between the frames that it compiles, dynamo looks at every Python frame that begins, those of our trace functions and
# callbacks too: it would compile them beside the user's, and under ``set_stance("fail_on_recompile")`` raise. Each code
# object that may run during a run is therefore marked as one to leave alone, with all that it calls.

_OBSERVERS = (
    "torchbench_magic.process.dynamo_internals",
    "torchbench_magic.profiling.loops.marks",
    "torchbench_magic.profiling.python.sampler",
    "torchbench_magic.profiling.memory.tracemalloc_record",
    "torchbench_magic.profiling.module_calls",
    "torchbench_magic.profiling.line_events",
)

_WRAPPERS = ("torchbench_magic.profiling.loops.hooks",)
"""What calls the user's code: itself left alone, and what it calls compiled as ever."""


def hide_from_compiler() -> None:
    """Mark the code of what observes. Anew for every run: ``torch._dynamo.reset`` may forget it."""
    dynamo_internals.leave_alone(_codes(_OBSERVERS))
    dynamo_internals.leave_alone(_codes(_WRAPPERS), with_called=False)
    # Under a profiler the compiler itself opens ranges, and torch's constructor of them calls code of `typing`.
    made = getattr(kineto.range_type(), "__init__", None)
    dynamo_internals.leave_alone([made.__code__] if isinstance(made, FunctionType) else [])


@cache
def _codes(names: tuple[str, ...]) -> tuple[CodeType, ...]:
    modules = [importlib.import_module(name) for name in names]
    return tuple(inner for module in modules for code in _defined_in(module) for inner in codes_within(code))


def _defined_in(module: ModuleType) -> Iterator[CodeType]:
    """The functions, methods and properties that a module defines, those that dataclasses write included."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                yield function.__code__


# ---- recorded_run ----------------------------------------------------------------------------------------------------

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
        pool: native ids of the threads of torch's pool for work beside the caller's.
        spent: page faults and processor time of the process between enter and leave.
        load: how long threads waited for a core between enter and leave; None where that is not known.
        compiled: what ``torch.compile`` compiled meanwhile.
        unseen: what looking at it raised; None where nothing was.
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
        make_ready(progress)
        self.record = LineRecord(source.name)
        self.brackets: list[tuple[int, int]] = []
        self.native_id = threading.get_native_id()
        self.ignored = kernel_threads()
        self.python_threads = python_threads()
        self._cores = CoreWatch(self.ignored | native_io_threads())
        self.overhead = 0.0
        self.between_steps: list[tuple[int, int]] = []
        self.cpu: list[CpuReading] = []
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
        self.workers: WorkerSeconds = {}
        self._workers = Workers()
        self.compiled: tuple[dynamo_internals.CompiledFrame, ...] = ()
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
                self.pool = frozenset(task for task, name in thread_names().items() if name == _POOL)
                self._undone.close()
                self.overhead += time.perf_counter() - started
