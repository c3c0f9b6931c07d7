"""A value as one text, equal for equal values: what `values_read` compares two runs by."""

from __future__ import annotations

import enum
import functools
import io
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from .held_values import (
    class_attributes,
    class_dict,
    class_order,
    functions_in,
    is_array,
    is_descriptor,
    is_module,
    is_tensor,
)
from .input_shapes import described
from .library_files import is_users_file
from .reached_objects import attributes_held, is_users_class, slot_values, slots_among

__all__ = ["DEEPEST", "MOST_IN_ALL", "MOST_ITEMS", "MOST_STEPS", "Leaves", "Texts"]

MOST_STEPS, MOST_IN_ALL = 2_500, 7_500
"""Objects that are looked at of one variable, and of all (2 to 6 us each)."""
MOST_ITEMS, _MOST_CHARACTERS = 1_000, 1_000_000
_CHEAP = 20
"""Numbers of a list that count for one object."""
DEEPEST = 6
_ANY_ATTRIBUTE = frozenset(("getattr", "vars", "__dict__", "asdict", "astuple", "attrgetter"))
_TOO_MUCH = "too large to compare whole"
_NO_STATE = (BuiltinFunctionType, FunctionType, MethodType, ModuleType, type, property, staticmethod, classmethod)
_CODE_OR_RANDOM = frozenset(
    (
        *("Generator", "Random", "RandomState", "Logger", "lock", "RLock", "ContextVar", "weakref", "ReferenceType"),
        *("builtin_function_or_method", "method-wrapper", "wrapper_descriptor", "method_descriptor"),
        *("getset_descriptor", "ellipsis", "NotImplementedType"),
    )
)
"""Names of library types that hold code, locks or random numbers, which are no input."""
_BY_REPR = frozenset(
    (
        *("torch.dtype", "torch.device", "torch.layout", "torch.memory_format", "builtins.slice", "builtins.range"),
        *("decimal.Decimal", "fractions.Fraction", "re.Pattern", "datetime.timedelta", "datetime.datetime"),
    )
)
_NUMBERS = frozenset((bool, int, float, complex, type(None)))
_OF_MODULES = frozenset(("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"))
"""Attributes of `torch.nn.Module` that `input_shapes` tells, or that this module follows in another way."""


@dataclass
class Leaves:
    """What was met on the way through one value.

    Attributes:
        unknown: why not all of it is known, in words.
        plain: it holds something that is no tensor or array.
        texts: it holds a text, so that it is not shown.
    """

    unknown: set[str]
    plain: bool = False
    texts: bool = False


