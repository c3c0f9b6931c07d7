"""What ``torch.compile`` compiled during a run, by the compiler's own account.

Two things are put together. The compiler's records say what was compiled, how long it took and which guard had failed.
Its callbacks say when, and let us look at the variables before they are gone: a guard that failed says what a variable
was, not what it is. A record is written after its callback, so that it is read at the next one, or at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.core.progress import CountingUp, Progress

from . import dynamo
from .guards import guard_text, value_after

__all__ = ["CompileWatch", "CompiledFrame", "function_of", "region_of"]

_LONGEST_TEXT = 2000
_OF_BACKWARD = "<eval_with_key>"  # the file of what compiled autograd makes of a backward pass


@dataclass(frozen=True)
class CompiledFrame:
    """One frame that was compiled, or that the compiler gave up.

    Attributes:
        compile_id: as the compiler numbers it.
        name: qualified, of the code object; ``torch_dynamo_resume_in_f_at_4`` for the rest of a function.
        file, line: where the code begins; for the rest of a function, the line that broke the graph.
        code: None where it is not known.
        seconds: that this took, the backward pass included.
        spans: (from, to) in Unix ns, of the same: one, and one for a backward pass.
        guard: that had failed; empty for a first compilation.
        after: what the guard asks of, as it was then, in short; empty where that is not known.
        breaks: the graph breaks in it.
        failure, why: the exception that ended it, and its text.
        failed_at: (file, line) where it did.
        is_whole: a graph break is an error that is raised (``fullgraph=True``).
        is_suppressed: the function runs as it is, though an error would be raised by default.
        refused_before: the limit that was reached before the run, or ``graph break``; empty for what the compiler did
            in it.
    """

    compile_id: str
    name: str = ""
    file: str = ""
    line: int = 0
    code: CodeType | None = None
    seconds: float = 0.0
    spans: tuple[tuple[int, int], ...] = ()
    guard: str = ""
    after: str = ""
    breaks: tuple[dynamo.Break, ...] = ()
    failure: str = ""
    why: str = ""
    failed_at: tuple[str, int] = ("", 0)
    is_whole: bool = False
    is_suppressed: bool = False
    refused_before: str = ""


@dataclass
class _Noted:
    """What a callback saw of the frame that is being compiled."""

    compile_id: str
    code: CodeType | None
    breaks_before: int
    breaks: list[dynamo.Break] = field(default_factory=list)
    after: str = ""
    parameters: tuple[str, ...] = ()
    is_whole: bool = False
    guard: str = ""


class CompileWatch:
    """Notes what is compiled from `start` to `stop`, in every thread; nothing where nothing is.

    Args:
        progress: told "compiling f" as it happens, where it can count the seconds.

    Attributes:
        seconds: of what has been compiled until now, by the callbacks.
        count: how many compilations have ended until now.
        failed: what our own look at a compilation raised, which is no reason to end it; None where nothing was.
    """

    def __init__(self, progress: Progress | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._progress = progress if isinstance(progress, CountingUp) else None
        self._clock = clock
        self._callbacks = dynamo.Callbacks(self._began, self._ended)
        self._lock = threading.Lock()
        self._frames: list[CompiledFrame] = []
        self._noted: list[_Noted] = []
        self._last: Any = None
        self._breaks = 0
        self._since = 0.0
        self.seconds, self.count = 0.0, 0
        self.failed: Exception | None = None

    @property
    def frames(self) -> tuple[CompiledFrame, ...]:
        """What has been compiled until now."""
        with self._lock:
            self._read()
            return tuple(self._frames)

    @property
    def codes(self) -> tuple[CodeType, ...]:
        """All of ours that the compiler may come across."""
        mine = [one.__code__ for one in vars(type(self)).values() if isinstance(one, FunctionType)]
        return (*mine, *self._callbacks.codes)

    def _leave_alone(self) -> None:
        """Anew for every run: ``torch.compiler.reset()`` may forget it."""
        dynamo.leave_alone(self.codes)

    def start(self) -> None:
        self._last = next(iter(reversed(dynamo.frame_records())), None)
        self._breaks, _ = dynamo.breaks_until_now()
        self._leave_alone()
        self._callbacks.start()

    def stop(self) -> tuple[CompiledFrame, ...]:
        """Look away; what was compiled, in the order in which it ended."""
        self._callbacks.stop()
        if self._progress is not None:
            self._progress.counted()
        return self.frames

    # ---- called by the compiler, within the user's code -----------------------------------------------------

    def _began(self, compile_id: str) -> None:
        try:
            with self._lock:
                self._read()
                now = dynamo.being_compiled()
                count, _ = dynamo.breaks_until_now()
                self._noted.append(_Noted(compile_id, now.code if now is not None else None, count))
                self._since = self._clock()
            if self._progress is not None:
                name = function_of(now.code.co_name) if now is not None else "a backward pass"
                self._progress.count_up(f"compiling {name}")
        except Exception as error:  # noqa: BLE001  # it would end the user's compilation
            self.failed = error

    def _ended(self, compile_id: str) -> None:
        try:
            if self._progress is not None:
                self._progress.counted()
            with self._lock:
                self.seconds += self._clock() - self._since
                self.count += 1
                noted = next((one for one in reversed(self._noted) if one.compile_id == compile_id), None)
                if noted is None:
                    return
                count, noted.breaks = dynamo.breaks_until_now(noted.breaks_before)
                self._breaks = count
                now = dynamo.being_compiled()
                if now is not None:
                    noted.code, noted.parameters, noted.is_whole = now.code, now.parameters, now.is_whole
                    noted.guard = now.guard
                    noted.after = value_after(guard_text(now.guard), now.local_names, now.global_names)
        except Exception as error:  # noqa: BLE001  # the same
            self.failed = error

    # ---- records --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take the records that came since the last look."""
        every = dynamo.frame_records()
        new: list[Any] = []
        for record in reversed(every):
            if record is self._last:
                break
            new.append(record)
        if every:
            self._last = every[-1]
        for record in reversed(new):
            self._take(dynamo.read_record(record), every)

    def _take(self, record: dynamo.FrameRecord, every: Sequence[Any]) -> None:
        noted = next((one for one in self._noted if one.compile_id == record.compile_id), None)
        if noted is not None:
            self._noted.remove(noted)
        if record.is_backward:
            self._add_backward(record, every)
            return
        breaks = noted.breaks if noted is not None else []
        if noted is None:  # no callback: what came since belongs to this one as far as we know
            self._breaks, breaks = dynamo.breaks_until_now(self._breaks)
        code = noted.code if noted is not None else None
        of = record if record.function else self._same_frame(record, every)
        self._frames.append(
            CompiledFrame(
                compile_id=record.compile_id,
                name=_name(of.function, code),
                file=of.file if code is None else code.co_filename,
                line=of.line if code is None else code.co_firstlineno,
                code=code,
                seconds=record.seconds,
                spans=(record.span,),
                guard=_guard_of(record, noted),
                after=noted.after if noted is not None else "",
                breaks=tuple(dict.fromkeys(breaks)),  # tracing begins anew after some, and meets the others again
                failure=record.failure,
                why=record.why[:_LONGEST_TEXT],
                failed_at=record.failed_at,
                is_whole=noted is not None and noted.is_whole,
                is_suppressed=record.is_suppressed,
            )
        )

    @staticmethod
    def _same_frame(record: dynamo.FrameRecord, every: Sequence[Any]) -> dynamo.FrameRecord:
        """The newest record of the same code: one that was given up at once, at the limit, does not name it."""
        frame = record.compile_id.rpartition("/")[0]
        found = (dynamo.read_record(one) for one in reversed(every))
        same = (one for one in found if one.function and one.compile_id.rpartition("/")[0] == frame)
        return next(same, record)

    def _add_backward(self, record: dynamo.FrameRecord, every: Sequence[Any]) -> None:
        """A backward pass is compiled when it first runs: it belongs to the forward frame of the same number."""
        for at in range(len(self._frames) - 1, -1, -1):
            if self._frames[at].compile_id == record.compile_id:
                frame = self._frames[at]
                seconds, spans = frame.seconds + record.seconds, (*frame.spans, record.span)
                self._frames[at] = replace(frame, seconds=seconds, spans=spans)
                return
        forward = (dynamo.read_record(one) for one in reversed(every))
        known = next((one for one in forward if one.compile_id == record.compile_id and not one.is_backward), record)
        self._frames.append(
            CompiledFrame(
                *(record.compile_id, known.function, known.file, known.line),
                seconds=record.seconds,
                spans=(record.span,),
            )
        )


