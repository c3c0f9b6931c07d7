"""Which objects timed code reaches: through the names it reads, through functions that users wrote, in what these hold.

The search asks no object for an attribute and calls nothing: what it follows are dicts, cells and referents. Code of
libraries is not followed, so what a library keeps for itself is not seen.
"""

from __future__ import annotations

import functools
import sys
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from .code import closed_over, codes_within, globals_read, names_used
from .frame_owner import is_users_file

_MOST_OBJECTS, _MOST_ITEMS, _DEEPEST = 5_000, 1_000, 3
PLAIN_HOLDERS = (SimpleNamespace, Namespace)
"""Classes of the standard library whose instances only hold what the user gives them."""
_GIVEN_TO_LOADERS = {"dataset", "datasets", "sampler", "batch_sampler", "_dataset_fetcher", "dataset_iter"}
"""Attributes of DataLoaders, their iterators and datasets made of others, that lead to what the user gave them."""
_DICTS = (dict, OrderedDict)
_HOOKS = "_hooks"
"""Part of the names of the dicts in which modules and optimizers keep their hooks of every kind."""


@dataclass(frozen=True)
class ReachedObject:
    """An object that code may use.

    Attributes:
        label: how the code says it: ``cache``, ``model._mask``, ``parts[2]``.
        value: the object.
        direct: code reads it by its name, so that it surely is what the code works on.
    """

    label: str
    value: Any
    direct: bool


@dataclass(frozen=True)
class Found:
    """What code reaches.

    Attributes:
        items: id -> object.
        mentioned: names of globals and attributes, and short texts, that its functions and its own text hold.
        functions: those of users that it may run.
    """

    items: Mapping[int, ReachedObject]
    mentioned: frozenset[str] = frozenset()
    functions: tuple[FunctionType, ...] = ()


def search(names: Iterable[str], texts: Iterable[str], namespace: Mapping[str, Any]) -> Found:
    """What code reaches that reads ``names`` of ``namespace`` and mentions ``texts`` (attributes).

    Functions of users are followed through the globals, closures and defaults that they read, lists, tuples and dicts
    through their items, users' classes and their instances through the attributes that are mentioned somewhere.
    """
    mentioned = set(texts)
    functions: dict[int, FunctionType] = {}
    found: dict[int, ReachedObject] = {}
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
        found[id(value)] = ReachedObject(label, value, depth == 0)
        if depth > _DEEPEST:
            continue
        for function in _functions_of(value):
            if id(function) not in functions:
                functions[id(function)] = function
                mentioned.update(names_used(function.__code__), texts_within(function.__code__))
                todo.extend(_read_by(function))
        todo.extend(_held_by(label, value, depth + 1))
        waiting.append((label, value, depth + 1))
    return Found(found, frozenset(mentioned), tuple(functions.values()))


@functools.lru_cache(maxsize=2048)
def texts_within(code: CodeType) -> frozenset[str]:
    """String constants in the code, short ones: it may look up attributes, keys or variables by them."""
    constants = [constant for part in codes_within(code) for constant in part.co_consts]
    constants += [item for held in constants if isinstance(held, tuple | frozenset) for item in held]
    return frozenset(text for text in constants if isinstance(text, str) and len(text) <= 100)


def own_attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an instance of a user's class, as it holds them; None for whatever else."""
    inside = dict_of(value)
    if issubclass(type(value), type) or type(inside) is not dict:
        return None
    return inside if type(value) in PLAIN_HOLDERS or any(map(is_users_class, type(value).__mro__)) else None


def attributes_held(value: Any) -> dict[str, Any] | None:
    """The attributes of whatever instance or module, as it holds them; None where it holds them in no dict."""
    inside = dict_of(value)
    return inside if type(inside) is dict else None


