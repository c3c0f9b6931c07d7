"""Where C++ prints to while it is timed: to nowhere. Thousands of calls would flood the notebook."""

from __future__ import annotations

import os
from types import TracebackType

from torchbench_magic.core.process.held_interrupts import interrupts_held

__all__ = ["Silence"]

_STREAMS = (1, 2)  # stdout and stderr, as C++ knows them


class Silence:
    """Leads the process's output to nowhere while entered; may be entered any number of times until closed."""

    def __init__(self) -> None:
        self._nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._kept = [os.dup(stream) for stream in _STREAMS]

    def __enter__(self) -> None:
        for stream in _STREAMS:
            os.dup2(self._nowhere, stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._put_back()

    def close(self) -> None:
        """Close what it holds; the streams are as they were, also where a Ctrl-C broke off entering or leaving."""
        with interrupts_held():
            self._put_back()
            for descriptor in (self._nowhere, *self._kept):
                os.close(descriptor)

    def _put_back(self) -> None:
        for stream, kept in zip(_STREAMS, self._kept, strict=True):
            os.dup2(kept, stream)
