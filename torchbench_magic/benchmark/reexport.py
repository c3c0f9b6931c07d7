"""What a submodule of torch has besides the names that are listed here: found in torch itself, on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["torch_names"]


def torch_names(module: str) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that looks in torch's module of that name.

    So everything can be imported that can be imported there, the undocumented included, whatever torch's version.
    """

    def look_up(name: str) -> Any:
        try:
            return getattr(import_module(module), name)
        except AttributeError:
            raise AttributeError(f"module {module!r} has no attribute {name!r}") from None

    return look_up
