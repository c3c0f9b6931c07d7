"""Calls of nn.Modules during a run, and the names that the user has for the modules.

A call is two marks in the flat record of its thread, as lines are (see `line_events.Stream`): its number as it is
entered, and ``-1 - number`` as it is left, by an exception too. The line source sees the calls: it reports each frame
of the one function through which every module is called (``Module._wrapped_call_impl``, of scripted and of compiled
ones too).

Hooks would not do. A global forward hook is a Python function that ``torch.compile`` traces, guards on and puts into
the key of its caches: a warm compiled module compiled again, and under ``set_stance("fail_on_recompile")`` raised. Nor
does ``Module.__call__`` take its short way while there is one. A watched frame changes neither. What is compiled runs
without such frames: a compiled module is one call, and those inside it have none.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np

from torchbench_magic.array_types import Ints
from torchbench_magic.profiling.loops.hooks import OuterCalls

_Held = list[tuple[str, Any]]  # (path, module)
_OF_COMPILER = "_LazyGraphModule"  # base of the graphs that torch.compile makes, not of those a user traces
_COMPILED = "_orig_mod"  # the submodule in which torch.compile keeps the module that it compiled
_MOST_ITEMS = 64  # of a list or dictionary in which modules are looked for


@dataclass(frozen=True)
class ModuleRecord:
    """The calls of a run.

    Attributes:
        names: of each module number, as the user would write it (``model.layer1.0``), else the name of its class.
        streams: native thread id -> ``[time, mark, ...]``.
        wrapped: number of what ``torch.compile(module)`` returned -> number of that module: one call, of the former.
    """

    names: tuple[str, ...] = ()
    streams: Mapping[int, array[int]] = field(default_factory=dict)
    wrapped: Mapping[int, int] = field(default_factory=dict)

    def calls(self, native: int, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
        """(start, end, module number) of the calls of a thread that began in [begin, end), by start.

        A call that was cut off (Ctrl-C) ends with the one it was in.
        """
        found: list[tuple[int, int, int]] = []
        running: list[tuple[int, int]] = []  # (start, number)
        marks = self.streams.get(native, ())
        for at in range(0, len(marks) - 1, 2):
            moment, mark = marks[at], marks[at + 1]
            if mark >= 0:
                running.append((moment, mark))
            elif any(number == -1 - mark for _, number in running):
                number = -1
                while number != -1 - mark:
                    start, number = running.pop()
                    if not (running and self.wrapped.get(running[-1][1]) == number):
                        found.append((start, moment, number))
        around = (-1, *(number for _, number in running))
        cut_off = [call for call, above in zip(running, around, strict=False) if self.wrapped.get(above) != call[1]]
        found += [(start, end, number) for start, number in cut_off]
        inside = sorted(((s, min(e, end), n) for s, e, n in found if begin <= s < end), key=lambda c: (c[0], -c[1]))
        columns = np.array(inside, dtype=np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]


@dataclass(frozen=True)
class _Seen:
    """A module that was called, or may be: it is not kept alive."""

    reference: weakref.ref[Any]
    class_name: str
    root: int  # number of the module that it was found in; its own for an outermost one
    path: str  # from there


class ModuleCalls:
    """Records between ``start`` and ``stop`` what a line source that watches `code` reports.

    Args:
        namespace: where the names of modules come from; read at the start and at the end.
        used: variables that the profiled code names: they name a module rather than others do.

    Attributes:
        code: of the function that calls a module; None before ``start``, and where torch has it no more.
        outer: told of the calls too.
    """

    code: CodeType | None = None
    outer: OuterCalls | None = None

    def __init__(self, namespace: Mapping[str, Any], used: Collection[str] = ()) -> None:
        self._namespace, self._used = namespace, frozenset(used)
        self._seen: list[_Seen] = []
        self._numbers: dict[int, int] = {}  # id -> number, of living modules
        self._names: dict[int, str] = {}  # number -> name at the start
        self._streams: dict[int, array[int]] = {}
        self._wrapped: dict[int, int] = {}
        self._called = ""  # the variable of `code` that holds the module
        self._local = threading.local()
        self._lock = threading.RLock()

    def start(self, called: Callable[..., Any] | None = None) -> None:
        """Calls are frames of ``called``; None: of torch's own function, `nn.Module.__call__` where that is missing."""
        from torch import nn

        self._names = dict(self._named())
        if called is None:
            called = getattr(nn.Module, "_wrapped_call_impl", nn.Module.__call__)  # `__call__` may be patched
        self.code = getattr(called, "__code__", None)
        self._called = self.code.co_varnames[0] if self.code is not None else ""

    def stop(self) -> ModuleRecord:
        names = self._names | dict(self._named())
        found = [self._name(number, names) for number in range(len(self._seen))]
        return ModuleRecord(tuple(found), dict(self._streams), dict(self._wrapped))

    def enter(self, frame: FrameType) -> None:
        """A frame of `code` begins."""
        try:
            put = self._local.put
        except AttributeError:
            put = self._open_stream()
        module = frame.f_locals[self._called]
        number = self._numbers.get(id(module))
        if number is None:
            number = self._add(module)
        if self.outer is not None:
            self.outer.enter(module, frame.f_back)
        put(time.time_ns())
        put(number)

    def leave(self, frame: FrameType) -> None:
        """A frame of `code` ends, whatever ends it."""
        put = getattr(self._local, "put", None)
        module = frame.f_locals[self._called]
        if self.outer is not None:
            self.outer.leave(module)
        number = self._numbers.get(id(module))
        if put is not None and number is not None:
            put(time.time_ns())
            put(-1 - number)

    def _open_stream(self) -> Callable[[int], None]:
        stream = self._streams[threading.get_native_id()] = array("q")
        self._local.put = stream.append
        return stream.append

    def _add(self, module: Any) -> int:
        """Number a module, and those in it that are not known: it is the outermost of them that was called."""
        with self._lock:
            root, held = len(self._seen), _submodules(module)
            for path, inner in held:
                if id(inner) not in self._numbers:
                    self._number(inner, root, path)
            self._note_wrapped(held)
            return self._numbers[id(module)]

    def _note_wrapped(self, held: Iterable[tuple[str, Any]]) -> None:
        for _, module in held:
            inner = _compiled_by(module)
            if id(module) in self._numbers and id(inner) in self._numbers:
                self._wrapped[self._numbers[id(module)]] = self._numbers[id(inner)]

    def _number(self, module: Any, root: int, path: str) -> int:
        key, number, numbers = id(module), len(self._seen), self._numbers

        def forget(_: Any) -> None:  # its id may be another's from now on
            if numbers.get(key) == number:
                del numbers[key]

        self._numbers[key] = number
        class_name = type(module).__qualname__.rpartition("<locals>.")[2]  # of fx's GraphModuleImpl, just that
        if any(base.__name__ == _OF_COMPILER for base in type(module).__mro__):
            class_name = "compiled graph"
        self._seen.append(_Seen(weakref.ref(module, forget), class_name, root, path))
        return number

    def _named(self) -> Iterator[tuple[int, str]]:
        """(number, name) of the modules that the namespace reaches; each is numbered."""
        from torch import nn

        found = list(_roots(self._namespace, nn.Module))
        own = {id(root) for _, root in found}
        roots = [(name, root, _submodules(root)) for name, root in found]
        named: set[int] = set()
        for name, held in self._by_rank([(name, root, _without_wrapped(held, own)) for name, root, held in roots]):
            for path, inner in held:
                if id(inner) in named:
                    continue
                named.add(id(inner))
                number = self._numbers.get(id(inner))
                yield self._number(inner, len(self._seen), "") if number is None else number, _joined(name, path)
        for _, _, held in roots:
            self._note_wrapped(held)

    def _by_rank(self, roots: Sequence[tuple[str, Any, _Held]]) -> Iterator[tuple[str, _Held]]:
        """(name, what it holds): first what the code names, of this the outermost; the others are in their order."""
        inside = {id(inner) for _, _, held in roots for path, inner in held if path}
        for name, _, held in sorted(
            roots, key=lambda each: (re.split(r"[.\[]", each[0])[0] not in self._used, id(each[1]) in inside)
        ):
            yield name, held

    def _name(self, number: int, names: Mapping[int, str]) -> str:
        if number in names:
            return names[number]
        seen = self._seen[number]
        if seen.root == number:
            return seen.class_name
        return _joined(names.get(seen.root, self._seen[seen.root].class_name), seen.path)


