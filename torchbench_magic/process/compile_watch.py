"""What ``torch.compile`` compiled during a run, where graphs broke, and which functions it gave up."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.result_base import Doubt

from . import dynamo_internals
from .dynamo_internals import CompiledFrame, guard_text, value_after
from .interrupts import CountingUp, Progress

# ---- breaks ----------------------------------------------------------------------------------------------------------
# Why a graph broke, and what helps, each in one sentence: of the text that torch has for it, which is a page.

_BUILTIN = re.compile(r"builtin operator `(\w+)`")
_METHOD = re.compile(r"trace method `([^`]+)` of class `([^`]+)`")
_C_FUNCTION = re.compile(r"trace the builtin `([^`]+?)\.?`")
_OUTPUT = re.compile(r"Operator `(?:aten\.)?(\w+)[^`]*`'s output shape depends")
_SKIPPED = re.compile(r"Skip calling function `<function (\S+) at 0x\w+>` since it was wrapped with (`[^`]+`)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OPTIMIZERS = os.path.join("torch", "optim") + os.sep
_LONGEST = 160


def break_in_words(text: str, file: str = "", line: int = 0) -> tuple[str, str]:
    """(reason, hint), each without a full stop; the hint is empty where torch has none.

    Args:
        file, line: of the code that broke it, which a line of the user's may only have called.
    """
    first = text.strip().partition("\n")[0].strip()
    if first.startswith("generic_jump"):
        of_tensor = "TensorVariable" in first
        what = "the values of a tensor" if of_tensor else "a value that is not known while compiling"
        return f"a branch depends on {what}", "Use `torch.where`, or decide outside the compiled code"
    explanation, hints = _parts(text)
    if (found := _SKIPPED.search(explanation)) is not None:
        return f"`{found[1]}` is called, which {found[2]} keeps from being compiled", f"Remove the {found[2]}"
    explanation = _ADDRESS.sub("", explanation)
    if (found := _BUILTIN.search(explanation)) is not None:
        hint = f"Move the `{found[1]}` out of the compiled code"
        return f"`{found[1]}` cannot be compiled", hint
    if (found := _METHOD.search(explanation)) is not None:
        return f"`{found[2]}.{found[1]}` cannot be compiled", "Move it out of the compiled code"
    if (found := _C_FUNCTION.search(explanation)) is not None:
        return f"`{found[1]}` is not Python and cannot be compiled", "Move it out of the compiled code"
    if "item()" in first or "item()" in explanation:
        hint = "Keep it a tensor, or set `torch._dynamo.config.capture_scalar_outputs = True`"
        return "`.item()` reads a number from a tensor", hint
    if (found := _OUTPUT.search(explanation)) is not None:
        hint = "Set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`, or use `torch.where`"
        return f"the shape of the result of `{found[1]}` depends on the values of a tensor", hint
    if "User-inserted" in explanation:
        return _of_torch(file, line) or ("`torch._dynamo.graph_break()` is called", "Remove the call")
    return _clipped(_sentence(explanation) or first), _clipped(_sentence(hints[0]) if hints else "")


def _of_torch(file: str, line: int) -> tuple[str, str] | None:
    """Of a call to break the graph that is written in torch's library: there is no such call for the user to remove."""
    if not file.startswith(_torch_folder()):
        return None
    within = "an optimizer's step" if _OPTIMIZERS in file else "a function of torch"
    return f"torch's own code breaks it on purpose, in {within} (`{os.path.basename(file)}:{line}`)", ""


