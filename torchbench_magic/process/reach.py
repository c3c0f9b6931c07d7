"""Which objects timed code reaches: through the names it reads, through functions that users wrote, in what these hold.

The search asks no object for an attribute and calls nothing: what it follows are dicts, cells and referents. Code of
libraries is not followed, so what a library keeps for itself is not seen.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import opcode
import sys
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
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
from weakref import WeakKeyDictionary

from .code import closed_over, codes_within, globals_read, names_used
from .frame_owner import is_users_class, is_users_file
from .static_introspection import ABSENT, class_dict, class_order, is_module

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
    mention(mentioned)
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
                mention(mentioned)
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


# ---- attributes ------------------------------------------------------------------------------------------------------
# CPython 3.11 and 3.12 keep the attributes of an object in itself until somebody asks for its ``__dict__``: from then
# on each use of one takes longer (a call that counts in an object 0.20 us in place of 0.12), for as long as it lives.
# So it is not asked where they can be told by the names that code sets, and the garbage collector knows of no more.

_STAND_INSIDE = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info < (3, 13)
_STORE_ATTR, _EXTENDED_ARG = opcode.opmap["STORE_ATTR"], opcode.EXTENDED_ARG
_MANAGED = 1 << 4  # Py_TPFLAGS_MANAGED_DICT
_names_set: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
_names_beside: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
_mentioned: set[str] = set()
"""Names that the user's code may have set."""


class Attributes(MutableMapping[str, Any]):
    """The attributes of an object that stand in it; as its ``__dict__``, which is left unmade.

    Attributes:
        owner: the object.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def now(self) -> dict[str, Any] | None:
        """All of them; None where they are in a dict, or one has no known name."""
        owner, kind = self.owner, type(self.owner)
        there = [each for each in gc.get_referents(owner) if each is not kind]
        for names in (_names_set_by(kind), _names_set_beside(kind) | _mentioned):
            own: dict[str, Any] = {}
            defaults: dict[str, Any] = {}
            for name in names:
                default = next((class_dict(k)[name] for k in class_order(kind) if name in class_dict(k)), ABSENT)
                is_method = type(default) is FunctionType
                if not is_method and any("__get__" in class_dict(k) for k in class_order(type(default))):
                    continue  # it would run
                with contextlib.suppress(AttributeError):
                    value = object.__getattribute__(owner, name)
                    if not (is_method and type(value) is MethodType):
                        (defaults if value is default else own)[name] = value
            order = [*map(id, there)]
            for found in (own, own | defaults):
                if sorted(map(id, found.values())) == sorted(order):
                    return dict(sorted(found.items(), key=lambda pair: (order.index(id(pair[1])), pair[0])))
            if [*map(type, there)] == [dict]:
                break  # that of its attributes, mostly
        return None

    def copy(self) -> dict[str, Any]:
        found = self.now()
        return dict(object.__getattribute__(self.owner, "__dict__")) if found is None else found

    def items(self) -> Any:
        return self.copy().items()

    def values(self) -> Any:
        return self.copy().values()

    def __getitem__(self, name: str) -> Any:
        return self.copy()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self.owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self.owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())


ATTRIBUTES = (dict, Attributes)
"""What `dict_of` gives where an object holds its attributes by name."""


def _names_set_by(kind: type) -> frozenset[str]:
    """Names of attributes that the methods of a class set."""
    if (names := _names_set.get(kind)) is None:
        held = [value for base in class_order(kind) for value in [*class_dict(base).values()]]
        names = _names_set[kind] = _all_set_by(held)
    return names


def _names_set_beside(kind: type) -> frozenset[str]:
    """The same, of the functions and other classes of its modules."""
    if (names := _names_beside.get(kind)) is None:
        modules = [m for base in class_order(kind) if (m := sys.modules.get(base.__module__)) is not None]
        held = [value for module in modules for value in [*vars(module).values()]]
        within = [part for one in held if issubclass(type(one), type) for part in [*class_dict(one).values()]]
        names = _names_beside[kind] = _all_set_by([*held, *within])
    return names


def _all_set_by(held: Iterable[Any]) -> frozenset[str]:
    functions = (f for f in chain.from_iterable(map(_unwrapped, held)) if type(f) is FunctionType)
    codes = (part for f in functions for part in codes_within(f.__code__))
    return frozenset(chain.from_iterable(map(_names_set_in, codes)))


@functools.lru_cache(maxsize=4096)
def _names_set_in(code: CodeType) -> frozenset[str]:
    found, argument, text = set(), 0, code.co_code
    for operation, low in zip(text[::2], text[1::2], strict=True):
        argument = argument << 8 | low
        if operation == _STORE_ATTR:
            found.add(code.co_names[argument])
        argument = argument if operation == _EXTENDED_ARG else 0
    return frozenset(found)


def mention(names: Iterable[str]) -> None:
    """Have attributes of these names, which code uses, looked for in objects too."""
    _mentioned.update(names)


def own_attributes(value: Any) -> Any:
    """The attributes of an instance of a user's class, as it holds them; None for whatever else."""
    inside = dict_of(value)
    if issubclass(type(value), type) or type(inside) not in ATTRIBUTES:
        return None
    return inside if type(value) in PLAIN_HOLDERS or any(map(is_users_class, type(value).__mro__)) else None


def attributes_held(value: Any) -> Any:
    """The attributes of whatever instance or module, as it holds them; None where it holds them in no dict."""
    inside = dict_of(value)
    return inside if type(inside) in ATTRIBUTES else None


def dict_of(value: Any) -> Any:
    """``__dict__`` as the object holds it, or its `Attributes`. A proxy's ``__getattr__`` and ``__class__`` are not
    asked: they may raise anything, or make what they stand for."""
    kind = type(value)
    is_plain = _STAND_INSIDE and kind.__flags__ & _MANAGED and kind.__basicsize__ == Found.__basicsize__  # no slots
    if is_plain and not is_module(value) and (attributes := Attributes(value)).now() is not None:
        return attributes
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


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
        yield from [(label, held[key], depth)] if type(held) in ATTRIBUTES and key in held else []
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
    if type(inside) not in ATTRIBUTES:
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
