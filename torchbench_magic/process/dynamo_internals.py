"""Every private name of ``torch._dynamo`` that is used, what happens without it, and guards that failed, in words.

Assumed of torch 2.13 to 2.15, and asked for anew in each run, as nothing here imports the compiler:

* ``callback.callback_handler`` calls functions as a compilation begins and ends. Without it a progress does not say
  that the compiler is at work, values after a recompile are not known, and code that is compiled in a profiled loop may
  have our wrappers in it. Its ``clear()``, which a reset calls, forgets them: without it they are lost with a reset.
* ``utils.get_compilation_metrics()`` has a record of each frame that was compiled. Without it nothing is known.
* ``utils.graph_break_reasons`` is a list that grows with each graph break. Without it there are no graph breaks.
* ``convert_frame._compile`` has variables ``frame``, ``recompile_reason`` and ``one_graph`` while callbacks run.
  Without them the code object and the values of a recompile are not known, and an error of ``fullgraph=True`` is
  taken for a function that runs as it is. Its ``reasons`` say why each compilation that is kept did not serve. Without
  them the newest is told of.
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

import ast
import contextlib
import importlib.machinery
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

# ---- after_import ----------------------------------------------------------------------------------------------------


class AfterImport:
    """Calls ``then(module)`` when ``name`` was imported, from `start` to `stop`. A finder in ``sys.meta_path`` that
    finds nothing itself: it has Python's own loader run and calls after it.

    Every import that is not in ``sys.modules`` yet passes by, at the cost of comparing its name.
    """

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    @staticmethod
    def codes() -> tuple[CodeType, ...]:
        """Of what an import calls."""
        made = (*vars(AfterImport).values(), *vars(_Then).values())
        return tuple(one.__code__ for one in made if isinstance(one, FunctionType))

    def start(self) -> None:
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """As ``sys.meta_path`` asks for it."""
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = _Then(spec.loader, self._then)
        spec.loader = loader
        return spec


class _Then:
    """A loader that calls when the module has been executed; all else of it is the loader's own."""

    def __init__(self, loader: Any, then: Callable[[Any], None]) -> None:
        self._loader, self._then = loader, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._then(module)


# ---- guards ----------------------------------------------------------------------------------------------------------
# A guard is what compiled code asks before it runs: ``n == 1``, ``tensor 'x' rank mismatch. expected 1, actual 2``. Its
# text is torch's own for people to read, so that an unknown one is handed on as it is.

_LONGEST = 40  # characters of a value
_TENSOR_MISMATCH = re.compile(
    r"tensor '(?P<name>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<at>\d+))?\. "
    r"expected (?P<before>.+?)(?:, actual (?P<after>.+))?$"
)
_TYPE = re.compile(r"___check_type_id\((?P<name>.+?), \d+\)(?:, type=<class '(?P<before>[^']+)'>)?")
_SAME = re.compile(r"___check_obj_id\((?P<name>.+?), \d+\)")
_KEPT = re.compile(r"\b(?:___stack\d+|__nested_\w+)\b")  # the compiler's own variables in the rest of a function
_EQUALS = re.compile(r"(?P<name>[^=<>!]+?) == (?P<before>.+)$")
_IS = re.compile(r"(?P<name>[^=<>!]+?) is (?P<before>(?:not )?None|True|False)$")
_BACKEND = "BACKEND_MATCH failure"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_GLOBAL = re.compile(r"GLOBAL_STATE changed: (?P<what>.+)$")
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_STATES = {
    "grad_mode": "whether gradients are recorded (`torch.no_grad`)",
    "num_threads": "the number of threads",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "whether algorithms are deterministic",
    "allow_tf32": "whether TF32 is allowed",
}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class GuardChange:
    """What made a compilation of no use.

    Attributes:
        argument: what changed, as the user would write it (``n``, ``self.bn.training``); empty where it is no variable.
        before, after: its value, or that property of it, in short; empty where it is not known.
        text: the same as a sentence without a full stop.
    """

    argument: str
    before: str
    after: str
    text: str


def guard_text(reason: str) -> str:
    """The guard alone: without the compilation it is of, and the user's line that torch writes behind it."""
    first = reason.partition("\nUser stack trace")[0].strip()
    first = re.sub(r"^\[?!?[\d/]+\]?: ", "", first)
    first = re.split(r"\s{2,}# ", first)[0].strip()
    return re.sub(r"\s*\(HINT: .*\)$", "", first)


