"""Ctrl-C that waits while something must be put back, a bound on how long code may run, and the progress of a run."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, Self, runtime_checkable

# ---- deadline --------------------------------------------------------------------------------------------------------
# A bound on how long code of the user's may run, where the system has a timer for it.


class TooLong(BaseException):
    """The time is up. No Exception: a compiler that goes on without what fails would go on without this too."""


AGAIN_S = 5.0
"""Seconds after which it is raised once more: where the first one came, in a finaliser for instance, it may be lost."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the block when that many seconds have passed, and each `AGAIN_S` from then on.

    Within `interrupts_let_through`, where handlers of signals have their place. An alarm of the user's goes on after
    the block with the rest of its time. Without effect outside of the main thread, on systems without timers, and where
    the user's own alarm comes first.
    """
    may = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    rest, again = signal.getitimer(signal.ITIMER_REAL) if may else (0.0, 0.0)
    if not may or 0 < rest <= seconds:
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise TooLong

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        if rest > 0:
            signal.setitimer(signal.ITIMER_REAL, max(rest - (time.monotonic() - began), 1e-3), again)


# ---- held_interrupts -------------------------------------------------------------------------------------------------
# Ctrl-C that waits: while something is switched that must be switched back, and while a result is on its way.
#
# Python raises a KeyboardInterrupt between any two bytecodes, also in a ``finally`` and in a function that a profiler
# calls for each line. So what changes a profiler, a hook or a file descriptor runs within `interrupts_held`, from
# before the change until after it is put back, and only the user's own code within `interrupts_let_through`. There
# SIGINT goes to the handler that was there before; it is kept from none but the functions of the modules that are
# named, which run to their end first: a signal that meets one of them is sent again a millisecond later. What waits
# long by itself, for a compiler or another process, calls `hear_interrupt` again and again.
#
# Other signals have handlers that raise, too: torch's of SIGCHLD, where a DataLoader's worker died, and those of
# SIGALRM that end what takes too long. Where such a handler is set it waits in the same way; where interrupts are let
# through it has its place.
#
# Nothing is held outside of the main thread, the only one where Python runs handlers of signals.

# The functions of `signal` without their look-up of each handler among enums: a tenth of a run of many short blocks.


_AGAIN = 0.001
"""Seconds after which a signal is sent again; noting a line takes a thousandth of that."""
_OTHERS = tuple(int(getattr(signal, name)) for name in ("SIGCHLD", "SIGALRM") if hasattr(signal, name))
"""Signals besides SIGINT that wait where a handler is set."""


class _Waiting:
    """One signal, and what became of it.

    Attributes:
        came: one is waiting.
    """

    def __init__(self, number: int, handling: _Handling) -> None:
        self.number = number
        self.came = False
        self._handling = handling
        self._before: Any = None
        self._handler = self._handle  # one object, to be found again

    def install(self) -> None:
        """Take the place of the handler that is there, unless this one has it; of other signals only of a function."""
        there = _signal.getsignal(self.number)
        if there is not self._handler and (self.number == signal.SIGINT or callable(there)):
            self._before = _signal.signal(self.number, self._handler)

    def withdraw(self) -> None:
        """Put back what was there; a handler that the user's code has set stays."""
        if _signal.getsignal(self.number) is self._handler:
            # None: it was not set from Python, and Python cannot set it again; this is its own default then
            _signal.signal(self.number, signal.default_int_handler if self._before is None else self._before)

    def pass_on(self, frame: FrameType | None) -> None:
        """Let the handler that was there before have it: of SIGINT as a rule a KeyboardInterrupt."""
        self.came = False
        if callable(self._before):
            self._before(self.number, frame)
        elif self._before == signal.SIG_DFL:  # a script that wants to be ended by it
            signal.signal(self.number, signal.SIG_DFL)
            signal.raise_signal(self.number)
        elif self._before != signal.SIG_IGN:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = self._handling
        if os.getpid() != now.process or not now.is_open:  # a fork of this process, as a DataLoader's worker is
            self.pass_on(frame)  # and nothing is held where no block is open
        elif now.base is None:
            self.came = True
        elif now.is_to_end(frame):
            _thread.start_new_thread(_send_again, ())
        else:
            self.pass_on(frame)


class _Handling:
    """What signals do now, in this process.

    Attributes:
        depth: blocks of `interrupts_held` that are open.
        is_open: whether any is; from before the first handler is taken until after the last is put back.
        base: the frame whose calls are the user's code; None while interrupts are held.
        whole: names of modules whose functions are not broken off there.
        process: id of the process that the outermost block was entered in.
        interrupt: SIGINT.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.is_open = False
        self.base: FrameType | None = None
        self.whole: Collection[str] = ()
        self.process = 0
        self.interrupt = _Waiting(signal.SIGINT, self)
        self._others = tuple(_Waiting(number, self) for number in _OTHERS)
        self._all = (self.interrupt, *self._others)

    def begin(self) -> None:
        """Nothing waits yet, and all that comes from here on does."""
        self.process = os.getpid()
        self.drop()
        self.is_open = True
        self.install()

    def install(self) -> None:
        for each in self._all:
            each.install()

    def withdraw(self) -> None:
        for each in self._all:
            each.withdraw()
        self.is_open = False

    def withdraw_others(self) -> None:
        """The handlers of signals besides SIGINT in their place: their tracebacks have no frame of this module."""
        for each in self._others:
            each.withdraw()

    def pass_on(self, frame: FrameType | None) -> None:
        """Let handlers have what waits; the first that raises is the last that is asked, and the others are dropped."""
        waiting = [each for each in self._all if each.came]
        for each in waiting:
            each.came = False
        for each in waiting:
            each.pass_on(frame)

    def drop(self) -> None:
        for each in self._all:
            each.came = False

    def is_to_end(self, frame: FrameType | None) -> bool:
        """Whether ``frame`` belongs to what calls the user's code, or to what watches it."""
        if frame is self.base:
            return True
        while frame is not None and frame is not self.base:
            module = frame.f_globals.get("__name__")
            if module == __name__ or module in self.whole:
                return True
            frame = frame.f_back
        return False


