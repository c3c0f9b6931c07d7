"""Where code may set a switch that other code runs with, how each is read and put back.

Places are the attributes of modules (``nn.Module``), of users' objects, classes and Python modules, the keys of dicts,
the globals and the variables of enclosing functions that users' functions read or bind, and whatever attribute a text
assigns by its whole name (``F.relu = mine``). All are read as they are held, in dicts, slots and cells: no property, no
descriptor and no ``__getattr__`` of the user's is run.
"""

from __future__ import annotations

import dis
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from torchbench_magic.core.code.code_reads import codes_within, names_by
from torchbench_magic.core.code.held_values import class_attributes, is_module, is_plain_tensor
from torchbench_magic.core.code.reached_objects import (
    Found,
    ReachedObject,
    is_users_class,
    is_users_module,
    own_attributes,
    slots_among,
)

from .settings_holders import OPAQUE, Holder, OfCell, OfClass, OfDict, OfSlots, OfTensors

__all__ = ["SwitchScope", "is_flag", "scope_of", "token"]

_LONGEST_TUPLE = 8


@dataclass(frozen=True)
class SwitchScope:
    """Where one alternative may read or set a switch.

    Attributes:
        holders: id of what holds the switches -> the holder.
        keys: the same ids -> the keys there that concern it; None is all of them.
        mentioned: names and short texts in its code.
        reached: ids of the objects that it reaches.
        assigned: (id of a holder, key) -> id of the library's object, of what it assigns by its whole name.
    """

    holders: Mapping[int, Holder]
    keys: Mapping[int, frozenset[str] | None]
    mentioned: frozenset[str]
    reached: frozenset[int]
    assigned: Mapping[tuple[int, str], int]

    def with_assigned(self, others: Iterable[SwitchScope]) -> SwitchScope:
        """With what others assign in libraries: a class or a module of one may concern all code, an instance concerns
        code that reaches it."""
        holders, keys = dict(self.holders), dict(self.keys)
        for other in others:
            for (at, key), of in other.assigned.items():
                if other.holders[at].is_global or of in self.reached:
                    holders.setdefault(at, other.holders[at])
                    former = keys.get(at, frozenset())
                    keys[at] = None if former is None else former | {key}
        return replace(self, holders=holders, keys=keys)


