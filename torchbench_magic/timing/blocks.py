"""The blocks of a timed loop, and how they are asked for, with or without an event loop."""

from __future__ import annotations

import _thread
import asyncio
import itertools
import linecache
import math
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import Loop, TransformAst, calls_left, compile_loop
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.frame_owner import is_users_file
from torchbench_magic.process.interrupts import interrupt_of, interrupts_let_through
from torchbench_magic.process.settings import outside_modes
from torchbench_magic.units import seconds_text

from .verdict import NEAR_LOOP

REPLICAS = 8
"""Copies of each block. Two compilations of one source differ by up to 0.15 %: a random copy a block averages it."""

_Synchronize = Callable[[], object]
_Mode = Callable[[], AbstractContextManager[object]]


class Timeable(Protocol):
    """What the timing loop asks of compiled code, in whatever language; see `Block`."""

    @property
    def replicas(self) -> Sequence[object]: ...

    @property
    def is_async(self) -> bool: ...

    @property
    def near_loop(self) -> float:
        """Seconds a call below which it is near the loop's own cost."""

    @property
    def source(self) -> str: ...

    @property
    def within(self) -> _Mode | None:
        """Makes the context that its calls run in, entered outside of the clocks, before the untimed calls."""

    def start(self, replica: int, calls: int, clocks: Clocks, sync: _Synchronize) -> Any: ...

    def start_empty(self, calls: int, clocks: Clocks, sync: _Synchronize) -> tuple[int, int]: ...


class BlockAround:
    """What runs a block in another way, and is that block in all else.

    Attributes:
        block: what is run.
    """

    block: Timeable

    @property
    def replicas(self) -> Sequence[object]:
        return self.block.replicas

    @property
    def is_async(self) -> bool:
        return self.block.is_async

    @property
    def near_loop(self) -> float:
        return self.block.near_loop

    @property
    def source(self) -> str:
        return self.block.source

    @property
    def within(self) -> _Mode | None:
        return self.block.within

    def start_empty(self, calls: int, clocks: Clocks, sync: _Synchronize) -> tuple[int, int]:
        return self.block.start_empty(calls, clocks, sync)


@dataclass(frozen=True)
class Block(Loop):
    """A compiled cell, ready to run n times between two clock readings."""

    near_loop: ClassVar[float] = NEAR_LOOP["python"]
    within: _Mode | None = None

    def start(self, replica: int, calls: int, clocks: Clocks, sync: _Synchronize) -> Any:
        """Run one block of ``calls``; (wall, cpu) in nanoseconds, or an awaitable of it when ``is_async``."""
        run = self.replicas[replica]
        return run(itertools.repeat(None, calls), clocks.wall, clocks.cpu, sync, self.kept)

    def start_empty(self, calls: int, clocks: Clocks, sync: _Synchronize) -> tuple[int, int]:
        run = self.empty
        wall, cpu = run(itertools.repeat(None, calls), clocks.wall, clocks.cpu, sync, self.kept)
        return wall, cpu


def compile_block(
    body: Body,
    namespace: dict[str, Any],
    *,
    flags: int = 0,
    transform_ast: TransformAst | None = None,
    within: _Mode | None = None,
    goes_on: bool = True,
) -> Block:
    """The block of a cell's text, see `compile_loop`; its calls run ``within`` a context."""
    loop = compile_loop(body, namespace, flags=flags, transform_ast=transform_ast, replicas=REPLICAS, goes_on=goes_on)
    return Block(**vars(loop), within=within)


def line_text(code: CodeType, number: int) -> str:
    """A line by its number, its function and its text."""
    text = linecache.getline(code.co_filename, number).strip()
    name = code.co_qualname.replace(".<locals>", "").removeprefix("__tb_block.")
    where = "" if code.co_name == "<module>" else f" of `{name}`"
    return f"line {number}{where}" + (f" (`{text[:45]}{'…' * (len(text) > 45)}`)" if text else "")


# ---- block_requests --------------------------------------------------------------------------------------------------
# Running the steps of a measurement, with or without an event loop.
#
# The code that measures is a generator: it yields a `BlockRequest` for each block and is sent the readings of the
# clocks. So the loop is written once, for plain cells and for cells that await.

T = TypeVar("T")
_LOOP_EVERY_NS = 50e6


class BlockRequest(NamedTuple):
    """A request to run one block; ``primed``: after so many untimed calls, so that it starts with warm caches.

    ``ready`` runs between these and the block, outside of what the block runs ``within``. A call that ``is_tried`` may
    fail: an exception of it is answered by a reading of `FAILED`.
    """

    block: Timeable
    replica: int
    calls: int
    primed: int = 0
    is_tried: bool = False
    ready: Callable[[], object] | None = None


FAILED = (-1, -1)
"""What is sent back for a tried call that raised."""

Steps = Generator[BlockRequest, tuple[int, int], T]
"""Yields calls, is sent (wall, cpu) nanoseconds, returns T."""


