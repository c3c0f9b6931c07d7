"""What a line source writes down: per thread, one flat record of (time, mark) pairs.

A record is an ``array('q')`` of ``[time, mark, time, mark, ...]``, 16 bytes an event. The tracing callbacks append to
a list, which takes a fifth of the time of an array's append; every `MANY` events it is packed into the array. Times
are ``time.time_ns()``: torch's profiler stamps its events with Unix nanoseconds too, so the two can be joined without
an offset.
"""

from __future__ import annotations

import inspect
import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Protocol, Self

__all__ = [
    "LEAVE",
    "MANY",
    "NO_LIMIT",
    "RESUMABLE",
    "RESUMED",
    "SOMEWHERE",
    "SUSPEND",
    "Callers",
    "CodeBook",
    "LineRecord",
    "Stream",
    "Watch",
    "entered",
    "entered_code",
]

NO_LIMIT = 1 << 60  # of events
MANY = 1000  # events until they are packed
LEAVE = 0  # the frame returned or unwound
SUSPEND = -1  # the frame yielded, or awaits
RESUMED = 1 << 40  # added to a line number: the frame goes on at this line, which does not run anew
SOMEWHERE = RESUMED  # the frame goes on at a line that is not known: there were too many events to note them all
RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def entered(code_number: int) -> int:
    """Mark of entering a frame of code ``code_number``. A mark above 0 is the line now running."""
    return -2 - code_number


def entered_code(mark: int) -> int:
    """Inverse of `entered`."""
    return -2 - mark


@dataclass(frozen=True, eq=False)
class Callers:
    """The frames below the code that is recorded: what ran it, and no part of it.

    Attributes:
        frames: held while the code runs, so that their ids are not reused.
        resumable: ids of the codes of those that await or yield: they are suspended and go on with the code that
            is recorded (the cell that awaits the profile does).
    """

    frames: tuple[FrameType, ...]
    resumable: frozenset[int]

    @classmethod
    def of_this_call(cls) -> Self:
        """Of whoever called the caller of this, directly or not."""
        frames = tuple(_stack(sys._getframe(1)))
        return cls(frames, frozenset(id(f.f_code) for f in frames if f.f_code.co_flags & RESUMABLE))

    def running_above(self, wanted: Callable[[CodeType], bool]) -> list[FrameType]:
        """The frames of this thread above these whose code is ``wanted``, the outermost first.

        Of another task than the one that these frames run, only what it runs itself.
        """
        below = {id(frame) for frame in self.frames}
        above = [frame for frame in _stack(sys._getframe(1)) if id(frame) not in below]
        return [frame for frame in reversed(above) if wanted(frame.f_code)]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Watch(Protocol):
    """One function that is watched beside the lines, on all their threads, whatever their limit: each of its frames
    is told as it begins and as it ends."""

    @property
    def code(self) -> CodeType | None: ...

    def enter(self, frame: FrameType) -> None: ...

    def leave(self, frame: FrameType) -> None: ...


@dataclass(frozen=True)
class Stream:
    """The record of one thread.

    Attributes:
        native_id: the operating system's thread id (``threading.get_ident`` is reused by later threads).
        name: the thread's name.
        record: ``[time, mark, ...]``.
        recent: what goes on behind it and is not packed yet.
    """

    native_id: int
    name: str
    record: array[int] = field(default_factory=lambda: array("q"))
    recent: list[int] = field(default_factory=list, repr=False)
    _packing: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """What it takes; of the numbers not packed yet about that: a time is 36 bytes, most marks are there anyway."""
        return self.record.__sizeof__() + self.recent.__sizeof__() + 18 * len(self.recent)

    def pack(self) -> int:
        """Move what is recent into the record; the events that it holds then."""
        with self._packing:  # the end of a run packs what a thread that goes on may be packing
            whole = len(self.recent) // 2 * 2
            self.record.frombytes(struct.pack(f"{whole}q", *self.recent[:whole]))
            del self.recent[:whole]
        return len(self.record) // 2


@dataclass(frozen=True)
class LineRecord:
    """What a line source gives when it stops.

    Attributes:
        source: ``settrace``, ``monitoring`` or ``none``.
        streams: thread 0 is the thread that started the source.
        codes: code objects by the number used in the marks.
        complete: False where the trace hook was taken away during the run; lines after that are unknown.
        full: Unix ns from which on some thread's lines were too many to note: calls and returns only; 0 for never.
        reason: why there are no lines; empty where there are.
    """

    source: str
    streams: tuple[Stream, ...] = ()
    codes: tuple[CodeType, ...] = ()
    complete: bool = True
    reason: str = ""
    full: int = 0

    @property
    def n_events(self) -> int:
        return sum(len(stream.record) for stream in self.streams) // 2


class CodeBook:
    """Numbers the code objects whose lines are recorded. Safe to call from several threads."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []  # keeps them alive: an id must not be reused during the run
        self.numbers: dict[int, int] = {}  # id(code) -> number; the hash of a code object itself is slow
        self._lock = threading.Lock()

    def number(self, code: CodeType) -> int:
        with self._lock:
            known = self.numbers.get(id(code))
            if known is None:
                known = len(self.codes)
                self.codes.append(code)
                self.numbers[id(code)] = known
            return known