def _joined(name: str, path: str) -> str:
    parts = [part for part in path.split(".") if part and part != _COMPILED]
    return ".".join([name, *parts])


def _submodules(module: Any) -> list[tuple[str, Any]]:
    try:
        return list(module.named_modules())
    except Exception:  # noqa: BLE001  # a user's override may do anything; the module itself has a name all the same
        return [("", module)]


def _compiled_by(module: Any) -> Any:
    """The module that ``torch.compile`` wrapped into this one; None where this is no such wrapper."""
    held = vars(module).get("_modules")
    return held.get(_COMPILED) if isinstance(held, dict) else None


def _without_wrapped(held: _Held, own: Collection[int]) -> _Held:
    """What a module holds, without a compiled module (and what is in it) that has a variable of its ``own``."""
    ends = [path for path, inner in held if path.rpartition(".")[2] == _COMPILED and id(inner) in own]
    return [(path, inner) for path, inner in held if not any(f"{path}.".startswith(f"{end}.") for end in ends)]


def _roots(namespace: Mapping[str, Any], kind: type) -> Iterator[tuple[str, Any]]:
    """(expression, module) of what the variables hold: modules, lists and dictionaries of them, and attributes."""

    def are(items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        # by type: isinstance asks the object itself, and a proxy may do anything then
        return ((way, one) for way, one in items if issubclass(type(one), kind))

    for name, value in list(namespace.items()):
        if name.startswith("_"):  # IPython's own, such as _ and _12
            continue
        if issubclass(type(value), kind):
            yield name, value
        elif type(value) in (list, tuple):
            yield from are((f"{name}[{at}]", one) for at, one in enumerate(value[:_MOST_ITEMS]))
        elif type(value) is dict and len(value) <= _MOST_ITEMS:
            yield from ((f"{name}[{key!r}]", one) for key, one in are(list(value.items())))
        elif not issubclass(type(value), type):
            try:
                held = object.__getattribute__(value, "__dict__")
            except AttributeError:
                continue
            if type(held) is dict:
                yield from are((f"{name}.{key}", one) for key, one in list(held.items())[:_MOST_ITEMS])
