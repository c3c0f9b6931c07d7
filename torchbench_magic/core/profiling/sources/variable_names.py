"""Which variables code can name: what it uses of them, and what they hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.core.code.code_reads import closed_over, codes_within

__all__ = ["names_around", "names_in"]


def names_in(code: CodeType) -> Iterator[str]:
    """The variables that a code, and the functions within it, name."""
    return (name for part in codes_within(code) for name in (*part.co_names, *part.co_freevars))


def names_around(target: Callable[[], object]) -> dict[str, Any]:
    """The variables that a function can name: its module's, and those of the functions around it."""
    function = inspect.unwrap(target)
    around = closed_over(function) if isinstance(function, FunctionType) else {}
    return dict(getattr(function, "__globals__", {})) | around
