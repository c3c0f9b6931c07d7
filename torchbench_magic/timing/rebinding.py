"""Functions that timed code reaches, and the names that it binds anew."""

from __future__ import annotations

import ast
import dis
import functools
import gc
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
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

from torchbench_magic.process.code import bound_names, closed_over, globals_read, names_by, names_used
from torchbench_magic.process.frame_owner import is_users_file
from torchbench_magic.process.reach import (
    PLAIN_HOLDERS,
    dict_of,
    is_users_class,
    is_users_module,
    own_attributes,
    slot_values,
    slots_among,
    texts_used,
)

__all__ = [
    "functions_reached",
    "rebound_names",
    "shadowed_names",
]

# ---- functions_reached -----------------------------------------------------------------------------------------------
# The user's functions that code may call, also those that it takes out of containers, objects and modules.
#
# A bounded search that calls nothing: it follows dicts, lists, closures and attributes as they are held, those of
# instances and modules only where some code on the way says them. What lies beyond its bounds is not found.

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


# ---- rebound_names ---------------------------------------------------------------------------------------------------
# Names that setup or timed code binds, while functions that it calls read the notebook's own of that name.


def shadowed_names(
    bound: Mapping[str, str], functions: Iterable[FunctionType], home: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """(who bound it, "`n`, but `f`") of each name that was bound before the timed code, and that a function of the
    notebook reads, which finds the notebook's own.

    Args:
        bound: name -> "setup", "axis" or "drawn".
        functions: that the timed code may call.
        home: the notebook's names.
    """
    functions = list(functions)
    return tuple(
        (bound[name], f"`{name}`, but `{reader}`")
        for name in sorted(bound)
        for reader in dict.fromkeys(_readers(name, functions, [home]))
    )


def rebound_names(
    tree: ast.Module, inputs: Set[str], names: Mapping[str, Any], home: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """("own", "`n`, but `f`") of each name that is bound where a function called afterwards reads another of it.

    What timed code binds is local to the timed loop. A function of the notebook looks for its globals in the notebook,
    and one that the setup made among the names of the run: neither sees what the timed code bound.

    Args:
        tree: of the timed code; it stays as it is.
        inputs: names that an iteration may read of ``names``.
        names: of the run.
        home: those of the notebook, which its functions read.
    """
    bound = bound_names(tree)
    imported = {alias.asname or alias.name.split(".")[0] for alias in _imports(tree)}
    module = compile(tree, "<bound>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    said: dict[tuple[str, str], None] = {}
    reached = cache(lambda roots: functions_reached(roots, [module], names))
    everywhere = {name for function in reached(frozenset(inputs)) for name in names_used(function.__code__)}
    for name, later in _looked_up_later(module).items():
        if name in imported or name not in everywhere:  # an import binds what it was, as a rule
            continue
        where = [home] if name in bound.shared else [home, names]
        readers = _readers(name, reached(frozenset(later & inputs)), where)
        said |= dict.fromkeys(("own", f"`{name}`, but `{reader}`") for reader in readers)
    return tuple(said)


def _readers(name: str, functions: Iterable[FunctionType], where: Iterable[object]) -> Iterator[str]:
    """The functions that read a global of that name, of those whose globals are among ``where``."""
    for function in functions:
        if any(function.__globals__ is one for one in where) and name in globals_read(function.__code__):
            yield function.__qualname__


def _imports(tree: ast.Module) -> Iterator[ast.alias]:
    return (a for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names)


def _looked_up_later(code: CodeType) -> dict[str, set[str]]:
    """Name that code binds -> the names that it may look up after that; functions in it may run at any time."""
    stores: list[tuple[float, str]] = []
    loads: list[tuple[float, str]] = []
    back: list[tuple[int, int]] = []
    for one in dis.get_instructions(code):
        if one.opname in ("STORE_NAME", "STORE_GLOBAL"):
            stores.append((one.offset, one.argval))
        elif one.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            loads.append((one.offset, one.argval))
        elif one.opcode in dis.hasjrel and one.argval < one.offset:
            back.append((one.offset, one.argval))
        elif isinstance(one.argval, CodeType):
            stores += ((-1, name) for name in names_by(one.argval, "STORE_GLOBAL"))
            loads += ((math.inf, name) for name in globals_read(one.argval))
    found: dict[str, set[str]] = {}
    for at, name in stores:
        first = _earliest_again(at, back)
        found.setdefault(name, set()).update(read for there, read in loads if there > first)
    return found


def _earliest_again(at: float, back: Iterable[tuple[int, int]]) -> float:
    """The earliest place that runs after ``at``: loops lead back to their begin."""
    back = [*back]
    first = at
    while (earlier := min((to for start, to in back if start >= first), default=first)) < first:
        first = earlier
    return first
