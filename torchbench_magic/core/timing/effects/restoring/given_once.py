"""Iterators that a cell takes from and that cannot be put back: refused before anything is taken from them."""

from __future__ import annotations

import io
from collections.abc import Collection

from torchbench_magic.core.code.code_reads import globals_read
from torchbench_magic.core.code.reached_objects import Found, ReachedObject, own_attributes
from torchbench_magic.errors import BodyError

from ..iterators import is_cursor

__all__ = ["check_iterators"]


def check_iterators(found: Found, copied: Collection[str]) -> None:
    """Refuse what a call of the cell uses up for good: a trial calls it again and again.

    An iterator that can be copied is put back where the body itself reads it by its name; one of a user's class by its
    attributes.

    Args:
        copied: names of the iterators that are put back.

    Raises:
        BodyError: one line, with the iterator by name.
    """
    by_functions = {name for function in found.functions for name in globals_read(function.__code__)}
    for one in found.items.values():
        is_put_back = one.label in copied and one.label not in by_functions
        if _gives_each_item_once(one) and not is_put_back:
            raise BodyError(
                f"--try calls the cell many times, and items taken from `{one.label}` cannot be put back: take"
                f" what you need before the cell, for example `x = next({one.label})`"
            )


def _gives_each_item_once(one: ReachedObject) -> bool:
    kind = type(one.value)
    is_iterator = any("__next__" in vars(base) or "__anext__" in vars(base) for base in kind.__mro__)
    if not is_iterator or issubclass(kind, (io.IOBase, type)) or own_attributes(one.value) is not None:
        return False
    return not is_cursor(one.value)  # the body gives it a statement
