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
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from .code import codes_within, globals_read, names_used
from .frame_owner import is_users_file
from .inputs import described
from .object_contents import (
    class_attributes,
    class_dict,
    class_order,
    code_digest,
    digest,
    functions_in,
    globals_of,
    is_array,
    is_descriptor,
    is_module,
    is_tensor,
    names_and_texts,
)
from .reach import attributes_held, function_parts, is_users_class, slot_values, slots_among
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


class VariablesRead:
    """Collects the code that is read with a body, and tells the variables that it may ask for."""

    def __init__(self) -> None:
        self._asks = False
        self._direct: set[str] = set()
        self._others: set[str] = set()

    def take(self, code: CodeType, home: Mapping[str, Any]) -> None:
        """Note a piece of code, and the globals that it finds."""
        read = [home[name] for name in globals_read(code) if name in home]
        names = {*_texts_of(code), *(one for one in read if type(one) is str and _NAME.fullmatch(one))}
        if not _ASKING.isdisjoint(names_used(code)) or any(is_environment(one) or one is os.getenv for one in read):
            self._asks = True
            self._direct |= names
        else:
            self._others |= names

    def values(self) -> Iterator[Value]:
        """Each variable with what it holds. One that only other code names counts where it is set."""
        if not self._asks:
            return
        for name in sorted(self._direct | self._others):
            held = os.environ.get(name)
            if held is not None or name in self._direct:
                yield variable_label(name), _kept(held), ""


def _kept(held: str | None) -> str:
    if held is None:
        return NOT_SET
    return repr(held) if _HARMLESS.fullmatch(held) else TEXT + digest(held)


def _texts_of(code: CodeType) -> Iterator[str]:
    waiting = [constant for part in codes_within(code) for constant in part.co_consts]
    while waiting:
        one = waiting.pop()
        if type(one) is str and _NAME.fullmatch(one):
            yield one
        elif type(one) in (tuple, frozenset):
            waiting += one


# ---- value_texts -----------------------------------------------------------------------------------------------------
# A value as one text, equal for equal values: what `values_of` compares two runs by.

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
"""Attributes of `torch.nn.Module` that `process.inputs` tells, or that this module follows in another way."""


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
            pairs = items if base is dict else [(item,) for item in items]
            texts = [": ".join(self.text(part, depth + 1) for part in pair) for pair in pairs]
            self.leaves.plain |= not texts
        if base in (dict, set, frozenset):
            texts.sort()
        return f"{size} of {ends[0]}{', '.join(texts)}{ends[1]}"

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


# ---- values_read -----------------------------------------------------------------------------------------------------
# What code reads besides the shapes of tensors: numbers, texts and containers of them, wherever it finds them.
#
# ``cfg["size"]``, ``Cfg.n``, ``mymod.N``, ``self.size`` and a default argument decide how much is computed, and no
# source or shape tells. Followed are the names that code reads, functions, classes, modules and instances that users
# wrote (of these the attributes that some code says), and what containers hold. Of library objects that keep their
# state in a dict the whole is taken. Nothing of the user's runs: no property, no ``__getattr__``, no ``__repr__``. No
# data of tensors or arrays is read, but for a single integer.
#
# What cannot be known is said with the value: an object that shows no state, a container beyond the bounds.

Values = tuple[Value, ...]

_MOST_LABELS = 100
_LONGEST_SHOWN = 40  # characters of a container of numbers that is shown as it is


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
    words, by_source = {word for code in codes for word in names_and_texts(code)}, list(known)
    read = [(name, namespace[name]) for name in sorted(names) if name in namespace and not name.startswith("__")]
    while True:  # code that is found says more attributes, through which more code may be found
        walk = _Walk(words, home, {id(function) for function in by_source})
        for code in codes:
            walk.variables.take(code, namespace)
        for name, value in read:
            walk.take(name, value)
        if walk.words <= words:
            return walk.values()
        words |= walk.words


def without_changed(before: Values, changed: Iterable[str]) -> Values:
    """The values, with a mark in place of those of variables that the run changed."""
    roots = set(changed)
    kept = tuple(value for value in before if variable_of(value[0]) not in roots)
    return tuple(sorted((*kept, *((root, "", CHANGES) for root in roots))))


