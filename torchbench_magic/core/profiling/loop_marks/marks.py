"""The record of a training loop: when each phase begins and ends on the thread that runs the cell, and where.

Four numbers a mark, a few marks a step: a whole run fits into memory. Functions here are not broken off by a Ctrl-C
(`interrupts_let_through` is told of this module), so that a mark is whole or not there.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from torchbench_magic.core.code.library_files import is_library_file
from torchbench_magic.results.profiling.loops.phases import PHASES

__all__ = [
    "BACKWARD",
    "COMPILED",
    "FORWARD",
    "INPUT",
    "LOSS",
    "LoopMarks",
    "OPTIMIZER",
    "PlaceBook",
    "STEP",
    "TRANSFER",
    "UNCLEARED",
    "WIDTH",
    "ZERO_GRAD",
]

INPUT, TRANSFER, FORWARD, LOSS, BACKWARD, OPTIMIZER, ZERO_GRAD = (
    1 + PHASES.index(name) for name in ("input", "transfer", "forward", "loss", "backward", "optimizer", "zero_grad")
)
"""A mark: the number of a phase as it begins, the same negative as it ends."""
STEP = 100
"""The mark of a step that the code itself ended (`torchbench_magic.step`)."""
COMPILED = 101
"""The mark of a call of compiled code that begins."""
UNCLEARED = 102
"""The mark, within an optimizer's step, that nothing has cleared its gradients since the one before."""
WIDTH = 4
"""Numbers of a mark: Unix ns, the mark, the place (as a phase begins) or -1, and a fact (as it ends): the number of
the loader or the optimizer, or the flags of a module's call."""
MOST = 2_000_000
"""Marks that are kept: 64 MB, about 150 000 steps."""
_DEEPEST = 120  # frames that are looked through for one of the user's
_UNSEEN: dict[int, int] = {}


class PlaceBook:
    """Numbers for lines of the user's code; of one thread, which alone asks for them.

    Attributes:
        places: (code, line) by number.
    """

    def __init__(self) -> None:
        self.places: list[tuple[CodeType, int]] = []
        self._numbers: dict[int, dict[int, int] | None] = {}  # by id of a code, None for a library's, and place in it
        self._held: list[CodeType] = []  # so that their ids stay theirs

    def place_of(self, frame: FrameType | None) -> int:
        """Number of the line of the user's code that a frame was called from, or stands on; -1 for none.

        A line may have several numbers. Between two marks a step of torch empties the processor's caches, so that each
        object that this touches costs: hence no `f_lineno`, which decodes a table, but for what is new.
        """
        known = self._numbers
        for _ in range(_DEEPEST):
            if frame is None:
                return -1
            code = frame.f_code
            numbers = known.get(id(code), _UNSEEN)
            if numbers is _UNSEEN:
                numbers = self._new(code)
            if numbers is not None:
                number = numbers.get(frame.f_lasti)
                return number if number is not None else self._number(numbers, frame)
            frame = frame.f_back
        return -1

    def _new(self, code: CodeType) -> dict[int, int] | None:
        self._held.append(code)
        made: dict[int, int] | None = None if is_library_file(code.co_filename) else {}
        self._numbers[id(code)] = made
        return made

    def _number(self, numbers: dict[int, int], frame: FrameType) -> int:
        code = frame.f_code
        number = numbers[frame.f_lasti] = len(self.places)
        self.places.append((code, frame.f_lineno or code.co_firstlineno))
        return number


class LoopMarks:
    """Marks of the thread that makes this object.

    Attributes:
        thread: that thread's ident; others are to write nothing.
        record: ``[time, mark, place, fact, ...]``.
        book: of the places in the record.
        is_full: marks were left out from some moment on.
        asked: codes that were called as compiled ones, by what compiles them.
        begin: ``begin(phase)``: a phase begins, called from code that the user's code called.
        begin_at: ``begin_at(phase, frame)``: the same, with the frame that the phase is called from.
        end: ``end(phase, fact)``: the phase that began last as this one ends.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.record = array("q")
        self.book = PlaceBook()
        self.is_full = False
        self.asked: dict[int, tuple[Any, CodeType | None]] = {}  # by id of the asker
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = 0
        self.begin, self.begin_at, self.end = self._writers()

    def _writers(self) -> tuple[Callable[[int], None], Callable[..., None], Callable[..., None]]:
        """`begin`, `begin_at` and `end`. Closures: after a step of torch all caches are cold, and what they need is at
        hand in their cells instead of in four dictionaries."""
        record, most, now, here = self.record, WIDTH * MOST, time.time_ns, sys._getframe
        extend, place_of = record.extend, self.book.place_of

        def begin_at(phase: int, frame: FrameType | None) -> None:
            if len(record) < most:
                extend((now(), phase, place_of(frame), -1))
            else:
                self.is_full = True

        def begin(phase: int) -> None:
            if len(record) < most:
                extend((now(), phase, place_of(here(1)), -1))
            else:
                self.is_full = True

        def end(phase: int, fact: int = -1) -> None:
            if len(record) < most:
                extend((now(), -phase, -1, fact))

        return begin, begin_at, end

    def compiled(self) -> None:
        """A call of compiled code begins."""
        self._note(COMPILED)

    def uncleared(self) -> None:
        """Nothing has cleared the gradients of the optimizer that steps now."""
        self._note(UNCLEARED)

    def _note(self, mark: int) -> None:
        if len(self.record) < WIDTH * MOST:
            self.record.extend((time.time_ns(), mark, -1, -1))

    def step(self) -> None:
        """The code says that a step ends here."""
        if threading.get_ident() == self.thread:
            self.record.extend((time.time_ns(), STEP, -1, -1))

    def number_of(self, thing: Any) -> int:
        """A number for an optimizer or a loader, the same as long as it lives; -1 where it takes no weak reference."""
        found = self._objects.get(id(thing))
        if found is not None and found[0]() is thing:
            return found[1]
        try:
            reference = weakref.ref(thing)
        except TypeError:
            return -1
        self._next += 1
        self._objects[id(thing)] = (reference, self._next)
        return self._next