def scope_of(found: Found, codes: Iterable[CodeType], names: frozenset[str], namespace: dict[str, Any]) -> SwitchScope:
    """The scope of code that was `search`-ed.

    Args:
        found: what it reaches.
        codes: the code itself.
        names: those of ``namespace`` that it reads.
        namespace: the names it runs with.
    """
    holders: dict[int, Holder] = {}
    keys: dict[int, frozenset[str] | None] = {}

    def add(at: int, holder: Holder, of: frozenset[str] | None = None) -> None:
        former = keys.get(at, frozenset())
        holders.setdefault(at, holder)
        keys[at] = None if of is None or former is None else former | of

    for item in found.items.values():
        for at, holder in _of_object(item):
            add(at, holder, found.mentioned if is_users_module(item.value) else None)
    add(id(namespace), OfDict(namespace, "{}", is_global=True), names)
    assigned: dict[tuple[int, str], int] = {}
    for code, home in [(code, namespace) for code in codes] + [(f.__code__, f.__globals__) for f in found.functions]:
        for value, at, holder, key in _assigned(code, home):
            add(at, holder, frozenset((key,)))
            assigned[at, key] = id(value)
    for function in found.functions:
        home = function.__globals__
        concern = names_by(function.__code__, "LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
        add(id(home), OfDict(home, "{}", is_global=True), frozenset(concern))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            add(id(cell), OfCell(cell, name))
    return SwitchScope(holders, keys, found.mentioned, frozenset(found.items), assigned)


def _of_object(item: ReachedObject) -> Iterator[tuple[int, Holder]]:
    value, label = item.value, item.label.replace("{", "{{").replace("}", "}}")
    if type(value) is dict:
        yield id(value), OfDict(value, label + "[{!r}]")
        return
    if is_users_module(value):
        yield id(vars(value)), OfDict(vars(value), label + ".{}", is_global=True)
        return
    if is_plain_tensor(value):
        yield id(value), OfTensors({"": value}, item.label)
        return
    for kind in value.__mro__ if issubclass(type(value), type) else type(value).__mro__:
        if is_users_class(kind):
            yield id(kind), OfClass(kind)
    if is_module(value):
        yield from _of_nn_module(item.label, label, value)
        return
    held = own_attributes(value)
    is_function = issubclass(type(value), FunctionType)
    if is_function:
        held = value.__dict__
    if held is not None:
        yield id(held), OfDict(held, label + ".{}", is_global=is_function)
    if slots := slots_among(class_attributes(type(value))):
        yield id(value), OfSlots(value, slots, item.label)


def _of_nn_module(name: str, label: str, module: Any) -> Iterator[tuple[int, Holder]]:
    """A module itself (those within it are reached by themselves), its parameters and its configuration."""
    inside = vars(module)
    yield id(inside), OfDict(inside, label + ".{}", is_hidden=not any(map(is_users_class, type(module).__mro__)))
    if parameters := inside.get("_parameters"):
        yield id(parameters), OfTensors(parameters, name)
    try:
        held = object.__getattribute__(inside.get("config"), "__dict__")
    except AttributeError:
        return
    if type(held) is dict:
        yield id(held), OfDict(held, label + ".config.{}")


# ---- what code assigns by its whole name -----------------------------------------------------------------------


def _assigned(code: CodeType, home: Mapping[str, Any]) -> Iterator[tuple[Any, int, Holder, str]]:
    """(object, id of the holder, holder, attribute) of each ``a.b.c = ...`` in code, as far as it can be looked up
    without running any."""
    for chain in _chains(code):
        value = home.get(chain[0])
        for name in chain[1:-1]:
            value = _held(value).get(name) if value is not None else None
        if value is None or is_users_class(value if issubclass(type(value), type) else type(value)):
            continue  # users' classes and their instances are looked at as a whole
        label = ".".join(chain[:-1])
        if issubclass(type(value), type):
            yield value, id(value), OfClass(value), chain[-1]
        elif type(held := _held(value)) is dict:
            is_module = issubclass(type(value), ModuleType)
            yield value, id(held), OfDict(held, label + ".{}", is_global=is_module), chain[-1]


def _held(value: Any) -> Any:
    try:
        return vars(value) if issubclass(type(value), type) else object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def _chains(code: CodeType) -> Iterator[tuple[str, ...]]:
    chain: tuple[str, ...] = ()
    for instruction in (each for part in codes_within(code) for each in dis.get_instructions(part)):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = (instruction.argval,)
        elif instruction.opname == "LOAD_ATTR" and chain:
            chain += (instruction.argval,)
        elif instruction.opname == "STORE_ATTR" and chain:
            yield (*chain, instruction.argval)
            chain = ()
        else:
            chain = ()


# ---- values --------------------------------------------------------------------------------------------------------


def token(value: Any) -> object:
    """What tells two settings of a switch apart; OPAQUE where a value is no setting but data."""
    kind: Any = type(value)
    if value is None or kind is bool or kind is str:
        return value
    return _how(kind)(kind, value)


@lru_cache(maxsize=256)
def _how(kind: type) -> Callable[[type, Any], object]:
    """How values of a type that is no flag are told apart."""
    if kind in (int, float, complex, bytes):
        return lambda kind, value: (kind, value)
    if kind is FunctionType:
        return lambda kind, value: value.__code__
    if kind is tuple:
        return _of_tuple
    if issubclass(kind, (enum.Enum, type, BuiltinFunctionType)):
        return lambda kind, value: (kind, id(value))
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format"):
        return lambda kind, value: (kind, str(value))
    return lambda kind, value: OPAQUE


def _of_tuple(kind: type, value: tuple[Any, ...]) -> object:
    inner = tuple(token(one) for one in value) if len(value) <= _LONGEST_TUPLE else (OPAQUE,)
    return OPAQUE if OPAQUE in inner else (kind, inner)


def is_flag(one: object) -> bool:
    """Whether a token is of a flag or a word; numbers may count, and functions may be results."""
    return one is None or type(one) in (bool, str)
