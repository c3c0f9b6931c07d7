"""Fresh interpreters, one after the other: while one measures, the next may start."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.errors import BodyError

from .interpreter import Interpreter

__all__ = ["Interpreters"]


class Interpreters:
    """``with Interpreters(ahead=True) as those: those.next(more=True)``

    Args:
        ahead: start each beside the measurement of the one before it, where it waits with torch imported.
    """

    def __init__(self, *, ahead: bool) -> None:
        self.ahead = ahead
        self._now: Interpreter | None = None
        self._coming: Interpreter | None = None

    def __enter__(self) -> Self:
        return self

    def next(self, *, more: bool) -> Interpreter:
        """The next one; the one before it is ended.

        Args:
            more: another will be asked for.

        Raises:
            BodyError: it cannot be started.
        """
        with interrupts_held():
            if self._now is not None:
                self._now.end()
            self._now, self._coming = self._coming, None
            if self._now is None:
                self._now = Interpreter()
            if self.ahead and more:
                with contextlib.suppress(BodyError):  # the next call starts it, or says why it cannot
                    self._coming = Interpreter()
                    self._coming.get_ready()
            return self._now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End them, whatever they do; a second Ctrl-C waits until they have ended."""
        with interrupts_held():
            for one in (self._now, self._coming):
                if one is not None:
                    one.end()
