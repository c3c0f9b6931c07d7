"""Which marks a ``step()`` of the code belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchbench_magic.errors import Busy

from .marks import LoopMarks

__all__ = ["marking", "note_step"]

_current: LoopMarks | None = None


@contextlib.contextmanager
def marking(marks: LoopMarks) -> Iterator[None]:
    """Steps that the code says go into ``marks``.

    Raises:
        Busy: another one's do already.
    """
    global _current
    if _current is not None:
        raise Busy("a profile of phases is already running; a second one cannot start inside it")
    _current = marks
    try:
        yield
    finally:
        _current = None


def note_step() -> None:
    """The code says that a step ends here; nothing where no phases are recorded."""
    if _current is not None:
        _current.step()