def _torch_folder() -> str:
    """Where torch is installed, with the separator at its end; no folder at all where it is not imported."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if file else "?"


def _parts(text: str) -> tuple[str, list[str]]:
    explanation = re.search(r"Explanation: (.*)", text)
    return (explanation[1].strip() if explanation else ""), re.findall(r"Hint: (.*)", text)


def _sentence(text: str) -> str:
    """The first sentence without its full stop."""
    return re.split(r"(?<=[\w)`])\.(?:\s|$)", text.strip(), maxsplit=1)[0]


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


# ---- compile_watch ---------------------------------------------------------------------------------------------------
# Two things are put together. The compiler's records say what was compiled, how long it took and which guard had
# failed. Its callbacks say when, and let us look at the variables before they are gone: a guard that failed says what a
# variable was, not what it is. A record is written after its callback, so that it is read at the next one, or at the
# end.

_OF_BACKWARD = "<eval_with_key>"  # the file of what compiled autograd makes of a backward pass


@dataclass
class _Noted:
    """What a callback saw of the frame that is being compiled."""

    compile_id: str
    code: CodeType | None
    breaks_before: int
    breaks: list[dynamo_internals.Break] = field(default_factory=list)
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
        self._callbacks = dynamo_internals.Callbacks(self._began, self._ended)
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

    def start(self) -> None:
        self._last = next(iter(reversed(dynamo_internals.frame_records())), None)
        self._breaks, _ = dynamo_internals.breaks_until_now()
        dynamo_internals.leave_alone(self.codes)  # anew for every run: ``torch.compiler.reset()`` may forget it
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
                now = dynamo_internals.being_compiled()
                count, _ = dynamo_internals.breaks_until_now()
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
                count, noted.breaks = dynamo_internals.breaks_until_now(noted.breaks_before)
                self._breaks = count
                now = dynamo_internals.being_compiled()
                if now is not None:
                    noted.code, noted.parameters, noted.is_whole = now.code, now.parameters, now.is_whole
                    noted.guard = now.guard
                    noted.after = value_after(guard_text(now.guard), now.local_names, now.global_names)
        except Exception as error:  # noqa: BLE001  # the same
            self.failed = error

    # ---- records --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take the records that came since the last look."""
        every = dynamo_internals.frame_records()
        new: list[Any] = []
        for record in reversed(every):
            if record is self._last:
                break
            new.append(record)
        if every:
            self._last = every[-1]
        for record in reversed(new):
            self._take(dynamo_internals.read_record(record), every)

    def _take(self, record: CompiledFrame, every: Sequence[Any]) -> None:
        noted = next((one for one in self._noted if one.compile_id == record.compile_id), None)
        if noted is not None:
            self._noted.remove(noted)
        if record.is_backward:
            self._add_backward(record, every)
            return
        breaks = noted.breaks if noted is not None else []
        if noted is None:  # no callback: what came since belongs to this one as far as we know
            self._breaks, breaks = dynamo_internals.breaks_until_now(self._breaks)
        code = noted.code if noted is not None else None
        of = record if record.name else self._same_frame(record, every)
        self._frames.append(
            replace(
                record,
                name=_name(of.name, code),
                file=of.file if code is None else code.co_filename,
                line=of.line if code is None else code.co_firstlineno,
                code=code,
                guard=_guard_of(record, noted),
                after=noted.after if noted is not None else "",
                breaks=tuple(dict.fromkeys(breaks)),  # tracing begins anew after some, and meets the others again
                is_whole=noted is not None and noted.is_whole,
            )
        )

    @staticmethod
    def _same_frame(record: CompiledFrame, every: Sequence[Any]) -> CompiledFrame:
        """The newest record of the same code: one that was given up at once, at the limit, does not name it."""
        frame = record.compile_id.rpartition("/")[0]
        found = (dynamo_internals.read_record(one) for one in reversed(every))
        same = (one for one in found if one.name and one.compile_id.rpartition("/")[0] == frame)
        return next(same, record)

    def _add_backward(self, record: CompiledFrame, every: Sequence[Any]) -> None:
        """A backward pass is compiled when it first runs: it belongs to the forward frame of the same number."""
        for at in range(len(self._frames) - 1, -1, -1):
            if self._frames[at].compile_id == record.compile_id:
                frame = self._frames[at]
                self._frames[at] = replace(frame, seconds=frame.seconds + record.seconds)
                return
        forward = (dynamo_internals.read_record(one) for one in reversed(every))
        known = next((one for one in forward if one.compile_id == record.compile_id and not one.is_backward), record)
        where = CompiledFrame(record.compile_id, known.name, known.file, known.line)
        self._frames.append(replace(where, seconds=record.seconds))


def _name(said: str, code: CodeType | None) -> str:
    if code is None:
        return said
    if code.co_filename.startswith(_OF_BACKWARD):
        return "a backward pass"
    return code.co_qualname.replace("<locals>.", "")


def _guard_of(record: CompiledFrame, noted: _Noted | None) -> str:
    """What failed: what the callback saw of several compilations rather than the record, which has the newest's."""
    if noted is None:
        return guard_text(record.guard)
    guard = guard_text(noted.guard or record.guard)
    for at, name in enumerate(noted.parameters):  # ``tensor 'input' ...`` for ``tensor 'args[0]' ...``
        guard = guard.replace(f"args[{at}]", name)
    return guard


def function_of(name: str) -> str:
    """The user's function: ``f`` for ``torch_dynamo_resume_in_f_at_4``, ``Net.f`` for ``Net.torch_dynamo_...``."""
    around, within, rest = name.rpartition(dynamo_internals.RESUMED)
    if not within or (around and not around.endswith(".")):
        return name
    return around + rest.rpartition("_at_")[0]


_REGION = "Torch-Compiled Region: "


def region_of(op: str) -> str:
    """The ``compile_id`` of the op in whose range a compiled frame runs; empty for any other op."""
    return op.removeprefix(_REGION) if op.startswith(_REGION) else ""


# ---- given_up --------------------------------------------------------------------------------------------------------
# Functions that the compiler gives up: they run as they are, and torch says nothing but a line in its log.

BEFORE = "before this run"
"""Ends why a function runs as it is, where the compiler had given it up earlier in this process."""

