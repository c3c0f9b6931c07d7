"""Which variables code can name: what it uses of them, and what they hold."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

__all__ = ["names_around", "names_in"]


def names_in(code: CodeType) -> Iterator[str]:
    """The variables that a code, and the functions within it, name."""
    yield from (*code.co_names, *code.co_freevars)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)


def names_around(target: Callable[[], object]) -> dict[str, Any]:
    """The variables that a function can name: its module's, and those of the functions around it."""
    function = inspect.unwrap(target)
    free = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = zip(free, getattr(function, "__closure__", None) or (), strict=False)
    around = {}
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # it has no value yet
            around[name] = cell.cell_contents
    return dict(getattr(function, "__globals__", {})) | around
