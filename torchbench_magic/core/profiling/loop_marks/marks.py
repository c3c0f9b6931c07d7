"""The record of a training loop: when each phase begins and ends on the thread that runs the cell, and where.

Four numbers a mark, a few marks a step: a whole run fits into memory. Functions here are not broken off by a Ctrl-C
(`interrupts_let_through` is told of this module), so that a mark is whole or not there.
"""

from __future__ import annotations

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
_BATCH = 2048  # numbers that are packed at once


class PlaceBook:
    """Numbers for lines of the user's code; of one thread, which alone asks for them.

    Attributes:
        places: (code, line) by number.
        numbers: number by id of a code and place in it, of the user's code.
    """

    def __init__(self) -> None:
        self.places: list[tuple[CodeType, int]] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self._codes: dict[int, bool] = {}  # by id of a code: whether it is the user's
        self._held: list[CodeType] = []  # so that their ids stay theirs

    def place_of(self, frame: FrameType | None) -> int:
        """Number of the line of the user's code that a frame was called from, or stands on; -1 for none.

        A line may have several numbers. Between two marks a step of torch empties the processor's caches, so that each
        object that this touches costs: hence no `f_lineno`, which decodes a table, but for what is new.
        """
        codes = self._codes
        for _ in range(_DEEPEST):
            if frame is None:
                return -1
            code = frame.f_code
            is_users = codes.get(id(code))
            if is_users is None:
                self._held.append(code)
                is_users = codes[id(code)] = not is_library_file(code.co_filename)
            if is_users:
                number = self.numbers.get((id(code), frame.f_lasti))
                return number if number is not None else self._number(frame)
            frame = frame.f_back
        return -1

    def _number(self, frame: FrameType) -> int:
        code = frame.f_code
        number = self.numbers[id(code), frame.f_lasti] = len(self.places)
        self.places.append((code, frame.f_lineno or code.co_firstlineno))
        return number


class LoopMarks:
    """Marks of the thread that makes this object.

    Attributes:
        thread: that thread's ident; others are to write nothing.
        book: of the places in the record.
        is_full: marks were left out from some moment on.
        elsewhere: steps of optimizers, and steps that the code said, on other threads.
        asked: codes that were called as compiled ones, by what compiles them.
        begin: ``begin(phase, frame)``: a phase begins, called from this frame; the number of its place.
        end: ``end(phase, fact)``: the phase that began last as this one ends.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.book = PlaceBook()
        self.is_full = False
        self.elsewhere = 0
        self.asked: dict[int, tuple[Any, CodeType | None]] = {}  # by id of the asker
        self._packed = array("q")
        self._recent: list[int] = []
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = 0
        self.begin, self.end = self._writers()

    @property
    def record(self) -> array[int]:
        """``[time, mark, place, fact, ...]``"""
        self._pack()
        return self._packed

    def _pack(self) -> None:
        recent, packed = self._recent, self._packed
        free = WIDTH * MOST - len(packed)
        self.is_full = self.is_full or len(recent) > free
        packed.fromlist(recent[:free])
        recent.clear()

    def _writers(self) -> tuple[Callable[[int, FrameType], int], Callable[..., None]]:
        """`begin` and `end`.

        After a step of torch all caches of the processor are cold, and each object that is touched costs a tenth of a
        microsecond. So what these need is at hand in their cells instead of in four dictionaries, and a mark is one
        tuple in a list, a quarter of what it costs to write four numbers into an array.
        """
        recent, now, pack = self._recent, time.time_ns, self._pack
        extend, place_of, number_at = recent.extend, self.book.place_of, self.book.numbers.get

        def begin(phase: int, frame: FrameType) -> int:
            moment = now()
            place = number_at((id(frame.f_code), frame.f_lasti))
            if place is None:
                place = place_of(frame)
            extend((moment, phase, place, -1))
            return place

        def end(phase: int, fact: int = -1) -> None:
            extend((now(), -phase, -1, fact))
            if len(recent) >= _BATCH:
                pack()

        return begin, end

    def compiled(self) -> None:
        """A call of compiled code begins."""
        self._note(COMPILED)

    def uncleared(self) -> None:
        """Nothing has cleared the gradients of the optimizer that steps now."""
        self._note(UNCLEARED)

    def _note(self, mark: int) -> None:
        self._recent.extend((time.time_ns(), mark, -1, -1))
        if len(self._recent) >= _BATCH:
            self._pack()

    def step(self) -> None:
        """The code says that a step ends here."""
        if threading.get_ident() == self.thread:
            self._note(STEP)
        else:
            self.elsewhere += 1

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