_BREAK = "graph break"
_UNSUPPORTED = "Unsupported"  # the exception of what the compiler cannot trace
_CALLED = re.compile(r"\btorch\.compile\b|\.compile\(")
_LIMIT = re.compile(r"exceeding the (\w+) cache size limit \(currently set to (\d+)\)")
_SHORT_LIMIT = re.compile(r"((?:accumulated_)?recompile_limit) reached")  # up to torch 2.10, which leaves out how many


def why_given_up(frame: CompiledFrame) -> str:
    """In words, why the function runs as it is from then on; empty where it does not."""
    if frame.refused_before == _BREAK:
        return f"it could not continue after a graph break {BEFORE}: {break_in_words(frame.why, *frame.failed_at)[0]}"
    if frame.refused_before:
        return f"{frame.refused_before} of {dynamo_internals.recompile_limit()} reached {BEFORE}"
    if (found := _LIMIT.search(frame.why)) is not None:
        return f"{found[1]} of {found[2]} reached"
    if (found := _SHORT_LIMIT.search(frame.why)) is not None:
        return f"{found[1]} reached"
    if is_broken_for_good(frame) and not frame.is_whole:
        return f"it cannot continue after a graph break: {break_in_words(frame.why, *frame.failed_at)[0]}"
    if frame.failure and frame.is_suppressed:
        said = frame.why.strip().splitlines()
        return f"an error was suppressed: {' '.join(said[:2]) or frame.failure}"
    return ""


def refused_before(codes: Iterable[CodeType], compiled: Collection[CompiledFrame]) -> list[CompiledFrame]:
    """Of the codes that ran, those that have as many compilations as the compiler allows, and of which it was given
    none in this run: it had refused to compile them again before, and it does not come back to them.

    The guard is that of the newest compilation, where the compiler still has its record.
    """
    limit = dynamo_internals.recompile_limit()
    seen = {frame.code for frame in compiled} | {frame.compile_id.rpartition("/")[0] for frame in compiled}
    found = []
    for code in dict.fromkeys(codes):
        kept = dynamo_internals.compiled_of(code) if limit is not None and code not in seen else ()
        number = kept[0].rpartition("/")[0] if kept else ""
        if not kept or len(kept) < (limit or 0) or number in seen:
            continue
        records = [dynamo_internals.read_record(one) for one in dynamo_internals.frame_records()]
        guards = [one.guard for one in records if one.guard and one.compile_id.rpartition("/")[0] == number]
        found.append(
            _of_code(
                code,
                compile_id=kept[0],
                guard=guard_text(guards[-1]) if guards else "",
                refused_before="recompile_limit",
            )
        )
    return found


def broken_before(codes: Iterable[CodeType], compiled: Collection[CompiledFrame]) -> list[CompiledFrame]:
    """Of the codes that ran though the compiler was asked for them, those whose newest record, of before this run, is
    of a graph break after which it could not go on: it runs them as they are since then. Of many compilations the
    compiler forgets the oldest records, and then nothing is known.
    """
    seen = {frame.code for frame in compiled}
    newest = {}
    for one in dynamo_internals.frame_records():
        record = dynamo_internals.read_record(one)
        if record.name and not record.is_backward:
            newest[record.file, record.line, record.name] = record
    found = []
    for code in dict.fromkeys(codes):
        last = newest.get((code.co_filename, code.co_firstlineno, code.co_name))
        if code in seen or last is None or last.failure != _UNSUPPORTED or _LIMIT.search(last.why):
            continue
        found.append(
            _of_code(
                code,
                compile_id=last.compile_id,
                failure=last.failure,
                why=last.why,
                failed_at=last.failed_at,
                refused_before=_BREAK,
            )
        )
    return found


def _of_code(code: CodeType, **facts: Any) -> CompiledFrame:
    name = code.co_qualname.replace("<locals>.", "")
    return CompiledFrame(name=name, file=code.co_filename, line=code.co_firstlineno, code=code, **facts)


def switched_off(texts: Iterable[str]) -> Doubt | None:
    """What is to be said where code calls ``torch.compile`` and that does nothing; None where it works, or is not
    called."""
    if not dynamo_internals.switched_off_by() or not any(_CALLED.search(text) for text in texts):
        return None
    text = (
        "torch.compile is switched off here (`TORCH_COMPILE_DISABLE`, `TORCHDYNAMO_DISABLE` or"
        " `torch._dynamo.config.disable`): it returns the code unchanged, not compiled."
    )
    return Doubt("compile-off", text, "Remove the setting and restart the kernel.")


def is_broken_for_good(frame: CompiledFrame) -> bool:
    """Whether a graph broke where the rest of the function cannot be compiled by itself, as in a loop, or may not."""
    return frame.failure == _UNSUPPORTED and not frame.refused_before and _LIMIT.search(frame.why) is None