def value_after(guard: str, local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> str:
    """In short, what the guard asks of as it is now; empty where that is not known.

    No code of the user's runs: attributes are read from the objects' own dictionaries.
    """
    pattern = next((each for each in (_TYPE, _EQUALS, _IS) if each.match(guard) is not None), None)
    found = pattern.match(guard) if pattern is not None else None
    if found is None:
        return ""  # of a tensor torch says it itself, where it can be said
    name = found["name"].strip()
    of_length = re.fullmatch(r"len\((.+)\)", name)
    value, is_known = variable_at(of_length[1] if of_length else name, local_names, global_names)
    if not is_known:
        return ""
    if of_length is not None:
        return str(len(value)) if type(value) in (list, tuple, dict, set, str) else ""
    if pattern is _TYPE:
        return type(value).__qualname__
    return _short(value)


def _short(value: Any) -> str:
    if type(value) not in _PLAIN:
        return f"a {type(value).__qualname__}"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def variable_at(path: str, local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> tuple[Any, bool]:
    """The value that ``self._modules['bn'].training`` or ``G['scale']`` stands for, and whether it is known."""
    try:
        tree = ast.parse(path.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None, False

    def value_of(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return global_names if node.id == "G" and node.id not in local_names else local_names[node.id]
        if isinstance(node, ast.Attribute):
            own: dict[str, Any] = object.__getattribute__(value_of(node.value), "__dict__")
            return own if node.attr == "__dict__" else own[node.attr]
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            held = value_of(node.value)
            if type(held).__module__ not in ("builtins", "collections"):
                raise LookupError
            return held[node.slice.value]
        raise LookupError

    try:
        return value_of(tree), True
    except (LookupError, AttributeError, TypeError):
        return None, False


def change_of(guard: str, after: str = "") -> GuardChange:
    """The guard in words; ``after`` is what `value_after` found as it failed."""
    if _KEPT.search(guard) is not None:
        return GuardChange("", "", "", "a value kept across the graph break changed")
    if (found := _TENSOR_MISMATCH.match(guard)) is not None:
        return _of_tensor(found)
    if (found := _GLOBAL.match(guard)) is not None:
        what = " and ".join(_STATES.get(one, one.replace("_", " ")) for one in found["what"].split())
        return GuardChange("", "", "", f"{what} changed")
    if guard.startswith(_BACKEND):
        return GuardChange("", "", "", "it was compiled for another backend; each new backend function is another one")
    if (found := _TYPE.match(guard)) is not None:
        before = (found["before"] or "").rpartition(".")[2]
        return _was(_as_written(found["name"]), before, after, "of type ")
    if (found := _SAME.match(guard)) is not None:
        name = _as_written(found["name"])
        return GuardChange(name, "", "", f"`{name}` is another object")
    for pattern in (_IS, _EQUALS):
        if (found := pattern.match(guard)) is not None:
            name = found["name"].strip()
            if (inner := re.fullmatch(r"len\((.+)\)", name)) is not None:
                return _was(_as_written(inner[1]), found["before"], after, "of length ")
            return _was(_as_written(name), found["before"], after)
    guard = _ADDRESS.sub("", guard)
    return GuardChange("", "", "", f"the guard `{guard}` failed" if guard else "torch does not say why")


def _was(name: str, before: str, after: str, what: str = "") -> GuardChange:
    if not before:
        return GuardChange(name, before, after, f"`{name}` changed")
    if not after:
        return GuardChange(name, before, after, f"`{name}` is no longer {what}{before}")
    return GuardChange(name, before, after, f"`{name}` was {what}{before}, now {after}")


def _of_tensor(found: re.Match[str]) -> GuardChange:
    name, what = _as_written(found["name"]), found["what"].strip()
    before, after = found["before"].strip(), (found["after"] or "").strip()
    if what == "dtype":
        return _was(name, _DTYPES.get(before, before), _DTYPES.get(after, after))
    if what == "rank":
        dimensions = "dimension" if before == "1" else "dimensions"
        return GuardChange(name, before, after, f"`{name}` had {before} {dimensions}, now {after}")
    if what in ("size", "stride"):
        return GuardChange(name, before, after, f"`{name}` had {what} {before} in dimension {found['at']}, now {after}")
    if what == "requires_grad":
        before = {"0": "False", "1": "True"}.get(before.rpartition("=")[2], before)
        after = {"False": "True", "True": "False"}.get(before, "")
        return GuardChange(f"{name}.requires_grad", before, after, f"`{name}.requires_grad` was {before}, now {after}")
    if what == "dispatch key set":
        before, after = _device_of(before), _device_of(after)
        if before != after:
            return GuardChange(name, before, after, f"`{name}` was on {before}, now on {after}")
        return GuardChange(name, "", "", f"`{name}` is another kind of tensor (its dispatch keys differ)")
    if what.startswith("device"):
        return GuardChange(name, before, after, f"`{name}` was on device {before}, now on {after}")
    return GuardChange(name, before, after, f"the {what} of `{name}` was {before}, now {after}")


def _device_of(keys: str) -> str:
    """``DispatchKeySet(Meta, BackendSelect, ...)``: the first is the backend."""
    return keys.partition("(")[2].partition(",")[0].rstrip(")").lower()


def _as_written(name: str) -> str:
    """``self._modules['bn'].training`` as ``self.bn.training``, ``G['scale']`` as ``scale``."""
    name = re.sub(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", name.strip())
    name = re.sub(r"\.__dict__\['([^']+)'\]", r".\1", name)
    return re.sub(r"^G\['([^']+)'\]", r"\1", name)


# ---- dynamo ----------------------------------------------------------------------------------------------------------

RESUMED = "torch_dynamo_resume_in_"
"""Begins the name of code that is compiled of the rest of a function: ``torch_dynamo_resume_in_f_at_4``."""
_CALLBACK = "torch._dynamo.callback"
_SWITCHES = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
_HIGHEST = 40  # frames of the stack from a callback up to the compiler's own
_LONGEST_TEXT = 2000
_WRAPPER = "_dynamo" + os.sep + "external_utils.py"
_PLACE = "_dynamo" + os.sep + "convert_frame.py"


def is_loaded() -> bool:
    """Whether the compiler was imported: it takes 2 s."""
    return "torch._dynamo" in sys.modules


def load() -> None:
    import torch._dynamo  # noqa: F401


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled functions run as written, so that nothing is compiled within.

    A mode of torch's dispatcher without this has the compiler mark a frame that it has not seen as one to skip, for
    good. What it marked where it was loaded within is forgotten.
    """
    import torch

    was_loaded = is_loaded()
    with torch.compiler.set_stance("force_eager") if was_loaded else contextlib.nullcontext():
        yield
    if not was_loaded and is_loaded():
        torch._dynamo.reset()


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


Break = tuple[str, tuple[tuple[str, int], ...]]
"""A graph break: torch's text, and (file, line) of the frames that were being traced, the outermost first."""


@dataclass(frozen=True)
class CompiledFrame:
    """One frame that was compiled, or that the compiler gave up.

    Attributes:
        compile_id: as the compiler numbers it: ``3/2`` is the third compilation of frame 3.
        name: qualified, of the code object; ``torch_dynamo_resume_in_f_at_4`` for the rest of a function.
        file, line: where the code begins; for the rest of a function, the line that broke the graph. Empty and 0, and
            no name, where it was given up before it began.
        code: None where it is not known.
        seconds: that this took, the backward pass included.
        guard: that had failed; empty for a first compilation.
        after: what the guard asks of, as it was then, in short; empty where that is not known.
        breaks: the graph breaks in it.
        failure, why: the exception that ended it, and its text.
        failed_at: (file, line) where it did.
        is_whole: a graph break is an error that is raised (``fullgraph=True``).
        is_suppressed: the function runs as it is, though an error would be raised by default.
        refused_before: the limit that was reached before the run, or ``graph break``; empty for what the compiler did
            in it.
        is_backward: it is of a backward pass, whose forward part has the same ``compile_id``.
    """

    compile_id: str
    name: str = ""
    file: str = ""
    line: int = 0
    code: CodeType | None = None
    seconds: float = 0.0
    guard: str = ""
    after: str = ""
    breaks: tuple[Break, ...] = ()
    failure: str = ""
    why: str = ""
    failed_at: tuple[str, int] = ("", 0)
    is_whole: bool = False
    is_suppressed: bool = False
    refused_before: str = ""
    is_backward: bool = False


def frame_records() -> Sequence[Any]:
    """The compiler's own records, the newest last; of many the last 64. `read_record` reads one."""
    read = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    return read() if read is not None else ()


def read_record(record: Any) -> CompiledFrame:
    """One of `frame_records`: what the compiler itself notes of a frame, by the name that the code object has."""

    def text(name: str) -> str:
        return str(getattr(record, name, None) or "")

    began: Any
    ended: Any
    began, ended = (getattr(record, name, None) for name in ("start_time_us", "end_time_us"))
    whole = getattr(record, "entire_frame_compile_time_s", None)
    is_known = began is not None and ended is not None
    return CompiledFrame(
        compile_id=text("compile_id"),
        name=text("co_name"),
        file=text("co_filename"),
        line=int(getattr(record, "co_firstlineno", None) or 0),
        seconds=(int(ended) - int(began)) / 1e6 if is_known else float(whole or 0.0),
        guard=text("recompile_reason"),
        failure=text("fail_type"),
        why=text("fail_reason")[:_LONGEST_TEXT],
        failed_at=(text("fail_user_frame_filename"), int(getattr(record, "fail_user_frame_lineno", None) or 0)),
        is_suppressed=bool(getattr(record, "config_suppress_errors", False)),
        is_backward=getattr(record, "is_forward", None) is False,
    )


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
        guard: as in `CompiledFrame`, where it is known already.
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
            guard = _guard(names)
            is_whole = bool(names.get("one_graph"))
            return BeingCompiled(code if inner is None else inner, local, outer, guard, named, is_whole)
        frame = frame.f_back
    return None


def _guard(names: Mapping[str, Any]) -> str:
    """Why none of what is compiled served: what torch says of the newest, and of those that were compiled under another
    global state only where there is no other."""
    said, reasons = str(names.get("recompile_reason") or ""), names.get("reasons")
    found = [str(each) for each in reasons] if said and isinstance(reasons, list) else []
    return next((each for each in found if _GLOBAL.match(guard_text(each)) is None), said)


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
