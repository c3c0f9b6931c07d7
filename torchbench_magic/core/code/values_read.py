"""What code reads besides the shapes of tensors: numbers, texts and containers of them, wherever it finds them.

``cfg["size"]``, ``Cfg.n``, ``mymod.N``, ``self.size`` and a default argument decide how much is computed, and no source
or shape tells. Followed are the names that code reads, functions, classes, modules and instances that users wrote (of
these the attributes that some code says), and what containers hold. Of library objects that keep their state in a dict
the whole is taken. Nothing of the user's runs: no property, no ``__getattr__``, no ``__repr__``. No data of tensors or
arrays is read, but for a single integer.

What cannot be known is said with the value: an object that shows no state, a container beyond the bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torchbench_magic.results.timing.values_read import CHANGES, CODE, CONTENTS, TEXT, Value, variable_of

from .code_reads import closed_over
from .environment_read import VariablesRead, is_environment
from .held_values import code_digest, digest, globals_of, is_module, is_tensor, names_and_texts
from .library_files import is_users_file
from .value_texts import DEEPEST, MOST_IN_ALL, MOST_ITEMS, MOST_STEPS, Leaves, Texts

__all__ = ["Values", "values_of", "without_changed"]

Values = tuple[Value, ...]

_MOST_LABELS = 100
_SHOWN = 40  # characters of a container of numbers that is shown as it is


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
        if len(value) > MOST_ITEMS:
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
            return  # tensors and arrays: `input_shapes` has them
        if not text and not leaves.unknown:
            return
        if issubclass(kind, int | float | complex) or value is None:
            self._numbers.add(label)
        elif issubclass(kind, str | bytes | bytearray):
            text = TEXT + digest(text)
        elif not is_tensor(value) and (leaves.texts or leaves.unknown or len(text) > _SHOWN):
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
        for name, value in closed_over(function).items():
            self._note(name, value, 0)
        defaults = function.__defaults__ or ()
        arguments = code.co_varnames[: code.co_argcount]
        given = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False))
        for name, value in {**given, **(function.__kwdefaults__ or {})}.items():
            self._note(f"{function.__name__}({name}=)", value, 1)
