"""Where the output of measured code goes: to sinks that keep only how much it was.

Code shows things by ``sys.stdout`` and ``sys.stderr``; by these streams where something holds them since before, as
handlers of ``logging`` do; and past them, by what a host opens as a `Channel`: in a notebook the kernel's messages to
its front end.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

# ---- sinks -----------------------------------------------------------------------------------------------------------

_WARNING = re.compile(r"\S.*:\d+: \w*Warning: ")
"""Begins a warning as Python writes it."""


class _NeverClosed(io.TextIOBase):
    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: code that closes its output goes on writing, and what it writes to may be the kernel's."""


class CountingSink(_NeverClosed):
    """A text stream that keeps nothing but the number of characters it was given, those of warnings apart: code that is
    warned of something prints nothing.

    Attributes:
        dropped: how much else was dropped meanwhile, by its kind: "displays", "widgets".
    """

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0
        self.dropped = Counter[str]()

    def write(self, text: str) -> int:
        if not _WARNING.match(text):
            self.characters += len(text)
        return len(text)


class Unclosable(_NeverClosed):
    """Another stream, which code may write to but not close."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        written: int = self._stream.write(text)
        return written

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class MainThreadShown(_NeverClosed):
    """A stream for the code of another thread, past which the main thread writes to the stream that was there: what it
    shows is another cell's.

    Args:
        there: of the main thread; ``stream``: of all others.
    """

    def __init__(self, there: Any, stream: io.TextIOBase) -> None:
        super().__init__()
        self._there, self._stream = there, stream
        self._main = threading.main_thread().ident

    def write(self, text: str) -> int:
        stream = self._there if threading.get_ident() == self._main else self._stream
        written: int = stream.write(text)
        return written

    def flush(self) -> None:
        (self._there if threading.get_ident() == self._main else self._stream).flush()


@contextlib.contextmanager
def output_to(stdout: io.TextIOBase, stderr: io.TextIOBase) -> Iterator[None]:
    """Send Python's stdout and stderr elsewhere. Where that is on another thread, the main one still shows what it
    prints."""
    if threading.current_thread() is not threading.main_thread():
        stdout, stderr = MainThreadShown(sys.stdout, stdout), MainThreadShown(sys.stderr, stderr)
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        yield


# ---- dropped ---------------------------------------------------------------------------------------------------------

Drops = Callable[[str], bool]
"""Kind -> whether something of that kind, which the calling thread is about to show, is dropped; then it is counted."""
Channel = Callable[[Drops], AbstractContextManager[None]]
"""A way to show something past the streams: while its context is open, it asks before it sends anything."""

_channels: list[Channel] = []
_sinks: list[tuple[CountingSink, CountingSink]] = []  # of stdout and stderr, those of the innermost drop last
_main_is_shown = False  # what is dropped is of another thread
_is_ours: ContextVar[bool] = ContextVar("torchbench_magic_output", default=False)


def open_channel(channel: Channel) -> None:
    """From now on `dropped_output` holds this channel too."""
    _channels.append(channel)


def close_channel(channel: Channel) -> None:
    _channels.remove(channel)


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """What is shown within this is ours, and comes through; also in threads that run in a copy of this context."""
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)


@contextlib.contextmanager
def dropped_output(stdout: CountingSink, stderr: CountingSink | None = None) -> Iterator[None]:
    """Drop what code shows, in whatever way: thousands of calls would flood the notebook. It is counted in ``stdout``,
    the text of stderr in ``stderr`` where that is another one. What `shown` is open for comes through and, where this
    is on another thread, what the main one shows."""
    global _main_is_shown
    stderr, is_outermost = stdout if stderr is None else stderr, not _sinks
    with contextlib.ExitStack() as stack:
        if is_outermost:
            _main_is_shown = threading.current_thread() is not threading.main_thread()
            for streams, is_error in (((sys.stdout, sys.__stdout__), False), ((sys.stderr, sys.__stderr__), True)):
                for stream in {id(one): one for one in streams if hasattr(one, "__dict__")}.values():
                    stack.enter_context(replaced(stream, "write", _BoundWrite(stream, is_error)))
                    stack.enter_context(replaced(stream, "flush", _BoundFlush(stream)))
        _sinks.append((stdout, stderr))
        stack.callback(_sinks.pop)
        if is_outermost:
            for channel in _channels:
                stack.enter_context(channel(_drops))
        stack.enter_context(output_to(stdout, stderr))
        yield


@contextlib.contextmanager
def replaced(owner: object, name: str, value: Any) -> Iterator[None]:
    """Give this one object another attribute, whatever its class says of setting any. What somebody else sets
    meanwhile stays."""
    own, absent = vars(owner), object()
    before = own.get(name, absent)
    own[name] = value
    try:
        yield
    finally:
        if own.get(name) is value:
            if before is absent:
                del own[name]
            else:
                own[name] = before


def _drops(kind: str) -> bool:
    if _is_dropped():
        _sinks[-1][0].dropped[kind] += 1
        return True
    return False


def _is_dropped() -> bool:
    """Whether what this thread shows now is dropped: as with ``sys.stdout``, of all threads of the code."""
    if not _sinks or _is_ours.get():
        return False
    return not (_main_is_shown and threading.current_thread() is threading.main_thread())


class _BoundWrite:
    """``write`` of a stream, whoever holds it. A kernel's stream has a thread of its own that reads what C code wrote
    to the descriptor, of whatever call: it goes on."""

    def __init__(self, stream: Any, is_error: bool) -> None:
        self._there, self._is_error = stream.write, is_error
        self._reader = getattr(stream, "watch_fd_thread", None)

    def __call__(self, text: str) -> int:
        if _is_dropped() and threading.current_thread() is not self._reader:
            return _sinks[-1][self._is_error].write(text)
        written: int = self._there(text)
        return written


class _BoundFlush:
    """``flush`` of a stream: a kernel's waits until all has been sent, which belongs to showing it."""

    def __init__(self, stream: Any) -> None:
        self._there = stream.flush

    def __call__(self) -> None:
        if not _is_dropped():
            self._there()


SINK_CODES = tuple(
    function.__code__
    for function in (
        *(vars(kind)["write"] for kind in (CountingSink, MainThreadShown, Unclosable)),
        *(_NeverClosed.writable, _NeverClosed.close),
        *(_BoundWrite.__call__, _BoundFlush.__call__, _is_dropped, _drops),
    )
)  # fmt: skip
"""Of ours that run within the user's calls."""
