"""What code writes into the objects that it reaches: lists and dicts, attributes, globals. Told entry by entry, and put
back in place. `places_of` names where an object keeps something; `Keyed` are those that have names.

The copies are shallow: which objects stand where. What these hold has copies of its own where it is reached too;
tensors, and the dicts of optimizers and modules, are of `StateCopies`.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from types import FunctionType
from typing import Any

from torchbench_magic.process.code import globals_assigned
from torchbench_magic.process.frame_owner import is_users_class
from torchbench_magic.process.reach import (
    Attributes,
    Found,
    ReachedObject,
    attributes_held,
    is_users_module,
    own_attributes,
    slot_values,
    slots_among,
)
from torchbench_magic.process.static_introspection import ABSENT, TOO_MANY, class_attributes, is_module

_MOST_KEPT = 1_000_000
"""Items of an object that are noted; of a larger one the number is."""
_MOST_TOLD = 10_000
"""Entries of one object that are told one by one."""


class WrittenObjects:
    """The entries of what code reaches, as they are now.

    Args:
        found: what it reaches.
        skipped: ids of the dicts and lists that are put back by others.
    """

    def __init__(self, found: Found, skipped: Collection[int] = ()) -> None:
        self._places: list[Keyed | _Whole | _Counted] = []
        seen: set[int] = set(skipped)
        for one in found.items.values():
            for place in places_of(one):
                if place.at not in seen:
                    seen.add(place.at)
                    self._places.append(place)
        self._places += _of_functions(found.functions, seen)
        for place in self._places:
            place.note()
        self._of_parts: tuple[Collection[str], list[Keyed | _Whole | _Counted]] = ((), [])

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Label -> (before, now) of each entry that holds another object: `ABSENT` where there is none, `TOO_MANY`
        where they are too many to be told."""
        found: dict[str, tuple[Any, Any]] = {}
        for place in self._places:
            entries = place.changed()
            if len(entries) > _MOST_TOLD:
                entries = {place.label: (ABSENT, TOO_MANY)}
            found.update(entries)
        return found

    def parts_changed(self) -> set[str]:
        """Labels of what can be put back by itself: attributes and keys; a list or a set as a whole."""
        return {part for place in self._places for part in place.parts_changed()}

    def names_changed(self) -> list[str]:
        """How a user would call what changed: attributes and variables, of a container the whole."""
        found: dict[str, None] = {}
        for place in self._places:
            if place.is_container:
                found.update({place.label: None} if any(True for _ in place.parts_changed()) else {})
            else:
                found.update(dict.fromkeys(place.parts_changed()))
        return list(found)

    def put_back(self, parts: Collection[str] | None = None) -> None:
        """Have them hold what they held, in place.

        Args:
            parts: labels of `parts_changed`; None is all.
        """
        if parts is not None and parts is not self._of_parts[0]:  # before each block: what is large is not looked at
            self._of_parts = parts, [place for place in self._places if any(map(place.may_have, parts))]
        for place in self._places if parts is None else self._of_parts[1]:
            place.put_back(parts)

    @property
    def not_put_back(self) -> list[str]:
        """Labels of those that are not as they were, though all was put back."""
        return sorted({part for place in self._places for part in place.parts_changed()})


# ---- places ---------------------------------------------------------------------------------------------------


class _Place:
    """Where something is held: all of a container, or what has names.

    Args:
        label: of the whole.
        held: the object.
        base: the class of the standard library whose methods are called: a subclass may have others of its own.
    """

    is_container = True

    def __init__(self, label: str, held: Any, base: type = object) -> None:
        self.label, self.held, self.at, self._base = label, held, id(held), base

    def may_have(self, part: str) -> bool:
        return part == self.label


class Keyed(_Place):
    """Something with keys: a dict, the attributes of an object or of a class, globals, the variables around a function.

    Args:
        named: the label of an entry.
        read: all entries now, as a new dict.
        put: sets one, or takes it away where the value is `ABSENT`; None where that cannot be done.
        is_container: the order of keys is part of it.
        is_global: there is one of it, of which no alternative can have a copy.
    """

    def __init__(
        self,
        label: str,
        held: Any,
        named: Callable[[Any], str],
        read: Callable[[], dict[Any, Any]],
        put: Callable[[Any, Any], object] | None,
        *,
        is_container: bool = False,
        is_global: bool = False,
    ) -> None:
        super().__init__(label, held)
        self.is_container, self.is_global = is_container, is_global
        self.named, self.read, self.put = named, read, put

    def note(self) -> None:
        """What is there now is what is put back."""
        self._was = self.read()

    def _keys(self) -> list[Any]:
        was, now = self._was, self.read()
        found = [key for key, value in was.items() if now.get(key, ABSENT) is not value]
        return found + [key for key in now if key not in was]

    def changed(self) -> dict[str, tuple[Any, Any]]:
        now = self.read()
        return {self.named(key): (self._was.get(key, ABSENT), now.get(key, ABSENT)) for key in self._keys()}

    def parts_changed(self) -> Iterator[str]:
        return map(self.named, self._keys())

    def may_have(self, part: str) -> bool:
        return part.startswith(self.label)

    def put_back(self, parts: Collection[str] | None) -> None:
        put = self.put
        for key in self._keys():
            if put is not None and (parts is None or self.named(key) in parts):
                put(key, self._was.get(key, ABSENT))
        if parts is None and self.is_container and not all(map(operator.is_, self.read(), self._was)):
            refill(self.held, self._was)