class Texts:
    """The texts of values that one piece of code reads, and the functions of the user's that are found on the way.

    Args:
        said: names and texts of the code, by which it may ask for an attribute.

    Attributes:
        functions: found, and not yet followed.
        seen: ids of instances, classes and functions that have been noted.
        left: objects that may still be looked at.
        leaves: what was met in the value that is read.
    """

    def __init__(self, said: set[str]) -> None:
        self.said = said
        self._any_attribute = bool(said & _ANY_ATTRIBUTE)
        self._of_class: dict[type, dict[str, Any]] = {}
        self.seen: set[int] = set()
        self.left = 0
        self.functions: deque[FunctionType] = deque()
        self.leaves = Leaves(set())

    def is_open(self, value: Any) -> bool:
        """Whether an instance is noted by its attributes, one by one."""
        kind = type(value)
        own = kind is SimpleNamespace or any(map(is_users_class, class_order(kind)))
        known = (enum.Enum, dict, list, tuple, set, frozenset, deque, str, bytes, int, float, complex)
        return own and not issubclass(kind, known) and not is_tensor(value)

    def attributes(self, value: Any) -> Iterator[tuple[str, Any]]:
        """(name, value) of the attributes that code says; the functions of classes are followed on the way."""
        kind = type(value)
        if issubclass(kind, ModuleType):
            inside = attributes_held(value) or {}
            if is_users_file(inside.get("__file__")) and "__file__" in inside:
                yield from ((name, inside[name]) for name in sorted(self.said & inside.keys()))
            return
        own = value if issubclass(kind, type) else kind
        held = self._class_attributes(own)
        if issubclass(kind, type):
            inside = {}
        else:
            inside = attributes_held(value) or {}
            inside = {**dict(slot_values(value, slots_among(held))), **inside}
        every = self._any_attribute or kind is SimpleNamespace
        for name in sorted(inside.keys() if every else self.said & inside.keys()):
            if name not in _OF_MODULES:
                yield name, inside[name]
        for name in sorted((self.said & held.keys()) - inside.keys()):
            if not name.startswith("__") and not functions_in(held[name]) and not is_descriptor(held[name]):
                yield name, held[name]

    def _class_attributes(self, own: type) -> dict[str, Any]:
        """`class_attributes`, whose functions are followed."""
        if own not in self._of_class:
            self._of_class[own] = class_attributes(own)
            for part in self._of_class[own].values():
                self.functions.extend(functions_in(part))
        return self._of_class[own]

    def text(self, value: Any, depth: int) -> str:
        """A value as one text: equal for equal ones. Never runs code of the user's, never raises."""
        self.left -= 1
        kind = type(value)
        scalar = self._scalar(value, kind)
        if scalar is not None:
            return scalar
        if issubclass(kind, _NO_STATE):
            self._code(value)
            return ""
        if is_tensor(value) or is_array(kind):
            return self._array(value)
        if self.left <= 0 or depth > DEEPEST:
            self.leaves.unknown.add(_TOO_MUCH)
            return kind.__name__
        for base in (dict, list, tuple, set, frozenset, deque):
            if issubclass(kind, base):
                return self._container(base, value, depth)
        if issubclass(kind, functools.partial):
            return self.text((value.func, value.args, value.keywords), depth + 1)
        return self._instance(value, depth)

    def _scalar(self, value: Any, kind: type) -> str | None:
        """The text of a number, a text or another constant; None where it is none."""
        if value is None or kind in (bool, float, complex):
            text = repr(value)
        elif issubclass(kind, enum.Enum):
            inside = attributes_held(value) or {}
            text = f"{kind.__qualname__}.{inside.get('_name_')}={self.text(inside.get('_value_'), DEEPEST)}"
        elif issubclass(kind, int):
            text = int.__repr__(value) if int.bit_length(value) < 1000 else int.__format__(value, "x")
        elif issubclass(kind, float):
            text = float.__repr__(value)
        elif issubclass(kind, str | bytes | bytearray):
            self.leaves.texts = True
            text = self._characters(value)
        elif f"{kind.__module__}.{kind.__qualname__}" in _BY_REPR:
            text = repr(value)
        elif kind.__module__ in ("pathlib", "pathlib._local") and kind.__name__.endswith("Path"):
            self.leaves.texts = True
            text = str(value)
        elif kind.__module__ == "numpy" and issubclass(kind, sys.modules["numpy"].generic):
            text = f"{kind.__name__} {value.item()!r}" if kind.__name__ not in ("void", "object_") else kind.__name__
        else:
            return None
        self.leaves.plain = True
        return text

    def _characters(self, value: Any) -> str:
        base: Any = str if issubclass(type(value), str) else bytes if issubclass(type(value), bytes) else bytearray
        size = base.__len__(value)
        if size > _MOST_CHARACTERS:
            self.leaves.unknown.add(_TOO_MUCH)
            half = _MOST_CHARACTERS // 2
            ends = base.__getitem__(value, slice(half)), base.__getitem__(value, slice(-half, None))
            return f"{size} {ends!r}"
        return base.__repr__(value)  # type: ignore[no-any-return]

    def _array(self, value: Any) -> str:
        """Shape, dtype and device; of a single integer on the CPU its value too, since it may be a size."""
        text = described(value)
        import torch

        if type(value) is not torch.Tensor or value.dim() or value.device.type != "cpu":
            return text
        if value.is_floating_point() or value.is_complex() or value.is_quantized:
            return text
        self.leaves.plain = True
        return f"{text} {value.item()}"

    def _container(self, base: Any, value: Any, depth: int) -> str:
        size, kind = base.__len__(value), type(value)
        ends = ("[", "]") if kind is list else ("(", ")") if kind is tuple else (f"{kind.__name__}(", ")")
        step = -(-size // MOST_ITEMS)
        if step > 1:
            self.leaves.unknown.add(_TOO_MUCH)
            some = base.__getitem__(value, slice(None, None, step)) if base in (list, tuple) else ()
            items = list(some)
        else:
            items = list(base.items(value) if base is dict else base.__iter__(value))
        if base is not dict and {*map(type, items)} <= _NUMBERS:
            self.left -= len(items) // _CHEAP
            self.leaves.plain = True
            texts = list(map(repr, items))
        else:
            texts = [self._entry(item, depth + 1) if base is dict else self.text(item, depth + 1) for item in items]
            self.leaves.plain |= not texts
        if base in (dict, set, frozenset):
            texts.sort()
        return f"{size} of {ends[0]}{', '.join(texts)}{ends[1]}"

    def _entry(self, item: tuple[Any, Any], depth: int) -> str:
        return f"{self.text(item[0], depth)}: {self.text(item[1], depth)}"

    def _instance(self, value: Any, depth: int) -> str:
        """An instance: of the user's by the attributes that code says, else by all that it holds."""
        kind = type(value)
        if id(value) in self.seen and not is_module(value):
            return kind.__qualname__  # noted by itself, or on the way to itself
        if is_module(value):
            return self._layers(value, depth)
        if kind.__name__ in _CODE_OR_RANDOM and not self.is_open(value):
            return kind.__qualname__
        self.seen.add(id(value))
        if self.is_open(value):
            held = dict(self.attributes(value))
        else:
            inside = attributes_held(value)
            if (
                inside is None
                or issubclass(kind, io.IOBase)
                or any("__next__" in class_dict(b) for b in class_order(kind))
            ):
                self.leaves.unknown.add(kind.__name__)
                return kind.__qualname__
            held = dict(list(inside.items())[:MOST_ITEMS])
        parts = ", ".join(f"{name}={self.text(part, depth + 1)}" for name, part in held.items())
        self.leaves.plain = True
        return f"{kind.__qualname__}({parts})"

    def _layers(self, module: Any, depth: int) -> str:
        """The settings of a module and those within it (``stride``, ``num_heads``), not their tensors."""
        parts = []
        waiting = [("", module)]
        while waiting and self.left > 0:
            path, one = waiting.pop()
            inside = attributes_held(one) or {}
            if self._class_attributes(type(one)):
                self.seen.add(id(one))
                held = dict(self.attributes(one)) if one is not module else {}
            else:
                held = {n: v for n, v in inside.items() if n[:1] != "_" and n not in _OF_MODULES}
            numbers = [(name, part) for name, part in held.items() if _is_number(part)]
            others = {n: p for n, p in held.items() if not _is_number(p) and self._is_setting(n, p)}
            text = self.text(others, depth + 2) if others else ""
            self.left -= 1
            parts.append(f"{path}:{type(one).__qualname__}({numbers!r} {text})")
            within = inside.get("_modules") or {}
            waiting += [(f"{path}.{name}", part) for name, part in within.items() if part is not None]
        if waiting:
            self.leaves.unknown.add(_TOO_MUCH)
        self.leaves.plain = True
        return " ".join(parts)

    def _is_setting(self, name: str, part: Any) -> bool:
        kind = type(part)
        known = (bool, int, float, complex, str, bytes, dict, list, tuple, set, frozenset)
        return name == "config" or part is None or issubclass(kind, known) or kind.__module__ == "torch"

    def _code(self, value: Any) -> None:
        """Follow code that is held by a container or an object."""
        kind = type(value)
        if issubclass(kind, MethodType):
            self._code(value.__func__)
        elif issubclass(kind, type | ModuleType):
            if id(value) not in self.seen and not issubclass(kind, ModuleType):
                self.seen.add(id(value))
                list(self.attributes(value))
        else:
            self.functions.extend(functions_in(value))


def _is_number(part: Any) -> bool:
    """A number, or a short tuple of them, that ``repr`` tells."""
    return type(part) in _NUMBERS or (type(part) is tuple and len(part) <= 10 and {*map(type, part)} <= _NUMBERS)