def _name(said: str, code: CodeType | None) -> str:
    if code is None:
        return said
    if code.co_filename.startswith(_OF_BACKWARD):
        return "a backward pass"
    return code.co_qualname.replace("<locals>.", "")


def _guard_of(record: dynamo.FrameRecord, noted: _Noted | None) -> str:
    """What failed: what the callback saw of several compilations rather than the record, which has the newest's."""
    if noted is None:
        return guard_text(record.guard)
    return _with_names(guard_text(noted.guard or record.guard), noted.parameters)


def _with_names(guard: str, parameters: Sequence[str]) -> str:
    """``tensor 'input' ...`` for ``tensor 'args[0]' ...``."""
    for at, name in enumerate(parameters):
        guard = guard.replace(f"args[{at}]", name)
    return guard


def function_of(name: str) -> str:
    """The user's function: ``f`` for ``torch_dynamo_resume_in_f_at_4``, ``Net.f`` for ``Net.torch_dynamo_...``."""
    around, within, rest = name.rpartition(dynamo.RESUMED)
    if not within or (around and not around.endswith(".")):
        return name
    return around + rest.rpartition("_at_")[0]


_REGION = "Torch-Compiled Region: "


def region_of(op: str) -> str:
    """The ``compile_id`` of the op in whose range a compiled frame runs; empty for any other op."""
    return op.removeprefix(_REGION) if op.startswith(_REGION) else ""