class _Whole(_Place):
    """A list, a deque, a set or a bytearray: put back as a whole, told item by item."""

    def note(self) -> None:
        self._was = self._now()

    def _now(self) -> list[Any]:
        items: Iterator[Any] = self._base.__iter__(self.held)  # type: ignore[attr-defined]
        return list(items)

    def _is_changed(self, now: list[Any]) -> bool:
        if self._base is set:
            return {*map(id, now)} != {*map(id, self._was)}
        return len(now) != len(self._was) or not all(map(operator.is_, now, self._was))

    def changed(self) -> dict[str, tuple[Any, Any]]:
        was, now = self._was, self._now()
        if not self._is_changed(now):
            return {}
        if self._base is set:
            return {self.label: (_of_set(was), _of_set(now))}
        pairs = ((at, [items[at] if at < len(items) else ABSENT for items in (was, now)])
                 for at in range(max(len(was), len(now))))  # fmt: skip
        return {f"{self.label}[{at}]": (one, other) for at, (one, other) in pairs if one is not other}

    def parts_changed(self) -> Iterator[str]:
        yield from [self.label] if self._is_changed(self._now()) else []

    def put_back(self, parts: Collection[str] | None) -> None:
        if (parts is None or self.label in parts) and self._is_changed(self._now()):
            refill(self.held, self._was)


class _Counted(_Place):
    """What holds too many items to note them: what was added to the end of a list is taken away again."""

    def note(self) -> None:
        self._was = self._number()

    def _number(self) -> int:
        return int(self._base.__len__(self.held))  # type: ignore[attr-defined]

    def changed(self) -> dict[str, tuple[Any, Any]]:
        return dict.fromkeys(self.parts_changed(), (ABSENT, TOO_MANY))

    def parts_changed(self) -> Iterator[str]:
        yield from [self.label] if self._number() != self._was else []

    def put_back(self, parts: Collection[str] | None) -> None:
        if self._base in (list, bytearray) and (parts is None or self.label in parts):
            base: Any = self._base
            base.__delitem__(self.held, slice(self._was, None))


_PLAIN = (str, bytes, int, float, bool, complex, type(None))


def _of_set(items: list[Any]) -> Any:
    """A set so that two can be compared; of what is no plain value nobody knows what makes two of them the same."""
    return dict.fromkeys(items, True) if all(type(item) in _PLAIN for item in items) else set(items)


# ---- which places an object has -------------------------------------------------------------------------------

_WHOLE = (list, deque, set, bytearray)
_FILLED = (OrderedDict, dict, *_WHOLE)


def places_of(one: ReachedObject) -> Iterator[Keyed | _Whole | _Counted]:
    label, value = one.label, one.value
    kind = type(value)
    base = next((b for b in _FILLED if issubclass(kind, b)), None)
    if base is not None:
        yield _of_container(label, value, base)
    if issubclass(kind, type):
        yield from [of_class(value)] if is_users_class(value) else []
        return
    if is_users_module(value):
        yield of_dict(f"{label}.", value, vars(value), lambda name: not name.startswith("__"), is_global=True)
        return
    if (own := own_attributes(value)) is not None:
        yield of_dict(f"{label}.", value, own, _is_no_machinery if is_module(value) else always)
    elif is_module(value) and (held := attributes_held(value)) is not None:
        yield of_dict(f"{label}.", value, held, _is_public)
    if slots := slots_among(class_attributes(kind)):
        yield _of_slots(label, value, slots)
    yield from (of_class(each) for each in kind.__mro__ if is_users_class(each))


def _of_functions(functions: Collection[FunctionType], seen: set[int]) -> Iterator[Keyed]:
    """The globals that these set, their attributes, and the variables of the functions around them."""
    homes: dict[int, tuple[Any, set[str]]] = {}
    for function in functions:
        home = function.__globals__
        homes.setdefault(id(home), (home, set()))[1].update(globals_assigned(function.__code__))
        for place in of_function(function):
            if place.at not in seen:
                seen.add(place.at)
                yield place
    for home, names in homes.values():
        if names and id(home) not in seen:
            yield of_dict("", None, home, names.__contains__)


