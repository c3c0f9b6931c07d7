"""Line events through ``sys.settrace``: the source for Python 3.11.

About 0.1 us a line of recorded code and 0.3 us a call of other Python code. Threads that started before the
source see no events: a trace function can be set by its own thread only.
"""

from __future__ import annotations

import itertools
import opcode
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .forked_children import off_in_children, on_in_children
from .streams import (
    LEAVE,
    MANY,
    NO_LIMIT,
    RESUMABLE,
    RESUMED,
    SOMEWHERE,
    SUSPEND,
    Callers,
    CodeBook,
    LineRecord,
    Stream,
    Watch,
    entered,
)

__all__ = ["SettraceSource"]

_YIELD = opcode.opmap["YIELD_VALUE"]

Tracer = Callable[[FrameType, str, Any], Any]


class SettraceSource:
    """Records the lines of the code whose file is ``in_scope``, on this thread and on threads started later.

    A thread that has more than ``limit`` events is from then on followed by calls and returns only, and after as
    many again not into further calls.
    """

    name = "settrace"

    def __init__(
        self, in_scope: Callable[[str], bool], limit: int = NO_LIMIT, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._in_scope = in_scope
        self._now = now
        self._outside_calls = itertools.count()
        self._asked = 0
        self._limit = limit
        self._full: list[int] = []
        self._running: list[FrameType] = []
        self._book = CodeBook()
        self._streams: list[Stream] = []
        self._live = True
        self._callers: Callers | None = None
        self._watch: Watch | None = None
        self._before: Any = None
        self._before_threads: Any = None
        self._main: Tracer | None = None
        self._starter: Tracer = self._thread_starts

    def start(self, callers: Callers | None = None, watch: Watch | None = None) -> None:
        """Record from now on. Frames above ``callers`` (default: above the frame that calls this) that run already
        are written down first, with the line they are at. ``watch`` is told of the frames of its code."""
        self._callers = callers or Callers.of_this_call()
        self._watch = watch
        self._before = sys.gettrace()
        self._before_threads = threading.gettrace()
        self._main = self._tracer(leave_when_stopped=False)
        threading.settrace(self._starter)
        self._running = self._callers.running_above(lambda code: self._in_scope(code.co_filename))
        for frame in self._running:
            frame.f_trace = self._main(frame, "call", None)
            if frame.f_trace is not None:
                self._write_line(frame)
        off_in_children(self._in_child)
        sys.settrace(self._main)

    def stop(self) -> LineRecord:
        """Put the former hooks back. A hook that the measured code itself set stays."""
        complete = sys.gettrace() is self._main
        if complete:
            sys.settrace(self._before)
        if threading.gettrace() is self._starter:
            threading.settrace(self._before_threads)
        self._live = False
        on_in_children(self._in_child)
        for frame in self._running:
            frame.f_trace, frame.f_trace_lines = None, True
        self._running, self._callers, self._watch = [], None, None
        for stream in self._streams:
            stream.pack()
        full = min(self._full, default=0)
        streams, codes = tuple(self._streams), tuple(self._book.codes)
        return LineRecord(self.name, streams, codes, complete, full=full)

    def _in_child(self) -> None:
        """A forked process has one thread, and goes on without this."""
        if getattr(sys.gettrace(), "__module__", None) == __name__:
            sys.settrace(self._before)
        if threading.gettrace() is self._starter:
            threading.settrace(self._before_threads)
        self._live = False

    def outside_calls(self) -> int:
        self._asked += 1
        return next(self._outside_calls) - self._asked + 1  # to ask counts too

    def held(self) -> int:
        return self._streams[0].nbytes if self._streams else 0

    def _write_line(self, frame: FrameType) -> None:
        """The line of a frame that runs already, unless entering it has written that."""
        put = self._streams[0].recent
        if put[-1] < SUSPEND and frame.f_lineno:
            put.append(self._now())
            put.append(RESUMED + frame.f_lineno)

    def _thread_starts(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The first Python frame of a new thread: give the thread a tracer of its own."""
        if not self._live:
            sys.settrace(None)
            return None
        tracer = self._tracer(leave_when_stopped=True)
        sys.settrace(tracer)
        return tracer(frame, event, arg)

    def _tracer(self, leave_when_stopped: bool) -> Tracer:
        stream = Stream(threading.get_native_id(), threading.current_thread().name)
        self._streams.append(stream)
        recent, put, limit = stream.recent, stream.recent.append, self._limit
        now, filled = self._now, self._full.append
        many = 2 * min(MANY, limit)
        moments = _moments(now, min(MANY, limit))
        in_scope = self._in_scope
        outside = self._callers.resumable if self._callers is not None else frozenset[int]()
        scope: dict[str, bool] = {}
        count_outside = self._outside_calls.__next__
        numbers, number = self._book.numbers, self._book.number
        watched = self._watch.code if self._watch is not None else None
        is_full = is_closed = False

        def has_room() -> bool:
            """Pack what is recent. Whether more lines may be written."""
            nonlocal moments, is_closed
            held = stream.pack()
            is_closed = held >= 2 * limit
            moments = _moments(now, max(0, min(MANY, limit - held)))
            return held < limit

        def is_to_end(frame: FrameType) -> bool:
            """Whether there is no room for lines: then no more of this frame; the first time, say from when."""
            nonlocal is_full
            if not is_full and has_room():
                return False
            frame.f_trace_lines = False
            if not is_full:
                is_full = True
                moment = now()
                filled(moment)
                put(moment)
                put(SOMEWHERE)
            return True

        def write(mark: int) -> None:
            put(next(moments, None) or now())
            put(mark)

        # Of what the next two run for every line they name as little as can be: each name from around costs.
        def on_line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                for moment in moments:
                    recent.append(moment)  # a method called by its name is quicker than one at hand
                    recent.append(frame.f_lineno)
                    return on_line
                return on_line if is_to_end(frame) else on_line(frame, event, arg)
            if event == "return":
                write(LEAVE)
            return on_line

        def on_resumable(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                for moment in moments:
                    recent.append(moment)
                    recent.append(frame.f_lineno)
                    return on_resumable
                return on_resumable if is_to_end(frame) else on_resumable(frame, event, arg)
            if event == "return":
                write(SUSPEND if frame.f_code.co_code[frame.f_lasti] == _YIELD else LEAVE)
            return on_resumable

        def on_watched(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return" and self._watch is not None:
                self._watch.leave(frame)
            return on_watched

        def on_call(frame: FrameType, event: str, arg: Any) -> Any:
            code = frame.f_code
            if code is watched and self._watch is not None:
                frame.f_trace_lines = False
                self._watch.enter(frame)
                return on_watched
            file = code.co_filename
            wanted = scope.get(file)
            if wanted is None:
                wanted = scope[file] = in_scope(file)
            resumable = code.co_flags & RESUMABLE
            if len(recent) >= many:
                has_room()
            if not wanted or (resumable and id(code) in outside) or is_closed:
                count_outside()
                return None
            mark = numbers.get(id(code))
            write(entered(number(code) if mark is None else mark))
            if not resumable:
                return on_line
            frame.f_trace_lines = True  # an earlier run may have ended the lines of this generator
            # a resumed generator gets no line event for its line; a module that awaits starts on "line 0"
            if frame.f_lineno and frame.f_lineno != code.co_firstlineno:
                put(now())
                put(RESUMED + frame.f_lineno)
            return on_resumable

        if not leave_when_stopped:
            return on_call

        def until_stopped(tracer: Tracer) -> Tracer:
            def guarded(frame: FrameType, event: str, arg: Any) -> Any:
                if not self._live:  # only its own thread can take a trace function away
                    sys.settrace(None)
                    return None
                inner = tracer(frame, event, arg)
                return None if inner is None else guards[inner]

            return guarded

        guards = {inner: until_stopped(inner) for inner in (on_line, on_resumable, on_watched)}
        return until_stopped(on_call)


def _moments(now: Callable[[], int], events: int) -> Iterator[int]:
    """The time as each of the next ``events`` is written: to take it from here costs less than to ask the clock and to
    ask whether there is room."""
    return itertools.starmap(now, itertools.repeat((), events))
