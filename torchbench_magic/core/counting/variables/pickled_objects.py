"""What pickling of a notebook's variables comes across: modules, the names that code uses, and what cannot travel."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from . import made_modules
from .notebook_modules import ALL_NAMES, Loaded, contents, description
from .refused_objects import standard_stream, what_stays

__all__ = ["CannotTravel", "Globals", "PicklingFinds", "Stays", "reduced_object"]


class CannotTravel(Exception):
    """Why one object cannot be sent, and the way out."""


class Stays(CannotTravel):
    """It belongs to this process; the way out is that of the variable which holds it."""


class Globals:
    """The globals of a local module's functions: the names of that module."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return vars, (self._module,)


class PicklingFinds:
    """What pickling came across: local modules, installed ones, and the names that code uses."""

    def __init__(self, loaded: Loaded, words: Iterable[str]) -> None:
        self.loaded, self.words = loaded, set(words)
        self.local: dict[int, ModuleType] = {}
        self.installed: dict[str, ModuleType] = {}
        self._sent: dict[int, set[str]] = {}
        self._stays: dict[type, str | None] = {}

    def stays(self, obj: Any) -> str | None:
        kind = type(obj)
        if kind not in self._stays:
            self._stays[kind] = what_stays(obj)
        return self._stays[kind]

    def module(self, module: ModuleType) -> tuple[Any, ...] | None:
        """How to pickle it: a local one as an empty module, whose names follow."""
        name = module.__name__
        if id(contents(module)) not in self.loaded.homes:
            self.installed.setdefault(name, module)
            return None
        self.local.setdefault(id(module), module)
        facts = {key: contents(module).get(key) for key in ("__name__", "__package__", "__file__", "__doc__")}
        path = contents(module).get("__path__")
        if path is not None:
            facts["__path__"] = list(path)
        return made_modules.made_module, (name, facts, sys.modules.get(name) is module)

    def wanted(self) -> Iterator[tuple[ModuleType, str, Any]]:
        """Names of local modules that the code may use and that were not asked for yet, in an order of their own."""
        for name in sorted(self.loaded.local.keys() & self.words):  # imported by the code itself
            self.local.setdefault(id(self.loaded.local[name]), self.loaded.local[name])
        for key, module in list(self.local.items()):
            parent = self.loaded.local.get(module.__name__.rpartition(".")[0])
            if parent is not None:
                self.local.setdefault(id(parent), parent)
            sent, names = self._sent.setdefault(key, set()), contents(module)
            used = names.keys() if self.words & ALL_NAMES else names.keys() & (self.words | {"__getattr__"})
            for name in sorted(used - sent):
                sent.add(name)
                if name == "__getattr__" or not name.startswith("__"):
                    yield module, name, names[name]

    def named(self) -> dict[tuple[str, str], tuple[Any, ...]]:
        """(module, name) -> description, of the names of installed modules that the code uses."""
        found: dict[tuple[str, str], tuple[Any, ...]] = {}
        todo = dict(self.installed)
        done = set[str]()
        while todo:
            home, module = todo.popitem()
            done.add(home)
            names = contents(module)
            for name in sorted(names.keys() & self.words):
                value = names[name]
                if issubclass(type(value), ModuleType) and value.__name__ not in done:
                    todo[value.__name__] = value
                elif not name.startswith("__") and (told := description(value)) is not None:
                    found[home, name] = told
        own = {(one.owner.__name__, one.name) for one in self.loaded.replaced if isinstance(one.owner, ModuleType)}
        return {place: found[place] for place in sorted(found.keys() - own)}


def reduced_object(obj: Any, reached: PicklingFinds) -> tuple[Any, ...] | None:
    """How to pickle what belongs to this process or to its modules; None for anything else."""
    kind = type(obj)
    stream = standard_stream(obj) if issubclass(kind, io.IOBase) else None
    if stream is not None:
        return getattr, (sys, stream)
    what = reached.stays(obj)
    if what is not None:
        raise Stays(f"{what} cannot be copied")
    if issubclass(kind, ModuleType):
        return reached.module(obj)
    if kind is memoryview:
        return _view(obj)
    if kind is functools._lru_cache_wrapper and id(obj.__wrapped__.__globals__) in reached.loaded.own:
        return made_modules.cached, (obj.__wrapped__, obj.cache_parameters())
    if (kind is FunctionType or issubclass(kind, type)) and reached.loaded.is_replaced(obj):
        return made_modules.original, (obj.__module__, obj.__qualname__)
    return None


def _view(view: memoryview) -> tuple[Any, ...]:
    base = view.obj
    if not view.c_contiguous or not isinstance(base, bytes | bytearray) or len(base) != view.nbytes:
        raise Stays("a memoryview of part of an object cannot be copied")
    return made_modules.viewed, (base, view.format, tuple(view.shape or ()))
