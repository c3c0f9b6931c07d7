"""Which objects timed code reaches: through the names it reads, through functions that users wrote, in what these hold.

The search asks no object for an attribute and calls nothing: what it follows are dicts, cells and referents. Code of
libraries is not followed, so what a library keeps for itself is not seen.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from .block import names_used
from .code_reads import globals_read

__all__ = ["Reached", "own_attributes", "reached"]

_MOST_OBJECTS, _MOST_ITEMS, _DEEPEST = 5_000, 1_000, 3
_PACKAGE = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class Reached:
    """An object that code may use.

    Attributes:
        label: how the code says it: ``cache``, ``model._mask``, ``parts[2]``.
        value: the object.
        direct: code reads it by its name, so that it surely is what the code works on.
    """

    label: str
    value: Any
    direct: bool


def reached(names: Iterable[str], texts: Iterable[str], namespace: Mapping[str, Any]) -> dict[int, Reached]:
    """Id -> object, for what code reaches that reads ``names`` of ``namespace`` and mentions ``texts`` (attributes).

    Functions of users are followed through the globals, closures and defaults that they read, lists, tuples and dicts
    through their items, instances of users' classes through the attributes that are mentioned somewhere.
    """
    mentioned = set(texts)
    found: dict[int, Reached] = {}
    todo = deque((name, namespace[name], 0) for name in sorted(names) if name in namespace)
    waiting: list[tuple[str, Any, int]] = []  # whose attributes are looked at when all code is known
    while todo or waiting:
        if not todo:
            todo.extend(inner for outer in waiting for inner in _attributes(*outer, mentioned))
            waiting = []
            continue
        label, value, depth = todo.popleft()
        if id(value) in found or len(found) >= _MOST_OBJECTS:
            continue
        found[id(value)] = Reached(label, value, depth == 0)
        if depth > _DEEPEST:
            continue
        for function in _functions_of(value):
            mentioned |= set(names_used(function.__code__))
            todo.extend(_read_by(function))
        todo.extend(_held_by(label, value, depth + 1))
        waiting.append((label, value, depth + 1))
    return found


def own_attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an instance of a user's class, as it holds them; None for whatever else."""
    inside = _dict_of(value)
    if issubclass(type(value), type) or type(inside) is not dict:
        return None
    return inside if any(map(_is_users_class, type(value).__mro__)) else None


def _dict_of(value: Any) -> Any:
    """``__dict__`` as the object holds it. A proxy's ``__getattr__`` and ``__class__`` are not asked: they may raise
    anything, or make what they stand for."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _is_users(file: str | None) -> bool:
    """Whether code of this file is the user's: of a cell or a file of theirs, not of a library or of this package."""
    return file is not None and not file.startswith(("<frozen", *_libraries()))


@cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_PACKAGE})


def _is_users_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or (module is not None and _is_users(vars(module).get("__file__")))


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The functions of users that a call of ``value``, or of its methods, may run."""
    if issubclass(type(value), FunctionType):
        if _is_users(value.__code__.co_filename):
            yield value
        return
    kind = value if issubclass(type(value), type) else type(value)
    for base in kind.__mro__:
        if _is_users_class(base):
            yield from (f for f in vars(base).values() if isinstance(f, FunctionType))


def _read_by(function: FunctionType) -> Iterator[tuple[str, Any, int]]:
    home = function.__globals__
    yield from ((name, home[name], 0) for name in sorted(globals_read(function.__code__)) if name in home)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, 0
        except ValueError:  # not bound yet
            continue
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from ((name, value, 1) for name, value in zip(arguments[len(arguments) - len(defaults) :], defaults))  # noqa: B905
    yield from ((name, value, 1) for name, value in (function.__kwdefaults__ or {}).items())


def _held_by(label: str, value: Any, depth: int) -> Iterator[tuple[str, Any, int]]:
    """What a container, a bound method, a partial or a wrapper holds."""
    if type(value) in (list, tuple, deque) and len(value) <= _MOST_ITEMS:
        yield from ((f"{label}[{at}]", item, depth) for at, item in enumerate(value))
    elif issubclass(type(value), dict) and len(value) <= _MOST_ITEMS:
        yield from ((f"{label}[{key!r}]" if type(key) in (str, int) else label, value[key], depth) for key in [*value])
    elif issubclass(type(value), MethodType):
        yield label, value.__self__, depth
        yield label, value.__func__, depth
    elif issubclass(type(value), functools.partial):
        yield from ((label, item, depth) for item in (value.func, *value.args, *value.keywords.values()))
    elif issubclass(type(value), functools._lru_cache_wrapper):
        yield label, value.__wrapped__, depth


def _attributes(label: str, value: Any, depth: int, mentioned: set[str]) -> Iterator[tuple[str, Any, int]]:
    """The attributes, as far as they are mentioned, of a module or of an instance of a user's class, and the modules
    within an ``nn.Module``."""
    if issubclass(type(value), ModuleType):
        there = vars(value)
        for name in sorted(mentioned & there.keys()):
            if _is_users(there.get("__file__")) or issubclass(type(there[name]), functools._lru_cache_wrapper):
                yield f"{label}.{name}", there[name], depth
        return
    if issubclass(type(value), type):
        return
    inside: Any = _dict_of(value)
    if type(inside) is not dict:
        return
    for name, module in (inside.get("_modules") or {}).items():
        if module is not None:
            yield f"{label}.{name}", module, depth
    if own_attributes(value) is not None:
        if type(inside.get("_buffers")) is dict:
            yield label, inside["_buffers"], depth
        yield from ((f"{label}.{name}", inside[name], depth) for name in sorted(mentioned & inside.keys()))
