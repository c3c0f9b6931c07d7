"""What code reads: the globals it names, what it closed over, and the functions of the notebook that it may call."""

from __future__ import annotations

import contextlib
import dis
import functools
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = ["closed_over", "globals_read", "notebook_functions"]


def notebook_functions(
    names: Iterable[str], namespace: Mapping[str, Any], home: Mapping[str, Any]
) -> list[FunctionType]:
    """Functions that code using ``names`` may call, written in the notebook (their globals are ``home``).

    Methods of notebook classes count, also through an instance. The search follows the names that those functions
    read, so that a function called by a function is found.
    """
    found: dict[int, FunctionType] = {}
    todo = [namespace[n] for n in names if n in namespace]
    while todo:
        value = todo.pop()
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


def globals_read(code: CodeType) -> set[str]:
    """Names of globals that code, or code defined in it, reads."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= globals_read(constant)
    return names