@dataclass(frozen=True)
class Ended(Generic[T]):
    """What running code came to, an exception as a value: a coroutine lets no StopIteration of the user's through.

    Attributes:
        calls: of the timed code, that had ended by then.
    """

    value: T | None = None
    error: BaseException | None = None
    calls: int = 0

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
    made = begun = 0  # calls that ended, and those of the block that runs
    stalls = Stalls()
    try:
        call, done = _advance(steps, None)
        let_run = clocks.wall()
        while call is not None:
            awaits = call.block.is_async
            if awaits and not may_await:
                raise BodyError("the code awaits: time it in a notebook cell, where an event loop runs")
            within = call.block.within
            stalls.begin(call)
            with ExitStack() as entered:
                if within is not None:  # once, so that nothing comes between the primed calls and the clock
                    entered.enter_context(within())
                if call.primed:
                    begun = call.primed
                    with interrupts_let_through():
                        primed = call.block.start(call.replica, call.primed, clocks, sync)
                        _ = await primed if awaits else primed
                    made += call.primed
                if call.ready is not None:
                    entered.close()
                    with outside_modes():
                        call.ready()
                    if within is not None:
                        entered.enter_context(within())
                try:
                    begun = call.calls
                    with interrupts_let_through():
                        started = call.block.start(call.replica, call.calls, clocks, sync)
                        reading = await started if awaits else started
                except Exception:
                    if not call.is_tried:
                        raise
                    reading = FAILED
            stalls.end(call)
            made += call.calls
            if awaits and clocks.wall() - let_run > _LOOP_EVERY_NS:
                with interrupts_let_through():
                    await asyncio.sleep(0)  # code that never suspends would keep the event loop from a Ctrl-C
                let_run = clocks.wall()
            call, done = _advance(steps, reading)
        return Ended(done)
    except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
        left, error = calls_left(error), stalls.error_of(interrupt_of(error), error)
        return Ended(error=error, calls=made + (0 if left is None else max(0, begun - left - 1)))
    finally:
        stalls.over.set()
        with outside_modes():
            steps.close()


STEP, PATIENCE, TIMES = 5.0, 30.0, 100.0
"""Seconds between two looks; that a call waits at least, and times as long as any before it did, until it is ended."""
_IDLE = 0.05
"""Share of a core."""


class Stalls:
    """Ends a block that waits for ever, as ``q.get()`` does once earlier calls have emptied the queue.

    That is one that takes `PATIENCE` at least, and `TIMES` as long as blocks of its code did before, while the process
    computes nothing; of more calls than before is expected what as many short ones take, since a first call may take
    thousands of times as long as others. It ends as by Ctrl-C, from another thread, so only where it runs in the main
    one; of code that awaits the task is cancelled, since a signal does not wake an event loop that has nothing to do.
    First calls are left alone: nobody knows how long they take. So is time in which the process is stopped.

    Attributes:
        over: the run has ended.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self._known: dict[str, tuple[float, float]] = {}  # source -> seconds of its longest block and shortest call
        self._cancel: Callable[[], object] | None = None  # of the task that awaits
        self._under_way: tuple[float, float] | None = None  # when it began, and seconds that it may wait
        self._waited = 0.0
        if threading.current_thread() is threading.main_thread():
            _thread.start_new_thread(self._watch, ())  # not one that the code finds among its threads

    def begin(self, call: BlockRequest) -> None:
        longest, shortest = self._known.get(call.block.source, (math.inf, math.inf))
        expected = max(longest, shortest * (call.calls + call.primed))
        task = asyncio.current_task() if call.block.is_async else None
        self._cancel = None if task is None else partial(task.get_loop().call_soon_threadsafe, task.cancel)
        self._under_way = time.monotonic(), max(PATIENCE, TIMES * expected)

    def end(self, call: BlockRequest) -> None:
        """It has ended; raises if it was to be ended and caught that."""
        assert self._under_way is not None
        took = time.monotonic() - self._under_way[0]
        self._under_way = self._cancel = None
        longest, shortest = self._known.get(call.block.source, (0.0, math.inf))
        each = took / (call.calls + call.primed)
        self._known[call.block.source] = max(took, longest), min(each, shortest)
        if self._waited:
            raise KeyboardInterrupt

    def error_of(self, error: BaseException, raised: BaseException) -> BaseException:
        """What an exception becomes: where it is what ended a call that waits, an error that says where.

        Args:
            raised: the same, or what stands for it, with the frames that it went through.
        """
        if not (self._waited and isinstance(error, KeyboardInterrupt | asyncio.CancelledError)):
            return error
        if isinstance(error, asyncio.CancelledError) and (task := asyncio.current_task()) is not None:
            task.uncancel()  # it goes on, with an error
        frames = traceback.walk_tb(raised.__traceback__)
        own = [(frame.f_code, line) for frame, line in frames if is_users_file(frame.f_code.co_filename)]
        where = line_text(*own[-1]) if own else "a line that caught that"
        waited = seconds_text(self._waited)
        return BodyError(
            f"a later call waits at {where}, and nothing was computed for {waited}: earlier calls may have used up what"
            " it waits for. Make or fill it in the code"
        )

    def _watch(self) -> None:
        last, waited, cpu = self._under_way, 0.0, time.process_time()
        while not self.over.wait(STEP):
            former, last, before, cpu = last, self._under_way, cpu, time.process_time()
            waited = waited + STEP if last is not None and last is former and cpu - before < _IDLE * STEP else 0.0
            if last is not None and waited >= last[1]:
                self._waited = waited
                if self._cancel is not None:
                    self._cancel()
                else:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _advance(steps: Steps[T], reading: tuple[int, int] | None) -> tuple[BlockRequest | None, T | None]:
    """The next call, or what the steps returned. The measured code is not run in here: a StopIteration of its own
    must not be taken for the end of the steps."""
    try:
        with outside_modes():
            return (next(steps) if reading is None else steps.send(reading)), None
    except StopIteration as stop:
        return None, stop.value
