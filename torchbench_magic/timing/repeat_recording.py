"""One call of timed code, recorded: the user's lines, torch's operators, what it gave, and how long each took.

The recording exists only within the call; all others run as they would without it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType, MappingProxyType
from typing import Any

from torchbench_magic.process import dynamo_internals
from torchbench_magic.process.code import put_off
from torchbench_magic.process.device import no_wait
from torchbench_magic.process.frame_owner import is_users_file
from torchbench_magic.process.interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.process.settings import end_mode, outside_modes

from .blocks import BlockAround, Timeable
from .repeat_state import Seen, seen_of

try:
    from resource import RUSAGE_THREAD as _RUSAGE_THREAD
    from resource import getrusage as _getrusage
except ImportError:  # not on Linux
    _getrusage = None  # type: ignore[assignment]

LINES, OPERATORS = 20_000, 5_000
"""Lines and Python calls, and operators, that are recorded of one call: some 100 ms at most."""
WAITED = 1e-3
"""Seconds from which a line waited."""
VALUE = "__tb_value"
"""The name that the value of the code is bound to in a recorded call."""
_COMPILER = os.path.join("torch", "_dynamo", "eval_frame.py")
"""Where functions are called that the compiler has wrapped."""


Line = tuple[int, int]
"""Id of a code object, whose hash would be slow, and a line."""


@dataclass
class Work:
    """One recorded call.

    Attributes:
        lines: times that each of the user's lines ran.
        seconds: its own, with C and library code, without operators.
        codes: id -> code object.
        operators: (operator, inputs, flags) -> times.
        elements: of each of them, what it reads and writes; a view counts as one.
        of_line: operators that ran on a line.
        cold: lines that ran an operator for the first time in the process.
        in_operators: seconds, with those in which the end of what they launched on a device was waited for.
        cut: "lines" or "operators", of which there were more than are recorded.
        library: calls of functions of libraries written in Python.
        is_compiled: functions ran that the compiler would have compiled elsewhere.
        imported: modules.
        wall, cpu: seconds of the call, and of the processor, without what the recording took.
        spent: seconds of the processor, with what the recording took, which is known roughly.
        waited: seconds that its lines waited, for anything but a core.
        unclear: seconds that they waited, maybe for a core alone.
        before: what was there.
        gave: name -> what it was bound to; `VALUE` the value of the code.
        put_off: how the call leaves work to be done later or elsewhere, as a clause; empty where it does not.
        left: of names that are put back before each call, what it bound them to.
        bound: what it bound all its names to, of the last one.
        overhead_ns: what the recording took.
        failed: an error of the recording itself, which ended there.
    """

    lines: Counter[Line] = field(default_factory=Counter)
    seconds: dict[Line, float] = field(default_factory=dict)
    codes: dict[int, CodeType] = field(default_factory=dict)
    operators: Counter[Any] = field(default_factory=Counter)
    elements: dict[Any, int] = field(default_factory=dict)
    of_line: Counter[Line | None] = field(default_factory=Counter)
    cold: set[Line | None] = field(default_factory=set)
    in_operators: float = 0.0
    cut: set[str] = field(default_factory=set)
    library: int = 0
    is_compiled: bool = False
    imported: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    spent: float = 0.0
    waited: float = 0.0
    unclear: float = 0.0
    before: dict[str, Seen] = field(default_factory=dict)
    gave: dict[str, Seen] = field(default_factory=dict)
    put_off: str = ""
    left: dict[str, Any] = field(default_factory=dict)
    bound: list[Any] = field(default_factory=list)
    overhead_ns: float = 0.0
    failed: Exception | None = None

    @property
    def amounts(self) -> tuple[int, int, int]:
        """Elements that operators touched, lines that ran, calls into libraries."""
        touched = sum(self.elements[key] * n for key, n in self.operators.items())
        return touched, sum(self.lines.values()), self.library

    @property
    def took(self) -> float:
        """Seconds, without those in which others had the core, or may have had it."""
        return self.cpu + min(self.waited, self.wall)


class Lines:
    """Counts the user's lines and their time by ``sys.settrace``.

    Time is that of the processor and what the line waited, but not what it lost to others on a busy machine.
    """

    def __init__(
        self, work: Work, code: CodeType, kept: Mapping[str, Any] = MappingProxyType({}), *, is_last: bool = False
    ) -> None:
        self.work, self._left, self._code, self.thread = work, LINES, code, threading.get_ident()
        self._from = self._until = -1  # what was left as the code began, and ended; around it runs the recording's own
        self._kept, self._is_last = kept, is_last
        self._has_device = self.is_over = False
        self._is_users: dict[str, bool] = {}  # by file
        self._imports = 0  # modules that are being imported: start-up, and no work of the code's
        self._held: dict[str, Any] = {}  # what the code has bound, before it lets go of it
        self._returned: Line | None = None  # the line that returned last, while its caller's line goes on
        self.stack: list[Line | None] = [None]
        self.resume()

    def resume(self) -> None:
        """What was spent since the last reading is nobody's."""
        self._cpu, self._wall, self._lost = time.thread_time(), time.perf_counter(), _preempted()

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of all frames: a local one for the user's."""
        return self.tried(self._called, frame)

    def tried(self, part: Callable[..., Any], *args: Any) -> Any:
        """Have an error of the recording end it: the user's line that is recorded is not to raise it."""
        try:
            return part(*args)
        except Exception as error:  # noqa: BLE001
            sys.settrace(None)
            self.work.failed = self.work.failed or error

    def _called(self, frame: FrameType) -> Any:
        file = frame.f_code.co_filename
        if (users := self._is_users.get(file)) is None:
            users = self._is_users[file] = _is_users(file)
            self.work.is_compiled |= file.endswith(_COMPILER)
        self._stop_in_time()
        if frame.f_code.co_name == "<module>" and frame.f_code is not self._code:
            self._imports += 1
            frame.f_trace_lines = False
            return self._import_ended
        if not users or self._imports:
            is_work = not self._imports and self._until < 0 <= self._from
            self.work.library += is_work and not file.startswith("<frozen importlib")
            return None
        if frame.f_code is self._code:
            self._from = self._left if self._from < 0 else self._from
            self._until = -1  # code that awaits goes on
        self.spend(self._returned)  # C code that calls it again and again, as sum(g): that is work for its items
        self.stack.append(None)
        self.work.codes[id(frame.f_code)] = frame.f_code
        return self._in_frame

    def _import_ended(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            self._imports -= 1
        return self._import_ended

    def _in_frame(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.tried(self._noted, frame, event)

    def _noted(self, frame: FrameType, event: str) -> Any:
        self.spend()
        self._returned = None
        if event == "line":
            at = self.stack[-1] = id(frame.f_code), frame.f_lineno
            self.work.lines[at] += 1
            self._stop_in_time()
        elif event == "return" and len(self.stack) > 1:
            self._returned = self.stack.pop()
            if frame.f_code is self._code:
                self._until = self._left
                left, self._held = self._held or frame.f_locals, {}
                ours = {n for n, v in self._kept.items() if left.get(n) is v}  # what it was put back to
                named = ((n, v) for n, v in left.items() if n == VALUE or not n.startswith("__tb_"))
                bound = {n: v for n, v in named if n not in ours}
                with outside_modes():
                    self.work.gave = {name: seen_of(value) for name, value in bound.items()}
                    late = put_off(bound.get(VALUE))
                    self.work.put_off = f"returns {late}" if late else ""
                if self._is_last:
                    self.work.left = {n: bound[n] for n in self._kept if n in bound}
                    self.work.bound = [value for n, value in bound.items() if n != VALUE]
        return self._in_frame

    @property
    def events(self) -> int:
        """How many were recorded while the code ran."""
        return max(self._from, 0) - max(self._until if self._until >= 0 else self._left, 0)

    def _stop_in_time(self) -> None:
        self._left -= 1
        if self._left < 0:
            sys.settrace(None)
            self.work.cut.add("lines")

    def spend(self, on: Line | None = None) -> None:
        """What was spent since the last reading is a line's, the present one's by default."""
        cpu, wall = time.thread_time(), time.perf_counter()
        took = cpu - self._cpu
        if (idle := wall - self._wall - took) > WAITED:
            before, self._lost = self._lost, _preempted()
            if self._lost == before:
                self.work.waited += idle
                took += idle
            else:  # others took the core from it, or it waited too
                self.work.unclear += idle
        if (at := on or self.stack[-1]) is not None:
            self.work.seconds[at] = self.work.seconds.get(at, 0.0) + took
        self._cpu, self._wall = cpu, wall

    def waiting(self, sync: Callable[[], object]) -> Callable[[], object]:
        """``sync``, whose time is the operators' that are waited for, not that of the line that ran last."""

        def wait() -> None:
            tracer = sys.gettrace()
            sys.settrace(None)
            self._held = dict(sys._getframe(1).f_locals)
            self.tried(self.spend)
            cpu, wall = time.thread_time(), time.perf_counter()
            sync()
            self.operated(time.thread_time() - cpu, time.perf_counter() - wall)
            self.tried(self.resume)
            sys.settrace(tracer)

        self._has_device = sync is not no_wait
        return wait

    def operated(self, cpu: float, wall: float) -> None:
        """Seconds of an operator; on a device it is waited for, too."""
        idle = max(wall - cpu, 0.0) if self._has_device else 0.0
        self.work.in_operators += cpu + idle
        self.work.waited += idle

    def in_thread(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of threads that the code starts: counts only, and goes once the recording is over."""
        if self.is_over:
            sys.settrace(None)
        if self.is_over or not _is_users(frame.f_code.co_filename):
            return None
        if event == "line":
            self.work.codes[id(frame.f_code)] = frame.f_code
            self.work.lines[id(frame.f_code), frame.f_lineno] += 1
        return self.in_thread


def _is_users(file: str) -> bool:
    """Whether code of this file is the user's; what a library made of a text is not."""
    return is_users_file(file) and file != "<string>"


def _preempted() -> int:
    """How often others took the core from this thread, which is then behind without having waited for anything."""
    return 0 if _getrusage is None else _getrusage(_RUSAGE_THREAD).ru_nivcsw


def _running() -> dict[object, str]:
    """Threads of Python, and tasks of the event loop that runs here."""
    found: dict[object, str] = dict.fromkeys(threading.enumerate(), "thread")
    with contextlib.suppress(RuntimeError, KeyError):  # no loop runs
        found |= dict.fromkeys(sys.modules["asyncio"].all_tasks(), "task")
    return found


@cache
def _ns_of_an_event(clock: Callable[[], int]) -> float:
    """What recording a line takes: the least of some runs, so that nothing that held one up counts."""
    code = compile("for _ in range(50):\n    pass\n", "<recorded>", "exec")

    def once() -> float:
        lines, before, began = Lines(Work(), code), sys.gettrace(), clock()
        sys.settrace(lines.called)
        try:
            exec(code, {})
        finally:
            sys.settrace(before)
        return (clock() - began) / max(lines.events, 1)

    return min(once() for _ in range(5))


_seen_operators: set[Any] = set()
"""What this process has run."""


@cache
def _operators_mode() -> type:
    """The class, made once torch is there: counts operators below autograd and autocast, so those of a backward pass
    and casts too."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # else its first operator imports the compiler: 2 s
            return False

        def __init__(self, work: Work, lines: Lines, clock: Callable[[], int]) -> None:
            super().__init__()
            self._work, self._lines, self._clock, self.left = work, lines, clock, OPERATORS

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            tracer = sys.gettrace()
            sys.settrace(None)  # what the recording runs is nobody's
            entered = self._clock()
            self.left -= 1
            if is_here := threading.get_ident() == self._lines.thread:  # a backward pass on a device has its own
                self._lines.tried(self._lines.spend)
            if self.left < 0:
                self._work.cut.add("operators")
            began, wall = time.thread_time(), self._clock()
            sys.settrace(tracer)
            try:
                made = op(*args, **(kwargs or {}))
            except BaseException as error:  # the traceback goes on in the user's line: neither this frame nor `op`'s
                called = error.__traceback__ and error.__traceback__.tb_next
                error.__traceback__ = called and called.tb_next
                raise
            finally:
                tracer = sys.gettrace()  # none any more where enough lines were recorded
                sys.settrace(None)
                wall = self._clock() - wall
                self._lines.operated(time.thread_time() - began, wall / 1e9)
                entered += wall
            if self.left >= 0:
                with contextlib.suppress(Exception):  # a tensor that cannot be asked
                    self._note(op, [*args, *(kwargs or {}).values()], made)
            if is_here:
                self._lines.tried(self._lines.resume)
            self._work.overhead_ns += self._clock() - entered
            sys.settrace(tracer)
            return made

        def _note(self, op: Any, given: list[Any], made: Any) -> None:
            work, tensors = self._work, [t for each in given for t in _tensors(each)]
            has_graph = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
            flags = has_graph, *(each for each in given if isinstance(each, bool))  # `training`, say
            key = op, tuple((*t.shape, str(t.dtype), t.requires_grad) for t in tensors), flags
            work.operators[key] += 1
            at = self._lines.stack[-1]
            work.of_line[at] += 1
            if op not in _seen_operators:
                _seen_operators.add(op)
                work.cold.add(at)
            if key not in work.elements:
                returned = [r.alias_info for r in op._schema.returns if r.alias_info is not None]
                is_view = any(not each.is_write for each in returned)
                work.elements[key] = 1 if is_view else 1 + sum(t.numel() for t in [*tensors, *_tensors(made)])

    def _tensors(value: Any) -> list[Any]:
        several = value if isinstance(value, (list, tuple)) else (value,)
        return [each for each in several if isinstance(each, torch.Tensor)]

    return Operators


_recording: list[Any] = []
"""The mode of the call that is recorded."""


@cache
def _leave_forks_alone() -> None:
    """Have nothing recorded in a process that a recorded call forks, as a DataLoader's worker."""

    def in_child() -> None:
        for mode in _recording:
            sys.settrace(None)
            threading.settrace(None)
            mode.left = 0

    os.register_at_fork(after_in_child=in_child)


Waiting = Callable[[Callable[[], object]], Callable[[], object]]
"""What becomes of the waiting for a device."""


class Recorded(BlockAround):
    """A block that is run within a recording."""

    def __init__(self, block: Timeable, recording: Callable[[], AbstractContextManager[Waiting]]) -> None:
        self.block, self._recording = block, recording

    def start(self, replica: int, calls: int, clocks: Any, sync: Any) -> Any:
        if self.is_async:
            return self._awaited(replica, calls, clocks, sync)
        with interrupts_held(), self._recording() as waiting, interrupts_let_through((__name__,)):
            return self.block.start(replica, calls, clocks, waiting(sync))

    async def _awaited(self, replica: int, calls: int, clocks: Any, sync: Any) -> Any:
        with interrupts_held(), self._recording() as waiting, interrupts_let_through((__name__,)):
            return await self.block.start(replica, calls, clocks, waiting(sync))


@contextlib.contextmanager
def recorded_call(
    work: Work,
    code: CodeType,
    clock: Callable[[], int],
    generators: Sequence[tuple[Callable[[], Any], Callable[[Any], object], Any]],
    kept: Mapping[str, Any],
    *,
    is_last: bool,
) -> Iterator[Waiting]:
    """Count lines and operators within into ``work``; put back what is set for it. Gives `Lines.waiting`.

    Args:
        code: the loop of the block.
        clock: of the run, nanoseconds.
        generators: of random numbers: how each is read and set, and the state that the call is to find.
        kept: names that are put back before each call, with what they are put back to.
        is_last: no further call is recorded: what it binds those names to is kept.
    """
    now = [read() for read, _, _ in generators]
    for _, put, state in generators:
        put(state)
    lines, tracer = Lines(work, code, kept, is_last=is_last), sys.gettrace()
    in_threads, event = threading.gettrace(), _ns_of_an_event(clock)
    work.imported = -len(sys.modules)
    running = _running()
    mode = _operators_mode()(work, lines, clock)
    try:
        with dynamo_internals.uncompiled(), contextlib.ExitStack() as stack:
            stack.callback(end_mode, mode.__enter__())
            _leave_forks_alone()
            _recording.append(mode)
            threading.settrace(lines.in_thread)
            lines.resume()
            sys.settrace(lines.called)
            try:
                yield lines.waiting
            finally:
                sys.settrace(tracer)
                threading.settrace(in_threads)
                lines.is_over = True
    finally:
        _recording.clear()
        work.imported += len(sys.modules)
        if left := [kind for one, kind in _running().items() if one not in running]:
            work.put_off = work.put_off or f"leaves a {left[0]} running"
        first = id(code), min([line for _, _, line in code.co_lines() if line][1:], default=1)
        work.lines[first] = max(work.lines[first] - 1, 0)  # the loop's own, which stands on the first line
        work.overhead_ns += lines.events * event
        for (_, put, _), state in zip(generators, now, strict=True):  # timed calls go on from where they were
            put(state)
