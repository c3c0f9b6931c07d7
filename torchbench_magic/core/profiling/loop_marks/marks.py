"""The record of a training loop: when each phase begins and ends on the thread that runs the cell, and where.

Four numbers a mark, a few marks a step: a whole run fits into memory. Functions here are not broken off by a Ctrl-C
(`interrupts_let_through` is told of this module), so that a mark is whole or not there.
"""

from __future__ import annotations

import threading
import time
import weakref
from array import array
from types import CodeType, FrameType
from typing import Any

from torchbench_magic.core.code.library_files import is_library_file
from torchbench_magic.results.profiling.loops.phases import PHASES

__all__ = [
    "BACKWARD",
    "BATCH",
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
BATCH = 2048
"""Numbers that are packed at once."""


class PlaceBook:
    """Numbers for lines of the user's code; of one thread, which alone asks for them.

    Attributes:
        places: (code, line) by number.
    """

    def __init__(self) -> None:
        self.places: list[tuple[CodeType, int]] = []
        self._numbers: dict[tuple[int, int], int] = {}  # by id of a code and place in it
        self._codes: dict[int, bool] = {}  # by id of a code: whether it is the user's
        self._held: list[CodeType] = []  # so that their ids stay theirs

    def users_frame(self, frame: FrameType | None) -> FrameType | None:
        """The frame of the user's code that a frame was called from, or is."""
        codes = self._codes
        for _ in range(_DEEPEST):
            if frame is None:
                return None
            code = frame.f_code
            is_users = codes.get(id(code))
            if is_users is None:
                self._held.append(code)
                is_users = codes[id(code)] = not is_library_file(code.co_filename)
            if is_users:
                return frame
            frame = frame.f_back
        return None

    def number(self, code: CodeType, lasti: int) -> int:
        """Number of the line of this place in a code, which `users_frame` has seen. A line may have several numbers."""
        number = self._numbers.get((id(code), lasti))
        if number is None:
            number = self._numbers[id(code), lasti] = len(self.places)
            of_place = (line for begin, end, line in code.co_lines() if begin <= lasti < end)
            self.places.append((code, next(of_place, None) or code.co_firstlineno))
        return number

    def place_of(self, frame: FrameType | None) -> int:
        """Number of the line of the user's code that a frame was called from, or stands on; -1 for none."""
        frame = self.users_frame(frame)
        return -1 if frame is None else self.number(frame.f_code, frame.f_lasti)


class LoopMarks:
    """Marks of the thread that makes this object.

    Attributes:
        thread: that thread's ident; others are to write nothing.
        is_full: marks were left out from some moment on.
        elsewhere: steps of optimizers, and steps that the code said, on other threads.
        asked: codes that were called as compiled ones, by what compiles them.
        recent: marks that are not packed yet, as `record` has them; but a phase that began at a known place has the
            offset in its code, and this code in place of the fact.

    After a step of torch all caches of the processor are cold, and each object that is touched costs a tenth of a
    microsecond: a call of a function of Python's a whole one. So a mark is one tuple in a list, a quarter of what it
    costs to write four numbers into an array; the line of a place is looked up when many marks are packed; and the
    wrappers that every step runs through write into `recent` themselves, where the code that calls them is the one that
    called them last, instead of by `begin` and `end`.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._book = PlaceBook()
        self.is_full = False
        self.elsewhere = 0
        self.asked: dict[int, tuple[Any, CodeType | None]] = {}  # by id of the asker
        self._packed = array("q")
        self.recent: list[Any] = []
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = 0

    @property
    def record(self) -> array[int]:
        """``[time, mark, place, fact, ...]``"""
        self.pack()
        return self._packed

    @property
    def book(self) -> PlaceBook:
        """Of the places in the record."""
        self.pack()
        return self._book

    def pack(self) -> None:
        """Make ``recent`` shorter; to be called where it has `BATCH` numbers."""
        recent, packed, number = self.recent, self._packed, self._book.number
        for at in range(WIDTH - 1, len(recent), WIDTH):
            code = recent[at]
            if type(code) is CodeType:
                recent[at - 1 : at + 1] = number(code, recent[at - 1]), -1
        free = WIDTH * MOST - len(packed)
        self.is_full = self.is_full or len(recent) > free
        packed.fromlist(recent[:free])
        recent.clear()

    def begin(self, phase: int, frame: FrameType) -> FrameType | None:
        """A phase begins, called from this frame. The frame of the user's code that it was called from, or is."""
        moment, caller = time.time_ns(), self._book.users_frame(frame)
        place = (-1, -1) if caller is None else (caller.f_lasti, caller.f_code)
        self.recent.extend((moment, phase, *place))
        return caller

    def end(self, phase: int, fact: int = -1) -> None:
        """The phase that began last as this one ends."""
        self._note(-phase, fact)

    def compiled(self) -> None:
        """A call of compiled code begins."""
        self._note(COMPILED)

    def uncleared(self) -> None:
        """Nothing has cleared the gradients of the optimizer that steps now."""
        self._note(UNCLEARED)

    def _note(self, mark: int, fact: int = -1) -> None:
        self.recent.extend((time.time_ns(), mark, -1, fact))
        if len(self.recent) >= BATCH:
            self.pack()

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
