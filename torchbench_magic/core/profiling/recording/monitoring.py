"""Line events through ``sys.monitoring`` (PEP 669): the source for Python 3.12 and later.

Code outside the scope is switched off at its first call and costs nothing from then on. Threads that started
before the source are seen too; the frames they are in at that moment are written down first.
"""

from __future__ import annotations

import bisect
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from threading import get_native_id
from types import CodeType, FrameType
from typing import Any

from .forked_children import off_in_children, on_in_children
from .streams import (
    LEAVE,
    MANY,
    NO_LIMIT,
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

__all__ = ["MonitoringSource", "free_tool"]

_monitoring: Any = getattr(sys, "monitoring", None)
_TOOLS = (2, 3, 4)  # the profiler's id first, then the two that PEP 669 leaves unnamed


def free_tool() -> int | None:
    """A tool id that nobody uses; None where all are taken."""
    return next((tool for tool in _TOOLS if _monitoring.get_tool(tool) is None), None)


class MonitoringSource:
    """Records the lines of the code whose file is ``in_scope``, on all threads.

    A thread that has more than ``limit`` events is from then on followed by calls and returns only, and after as
    many again by nothing but the end of what it is in.
    """

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
        full = min(self._full.values(), default=0)
        return LineRecord(self.name, tuple(self._streams.values()), tuple(self._book.codes), complete, full=full)

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
        return self._wanted(code) and (self._callers is None or id(code) not in self._callers.resumable)

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
            for mark in (entered(self._watch_lines(frame.f_code)), RESUMED + (frame.f_lineno or 0)):
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
        closed: set[int] = set()  # threads of which no more calls are written
        unfollowed: dict[int, int] = {}  # thread -> how many frames it is in that were not written

        def pack(thread: int) -> None:
            """Pack what is recent of a thread, and see whether that was enough."""
            held = streams[thread].pack()
            if held >= limit and thread not in full:  # no more lines of this thread; others may need the location
                full[thread] = moment = now()
                recents[thread] += (moment, SOMEWHERE)
            if held >= 2 * limit:
                closed.add(thread)

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
            if thread in closed:
                unfollowed[thread] = unfollowed.get(thread, 0) + 1
                return None
            recent.append(now())
            recent.append(-2 - number)
            return None

        def resume(code: CodeType, offset: int) -> Any:
            if start(code, offset) is off:
                return off
            thread = native()
            if not unfollowed.get(thread):
                recent = recents[thread]
                recent.append(now())
                recent.append(RESUMED + line_at(code, offset))
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
                if unfollowed.get(thread):
                    unfollowed[thread] -= 1
                elif recent is not None:
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
