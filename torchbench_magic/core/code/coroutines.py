"""Running a coroutine where no event loop runs, so that code which may await is written once."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["completed"]

T = TypeVar("T")


def completed(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends.

    A StopIteration that passes through a coroutine becomes a RuntimeError (PEP 479): code of the user's is run in there
    only where what it raises is kept as a value.
    """
    __tracebackhide__ = True
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("the body awaits, and no event loop runs here")
