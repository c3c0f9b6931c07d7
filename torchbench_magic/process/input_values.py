"""What code reads besides tensors: numbers, texts and settings, as texts that two runs are compared by."""

from __future__ import annotations

import enum
import functools
import io
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from .code import globals_assigned, globals_read, names_used
from .frame_owner import is_users_class, is_users_file
from .input_shapes import described
from .reach import attributes_held, function_parts, search, slot_values, slots_among, texts_within
from .static_introspection import (
    class_attributes,
    class_dict,
    class_order,
    code_digest,
    digest,
    is_array,
    is_module,
    is_tensor,
)
from .values_between_runs import CHANGES, CODE, CONTENTS, NOT_SET, TEXT, Value, variable_label, variable_of

# ---- environment_read ------------------------------------------------------------------------------------------------
# Environment variables that code may read: ``os.environ["MODE"]``, ``os.getenv(NAME)``, a helper that is given a name.
#
# Which ones is told from texts: those in code that asks for variables, and, since a helper may be given its name, those
# in all code that is read with it. A variable that is named otherwise (a text that is put together) is not known.

_ASKING = frozenset(("environ", "environb", "getenv", "getenvb"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HARMLESS = re.compile(r"[0-9.]{1,8}|true|false|yes|no|on|off", re.IGNORECASE)
"""Values that are kept as they are; of others only a digest, since they may be secrets."""


def is_environment(value: Any) -> bool:
    """Whether this is the process's environment, which no piece of code reads as a whole."""
    return value is os.environ or value is getattr(os, "environb", None)


def _variables_read(codes: Iterable[tuple[CodeType, Mapping[str, Any]]]) -> Iterator[Value]:
    """Each variable that code, of which the globals are given, may ask for. One that only other code names counts where
    it is set."""
    direct, others, is_asked = set[str](), set[str](), False
    for code, home in codes:
        read = [home[name] for name in globals_read(code) if name in home]
        names = {one for one in (*texts_within(code), *read) if type(one) is str and _NAME.fullmatch(one)}
        asks = not _ASKING.isdisjoint(names_used(code)) or any(is_environment(one) or one is os.getenv for one in read)
        (direct if asks else others).update(names)
        is_asked = is_asked or asks
    for name in sorted(direct | others) if is_asked else ():
        held = os.environ.get(name)
        if held is not None or name in direct:
            yield variable_label(name), _kept(held), ""


def _kept(held: str | None) -> str:
    if held is None:
        return NOT_SET
    return repr(held) if _HARMLESS.fullmatch(held) else TEXT + digest(held)


# ---- values_read -----------------------------------------------------------------------------------------------------
# What code reads besides the shapes of tensors: numbers, texts and containers of them, wherever it finds them.
#
# ``cfg["size"]``, ``Cfg.n``, ``mymod.N``, ``self.size`` and a default argument decide how much is computed, and no
# source or shape tells. Read is what the names of code hold, and of the functions of users that it may call
# (`reach.search`) globals, closures and defaults; of classes, modules and instances that users wrote the attributes
# that some code says; of library objects that keep their state in a dict the whole. Nothing of the user's runs: no
# property, no ``__getattr__``, no ``__repr__``. No data of tensors or arrays is read, but for a single integer.
#
# What cannot be known is said with the value: an object that shows no state, a container beyond the bounds.

Values = tuple[Value, ...]

MOST_STEPS = 2_500
"""Objects that are looked at of one variable (2 to 6 us each)."""
MOST_ITEMS, _MOST_CHARACTERS = 1_000, 1_000_000
_CHEAP = 20
"""Numbers of a list that count for one object."""
DEEPEST = 6
_MOST_LABELS = 100
_LONGEST_SHOWN = 40  # characters of a container of numbers that is shown as it is
_ANY_ATTRIBUTE = frozenset(("getattr", "vars", "__dict__", "asdict", "astuple", "attrgetter"))
_TOO_MUCH = "too large to compare whole"
_OF_CLASSES = (
    *(FunctionType, property, staticmethod, classmethod, functools.cached_property, functools._lru_cache_wrapper),
    *(MemberDescriptorType, GetSetDescriptorType),
)
"""Attributes of classes that are no values of theirs, but run or hold those of instances."""
_NO_STATE = (*_OF_CLASSES, BuiltinFunctionType, MethodType, ModuleType, type)
_CODE_OR_RANDOM = frozenset(
    (
        *("Generator", "Random", "RandomState", "Logger", "lock", "RLock", "ContextVar", "weakref", "ReferenceType"),
        *("builtin_function_or_method", "method-wrapper", "wrapper_descriptor", "method_descriptor"),
        *("ellipsis", "NotImplementedType"),
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
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_OF_MODULES = frozenset(("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"))
"""Attributes of `torch.nn.Module` that `process.input_shapes` tells, or that this module follows in another way."""


def values_of(
    names: Iterable[str],
    codes: Iterable[CodeType],
    namespace: Mapping[str, Any],
    home: object,
    known: Iterable[FunctionType] = (),
) -> Values:
    """The values that code reads, by label; of the user's functions that it may call also a digest of their code.

    Args:
        names: globals that it reads.
        codes: the code itself, for the attributes and keys that it says.
        namespace: where it finds its names.
        home: the notebook's own names; of functions of other modules the labels begin with the module.
        known: functions whose source is known otherwise.
    """
    codes = list(codes)
    read = {name: namespace[name] for name in sorted(names) if name in namespace and not name.startswith("__")}
    found = search(read, {word for code in codes for word in (*names_used(code), *texts_within(code))}, namespace)
    walk = _Walk(found.mentioned, home, {id(function) for function in known})
    for name, value in read.items():
        walk.note(name, value)
    for function in found.functions:
        walk.read_by(function)
    every = [(code, namespace) for code in codes] + [(one.__code__, one.__globals__) for one in found.functions]
    return walk.values(_variables_read(every))


def without_changed(before: Values, changed: Iterable[str]) -> Values:
    """The values, with a mark in place of those of variables that the run changed."""
    roots = set(changed)
    kept = tuple(value for value in before if variable_of(value[0]) not in roots)
    return tuple(sorted((*kept, *((root, "", CHANGES) for root in roots))))


class _Walk:
    """One way through all that some code reads; ``said`` are names and texts of all that code."""

    def __init__(self, said: frozenset[str], home: object, known: set[int]) -> None:
        self._said, self._home, self._known = said, home, known
        self._any_attribute = bool(said & _ANY_ATTRIBUTE)
        self._codes: dict[str, set[str]] = {}  # module, or function of the notebook -> digests of code
        self._found: dict[str, dict[tuple[str, str], None]] = {}
        self._assigned: set[str] = set()
        self._numbers: set[str] = set()  # labels of globals that hold a number
        self._seen: set[int] = set()  # ids of instances, classes and dicts that have been noted
        self._left = 0  # objects that may still be looked at
        # of the value that is read: why not all of it is known, whether it holds more than tensors, and texts
        self._unknown: set[str] = set()
        self._has_plain = self._has_texts = False

    def values(self, variables: Iterable[Value]) -> Values:
        """What was found, sorted; beyond a number of labels the rest is one value."""
        one_by_one = [(label, CODE + digest(repr(sorted(of))), "") for label, of in sorted(self._codes.items())]
        one_by_one += variables
        for label, texts in sorted(self._found.items()):
            if label in self._assigned and label in self._numbers:
                continue  # a counter is no input
            known, unknown = (" / ".join(dict.fromkeys(part for part in parts if part)) for parts in zip(*texts))  # noqa: B905
            one_by_one.append((label, known, unknown))
        some, rest = one_by_one[:_MOST_LABELS], one_by_one[_MOST_LABELS:]
        if rest:
            why = next((unknown for _, _, unknown in rest if unknown), "")
            some.append((f"{len(rest)} more values", CONTENTS + digest(repr(rest)), why))
        return tuple(some)

    def read_by(self, function: FunctionType) -> None:
        """What a function of the user's reads: globals, variables of enclosing functions, defaults."""
        code, home = function.__code__, function.__globals__
        of = "" if home is self._home else f"{home.get('__name__', '')}."
        self._assigned |= {of + name for name in globals_assigned(code)}
        if id(function) not in self._known:
            self._codes.setdefault(of[:-1] or function.__qualname__, set()).add(code_digest(code))
        for name in sorted(globals_read(code)):
            if name in home and not name.startswith("__"):
                self.note(of + name, home[name])
        for how, name, value in function_parts(function):
            if how == "closure":
                self.note(name, value)
            elif how == "default":
                self.note(f"{function.__name__}({name}=)", value)

    def note(self, label: str, value: Any) -> None:
        """Note a variable, with what code says of it one by one."""
        self._left = MOST_STEPS
        self._note(label, value, 0)

    def _note(self, label: str, value: Any, depth: int) -> None:
        kind = type(value)
        if is_environment(value):
            return  # of it, the variables that code names
        if issubclass(kind, MethodType):
            self._note(label, value.__self__, depth)
        elif issubclass(kind, functools.partial):
            for nth, part in enumerate((value.func, *value.args)):
                self._note(f"{label}({nth})" if nth else label, part, depth + 1)
            for name, part in value.keywords.items():
                self._note(f"{label}({name}=)", part, depth + 1)
        elif issubclass(kind, type | ModuleType) or self._is_open(value):
            self._parts(label, value, depth)
        elif issubclass(kind, dict) and depth <= DEEPEST:
            self._of_dict(label, value, depth)
        else:
            self._add(label, value)

    def _parts(self, label: str, value: Any, depth: int) -> None:
        """The attributes that code says, of a class, a module or an instance of the user's."""
        if id(value) in self._seen or depth > DEEPEST:
            return
        self._seen.add(id(value))
        if is_module(value):
            self._add(label, value)
        for name, part in self._attributes(value):
            self._note(f"{label}.{name}", part, depth + 1)

    def _of_dict(self, label: str, value: Any, depth: int) -> None:
        """The entries whose keys code says, one by one, and the others together."""
        if id(value) in self._seen or dict.__len__(value) > MOST_ITEMS:
            self._add(label, value)
            return
        self._seen.add(id(value))
        others = {}
        for key, item in list(dict.items(value)):
            if type(key) is str and key in self._said:
                self._note(f"{label}[{key!r}]", item, depth + 1)
            else:
                others[key] = item
        if others:
            self._add(label, others)

    def _add(self, label: str, value: Any) -> None:
        """One value by its text, which is shown where it is short and of numbers."""
        self._unknown, self._has_plain, self._has_texts = set(), False, False
        text, kind = self._text(value, 0), type(value)
        if text and not self._has_plain and not self._unknown and "." not in label and "[" not in label:
            return  # tensors and arrays: `process.input_shapes` has them
        if not text and not self._unknown:
            return
        if issubclass(kind, int | float | complex) or value is None:
            self._numbers.add(label)
        elif issubclass(kind, str | bytes | bytearray):
            text = TEXT + digest(text)
        elif not is_tensor(value) and (self._has_texts or self._unknown or len(text) > _LONGEST_SHOWN):
            text = CONTENTS + digest(text)
        self._found.setdefault(label, {})[text, ", ".join(sorted(self._unknown)[:2])] = None

    def _is_open(self, value: Any) -> bool:
        """Whether an instance is noted by its attributes, one by one."""
        kind = type(value)
        own = kind is SimpleNamespace or any(map(is_users_class, class_order(kind)))
        known = (enum.Enum, *_CONTAINERS, str, bytes, int, float, complex)
        return own and not issubclass(kind, known) and not is_tensor(value)

    def _attributes(self, value: Any) -> Iterator[tuple[str, Any]]:
        """(name, value) of the attributes that code says."""
        kind = type(value)
        inside = {} if issubclass(kind, type) else attributes_held(value) or {}
        if issubclass(kind, ModuleType):
            if is_users_file(inside.get("__file__")) and "__file__" in inside:
                yield from ((name, inside[name]) for name in sorted(self._said & inside.keys()))
            return
        held = class_attributes(value if issubclass(kind, type) else kind)
        if not issubclass(kind, type):
            inside = {**dict(slot_values(value, slots_among(held))), **inside}
        every = self._any_attribute or kind is SimpleNamespace
        for name in sorted(inside.keys() if every else self._said & inside.keys()):
            if name not in _OF_MODULES:
                yield name, inside[name]
        for name in sorted((self._said & held.keys()) - inside.keys()):
            if not name.startswith("__") and not issubclass(type(held[name]), _OF_CLASSES):
                yield name, held[name]

    def _text(self, value: Any, depth: int) -> str:
        """A value as one text: equal for equal ones. Never runs code of the user's, never raises."""
        self._left -= 1
        kind = type(value)
        scalar = self._scalar(value, kind)
        if scalar is not None:
            return scalar
        if issubclass(kind, _NO_STATE):
            return ""
        if is_tensor(value) or is_array(kind):
            return self._array(value)
        if self._left <= 0 or depth > DEEPEST:
            self._unknown.add(_TOO_MUCH)
            return kind.__name__
        for base in _CONTAINERS:
            if issubclass(kind, base):
                return self._container(base, value, depth)
        if issubclass(kind, functools.partial):
            return self._text((value.func, value.args, value.keywords), depth + 1)
        return self._instance(value, depth)

    def _scalar(self, value: Any, kind: type) -> str | None:
        """The text of a number, a text or another constant; None where it is none."""
        if value is None or kind in (bool, float, complex):
            text = repr(value)
        elif issubclass(kind, enum.Enum):
            inside = attributes_held(value) or {}
            text = f"{kind.__qualname__}.{inside.get('_name_')}={self._text(inside.get('_value_'), DEEPEST)}"
        elif issubclass(kind, int):
            text = int.__repr__(value) if int.bit_length(value) < 1000 else int.__format__(value, "x")
        elif issubclass(kind, float):
            text = float.__repr__(value)
        elif issubclass(kind, str | bytes | bytearray):
            self._has_texts = True
            text = self._characters(value)
        elif f"{kind.__module__}.{kind.__qualname__}" in _BY_REPR:
            text = repr(value)
        elif kind.__module__ in ("pathlib", "pathlib._local") and kind.__name__.endswith("Path"):
            self._has_texts = True
            text = str(value)
        elif kind.__module__ == "numpy" and issubclass(kind, sys.modules["numpy"].generic):
            text = f"{kind.__name__} {value.item()!r}" if kind.__name__ not in ("void", "object_") else kind.__name__
        else:
            return None
        self._has_plain = True
        return text

    def _characters(self, value: Any) -> str:
        base: Any = str if issubclass(type(value), str) else bytes if issubclass(type(value), bytes) else bytearray
        if (size := base.__len__(value)) > _MOST_CHARACTERS:
            self._unknown.add(_TOO_MUCH)
            return f"{size} characters"
        return base.__repr__(value)  # type: ignore[no-any-return]

    def _array(self, value: Any) -> str:
        """Shape, dtype and device; of a single integer on the CPU its value too, since it may be a size."""
        text = described(value)
        import torch

        if type(value) is not torch.Tensor or value.dim() or value.device.type != "cpu":
            return text
        if value.is_floating_point() or value.is_complex() or value.is_quantized:
            return text
        self._has_plain = True
        return f"{text} {value.item()}"

    def _container(self, base: Any, value: Any, depth: int) -> str:
        size, kind = base.__len__(value), type(value)
        ends = ("[", "]") if kind is list else ("(", ")") if kind is tuple else (f"{kind.__name__}(", ")")
        if size > MOST_ITEMS:
            self._unknown.add(_TOO_MUCH)
            return f"{size} of {ends[0]}{ends[1]}"
        items = list(base.items(value) if base is dict else base.__iter__(value))
        if base is not dict and {*map(type, items)} <= _NUMBERS:
            self._left -= len(items) // _CHEAP
            self._has_plain = True
            texts = list(map(repr, items))
        else:
            pairs = items if base is dict else [(item,) for item in items]
            texts = [": ".join(self._text(part, depth + 1) for part in pair) for pair in pairs]
            self._has_plain |= not texts
        if base in (dict, set, frozenset):
            texts.sort()
        return f"{size} of {ends[0]}{', '.join(texts)}{ends[1]}"

    def _instance(self, value: Any, depth: int) -> str:
        """An instance: of the user's by the attributes that code says, else by all that it holds."""
        kind = type(value)
        if is_module(value):
            return self._layers(value, depth)
        if id(value) in self._seen:
            return kind.__qualname__  # noted by itself, or on the way to itself
        is_open = self._is_open(value)
        if kind.__name__ in _CODE_OR_RANDOM and not is_open:
            return kind.__qualname__
        self._seen.add(id(value))
        inside = dict(self._attributes(value)) if is_open else attributes_held(value)
        is_iterator = not is_open and any("__next__" in class_dict(base) for base in class_order(kind))
        if inside is None or is_iterator or (not is_open and issubclass(kind, io.IOBase)):
            self._unknown.add(kind.__name__)
            return kind.__qualname__
        held = list(inside.items())[: None if is_open else MOST_ITEMS]
        parts = ", ".join(f"{name}={self._text(part, depth + 1)}" for name, part in held)
        self._has_plain = True
        return f"{kind.__qualname__}({parts})"

    def _layers(self, module: Any, depth: int) -> str:
        """The settings of a module and those within it (``stride``, ``num_heads``), not their tensors."""
        parts = []
        waiting = [("", module)]
        while waiting and self._left > 0:
            path, one = waiting.pop()
            inside = attributes_held(one) or {}
            if class_attributes(type(one)):
                self._seen.add(id(one))
                held = dict(self._attributes(one)) if one is not module else {}
            else:
                held = {n: v for n, v in inside.items() if n[:1] != "_" and n not in _OF_MODULES}
            numbers = [(name, part) for name, part in held.items() if _is_number(part)]
            others = {n: p for n, p in held.items() if not _is_number(p) and _is_setting(n, p)}
            text = self._text(others, depth + 2) if others else ""
            self._left -= 1
            parts.append(f"{path}:{type(one).__qualname__}({numbers!r} {text})")
            within = inside.get("_modules") or {}
            waiting += [(f"{path}.{name}", part) for name, part in within.items() if part is not None]
        if waiting:
            self._unknown.add(_TOO_MUCH)
        self._has_plain = True
        return " ".join(parts)


def _is_setting(name: str, part: Any) -> bool:
    kind = type(part)
    known = (bool, int, float, complex, str, bytes, dict, list, tuple, set, frozenset)
    return name == "config" or part is None or issubclass(kind, known) or kind.__module__ == "torch"


def _is_number(part: Any) -> bool:
    """A number, or a short tuple of them, that ``repr`` tells."""
    return type(part) in _NUMBERS or (type(part) is tuple and len(part) <= 10 and {*map(type, part)} <= _NUMBERS)