def dict_of(value: Any) -> Any:
    """``__dict__`` as the object holds it. A proxy's ``__getattr__`` and ``__class__`` are not asked: they may raise
    anything, or make what they stand for."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def is_users_class(kind: type) -> bool:
    """Whether a class is the user's: of the notebook, a script, or a file of theirs."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or (module is not None and is_users_file(vars(module).get("__file__")))


def is_users_module(value: Any) -> bool:
    """Whether an object is a module of a file of the user's, or one that code made by itself."""
    if not issubclass(type(value), ModuleType):
        return False
    there = vars(value)
    return is_users_file(there.get("__file__")) or (there.get("__file__") is None and there.get("__spec__") is None)


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The functions of users that a call of ``value``, or of its methods, may run."""
    if issubclass(type(value), FunctionType):
        if is_users_file(value.__code__.co_filename):
            yield value
        return
    kind = value if issubclass(type(value), type) else type(value)
    for base in kind.__mro__:
        if is_users_class(base):
            methods = chain.from_iterable(map(_unwrapped, vars(base).values()))
            yield from (f for f in methods if issubclass(type(f), FunctionType))


def _unwrapped(value: Any) -> tuple[Any, ...]:
    """What a method of a class, or a property, runs."""
    if type(value) in (staticmethod, classmethod):
        return (value.__func__,)
    if type(value) is property:
        return value.fget, value.fset
    if type(value) is functools._lru_cache_wrapper:
        return (value.__wrapped__,)
    return (value.func,) if type(value) in (functools.cached_property, functools.partialmethod) else (value,)


def _read_by(function: FunctionType) -> Iterator[tuple[str, Any, int]]:
    home = function.__globals__
    yield from ((name, home[name], 0) for name in sorted(globals_read(function.__code__)) if name in home)
    held = (part for part in function_parts(function) if part[0] != "attribute")
    yield from ((name, value, 0 if how == "closure" else 1) for how, name, value in held)


def function_parts(function: FunctionType) -> Iterator[tuple[str, str, Any]]:
    """(how, name, value) of what a function holds: in its ``closure``, as a ``default``, as an ``attribute``."""
    yield from (("closure", name, value) for name, value in closed_over(function).items())
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    named = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False)
    yield from (("default", name, value) for name, value in named)
    yield from (("default", name, value) for name, value in (function.__kwdefaults__ or {}).items())
    yield from (("attribute", name, value) for name, value in [*vars(function).items()])


def _held_by(label: str, value: Any, depth: int) -> Iterator[tuple[str, Any, int]]:
    """What a container, a bound method, a partial or a wrapper holds."""
    if type(value) in (list, tuple, deque) and len(value) <= _MOST_ITEMS:
        yield from ((f"{label}[{at}]", item, depth) for at, item in enumerate(value))
    elif issubclass(type(value), dict) and dict.__len__(value) <= _MOST_ITEMS:
        held = [*dict.items(value)]
        yield from ((f"{label}[{key!r}]" if type(key) in (str, int) else label, item, depth) for key, item in held)
    elif key := next((_MADE_OF[n] for k in type(value).__mro__ if (n := (k.__module__, k.__name__)) in _MADE_OF), None):
        held = dict_of(value)
        yield from [(label, held[key], depth)] if type(held) is dict and key in held else []
    elif _is_queue(type(value)):
        yield label, dict_of(value)["_queue" if type(value).__module__ == "asyncio.queues" else "queue"], depth
    elif issubclass(type(value), MethodType):
        yield label, value.__self__, depth
        yield label, value.__func__, depth
    elif type(value) in (BuiltinMethodType, MethodWrapperType) and type(value.__self__) is not ModuleType:
        yield label, value.__self__, depth  # ``items.pop``, ``iterator.__next__``
    elif issubclass(type(value), functools.partial):
        yield from ((label, item, depth) for item in (value.func, *value.args, *value.keywords.values()))
    elif issubclass(type(value), functools._lru_cache_wrapper):
        yield label, value.__wrapped__, depth
    elif type(value) in (set, frozenset) and len(value) <= _MOST_ITEMS:
        yield from ((label, item, depth) for item in [*value])
    elif type(value) is FunctionType:
        is_users = is_users_file(value.__code__.co_filename)
        for how, name, one in function_parts(value):
            if name == "__wrapped__" or (how == "closure" and type(one) in _CALLED):  # what a library's decorator calls
                yield label, one, depth
            elif how == "attribute" and is_users:
                yield f"{label}.{name}", one, depth


_CALLED = (FunctionType, MethodType, functools.partial)
_MADE_OF = {
    ("collections", "UserDict"): "data",
    ("collections", "UserList"): "data",
    ("collections", "ChainMap"): "maps",
    ("weakref", "WeakKeyDictionary"): "data",
    ("weakref", "WeakValueDictionary"): "data",
}
"""Classes of the standard library that are made of a dict or a list, their attribute of this name."""


def _is_queue(kind: type) -> bool:
    """Whether instances are queues of the standard library that are made of a deque or a list."""
    return kind.__module__ in ("queue", "asyncio.queues") and kind.__name__ in ("Queue", "LifoQueue", "PriorityQueue")


def _attributes(label: str, value: Any, depth: int, mentioned: set[str]) -> Iterator[tuple[str, Any, int]]:
    """The attributes, as far as they are mentioned, of a module or of an instance of a user's class; the modules within
    an ``nn.Module``, its hooks and those of an optimizer."""
    if issubclass(type(value), ModuleType):
        there, is_users = vars(value), is_users_module(value)
        for name in sorted(mentioned & there.keys()):
            if is_users or issubclass(type(there[name]), functools._lru_cache_wrapper):
                yield f"{label}.{name}", there[name], depth
        return
    for kind in value.__mro__ if issubclass(type(value), type) else type(value).__mro__:
        if is_users_class(kind):
            there = vars(kind)
            yield from (
                (f"{kind.__qualname__}.{name}", there[name], depth) for name in sorted(mentioned & there.keys())
            )
    if issubclass(type(value), type):
        return
    for kind in filter(is_users_class, type(value).__mro__):
        slots = slots_among({name: vars(kind)[name] for name in sorted(mentioned & vars(kind).keys())})
        yield from ((f"{label}.{name}", one, depth) for name, one in slot_values(value, slots))
    inside: Any = dict_of(value)
    if type(inside) is not dict:
        return
    for name, module in (inside.get("_modules") or {}).items():
        if module is not None:
            yield f"{label}.{name}", module, depth - 1  # however deep it lies
    if "_modules" in inside or "param_groups" in inside:
        kept = [held for name, held in inside.items() if type(held) in _DICTS and len(held) and _HOOKS in name]
        yield from ((f"{label} (a hook)", hook, depth) for held in kept for hook in [*held.values()])
    if any(kind.__module__.startswith("torch.utils.data.") for kind in type(value).__mro__):
        yield from ((f"{label}.{name}", inside[name], depth) for name in sorted(_GIVEN_TO_LOADERS & inside.keys()))
    if own_attributes(value) is not None:
        if type(inside.get("_buffers")) is dict:
            yield label, inside["_buffers"], depth
        yield from ((f"{label}.{name}", inside[name], depth) for name in sorted(mentioned & inside.keys()))


def slots_among(attributes: Mapping[str, Any]) -> dict[str, MemberDescriptorType]:
    """Those of a class, a private one's name as it is stored (``_C__a``)."""
    return {name: part for name, part in attributes.items() if type(part) is MemberDescriptorType}


def slot_values(value: Any, slots: Mapping[str, MemberDescriptorType]) -> Iterator[tuple[str, Any]]:
    """(name, what is in it) of the slots of an instance that are set."""
    for name, slot in slots.items():
        try:
            yield name, slot.__get__(value)
        except AttributeError:  # not set
            continue
