"""By what name the reader has the result that is shown: ``_tprofile.ops`` in a notebook, ``.ops`` where none is known.

Whoever shows a result and knows the variable that holds it says so; a result of a script, of a file, or one that
another run has replaced meanwhile has no such name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["of_result", "shown_as"]

_name: ContextVar[str] = ContextVar("name of the result that is shown", default="")


@contextmanager
def shown_as(name: str) -> Iterator[None]:
    """What is shown in here is held by the variable ``name``; empty: by none that is known."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def of_result(attribute: str) -> str:
    """How the reader reaches an attribute, given with its dot: ``.frame``, ``.where('aten::mm')``."""
    return f"{_name.get()}{attribute}"
