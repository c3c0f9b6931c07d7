"""Queues that run dry: a ``get`` that would wait for ever for an item that earlier calls took.

How many items a call takes is known from the first call of each alternative. A block that needs more than there are
runs with the queue's ``get`` guarded, in its own thread or task: where nothing comes within `PATIENCE_S` the run ends
with one line. Other blocks run as they are. So code that asks before it takes, or that gives its ``get`` a timeout, is
not stopped; a queue that gave more than it held is fed by others, and not guarded again.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torchbench_magic.core.code.reached_objects import ReachedObject, attributes_held
from torchbench_magic.core.code.timed_loop import BlockAround, Timeable
from torchbench_magic.core.process.held_interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.errors import BodyError

from ....machine.clocks import Clocks
from ...block_requests import BlockRequest, Steps, T

__all__ = ["PATIENCE_S", "QueueWaits"]

PATIENCE_S = 3.0
"""Seconds that a guarded ``get`` waits for another thread or task to put something in."""


class QueueWaits:
    """Watches the queues that the alternatives of one run reach.

    Args:
        reads: alternative -> what it reaches.
        blocks: alternative -> what is timed of it.
        names: those that the blocks run with, in which a ``SimpleQueue`` is replaced while it is guarded.
    """

    def __init__(
        self, reads: Mapping[str, Mapping[int, ReachedObject]], blocks: Mapping[str, Timeable], names: dict[str, Any]
    ) -> None:
        self._queues = {
            name: [made for item in found.values() if (made := _queue_of(item, names)) is not None]
            for name, found in reads.items()
        }
        self._of_block = {id(block): self._queues[name] for name, block in blocks.items()}
        self._names = names
        self._taken: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def begin(self, name: str) -> None:
        """The first call of an alternative begins."""
        self._before = {id(one.value): one.size() for one in self._queues.get(name, ())}

    def end(self, name: str) -> None:
        """It has ended: what it took of a queue, later calls take too."""
        for one in self._queues.get(name, ()):
            at = id(one.value)
            self._taken[at] = max(self._taken.get(at, 0), self._before.get(at, 0) - one.size())

    def guarded(self, steps: Steps[T]) -> Steps[T]:
        """The same steps, with the blocks guarded that may run a queue dry."""
        return self._steps(steps) if any(self._queues.values()) else steps

    def _steps(self, steps: Steps[T]) -> Steps[T]:
        try:
            request = next(steps)
            while True:
                block = getattr(request.block, "block", request.block)  # of one that is watched
                risky = [one for one in self._of_block.get(id(block), ()) if self._runs_dry(one, request)]
                if risky:
                    request = request._replace(block=_GuardedBlock(request.block, risky, self._names, self._taken))
                request = steps.send((yield request))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def _runs_dry(self, one: _Queue, request: BlockRequest) -> bool:
        taken = self._taken.get(id(one.value), 0)
        return taken > 0 and one.size() < taken * (request.calls + request.primed)


@dataclass(frozen=True)
class _Queue:
    """A queue, how the code says it, and how many items it holds (asked without code of the user's)."""

    value: Any
    label: str
    size: Callable[[], int]

    @property
    def error(self) -> BodyError:
        is_restored = type(self.value).__module__ == "queue"
        way = " or give `--restore`, which puts its items back before each call" if is_restored else ""
        return BodyError(
            f"`{self.label}` is empty, and the code waits for an item: earlier calls took them all. Fill it in the"
            f" body{',' if way else ''}{way}"
        )


def _queue_of(item: ReachedObject, names: Mapping[str, Any]) -> _Queue | None:
    """A queue whose ``get`` can be guarded; None for whatever else."""
    value, kind = item.value, type(item.value)
    if issubclass(kind, queue.SimpleQueue):
        by_name = names.get(item.label) is value
        return _Queue(value, item.label, lambda: queue.SimpleQueue.qsize(value)) if by_name else None
    if not issubclass(kind, (queue.Queue, asyncio.Queue)):
        return None
    inside = attributes_held(value) or {}
    held: Any = inside.get("queue" if issubclass(kind, queue.Queue) else "_queue")
    if not hasattr(type(held), "__len__") or "get" in inside:
        return None
    return _Queue(value, item.label, lambda: len(held))


@dataclass(frozen=True)
class _GuardedBlock(BlockAround):
    """A block that runs with some queues guarded.

    Attributes:
        names: those that it runs with.
        taken: id of a queue -> items that a call takes of it; those that others feed leave it.
    """

    block: Timeable
    queues: list[_Queue]
    names: dict[str, Any]
    taken: dict[int, int]

    def start(self, replica: int, calls: int, clocks: Clocks, sync: Any) -> Any:
        if self.is_async:
            return self._awaited(replica, calls, clocks, sync)
        with interrupts_held(), self._guarded() as dry, interrupts_let_through():
            done = self.block.start(replica, calls, clocks, sync)
        if dry:  # the code caught the error
            raise dry[0].error
        return done

    async def _awaited(self, replica: int, calls: int, clocks: Clocks, sync: Any) -> Any:
        with interrupts_held(), self._guarded() as dry, interrupts_let_through():
            done = await self.block.start(replica, calls, clocks, sync)
        if dry:
            raise dry[0].error
        return done

    @contextmanager
    def _guarded(self) -> Iterator[list[_Queue]]:
        """Guard the queues; gives those that were found dry."""
        dry: list[_Queue] = []
        guards = [_Guard(one, dry) for one in self.queues]
        for guard in guards:
            guard.put_in(self.names)
        try:
            yield dry
        finally:
            for guard in guards:
                guard.take_out(self.names)
                if guard.got > guard.had:
                    self.taken.pop(id(guard.of.value), None)


class _Guard:
    """Stands for a queue, or for its ``get``, and does not wait for ever.

    Attributes:
        had, got: items that the queue held at first, and that were taken of it.
    """

    def __init__(self, of: _Queue, dry: list[_Queue]) -> None:
        self.of, self.had, self.got = of, of.size(), 0
        self._dry, self._get = dry, of.value.get
        self._owner: object = None

    def put_in(self, names: dict[str, Any]) -> None:
        value = self.of.value
        self._owner = _task() if isinstance(value, asyncio.Queue) else threading.get_ident()
        if isinstance(value, queue.SimpleQueue):
            names[self.of.label] = self
        else:
            vars(value)["get"] = self.get if isinstance(value, queue.Queue) else self._awaited

    def take_out(self, names: dict[str, Any]) -> None:
        if isinstance(self.of.value, queue.SimpleQueue):
            names[self.of.label] = self.of.value
        else:
            vars(self.of.value).pop("get", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of.value, name)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not block or timeout is not None or threading.get_ident() != self._owner:
            return self._get(block, timeout)
        try:
            item = self._get(True, PATIENCE_S)
        except queue.Empty:
            raise self._found_dry() from None
        self.got += 1
        return item

    async def _awaited(self) -> Any:
        if _task() is not self._owner:
            return await self._get()
        try:
            item = await asyncio.wait_for(self._get(), PATIENCE_S)
        except TimeoutError:
            raise self._found_dry() from None
        self.got += 1
        return item

    def _found_dry(self) -> BodyError:
        self._dry.append(self.of)
        return self.of.error


def _task() -> object:
    """The task that runs; None where no event loop does."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