_now = _Handling()


def _send_again() -> None:
    time.sleep(_AGAIN)
    send = getattr(signal, "pthread_kill", None)  # it ends what the thread waits for, which `interrupt_main` does not
    if send is None:
        _thread.interrupt_main()
    else:
        send(threading.main_thread().ident, signal.SIGINT)


def interrupt_of(error: BaseException) -> BaseException:
    """The Ctrl-C that an exception stands for, else itself: in a cell that awaits, ipykernel cancels the cell's task.

    A CancelledError of the user's own, of a task that the code has cancelled, is left as it is.
    """
    if not isinstance(error, asyncio.CancelledError):
        return error
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return error
    task.uncancel()  # it goes on, to show what there is
    return KeyboardInterrupt()


def hear_interrupt() -> None:
    """Raise the Ctrl-C that waits, if one does, or what another handler makes of its signal: for what takes long by
    itself within `interrupts_held`, to be called where all that it holds is put away by an exception."""
    if threading.current_thread() is threading.main_thread():
        _now.pass_on(sys._getframe(1))


class interrupts_held:  # noqa: N801  # used as contextlib's are, and as short a way into it as there is
    """``with interrupts_held() as held:`` a Ctrl-C comes when the block has ended, however often it was pressed.

    Where the block ends with an exception the Ctrl-C is dropped: what it was to end has ended. Blocks may stand in one
    another; it is the outermost that counts, except within `interrupts_let_through`.
    """

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        self._around: tuple[FrameType | None, Collection[str]] = (None, ())

    def __enter__(self) -> Self:
        if self._is_main:
            self._around = _now.base, _now.whole
            _now.base = None
            if _now.depth == 0:
                _now.begin()
            elif self._around[0] is not None:
                _now.install()
            _now.depth += 1
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not self._is_main:
            return
        _now.depth -= 1
        _now.base, _now.whole = self._around
        is_last = _now.depth == 0
        if is_last:
            _now.withdraw()
        elif _now.base is not None:
            _now.withdraw_others()
        if is_last or _now.base is not None:
            if error is None:
                _now.pass_on(sys._getframe())
            else:
                _now.drop()

    def raise_if_any(self, *said: str) -> None:
        """Raise the one that waits, here, where all is as it was before; ``said`` is what the reader is told."""
        if self._is_main and _now.interrupt.came:
            try:
                _now.interrupt.pass_on(sys._getframe())
            except KeyboardInterrupt:
                if not said:
                    raise
                raise KeyboardInterrupt(*said) from None

    def take(self) -> bool:
        """Whether one waits; the caller sees to it, and it does not come any more."""
        came = self._is_main and _now.interrupt.came
        if came:
            _now.interrupt.came = False
        return came


class interrupts_let_through:  # noqa: N801
    """``with interrupts_let_through():`` the user's code; within `interrupts_held`, elsewhere it does nothing.

    One that waits is raised as the block is entered.

    Args:
        but_in: names of modules that watch the code: their functions run to their end.
    """

    def __init__(self, but_in: Collection[str] = ()) -> None:
        self._is_held = _now.depth > 0 and threading.current_thread() is threading.main_thread()
        self._but_in = but_in
        self._around: tuple[FrameType | None, Collection[str]] = (None, ())

    def __enter__(self) -> None:
        if not self._is_held:
            return
        self._around = _now.base, _now.whole
        _now.withdraw_others()
        _now.pass_on(sys._getframe())
        _now.whole = self._but_in
        _now.base = sys._getframe(1)

    def __exit__(self, *error: object) -> None:
        if self._is_held:
            _now.base, _now.whole = self._around
            _now.install()  # the code may have set a handler of its own


# ---- progress --------------------------------------------------------------------------------------------------------
# How a long run tells what it is doing. The caller supplies one; the core never prints.


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


# ---- heard_progress --------------------------------------------------------------------------------------------------
# A progress at whose updates a Ctrl-C is heard: for what waits for another process within `interrupts_held`.


class HeardProgress:
    """Another progress; each update raises the Ctrl-C that waits. Whoever tells one a state is ready for that, as its
    reader may want to stop (`Watching`)."""

    def __init__(self, told: Progress = NO_PROGRESS) -> None:
        self._told = told

    def update(self, done: float, total: float | None, what: str) -> None:
        hear_interrupt()
        self._told.update(done, total, what)
