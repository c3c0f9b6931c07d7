"""Callables that scripts hand in: whether calling one does its work, and what a call returned without running it.

Calling a generator function or a coroutine function runs none of its code: it makes an object that runs later or never.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torchbench_magic.errors import BodyError

__all__ = ["check_callable", "kind_of_function", "not_run"]


def check_callable(function: Callable[..., object], name: str) -> None:
    """Refuse what cannot be called as it is, or whose call runs nothing.

    Args:
        name: what the message calls it.

    Raises:
        BodyError: it needs arguments; it is a generator function, a coroutine function or an async generator function.
    """
    kind = kind_of_function(function)
    if kind is not None:
        way = "`lambda: list(f())`" if kind == "generator" else "`lambda: asyncio.run(f())`, or await it in a cell"
        if kind == "async generator":
            way = "a function that runs `async for` over it, such as `lambda: asyncio.run(main())`"
        article = "an" if kind.startswith("a") else "a"
        raise BodyError(f"{name} is {article} {kind} function, and calling it runs none of its code: give {way}")
    needed = _needed(function)
    if needed:
        what = f"{name} needs {'arguments' if len(needed) > 1 else 'an argument'} ({', '.join(needed)})"
        raise BodyError(f"{what}: callables are called without any; give `lambda: ...` with the call, or text")


def kind_of_function(function: object) -> str | None:
    """``generator``, ``coroutine`` or ``async generator`` where calling the function makes one; else None.

    A wrapper is not looked through: it may well run what it wraps.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = None if inspect.isroutine(inner) or inspect.isclass(inner) else getattr(type(inner), "__call__", None)  # noqa: B004
    for asked in (inner, call):
        if inspect.iscoroutinefunction(asked):
            return "coroutine"
        if inspect.isasyncgenfunction(asked):
            return "async generator"
        if inspect.isgeneratorfunction(asked):
            return "generator"
    return None


def not_run(value: object) -> str | None:
    """``generator`` or ``coroutine`` for one of which nothing has run yet; else None."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        return "coroutine"
    if inspect.isgenerator(value) and inspect.getgeneratorstate(value) == inspect.GEN_CREATED:
        return "generator"
    return None


def _needed(function: Callable[..., object]) -> list[str]:
    """Names of the parameters without which it cannot be called; none where its signature is not known."""
    inner = function
    if hasattr(function, "forward") and hasattr(function, "named_parameters"):  # nn.Module.__call__ takes anything
        inner = function.forward
    try:
        parameters = inspect.signature(inner).parameters.values()
    except (TypeError, ValueError):  # builtins may not say
        return []
    open_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in open_kinds]
