"""A progress at whose updates a Ctrl-C is heard: for what waits for another process within `interrupts_held`."""

from __future__ import annotations

from torchbench_magic.core.progress import NO_PROGRESS, Progress

from .held_interrupts import hear_interrupt

__all__ = ["HeardProgress"]


class HeardProgress:
    """Another progress; each update raises the Ctrl-C that waits. Whoever tells one a state is ready for that, as its
    reader may want to stop (`core.progress.Watching`)."""

    def __init__(self, told: Progress = NO_PROGRESS) -> None:
        self._told = told

    def update(self, done: float, total: float | None, what: str) -> None:
        hear_interrupt()
        self._told.update(done, total, what)