class _Walk:
    """One way through all that some code reads; ``words`` are those that the code found on it says."""

    def __init__(self, said: set[str], home: object, known: set[int]) -> None:
        self._texts = Texts(said)
        self._home, self._known, self._in_all = home, known, MOST_IN_ALL
        self._codes: dict[str, set[str]] = {}  # module, or function of the notebook -> digests of code
        self._found: dict[str, dict[tuple[str, str], None]] = {}
        self._assigned: set[str] = set()
        self._numbers: set[str] = set()  # labels of globals that hold a number
        self.words: set[str] = set()
        self.variables = VariablesRead()

    def take(self, label: str, value: Any) -> None:
        """Note a global and all that is reached through it."""
        self._texts.left = before = min(MOST_STEPS, self._in_all)
        self._note(label, value, 0)
        while self._texts.functions:
            self._read_by(self._texts.functions.popleft())
        self._in_all -= before - self._texts.left

    def values(self) -> Values:
        """What was found, sorted; beyond a number of labels the rest is one value."""
        one_by_one = [(label, CODE + digest(repr(sorted(of))), "") for label, of in sorted(self._codes.items())]
        one_by_one += self.variables.values()
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

    def _note(self, label: str, value: Any, depth: int) -> None:
        kind = type(value)
        if is_environment(value):
            return  # of it, the variables that code names
        if issubclass(kind, FunctionType):
            self._texts.functions.append(value)
        elif issubclass(kind, MethodType):
            self._note(label, value.__func__, depth)
            self._note(label, value.__self__, depth)
        elif issubclass(kind, functools._lru_cache_wrapper):
            self._note(label, value.__wrapped__, depth)
        elif issubclass(kind, functools.partial):
            for nth, part in enumerate((value.func, *value.args)):
                self._note(f"{label}({nth})" if nth else label, part, depth + 1)
            for name, part in value.keywords.items():
                self._note(f"{label}({name}=)", part, depth + 1)
        elif issubclass(kind, type | ModuleType) or self._texts.is_open(value):
            self._parts(label, value, depth)
        elif issubclass(kind, dict) and depth <= DEEPEST:
            self._of_dict(label, value, depth)
        else:
            self._add(label, value)

    def _parts(self, label: str, value: Any, depth: int) -> None:
        """The attributes that code says, of a class, a module or an instance of the user's."""
        if id(value) in self._texts.seen or depth > DEEPEST:
            return
        self._texts.seen.add(id(value))
        if is_module(value):
            self._add(label, value)
        for name, part in self._texts.attributes(value):
            self._note(f"{label}.{name}", part, depth + 1)

    def _of_dict(self, label: str, value: Any, depth: int) -> None:
        """The entries whose keys code says, one by one, and the others together."""
        if id(value) in self._texts.seen:
            self._add(label, value)
            return
        self._texts.seen.add(id(value))
        if dict.__len__(value) > MOST_ITEMS:
            self._add(label, value)
            return
        entries = list(dict.items(value))
        said = {key for key, _ in entries if type(key) is str and key in self._texts.said}
        for key, item in entries:
            if type(key) is str and key in said:
                self._note(f"{label}[{key!r}]", item, depth + 1)
        others = {key: item for key, item in entries if not (type(key) is str and key in said)}
        if others:
            self._add(label, others)

    def _add(self, label: str, value: Any) -> None:
        """One value by its text, which is shown where it is short and of numbers."""
        self._texts.leaves = leaves = Leaves(set())
        text = self._texts.text(value, 0)
        kind = type(value)
        if text and not leaves.plain and not leaves.unknown and "." not in label and "[" not in label:
            return  # tensors and arrays: `process.inputs` has them
        if not text and not leaves.unknown:
            return
        if issubclass(kind, int | float | complex) or value is None:
            self._numbers.add(label)
        elif issubclass(kind, str | bytes | bytearray):
            text = TEXT + digest(text)
        elif not is_tensor(value) and (leaves.texts or leaves.unknown or len(text) > _LONGEST_SHOWN):
            text = CONTENTS + digest(text)
        self._found.setdefault(label, {})[text, ", ".join(sorted(leaves.unknown)[:2])] = None

    def _read_by(self, function: FunctionType) -> None:
        """What a function of the user's reads: globals, variables of enclosing functions, defaults."""
        code = function.__code__
        if id(function) in self._texts.seen or not is_users_file(code.co_filename) or self._texts.left <= 0:
            return
        self._texts.seen.add(id(function))
        self._texts.left -= 1
        self.words |= names_and_texts(code)
        self.variables.take(code, function.__globals__)
        names, bound = globals_of(code)
        home = function.__globals__
        of = "" if home is self._home else f"{home.get('__name__', '')}."
        self._assigned |= {of + name for name in bound}
        if id(function) not in self._known:
            self._codes.setdefault(of[:-1] or function.__qualname__, set()).add(code_digest(code))
        for name in sorted(names):
            if name in home and not name.startswith("__"):
                self._note(of + name, home[name], 0)
        for how, name, value in function_parts(function):
            if how != "attribute":
                label, depth = (name, 0) if how == "closure" else (f"{function.__name__}({name}=)", 1)
                self._note(label, value, depth)
