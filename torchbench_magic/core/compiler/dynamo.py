"""Every private name of ``torch._dynamo`` that this package takes, and what happens where it is missing.

Assumed of torch 2.13 to 2.15, and asked for anew in each run, as nothing here imports the compiler:

* ``callback.callback_handler`` calls functions as a compilation begins and ends. Without it a progress does not say
  that the compiler is at work, values after a recompile are not known, and code that is compiled in a profiled loop may
  have our wrappers in it. Its ``clear()``, which a reset calls, forgets them: without it they are lost with a reset.
* ``utils.get_compilation_metrics()`` has a record of each frame that was compiled. Without it nothing is known.
* ``utils.graph_break_reasons`` is a list that grows with each graph break. Without it there are no graph breaks.
* ``convert_frame._compile`` has variables ``frame``, ``recompile_reason`` and ``one_graph`` while callbacks run.
  Without them the code object and the values of a recompile are not known, and an error of ``fullgraph=True`` is
  taken for a function that runs as it is. Its ``reasons`` and ``cache_entries_for_reasons``, the latter each with
  ``guard_manager.code_parts``, say why each compilation that is kept did not serve. Without them the newest is told of.
* ``convert_frame.output_codes`` holds code that it made. Without it compiled code stands under its function's name.
* ``utils.counters["frames"]["total"]`` counts frames that it was given. Without it a first call that compiled is not
  known to have done so.
* ``_C._dynamo.eval_frame._debug_get_cache_entry_list(code)`` is what is compiled of a code object, each with its
  ``compile_id``; ``config.recompile_limit`` is how many there may be. Without them it is not known that a function was
  given up before a run.
* ``eval_frame.set_code_exec_strategy`` marks code to be left alone, as ``torch.compiler.disable`` does, without its
  wrapper and without importing the compiler. Without it a profile may compile a few frames of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FrameType
from typing import Any

from .after_import import AfterImport
from .nearest import nearest_reason

__all__ = [
    "RESUMED",
    "Break",
    "BeingCompiled",
    "Callbacks",
    "FrameRecord",
    "being_compiled",
    "breaks_until_now",
    "compiled_of",
    "frames_given",
    "is_compiled",
    "is_switched_off",
    "leave_alone",
    "read_record",
    "recompile_limit",
    "switched_off_by",
    "frame_records",
]

RESUMED = "torch_dynamo_resume_in_"
"""Begins the name of code that is compiled of the rest of a function: ``torch_dynamo_resume_in_f_at_4``."""
_CALLBACK = "torch._dynamo.callback"
_SWITCHES = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
_HIGHEST = 40  # frames of the stack from a callback up to the compiler's own
_WRAPPER = "_dynamo" + os.sep + "external_utils.py"
_PLACE = "_dynamo" + os.sep + "convert_frame.py"


def leave_alone(codes: Iterable[CodeType], *, with_called: bool = True) -> None:
    """Mark code objects as ones that the compiler runs as they are, and what they call too, or not (user's code)."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return
    mark = getattr(eval_frame, "set_code_exec_strategy", None)
    strategy, action = (getattr(eval_frame, name, None) for name in ("_FrameExecStrategy", "_FrameAction"))
    if mark is None or strategy is None or action is None:
        return
    alone = strategy(action.SKIP, action.SKIP if with_called else action.DEFAULT)
    for code in codes:
        mark(code, alone)


def is_compiled(code: CodeType) -> bool:
    """Whether the compiler made the code: it bears the function's name, and none of its lines."""
    return code in getattr(sys.modules.get("torch._dynamo.convert_frame"), "output_codes", ())


def compiled_of(code: CodeType) -> tuple[str, ...]:
    """The ``compile_id`` of each compilation of the code that is kept, the newest first."""
    kept = getattr(sys.modules.get("torch._C._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return () if kept is None else tuple(str(getattr(one, "compile_id", "")) for one in kept(code))


def recompile_limit() -> int | None:
    """How many compilations of one code object there may be; None where that is not known."""
    limit = getattr(sys.modules.get("torch._dynamo.config"), "recompile_limit", None)
    return limit if isinstance(limit, int) else None


def frames_given() -> int:
    """How many frames the compiler was given in this process, those that it refused included."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})  # a defaultdict of Counters
    return int(counters["frames"]["total"]) if "frames" in counters else 0


def switched_off_by() -> str:
    """The setting, of the environment or of torch, that has ``torch.compile`` do nothing; empty where it works."""
    if switch := next((f"{name}={value}" for name, value in _SWITCHES.items() if os.environ.get(name) == value), ""):
        return switch
    is_off = bool(getattr(sys.modules.get("torch._dynamo.config"), "disable", False))
    return "torch._dynamo.config.disable" if is_off else ""


def is_switched_off() -> bool:
    """Whether ``torch.compile`` does nothing."""
    return bool(switched_off_by())


@dataclass(frozen=True)
class FrameRecord:
    """What the compiler noted of one frame, or of one backward pass.

    Attributes:
        compile_id: ``3/2`` is the third compilation of frame 3.
        function, file, line: of the code; empty and 0 where it was given up before it began.
        seconds: from its beginning to its end.
        span: the same as Unix ns, (0, 0) where that is not known.
        guard: why what was compiled before did not serve; empty for a first compilation.
        failure, why: the exception that ended it and its text; empty where it did not fail.
        failed_at: (file, line) of the user's code; ("", 0) where it is not known.
        is_suppressed: errors are not raised, and the function runs as it is.
        is_backward: it is of a backward pass, whose forward part has the same ``compile_id``.
    """

    compile_id: str
    function: str
    file: str
    line: int
    seconds: float
    span: tuple[int, int]
    guard: str
    failure: str
    why: str
    failed_at: tuple[str, int]
    is_suppressed: bool
    is_backward: bool


def frame_records() -> Sequence[Any]:
    """The compiler's own records, the newest last; of many the last 64. `read_record` reads one."""
    read = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    return read() if read is not None else ()


def read_record(record: Any) -> FrameRecord:
    """One of `frame_records` as a value."""

    def text(name: str) -> str:
        return str(getattr(record, name, None) or "")

    began: Any
    ended: Any
    began, ended = (getattr(record, name, None) for name in ("start_time_us", "end_time_us"))
    whole = getattr(record, "entire_frame_compile_time_s", None)
    is_known = began is not None and ended is not None
    span = (1000 * int(began), 1000 * int(ended)) if is_known else (0, 0)
    return FrameRecord(
        compile_id=text("compile_id"),
        function=text("co_name"),
        file=text("co_filename"),
        line=int(getattr(record, "co_firstlineno", None) or 0),
        seconds=(span[1] - span[0]) / 1e9 if is_known else float(whole or 0.0),
        span=span,
        guard=text("recompile_reason"),
        failure=text("fail_type"),
        why=text("fail_reason"),
        failed_at=(text("fail_user_frame_filename"), int(getattr(record, "fail_user_frame_lineno", None) or 0)),
        is_suppressed=bool(getattr(record, "config_suppress_errors", False)),
        is_backward=getattr(record, "is_forward", None) is False,
    )


Break = tuple[str, tuple[tuple[str, int], ...]]
"""A graph break: torch's text, and (file, line) of the frames that were being traced, the outermost first."""


def breaks_until_now(since: int = 0) -> tuple[int, list[Break]]:
    """How many graph breaks there were, and those after the first ``since`` of them. After
    ``torch.compiler.reset()`` they count from 0 again.
    """
    found: Sequence[Any] = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", ())
    count = len(found)
    new = found[since:] if since <= count else found
    return count, [(str(getattr(one, "reason", "")), _frames(getattr(one, "user_stack", ()))) for one in new]


def _frames(stack: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    return tuple((str(frame.filename), int(frame.lineno or 0)) for frame in stack)


@dataclass(frozen=True)
class BeingCompiled:
    """The frame that the compiler is at.

    Attributes:
        code: of the function.
        parameters: names of those of a library's function that the compiler has wrapped in ``inner(*args)``, for
            which a guard says ``args[0]``; empty for others.
        local_names, global_names: its variables; not to be kept.
        guard: as in `FrameRecord`, where it is known already.
        is_whole: a graph break is an error that is raised (``fullgraph=True``).
    """

    code: CodeType
    local_names: Mapping[str, Any]
    global_names: Mapping[str, Any]
    guard: str
    parameters: tuple[str, ...] = ()
    is_whole: bool = False


def being_compiled() -> BeingCompiled | None:
    """For a callback: the frame that is being compiled; None where that is not known (of a backward pass)."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_HIGHEST):
        if frame is None:
            return None
        if frame.f_code.co_name == "_compile" and frame.f_code.co_filename.endswith(_PLACE):
            names = frame.f_locals
            compiled = names.get("frame")
            code = getattr(compiled, "f_code", None) or names.get("code")
            if not isinstance(code, CodeType):
                return None
            inner = _wrapped(code, compiled)
            named = () if inner is None else inner.co_varnames[1 : inner.co_argcount]
            there = (getattr(compiled, name, None) for name in ("f_locals", "f_globals"))
            local, outer = ({} if one is None else one for one in there)
            guard = _guard(names, local, outer)
            is_whole = bool(names.get("one_graph"))
            return BeingCompiled(code if inner is None else inner, local, outer, guard, named, is_whole)
        frame = frame.f_back
    return None


def _guard(names: Mapping[str, Any], local: Mapping[str, Any], outer: Mapping[str, Any]) -> str:
    """Why none of what is compiled served: against the nearest of it, where torch tells each, else what it says."""
    reasons, kept = names.get("reasons"), names.get("cache_entries_for_reasons")
    said = str(names.get("recompile_reason") or "")
    if not said or not isinstance(reasons, list) or not kept:
        return said
    guards = [getattr(getattr(one, "guard_manager", None), "code_parts", ()) for one in kept]
    return nearest_reason(reasons, guards, local, outer) or said


def _wrapped(code: CodeType, frame: Any) -> CodeType | None:
    """The ``forward`` of a library's module that is compiled within a function of the compiler's own; else None."""
    if not code.co_filename.endswith(_WRAPPER) or "fn" not in code.co_freevars:
        return None
    held = dict(zip(code.co_freevars, getattr(frame, "closure", None) or (), strict=False)).get("fn")
    module = held.cell_contents if isinstance(held, CellType) else held
    inner = getattr(getattr(type(module), "forward", None), "__code__", None)
    return inner if isinstance(inner, CodeType) else None


class Callbacks:
    """Has the compiler call ``began`` and ``ended`` with the id of each compilation, from `start` to `stop`: also where
    it is imported only after that, or reset. What they raise would end the user's compilation: they must not."""

    def __init__(self, began: Callable[[str], None], ended: Callable[[str], None]) -> None:
        self._began = lambda args: began(str(getattr(args, "compile_id", "")))
        self._ended = lambda args: ended(str(getattr(args, "compile_id", "")))
        self._after = AfterImport(_CALLBACK, self._register)
        self._handler: Any = None
        self._clearing: _Clearing | None = None

    @property
    def codes(self) -> tuple[CodeType, ...]:
        """What is called by the compiler, and by an import."""
        return self._began.__code__, self._ended.__code__, *AfterImport.codes()

    def start(self) -> None:
        loaded = sys.modules.get(_CALLBACK)
        if loaded is None:
            self._after.start()
        else:
            self._register(loaded)

    def _register(self, module: Any) -> None:
        handler: Any = getattr(module, "callback_handler", None)
        lists = [getattr(handler, name, None) for name in ("start_callbacks", "end_callbacks")]
        if all(isinstance(one, list) for one in lists):
            self._handler = handler
            self._add()
            self._clearing = _Clearing.of(handler)
            self._clearing.after.append(self._add)

    def _add(self) -> None:
        self._handler.start_callbacks.append(self._began)
        self._handler.end_callbacks.append(self._ended)

    def stop(self) -> None:
        self._after.stop()
        if self._handler is None:
            return
        if self._clearing is not None:
            self._clearing.leave(self._add)
        for called, mine in ((self._handler.start_callbacks, self._began), (self._handler.end_callbacks, self._ended)):
            if mine in called:  # the user's code may have taken it away
                called.remove(mine)
        self._handler = None


class _Clearing:
    """In place of ``callback_handler.clear``, which ``torch.compiler.reset()`` calls, as long as there is something to
    do after it.

    Attributes:
        after: what adds callbacks of ours again.
    """

    def __init__(self, handler: Any) -> None:
        self._handler, self._own, self._was = handler, vars(handler).get("clear"), getattr(handler, "clear", None)
        self.after: list[Callable[[], None]] = []

    @classmethod
    def of(cls, handler: Any) -> _Clearing:
        there = vars(handler).get("clear")
        if not isinstance(there, cls):
            there = handler.clear = cls(handler)
        return there

    def __call__(self) -> None:
        try:
            if self._was is not None:
                self._was()
        finally:  # it raises during a compilation, when it has cleared all
            for add in self.after:
                add()

    def leave(self, add: Callable[[], None]) -> None:
        if add in self.after:
            self.after.remove(add)
        if self.after or vars(self._handler).get("clear") is not self:
            return
        if self._own is None:
            del self._handler.clear
        else:
            self._handler.clear = self._own
