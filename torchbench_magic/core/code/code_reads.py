"""What code reads: the globals it names, what it closed over, and the functions of the notebook that it may call."""

from __future__ import annotations

import contextlib
import dis
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = [
    "BY_TEXT",
    "closed_over",
    "codes_within",
    "globals_assigned",
    "globals_read",
    "names_by",
    "names_looked_up",
    "names_used",
    "notebook_functions",
    "variables_read",
    "wrapped_by",
]


BY_TEXT = frozenset(
    ("eval", "exec", "globals", "locals", "vars", "get_ipython", "query", "__main__", "_getframe", "f_globals")
)
"""Names by which code finds variables that it does not name."""
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_WORD = re.compile(r"[^\W\d]\w*")


def notebook_functions(
    names: Iterable[str], namespace: Mapping[str, Any], home: Mapping[str, Any]
) -> list[FunctionType]:
    """Functions that code using ``names`` may call, written in the notebook (their globals are ``home``).

    Methods of notebook classes count, also through an instance. The search follows the names that those functions
    read, so that a function called by a function is found.
    """
    found: dict[int, FunctionType] = {}
    unwrapped: dict[int, Any] = {}
    todo = [namespace[n] for n in names if n in namespace]
    while todo:
        value = todo.pop()
        if (inner := wrapped_by(value)) is not None and id(inner) not in unwrapped:
            unwrapped[id(inner)] = inner
            todo.append(inner)
        for function in _functions_of(value):
            if function.__globals__ is home and id(function) not in found:
                found[id(function)] = function
                todo += [home[n] for n in globals_read(function.__code__) if n in home]
                todo += closed_over(function).values()
    return list(found.values())


def closed_over(function: FunctionType) -> dict[str, Any]:
    """Names of the enclosing functions that a function reads, with what they hold."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            found[name] = cell.cell_contents
    return found


def wrapped_by(value: Any) -> Any:
    """The function that a decorator such as ``torch.compile`` or ``torch.no_grad()`` made another one of, as
    ``functools.wraps`` notes it, or the module that ``torch.compile`` did; None where there is none."""
    if type(value) is FunctionType:
        return vars(value).get("__wrapped__")
    if type(value).__name__ == "OptimizedModule":
        return (vars(value).get("_modules") or {}).get("_orig_mod")
    return None


def _functions_of(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, MethodType):
        value = value.__func__
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, FunctionType):
        yield value
        return
    kind = value if isinstance(value, type) else type(value)
    for base in kind.__mro__:
        if base.__module__ == "__main__":
            yield from (f for f in vars(base).values() if isinstance(f, FunctionType))


def variables_read(
    names: Iterable[str], namespace: Mapping[str, Any], functions: Iterable[FunctionType] = ()
) -> dict[str, Any]:
    """The variables that code finds: those of ``names`` in ``namespace``, and what the functions that it may call read
    besides, in their own globals and in the functions around them."""
    read = {name: namespace[name] for name in names if name in namespace}
    for function in functions:
        home = function.__globals__
        read |= {n: home[n] for n in globals_read(function.__code__) if n in home and n not in read}
        read |= {n: value for n, value in closed_over(function).items() if n not in read}
    return read


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Code, and all code defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


def names_used(code: CodeType) -> Iterator[str]:
    """Names that code, or code inside it, looks up by their text: globals, attributes, imports."""
    return (name for part in codes_within(code) for name in part.co_names)


def names_by(code: CodeType, *operations: str) -> set[str]:
    """What these instructions of code, or of code defined in it, name."""
    return {i.argval for part in codes_within(code) for i in dis.get_instructions(part) if i.opname in operations}


def globals_read(code: CodeType) -> set[str]:
    """Names of globals that code, or code defined in it, reads."""
    return names_by(code, *_LOADS)


def names_looked_up(code: CodeType) -> set[str]:
    """Names that code, or code defined in it, may look for among the globals.

    The name of an attribute is none of them (``x.mean()`` uses no variable ``mean``), unless the code can find globals
    by their text, as by ``eval``: then every name and every word of a text in it may be one.
    """
    used = set(names_used(code))
    if used.isdisjoint(BY_TEXT):
        return names_by(code, *_LOADS, "DELETE_GLOBAL", "DELETE_NAME")
    texts = (text for part in codes_within(code) for text in part.co_consts if isinstance(text, str))
    return used | {word for text in texts for word in _WORD.findall(text)}


def globals_assigned(code: CodeType) -> set[str]:
    """Names of globals that code, or code defined in it, assigns."""
    return names_by(code, "STORE_GLOBAL", "STORE_NAME")
