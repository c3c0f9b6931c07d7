"""Line events: what a source writes down, through ``sys.settrace`` (3.11) and ``sys.monitoring`` (3.12 and later)."""

from __future__ import annotations

import bisect
import contextlib
import inspect
import itertools
import opcode
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import get_native_id
from types import CodeType, FrameType
from typing import Any, Protocol, Self

# ---- streams ---------------------------------------------------------------------------------------------------------
# What a line source writes down: per thread, one flat record of (time, mark) pairs.
#
# A record is an ``array('q')`` of ``[time, mark, time, mark, ...]``, 16 bytes an event. The tracing callbacks append to
# a list, which takes a fifth of the time of an array's append; every `MANY` events it is packed into the array. Times
# are ``time.time_ns()``: torch's profiler stamps its events with Unix nanoseconds too, so the two can be joined without
# an offset.

NO_LIMIT = 1 << 60  # of events
MANY = 1000  # events until they are packed
LEAVE = 0  # the frame returned or unwound
SUSPEND = -1  # the frame yielded, or awaits
RESUMED = 1 << 40  # added to a line number: the frame goes on at this line, which does not run anew
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
        full: native id of a thread that had too many events to note them all -> Unix ns from which on none was noted.
        reason: why there are no lines; empty where there are.
    """

    source: str
    streams: tuple[Stream, ...] = ()
    codes: tuple[CodeType, ...] = ()
    complete: bool = True
    reason: str = ""
    full: Mapping[int, int] = field(default_factory=dict)

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


def has_lines(code: CodeType) -> bool:
    """Whether frames of a code are to be written. That of an empty file, as many an ``__init__.py`` is, has its only
    event on "line 0", which is the mark of a frame that has ended."""
    return any(line for _, _, line in code.co_lines())


# ---- forked_children -------------------------------------------------------------------------------------------------
# Processes that the recorded code forks are not recorded: what records is switched off in them.
#
# A fork copies the trace function, and the child would run up to eight times slower for lines that nobody ever reads.
# (DataLoader workers are looked into, in a way of their own: see `profiling.workers.record`.)

_switches: list[Callable[[], object]] = []
_is_registered = False


def off_in_children(switch: Callable[[], object]) -> None:
    """Call ``switch`` in every child that is forked from now on, as soon as it runs, until `on_in_children`."""
    global _is_registered
    _switches.append(switch)
    if not _is_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)  # cannot be taken back: there is one for all runs
        _is_registered = True


def on_in_children(switch: Callable[[], object]) -> None:
    """The recording has ended. Safe to call twice."""
    if switch in _switches:
        _switches.remove(switch)


def _in_child() -> None:
    for switch in _switches:
        switch()
    _switches.clear()


# ---- tracing ---------------------------------------------------------------------------------------------------------
# Line events through ``sys.settrace``: the source for Python 3.11.
#
# About 0.1 us a line of recorded code and 0.3 us a call of other Python code. Threads that started before the
# source see no events: a trace function can be set by its own thread only.

_YIELD = opcode.opmap["YIELD_VALUE"]

Tracer = Callable[[FrameType, str, Any], Any]


class SettraceSource:
    """Records the lines of the code whose file is ``in_scope``, on this thread and on threads started later: of each
    thread at most about ``limit`` events, its first."""

    name = "settrace"

    def __init__(
        self, in_scope: Callable[[str], bool], limit: int = NO_LIMIT, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._in_scope = in_scope
        self._now = now
        self._outside_calls = itertools.count()
        self._asked = 0
        self._limit = limit
        self._full: dict[int, int] = {}
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
        streams, codes = tuple(self._streams), tuple(self._book.codes)
        return LineRecord(self.name, streams, codes, complete, full=self._full)

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
        recent, put, limit, now = stream.recent, stream.recent.append, self._limit, self._now
        many = 2 * min(MANY, limit)
        moments = _moments(now, min(MANY, limit))
        in_scope = self._in_scope
        outside = self._callers.resumable if self._callers is not None else frozenset[int]()
        scope: dict[str, bool] = {}
        count_outside = self._outside_calls.__next__
        numbers, number = self._book.numbers, self._book.number
        watched = self._watch.code if self._watch is not None else None
        is_full = False

        def has_room() -> bool:
            """Pack what is recent. Whether more may be written; where not, it is noted from when on."""
            nonlocal moments, is_full
            if is_full:
                return False
            room = limit - stream.pack()
            if room <= 0:
                is_full = True
                self._full[stream.native_id] = now()
                return False
            moments = _moments(now, min(MANY, room))
            return True

        def write(mark: int) -> None:
            if not is_full:
                put(next(moments, None) or now())
                put(mark)

        # Of what the next two run for every line they name as little as can be: each name from around costs.
        def on_line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                for moment in moments:
                    recent.append(moment)  # a method called by its name is quicker than one at hand
                    recent.append(frame.f_lineno)
                    return on_line
                if has_room():
                    return on_line(frame, event, arg)
                frame.f_trace_lines = False
            elif event == "return":
                write(LEAVE)
            return on_line

        def on_resumable(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                for moment in moments:
                    recent.append(moment)
                    recent.append(frame.f_lineno)
                    return on_resumable
                if has_room():
                    return on_resumable(frame, event, arg)
                frame.f_trace_lines = False
            elif event == "return":
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
            if not wanted or (resumable and id(code) in outside) or is_full:
                count_outside()
                return None
            mark = numbers.get(id(code))
            if mark is None:
                if not has_lines(code):
                    count_outside()
                    return None
                mark = number(code)
            write(entered(mark))
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


# ---- monitoring ------------------------------------------------------------------------------------------------------
# Line events through ``sys.monitoring`` (PEP 669): the source for Python 3.12 and later.
#
# Code outside the scope is switched off at its first call and costs nothing from then on. Threads that started
# before the source are seen too; the frames they are in at that moment are written down first.

_monitoring: Any = getattr(sys, "monitoring", None)
_TOOLS = (2, 3, 4)  # the profiler's id first, then the two that PEP 669 leaves unnamed


def free_tool() -> int | None:
    """A tool id that nobody uses; None where all are taken."""
    return next((tool for tool in _TOOLS if _monitoring.get_tool(tool) is None), None)


class MonitoringSource:
    """Records the lines of the code whose file is ``in_scope``, on all threads: of each at most about ``limit`` events,
    its first."""

    name = "monitoring"

    def __init__(
        self, in_scope: Callable[[str], bool], tool: int, limit: int = NO_LIMIT, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._in_scope = in_scope
        self._now = now
        self._tool = tool
        self._limit = limit
        self._full: dict[int, int] = {}
        self._book = CodeBook()
        self._callers: Callers | None = None
        self._scope: dict[str, bool] = {}
        self._streams: dict[int, Stream] = {}
        self._recent: dict[int, list[int]] = {}
        self._line_tables: dict[int, tuple[list[int], list[int]]] = {}
        events = _monitoring.events
        self._local = events.LINE | events.PY_RETURN | events.PY_YIELD
        self._global = events.PY_START | events.PY_RESUME | events.PY_UNWIND | events.PY_THROW
        self._watched: CodeType | None = None
        self._callbacks: dict[int, Callable[..., Any]] = {}

    def start(self, callers: Callers | None = None, watch: Watch | None = None) -> None:
        """Record from now on. Frames above ``callers`` (default: above the frame that calls this) that run already
        are written down first, with the line they are at; so are those of other threads. ``watch`` is told of the
        frames of its code."""
        _monitoring.use_tool_id(self._tool, "torchbench_magic")
        if watch is not None and watch.code is not None:
            self._watched = watch.code
            _monitoring.set_local_events(self._tool, watch.code, _monitoring.events.PY_RETURN)
        self._callbacks = self._make_callbacks(watch)
        self._callers = callers or Callers.of_this_call()
        self._write_frames(self._new_stream(get_native_id()), self._callers.running_above(self._is_recorded))
        self._write_other_threads()
        for event, callback in self._callbacks.items():
            _monitoring.register_callback(self._tool, event, callback)
        off_in_children(self._switch_off)
        _monitoring.set_events(self._tool, self._global)
        _monitoring.restart_events()  # locations that an earlier run switched off

    def stop(self) -> LineRecord:
        on_in_children(self._switch_off)
        complete = self._switch_off()
        self._callers = None
        for stream in list(self._streams.values()):
            stream.pack()
        streams, codes = tuple(self._streams.values()), tuple(self._book.codes)
        return LineRecord(self.name, streams, codes, complete, full=self._full)

    def _switch_off(self) -> bool:
        """Whether it was on until now. In a forked process too, which goes on without this."""
        complete: bool = _monitoring.get_tool(self._tool) == "torchbench_magic"
        if complete:
            _monitoring.set_events(self._tool, 0)
            for code in (*self._book.codes, *([self._watched] if self._watched is not None else ())):
                _monitoring.set_local_events(self._tool, code, 0)
            for event in self._callbacks:
                _monitoring.register_callback(self._tool, event, None)
            _monitoring.free_tool_id(self._tool)
        return complete

    def outside_calls(self) -> int:
        return 0

    def held(self) -> int:
        return next((stream.nbytes for stream in self._streams.values()), 0)

    def _new_stream(self, native_id: int, name: str | None = None) -> list[int]:
        """Where the thread's events go."""
        stream = Stream(native_id, name if name is not None else threading.current_thread().name)
        self._streams[native_id] = stream
        self._recent[native_id] = stream.recent
        return stream.recent

    def _wanted(self, code: CodeType) -> bool:
        wanted = self._scope.get(code.co_filename)
        if wanted is None:
            wanted = self._scope[code.co_filename] = self._in_scope(code.co_filename)
        return wanted

    def _is_recorded(self, code: CodeType) -> bool:
        """Whether the frames of ``code`` are written: those that called the recorded code and await it are not."""
        is_outside = self._callers is not None and id(code) in self._callers.resumable
        return self._wanted(code) and not is_outside and has_lines(code)

    def _watch_lines(self, code: CodeType) -> int:
        """Switch on the local events of ``code``; its number."""
        known = self._book.numbers.get(id(code))
        if known is None:
            known = self._book.number(code)
            with contextlib.suppress(ValueError):  # the run ended while another thread began this frame
                _monitoring.set_local_events(self._tool, code, self._local)
        return known

    def _write_other_threads(self) -> None:
        """What other threads are in the middle of: its lines and returns will come without their start."""
        threads = {thread.ident: thread for thread in threading.enumerate()}
        for ident, innermost in sys._current_frames().items():
            thread = threads.get(ident)
            if thread is None or thread.native_id is None or thread is threading.current_thread():
                continue
            frames: list[FrameType] = []
            frame: FrameType | None = innermost
            while frame is not None:
                if self._wanted(frame.f_code):
                    frames.append(frame)
                frame = frame.f_back
            if frames:
                self._write_frames(self._new_stream(thread.native_id, thread.name), frames[::-1])
        del innermost  # this frame's own, perhaps: it would keep all that its callers hold until a collection

    def _write_frames(self, recent: list[int], frames: list[FrameType]) -> None:
        """Write down frames that run already, the outermost first, and switch on their events."""
        moment = time.time_ns()
        for frame in frames:
            line = frame.f_lineno or frame.f_code.co_firstlineno
            for mark in (entered(self._watch_lines(frame.f_code)), RESUMED + line):
                recent += (moment, mark)

    def _line_at(self, code: CodeType, offset: int) -> int:
        table = self._line_tables.get(id(code))
        if table is None:
            rows = [(start, line or code.co_firstlineno) for start, _, line in code.co_lines()]
            table = self._line_tables[id(code)] = ([row[0] for row in rows], [row[1] for row in rows])
        return table[1][bisect.bisect_right(table[0], offset) - 1]

    def _make_callbacks(self, watch: Watch | None) -> dict[int, Callable[..., Any]]:
        now, native, off = self._now, get_native_id, _monitoring.DISABLE
        numbers, recents, streams = self._book.numbers, self._recent, self._streams
        recorded, number_of, new_stream, line_at = self._is_recorded, self._watch_lines, self._new_stream, self._line_at
        limit, full = self._limit, self._full
        many = 2 * min(MANY, limit)
        watched = self._watched

        def pack(thread: int) -> None:
            """Pack what is recent of a thread; beyond the limit nothing more of it is written."""
            if streams[thread].pack() >= limit:
                full[thread] = now()

        def start(code: CodeType, offset: int) -> Any:
            number = numbers.get(id(code))
            if number is None:
                if code is watched:
                    return enter_watched()
                if not recorded(code):
                    return off
                number = number_of(code)
            thread = native()
            recent = recents.get(thread)
            if recent is None:
                recent = new_stream(thread)
            if len(recent) >= many:
                pack(thread)
            if thread not in full:
                recent.append(now())
                recent.append(-2 - number)
            return None

        def resume(code: CodeType, offset: int) -> Any:
            if start(code, offset) is off:
                return off
            thread = native()
            if thread not in full:
                recents[thread] += (now(), RESUMED + line_at(code, offset))
            return None

        def line(code: CodeType, number: int) -> None:
            thread = native()
            recent = recents.get(thread)
            if recent is None:
                return
            if len(recent) >= many:
                pack(thread)
            if thread in full:
                return
            recent.append(now())
            recent.append(number)

        def ends(mark: int) -> Callable[[CodeType, int, object], None]:
            def end(code: CodeType, offset: int, value: object) -> None:
                thread = native()
                recent = recents.get(thread)
                if recent is not None and thread not in full:
                    recent.append(now())
                    recent.append(mark)

            return end

        leave, suspend = ends(LEAVE), ends(SUSPEND)

        def enter_watched() -> None:
            if watch is not None:
                watch.enter(sys._getframe(2))

        def returns(code: CodeType, offset: int, value: object) -> None:
            if code is watched and watch is not None:
                watch.leave(sys._getframe(1))
            else:
                leave(code, offset, value)

        def unwind(code: CodeType, offset: int, error: object) -> None:  # cannot be switched off per code
            if code is watched and watch is not None:
                watch.leave(sys._getframe(1))
            elif id(code) in numbers:
                leave(code, offset, None)

        def throw(code: CodeType, offset: int, error: object) -> None:
            # a location of this event cannot be switched off
            if id(code) in numbers or recorded(code):
                resume(code, offset)

        events = _monitoring.events
        return {
            events.PY_START: start,
            events.PY_RESUME: resume,
            events.LINE: line,
            events.PY_RETURN: returns,
            events.PY_YIELD: suspend,
            events.PY_UNWIND: unwind,
            events.PY_THROW: throw,
        }
