"""How a long run tells what it is doing. The caller supplies one; the core never prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

__all__ = ["NO_PROGRESS", "Awaiting", "CountingUp", "MakingRoom", "Progress", "Watching"]


class Progress(Protocol):
    """Receives the state of a run. Called between measurements, never inside one."""

    def update(self, done: float, total: float | None, what: str) -> None:
        """Tell that ``done`` of ``total`` seconds passed (None: unknown) and ``what`` is under way."""


@runtime_checkable
class Watching(Progress, Protocol):
    """A progress that shows what is known so far.

    It may raise KeyboardInterrupt from either method where its reader wants to stop: what was measured is kept.
    """

    def watch(self, partial: Callable[[], Any]) -> None:
        """Told where a result could be had: ``partial()`` makes it (None: nothing yet), which costs milliseconds."""


@runtime_checkable
class MakingRoom(Progress, Protocol):
    """A progress that keeps room for what it will show, so that nothing below it moves when that comes."""

    def expect(self, rows: int) -> None:
        """Told before each point of a timing how many rows the whole result has at least."""


@runtime_checkable
class Awaiting(Progress, Protocol):
    """A progress that can tell while the one who told it is busy."""

    def await_end(self, done: float, total: float | None, what: str, *, after: float = 0.0) -> None:
        """As ``update``, before a step that may take minutes and cannot tell anything itself: show it, if it lasts,
        without being called again; not before ``after`` seconds."""


@runtime_checkable
class CountingUp(Progress, Protocol):
    """A progress that can count the seconds of what happens while nobody can tell anything."""

    def count_up(self, what: str) -> None:
        """Show ``what`` with the seconds since now, as in "compiling f, 12 s", until `counted` or the next update."""

    def counted(self) -> None:
        """It has ended."""


class _NoProgress:
    def update(self, done: float, total: float | None, what: str) -> None:
        return


NO_PROGRESS: Progress = _NoProgress()
