"""The user's functions that code may call, also those that it takes out of containers, objects and modules.

A bounded search that calls nothing: it follows dicts, lists, closures and attributes as they are held, those of
instances and modules only where some code on the way says them. What lies beyond its bounds is not found.
"""

from __future__ import annotations

import functools
import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from torchbench_magic.core.code.code_reads import closed_over, globals_read, names_used
from torchbench_magic.core.code.library_files import is_users_file
from torchbench_magic.core.code.reached_objects import (
    PLAIN_HOLDERS,
    dict_of,
    is_users_class,
    is_users_module,
    own_attributes,
    slot_values,
    slots_among,
    texts_used,
)

__all__ = ["functions_reached"]

_MOST_STEPS = 3_000
_LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(...))
_SHOWN_BY_COLLECTOR = (
    *(deque, set, frozenset, MappingProxyType, type({}.keys()), type({}.values()), type({}.items())),
    *map(type, map(iter, ([], (), {}, {}.values(), {}.items(), set()))),
    *(map, filter, zip, enumerate, reversed),
)
"""What only holds others, which the garbage collector sees without asking it for them."""
_HOOKS = "_hooks"
"""Part of the names of the dicts in which modules keep their hooks of every kind."""


def functions_reached(
    roots: Iterable[str], codes: Iterable[CodeType], namespace: Mapping[str, Any]
) -> list[FunctionType]:
    """Functions of the user's that code may call.

    Args:
        roots: names that the code reads, of ``namespace``.
        codes: the code itself, for the attributes that it says.
        namespace: where it finds its names.
    """
    return _Walk(codes).functions(namespace[name] for name in sorted(roots) if name in namespace)


class _Walk:
    """One search; ``said`` are names of attributes and short texts of all code found so far."""

    def __init__(self, codes: Iterable[CodeType]) -> None:
        self._said = {word for code in codes for word in _words(code)}
        self._found: dict[int, FunctionType] = {}
        self._seen: dict[int, Any] = {}
        self._kinds: dict[type, bool] = {}  # whether instances are of a class of the user's
        self._dull: dict[type, bool] = {}  # whether instances hold nothing that is followed
        self._slots: dict[type, dict[str, MemberDescriptorType]] = {}
        self._open: list[Any] = []  # whose attributes are looked at as far as code says them
        self._steps = _MOST_STEPS

    def functions(self, values: Iterable[Any]) -> list[FunctionType]:
        todo = deque(values)
        looked = (0, 0)
        while self._steps > 0:
            if not todo:
                if looked == (looked := (len(self._said), len(self._open))):
                    break
                todo.extend(self._attributes())
                continue
            value = todo.popleft()
            kind = type(value)
            if kind not in _LEAVES and not self._dull.get(kind) and id(value) not in self._seen:
                self._steps -= 1
                self._seen[id(value)] = value
                todo.extend(self._held_by(value))
        return list(self._found.values())

    def _held_by(self, value: Any) -> Iterable[Any]:
        """What a call of an object may call, and what it holds; attributes that code has to say wait."""
        kind = type(value)
        if issubclass(kind, FunctionType):
            return self._of_function(value)
        if issubclass(kind, MethodType):
            return value.__self__, value.__func__
        if issubclass(kind, BuiltinMethodType):
            return () if issubclass(type(value.__self__), ModuleType) else (value.__self__,)
        if kind in (staticmethod, classmethod):
            return (value.__func__,)
        if kind is property:
            return value.fget, value.fset
        if issubclass(kind, functools.partial):
            return value.func, value.args, value.keywords
        if kind in (functools.cached_property, functools.partialmethod):
            return (value.func,)
        if issubclass(kind, functools._lru_cache_wrapper):
            return (value.__wrapped__,)
        if issubclass(kind, ModuleType):
            self._open += [value] if is_users_module(value) else []
            return ()
        if kind not in self._dull:
            self._dull[kind] = _is_dull(kind)
        if self._dull[kind]:
            return ()
        return (*self._items(value), *self._of_classes(value), *self._of_instance(value))

    def _items(self, value: Any) -> Iterable[Any]:
        """What a container holds, unless that is more than there are steps left."""
        kind = type(value)
        for base, items in _CONTAINERS:
            if issubclass(kind, base):
                return [*items(value)] if base.__len__(value) <= self._steps else ()
        held = gc.get_referents(value) if kind in _SHOWN_BY_COLLECTOR else ()
        return held if len(held) <= self._steps else ()

    def _of_function(self, function: FunctionType) -> Iterator[Any]:
        """What a function reads and holds; of a library's only what was given to it."""
        yield from closed_over(function).values()
        yield from function.__dict__.values()
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        code, home = function.__code__, function.__globals__
        if is_users_file(code.co_filename):
            self._found[id(function)] = function
            self._said |= _words(code)
            if any(type(home.get(name)) not in _LEAVES for name in names_used(code)):
                yield from (home[name] for name in sorted(globals_read(code)) if name in home)

    def _of_classes(self, value: Any) -> Iterator[Any]:
        """The methods that a call of an instance, or of its methods, may run; of a class those of its instances too."""
        for kind in (*(value.__mro__ if issubclass(type(value), type) else ()), *type(value).__mro__):
            if kind not in self._kinds:
                self._kinds[kind] = is_users_class(kind)
                if self._kinds[kind]:
                    self._open.append(kind)
                    yield from (one for one in vars(kind).values() if type(one) in _METHODS)

    def _of_instance(self, value: Any) -> Iterator[Any]:
        """The modules within a module, and its hooks."""
        if issubclass(type(value), type):
            return
        inside = dict_of(value)
        if type(inside) is dict and inside.get("_modules") is not None:
            held = [inside["_modules"], *(hooks for name, hooks in inside.items() if _HOOKS in name)]
            yield from (one for one in held if issubclass(type(one), dict) and len(one))
        if type(value) not in self._slots:
            self._slots[type(value)] = {
                name: slot for kind in type(value).__mro__[::-1] for name, slot in slots_among(vars(kind)).items()
            }
        if any(self._kinds.get(kind) for kind in type(value).__mro__) or own_attributes(value) is not None:
            self._open.append(value)

    def _attributes(self) -> Iterator[Any]:
        """The attributes that code says, of what waits for it."""
        for value in self._open:
            if issubclass(type(value), (type, ModuleType)):
                inside = vars(value)
            else:
                inside = dict_of(value)
                slots = self._slots.get(type(value), {})
                said = {name: slots[name] for name in sorted(self._said & slots.keys())}
                yield from (one for _, one in slot_values(value, said))
                if type(inside) is not dict:
                    continue
            yield from (inside[name] for name in sorted(self._said & inside.keys()))


_CONTAINERS: tuple[tuple[Any, Any], ...] = (
    (dict, dict.values),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
)
_METHODS = (FunctionType, staticmethod, classmethod, property, functools.cached_property, functools.partialmethod)


def _is_dull(kind: type) -> bool:
    """Whether a class is a library's whose instances hold nothing that is followed, such as tensors."""
    import torch

    followed = (type, torch.nn.Module, *PLAIN_HOLDERS, *(base for base, _ in _CONTAINERS))
    return not (issubclass(kind, followed) or kind in _SHOWN_BY_COLLECTOR or any(map(is_users_class, kind.__mro__)))


def _words(code: CodeType) -> set[str]:
    return {*names_used(code), *texts_used(code)}
