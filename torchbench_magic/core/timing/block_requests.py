"""Running the steps of a measurement, with or without an event loop.

The code that measures is a generator: it yields a `BlockRequest` for each block and is sent the readings of the
clocks. So the loop is written once, for plain cells and for cells that await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

from torchbench_magic.core.process.held_interrupts import interrupt_of, interrupts_let_through
from torchbench_magic.errors import BodyError

from ..code.timed_loop import Timeable
from ..machine.clocks import Clocks

__all__ = ["FAILED", "BlockRequest", "Ended", "Steps", "driven"]

T = TypeVar("T")
_LOOP_EVERY_NS = 50e6


class BlockRequest(NamedTuple):
    """A request to run one block; ``primed``: after so many untimed calls, so that it starts with warm caches.

    A call that ``is_tried`` may fail: an exception of it is answered by a reading of `FAILED`.
    """

    block: Timeable
    replica: int
    calls: int
    primed: int = 0
    is_tried: bool = False


FAILED = (-1, -1)
"""What is sent back for a tried call that raised."""

Steps = Generator[BlockRequest, tuple[int, int], T]
"""Yields calls, is sent (wall, cpu) nanoseconds, returns T."""


@dataclass(frozen=True)
class Ended(Generic[T]):
    """What running code came to, an exception as a value: a coroutine lets no StopIteration of the user's through."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        """The value; the exception is raised."""
        try:
            if self.error is not None:
                raise self.error
            return cast(T, self.value)
        finally:
            del self  # what is raised holds this frame, which is not to hold it in turn


async def driven(steps: Steps[T], clocks: Clocks, sync: Callable[[], object], *, may_await: bool) -> Ended[T]:
    """Run the steps to their end; an exception of the measured code leaves through the steps' own cleanup.

    A Ctrl-C is let through to the code, and waits in what measures it.

    Args:
        may_await: an event loop runs; without it this never suspends, and code that awaits is refused (BodyError).
    """
    try:
        call, done = _advance(steps, None)
        let_run = clocks.wall()
        while call is not None:
            awaits = call.block.is_async
            if awaits and not may_await:
                raise BodyError("the code awaits: time it in a notebook cell, where an event loop runs")
            if call.primed:
                with interrupts_let_through():
                    primed = call.block.start(call.replica, call.primed, clocks, sync)
                    _ = await primed if awaits else primed
            try:
                with interrupts_let_through():
                    started = call.block.start(call.replica, call.calls, clocks, sync)
                    reading = await started if awaits else started
            except Exception:
                if not call.is_tried:
                    raise
                reading = FAILED
            if awaits and clocks.wall() - let_run > _LOOP_EVERY_NS:
                with interrupts_let_through():
                    await asyncio.sleep(0)  # code that never suspends would keep the event loop from a Ctrl-C
                let_run = clocks.wall()
            call, done = _advance(steps, reading)
        return Ended(done)
    except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
        return Ended(error=interrupt_of(error))
    finally:
        steps.close()


def _advance(steps: Steps[T], reading: tuple[int, int] | None) -> tuple[BlockRequest | None, T | None]:
    """The next call, or what the steps returned. The measured code is not run in here: a StopIteration of its own
    must not be taken for the end of the steps."""
    try:
        return (next(steps) if reading is None else steps.send(reading)), None
    except StopIteration as stop:
        return None, stop.value