def of_function(function: FunctionType) -> Iterator[Keyed]:
    """Its attributes, and the variables of the functions around it."""
    yield of_dict(f"{function.__qualname__}.", function, function.__dict__, always, is_global=True)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from (of_cell(name, cell) for name, cell in cells)


def _of_container(label: str, value: Any, base: Any) -> Keyed | _Whole | _Counted:
    if base.__len__(value) > _MOST_KEPT:
        return _Counted(label, value, base)
    if base in _WHOLE:
        return _Whole(label, value, base)
    places: dict[int, int] = {}

    def named(key: Any) -> str:
        where = repr(key) if type(key) in (str, int) else f"#{places.setdefault(id(key), len(places))}"
        return f"{label}[{where}]"

    def read() -> dict[Any, Any]:  # no key's ``__eq__`` is called where the order is the dict's own
        is_plain = base is dict and type(value).__iter__ is dict.__iter__
        return dict.copy(value) if is_plain else dict(base.items(value))

    put = _putting(functools.partial(base.__setitem__, value), lambda key: base.pop(value, key, None))
    return Keyed(label, value, named, read, put, is_container=True)


def refill(held: Any, items: Any) -> None:
    """Have a container hold these items, by the methods of the standard library's class: a subclass may have others."""
    if type(held) is Attributes:
        for name in held.copy().keys() - items.keys():
            del held[name]
        held.update(items)
        return
    base: Any = next(base for base in _FILLED if issubclass(type(held), base))
    if base in (list, bytearray):
        base.__setitem__(held, slice(None), items)
        return
    base.clear(held)
    if base is OrderedDict:
        for pair in items.items():
            base.__setitem__(held, *pair)
    else:
        (base.extend if base is deque else base.update)(held, items)


def _putting(put: Callable[[Any, Any], object], take: Callable[[Any], object]) -> Callable[[Any, Any], object]:
    """Puts an entry, or takes it away where the value is `ABSENT`."""
    return lambda key, value: take(key) if value is ABSENT else put(key, value)


def of_dict(
    label: str, owner: Any, held: MutableMapping[str, Any], is_told: Callable[[str], bool], *, is_global: bool = False
) -> Keyed:
    """Attributes or globals that stand in a dict, which nothing else is to empty meanwhile."""

    def read() -> dict[str, Any]:
        return {name: value for name, value in [*held.items()] if type(name) is str and is_told(name)}

    put = _putting(held.__setitem__, lambda name: held.pop(name, None))
    made = Keyed(label.rstrip("."), held, lambda name: f"{label}{name}", read, put, is_global=is_global)
    made.owner = owner  # type: ignore[attr-defined]  # the dict may be of an object that nothing else holds
    made.at = id(owner) + 2 if type(held) is Attributes else made.at
    return made


def _of_slots(label: str, value: Any, slots: Mapping[str, Any]) -> Keyed:
    def read() -> dict[str, Any]:
        return dict(slot_values(value, slots))

    put = _putting(lambda name, item: slots[name].__set__(value, item), lambda name: slots[name].__delete__(value))
    made = Keyed(label, value, lambda name: f"{label}.{name}", read, put)
    made.at = id(value) + 1  # of no object: the value may be a container besides
    return made


def _is_no_special(name: str) -> bool:
    return not name.startswith(("__", "_abc_"))


def of_class(kind: type, is_told: Callable[[str], bool] = _is_no_special) -> Keyed:
    def read() -> dict[str, Any]:
        return {name: value for name, value in vars(kind).items() if is_told(name)}

    put = _putting(functools.partial(type.__setattr__, kind), functools.partial(type.__delattr__, kind))
    return Keyed(kind.__qualname__, kind, lambda name: f"{kind.__qualname__}.{name}", read, put, is_global=True)


def of_cell(name: str, cell: Any) -> Keyed:
    def read() -> dict[str, Any]:
        try:
            return {name: cell.cell_contents}
        except ValueError:  # not bound yet
            return {}

    put = _putting(lambda _, value: setattr(cell, "cell_contents", value), lambda _: delattr(cell, "cell_contents"))
    return Keyed(name, cell, lambda _: name, read, put, is_global=True)


def always(_: str) -> bool:
    return True


@functools.cache
def _of_every_module() -> frozenset[str]:
    from torch.nn import Module

    return frozenset(vars(Module()))


def _is_public(name: str) -> bool:
    return not name.startswith("_") and _is_no_machinery(name)


def _is_no_machinery(name: str) -> bool:
    """Whether an attribute of a module is the user's own: not its parameters, hooks and mode, which go other ways."""
    return name not in _of_every_module()
