"""Calls of nn.Modules during a run, by global forward hooks, and the names that the user has for the modules.

A call is two marks in the flat record of its thread, as lines are (see `streams`): its number as it is entered, and
``-1 - number`` as it is left. torch calls global hooks round every ``forward``, for scripted modules too, and after
one that raises (``always_call``). A call takes 4.5 us instead of 1 (2 of the difference are torch's own way through
any hook), and to name a thousand modules some 30 ms before the run. What torch.compile traces it must not trace into:
there the hooks return at once, and a compiled module is one call.
"""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ModuleCalls", "ModuleRecord"]

Ints = NDArray[np.int64]
_COMPILED = "_orig_mod"  # the submodule in which torch.compile keeps the module that it compiled
_MOST_ITEMS = 64  # of a list or dictionary in which modules are looked for
# torch warns that a hook is called for the compiled module too: this is what is wanted here
_EXPECTED = r"Using `torch\.compile\(module\)` when there are global hooks"


@dataclass(frozen=True)
class ModuleRecord:
    """The calls of a run.

    Attributes:
        names: of each module number, as the user would write it (``model.layer1.0``), else the name of its class.
        streams: native thread id -> ``[time, mark, ...]``.
    """

    names: tuple[str, ...] = ()
    streams: Mapping[int, array[int]] = field(default_factory=dict)

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
                    found.append((start, moment, number))
        found += [(start, end, number) for start, number in running]
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
    """Records between ``start`` and ``stop``; hooks that were there before stay, ours are gone afterwards.

    Args:
        namespace: where the names of modules come from; read at the start and at the end.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._seen: list[_Seen] = []
        self._numbers: dict[int, int] = {}  # id -> number, of living modules
        self._names: dict[int, str] = {}  # number -> name at the start
        self._streams: dict[int, array[int]] = {}
        self._local = threading.local()
        self._handles: list[Any] = []
        self._filter: Any = None
        self._lock = threading.RLock()

    def start(self) -> None:
        from torch.nn.modules import module

        self._names = dict(self._named())
        enter, leave = self._hooks()
        self._filter = _add_filter()
        self._handles.append(module.register_module_forward_pre_hook(enter))
        self._handles.append(module.register_module_forward_hook(leave, always_call=True))

    def stop(self) -> ModuleRecord:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        _remove_filter(self._filter)
        names = self._names | dict(self._named())
        found = [self._name(number, names) for number in range(len(self._seen))]
        return ModuleRecord(tuple(found), dict(self._streams))

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        from torch.compiler import is_compiling

        local, numbers, now = self._local, self._numbers, time.time_ns
        open_stream, add = self._open_stream, self._add

        def enter(module: Any, args: Any) -> None:
            if is_compiling():
                return
            try:
                put = local.put
            except AttributeError:
                put = open_stream()
            number = numbers.get(id(module))
            if number is None:
                number = add(module)
            put(now())
            put(number)

        def leave(module: Any, args: Any, output: Any) -> None:
            if is_compiling():
                return
            put = getattr(local, "put", None)
            number = numbers.get(id(module))
            if put is not None and number is not None:
                put(now())
                put(-1 - number)

        return enter, leave

    def _open_stream(self) -> Callable[[int], None]:
        stream = self._streams[threading.get_native_id()] = array("q")
        self._local.put = stream.append
        return stream.append

    def _add(self, module: Any) -> int:
        """Number a module, and those in it that are not known: it is the outermost of them that was called."""
        with self._lock:
            root = len(self._seen)
            for path, inner in _submodules(module):
                if id(inner) not in self._numbers:
                    self._number(inner, root, path)
            return self._numbers[id(module)]

    def _number(self, module: Any, root: int, path: str) -> int:
        key, number, numbers = id(module), len(self._seen), self._numbers

        def forget(_: Any) -> None:  # its id may be another's from now on
            if numbers.get(key) == number:
                del numbers[key]

        self._numbers[key] = number
        class_name = type(module).__qualname__.rpartition("<locals>.")[2]  # of fx's GraphModuleImpl, just that
        self._seen.append(_Seen(weakref.ref(module, forget), class_name, root, path))
        return number

    def _named(self) -> Iterator[tuple[int, str]]:
        """(number, name) of the modules that the namespace reaches; each is numbered."""
        from torch import nn

        roots = [(name, root, _submodules(root)) for name, root in _roots(self._namespace, nn.Module)]
        inside = {id(inner) for _, _, held in roots for path, inner in held if path}
        named: set[int] = set()
        for name, _, held in sorted(roots, key=lambda each: id(each[1]) in inside):  # stable: the outermost first
            for path, inner in held:
                if id(inner) in named:
                    continue
                named.add(id(inner))
                number = self._numbers.get(id(inner))
                yield self._number(inner, len(self._seen), "") if number is None else number, _joined(name, path)

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


def _add_filter() -> Any:
    """Silence the one warning that our hooks cause; the filter, or None where the user has the same."""
    before = list(map(id, warnings.filters))
    warnings.filterwarnings("ignore", message=_EXPECTED, category=UserWarning)
    return next((each for each in warnings.filters if id(each) not in before), None)


def _remove_filter(added: Any) -> None:
    at = next((at for at, each in enumerate(warnings.filters) if each is added), None)
    if added is not None and at is not None:
        del warnings.filters[at]  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]
