"""The record of a training loop: when each phase begins and ends, which line runs, gradients nobody cleared."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torchbench_magic.process.frame_owner import is_library_file

from .phases import PHASES

# Four numbers a mark, a few marks a step: a whole run fits into memory. Functions here are not broken off by a Ctrl-C
# (`interrupts_let_through` is told of this module), so that a mark is whole or not there.

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
CLOSURE = 103
"""The mark of an optimizer's step that begins to run its closure, the same negative as that ends: no phase."""
WIDTH = 4
"""Numbers of a mark: Unix ns, the mark, the place (as a phase begins) or -1, and a fact (as it ends): the number of
the loader or the optimizer, or the flags of a module's call."""
MOST = 2_000_000
"""Marks that are kept: 64 MB, about 150 000 steps."""
_DEEPEST = 120  # frames that are looked through for one of the user's


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
        record: ``[time, mark, place, fact, ...]``
        book: of these places.
        is_full: marks were left out from some moment on.
        optimized_elsewhere, said_elsewhere: steps of optimizers, and steps that the code said, on other threads.
        asked: codes that were called as compiled ones, by what compiles them.
        workers: process id of each DataLoader worker -> (number of the loader, which of its starts: 0, 1, ...).
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.record = array("q")
        self.book = PlaceBook()
        self.is_full = False
        self.optimized_elsewhere = self.said_elsewhere = 0
        self.asked: dict[int, tuple[Any, CodeType | None]] = {}  # by id of the asker
        self.workers: dict[int, tuple[int, int]] = {}
        self._starts: Counter[int] = Counter()  # by number of the loader
        self._loaders: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}  # by data set and place
        self._objects: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = 0

    def begin(self, phase: int, frame: FrameType) -> FrameType | None:
        """A phase begins, called from this frame. The frame of the user's code that it was called from, or is."""
        moment, caller = time.time_ns(), self.book.users_frame(frame)
        place = -1 if caller is None else self.book.number(caller.f_code, caller.f_lasti)
        self._write(moment, phase, place, -1)
        return caller

    def end(self, phase: int, fact: int = -1) -> None:
        """The phase that began last as this one ends."""
        self._write(time.time_ns(), -phase, -1, fact)

    def compiled(self) -> None:
        """A call of compiled code begins."""
        self._write(time.time_ns(), COMPILED, -1, -1)

    def closure(self, *, begins: bool) -> None:
        """The closure of the optimizer that steps now begins, or ends."""
        self._write(time.time_ns(), CLOSURE if begins else -CLOSURE, -1, -1)

    def uncleared(self) -> None:
        """Nothing has cleared the gradients of the optimizer that steps now."""
        self._write(time.time_ns(), UNCLEARED, -1, -1)

    def _write(self, *mark: int) -> None:
        if len(self.record) < WIDTH * MOST:
            self.record.extend(mark)
        else:
            self.is_full = True

    def step(self) -> None:
        """The code says that a step ends here."""
        if threading.get_ident() == self.thread:
            self._write(time.time_ns(), STEP, -1, -1)
        else:
            self.said_elsewhere += 1

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

    def has_workers(self, loader: Any, pids: Iterable[int]) -> None:
        """Within the input that began last a loader has begun to give batches by these processes, started for that or
        kept from before. One that was made anew, for the same data at the same place, is the loader that is gone."""
        new = [pid for pid in pids if pid not in self.workers]
        number = self.number_of(loader)
        if not new or number < 0:
            return
        data = self.number_of(getattr(loader, "dataset", None))
        if data >= 0:
            key = data, self.record[-2] if self.record else -1
            known, same = self._loaders.get(key, (None, number))
            if known is not None and (known() is None or known() is loader):
                number = same
            self._loaders[key] = weakref.ref(loader), number
        self.workers.update(dict.fromkeys(new, (number, self._starts[number])))
        self._starts[number] += 1


# ---- line_samples ----------------------------------------------------------------------------------------------------
# Which line of the user's code runs, looked at some ten times a second: what a loop does between its phases.
#
# A thread of its own looks at the frames of the one that runs the cell, every 100 ms in the mean. A look takes 1.5 us
# besides the change of threads. Waits are not equal, so that they fall into step with no loop (see
# `profiling.workers.loop`).
#
# A look needs the interpreter's lock. Python code that holds it gives it away after 5 ms, or before that where it comes
# to something that waits or computes without it, on which the look would then fall in its stead. So a look that is late
# is followed by another: if that is late too, the code before the first held the lock and wanted it back, and its line
# is the right one; else the line is not known.

_SHORTEST, _SPREAD, _GOLDEN = 0.06, 0.08, 0.6180339887498949
_LATE, _AGAIN = 0.0005, 0.0002  # seconds
_MOST_LOOKS = 2_000_000  # looks: 55 hours


class LineSamples:
    """Looks between `start` and `stop` at the thread that makes this object.

    Attributes:
        record: ``[time, place, ...]``; place -1: not known.
        book: of these places.
    """

    def __init__(self) -> None:
        self.record = array("q")
        self.book = PlaceBook()
        self._wanted = threading.get_ident()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._look, name="torchbench_magic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(1.0)

    def _look(self) -> None:
        looks, book = 0, self.book
        while looks < _MOST_LOOKS:
            late = self._wait(_SHORTEST + _SPREAD * (looks * _GOLDEN % 1.0))
            if late is None:
                return
            looks += 1
            moment = time.time_ns()
            frame = sys._current_frames().get(self._wanted)
            if frame is None:
                continue
            place = book.place_of(frame)
            del frame
            if late > _LATE and (self._wait(_AGAIN) or 0.0) <= _LATE:
                place = -1
            self.record.extend((moment, place))

    def _wait(self, pause: float) -> float | None:
        """Seconds that the wait was too long; None where `stop` ended it."""
        due = time.perf_counter() + pause
        return None if self._ended.wait(pause) else time.perf_counter() - due


# ---- uncleared_gradients ---------------------------------------------------------------------------------------------
# Which optimizers step on gradients that nothing has cleared since their last step.
#
# Of each optimizer one gradient is looked at, before and after each backward pass: as long as it is the same memory
# with the same version (the count of writes that torch keeps of a tensor), nobody has cleared it, by whatever means. A
# write between two passes is taken for clearing, so that code that changes gradients itself is left alone. Writes
# through ``.data`` are in no version: so a few of its numbers have to be the same too, on the CPU, where a look waits
# for nothing. They are read from its memory: an operation of torch would be in the profile. No reference to a gradient
# is kept: a cleared one is freed as ever.
#
# An optimizer whose gradients were cleared once is left alone as long as the same line of code steps it: what is asked
# is whether a loop never clears them, and looks cost some 10 us of a step, whose work leaves the processor's caches
# cold.

_Look = tuple[int, int, bytes]

_MOST_OPTIMIZERS = 64  # optimizers: one for each parameter is another kind of loop


@dataclass(slots=True)
class _Watched:
    """An optimizer that has stepped, and one of its parameters.

    Attributes:
        seen: (address, version, a few numbers) of that one's gradient.
        is_kept: nothing has cleared it since the last step; ``is_added_to``: and a backward pass has added to it.
    """

    optimizer: weakref.ref[Any]
    parameter: weakref.ref[Any]
    seen: _Look | None
    is_kept: bool = True
    is_added_to: bool = False


class UnclearedGradients:
    """Told of backward passes and of optimizers' steps, on the thread of the loop.

    Attributes:
        watched: as long as it is empty, nobody needs to tell of backward passes.
        depth: of backward passes within each other; who calls them counts it.
        left_alone: numbers of optimizers with where they are stepped (a code's id and the place in it); nobody needs to
            tell of these.
    """

    def __init__(self) -> None:
        self.watched: dict[int, _Watched] = {}  # by id of the optimizer
        self.left_alone: set[tuple[int, int, int]] = set()
        self.depth = 0

    def backward_begins(self) -> None:
        if self.depth:
            return
        for each in self.watched.values():
            each.is_kept = each.is_kept and each.seen is not None and _seen(each.parameter()) == each.seen

    def backward_ends(self) -> None:
        if self.depth:
            return
        for each in self.watched.values():
            now = _seen(each.parameter())
            if now is not None and each.seen is not None and now[0] == each.seen[0]:
                each.is_added_to = each.is_added_to or now[1] > each.seen[1]
            each.seen = now

    def stepped(self, optimizer: Any, key: tuple[int, int, int]) -> bool:
        """An optimizer has made a step. Whether nothing had cleared its gradients since the one before.

        Args:
            key: the optimizer's number and where it is stepped, none of `left_alone`.
        """
        if self.depth:  # within the backward pass, parameter by parameter
            return False
        known = self.watched.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer:
            self._watch(optimizer)
            return False
        found, now = known.is_kept and known.is_added_to, _seen(known.parameter())
        if not known.is_kept:
            del self.watched[id(optimizer)]
            self.left_alone.add(key)
        elif now is None:  # of another parameter, then
            self._watch(optimizer)
        else:
            known.seen, known.is_kept, known.is_added_to = now, True, False
        return found

    def _watch(self, optimizer: Any) -> None:
        self.watched.pop(id(optimizer), None)
        if len(self.watched) >= _MOST_OPTIMIZERS:
            self.watched = {key: each for key, each in self.watched.items() if each.optimizer() is not None}
        with contextlib.suppress(Exception):  # a user's optimizer may be anything
            with_gradient = [
                each for group in optimizer.param_groups for each in group["params"] if each.grad is not None
            ]
            by_numbers = (each for each in with_gradient if any(_numbers(each.grad)))  # zeros do not tell
            parameter = next(by_numbers, with_gradient[0] if with_gradient else None)
            if parameter is not None and len(self.watched) < _MOST_OPTIMIZERS:
                references = weakref.ref(optimizer), weakref.ref(parameter)
                self.watched[id(optimizer)] = _Watched(*references, _seen(parameter))


def _seen(parameter: Any) -> _Look | None:
    """(address, version, a few numbers) of a parameter's gradient; None where it has none, or one that has no memory.
    No numbers of a device's tensors, which would have to be waited for."""
    try:
        gradient = parameter.grad
        return None if gradient is None else (gradient.data_ptr(), gradient._version, _numbers(gradient))
    except Exception:  # noqa: BLE001  # the parameter is gone; a wrapper of tensors has no address
        return None


def _numbers(gradient: Any) -> bytes:
    """The first, the middle and the last; empty where they cannot be read at no cost."""
    import torch

    if type(gradient) is not torch.Tensor or not gradient.is_cpu or not gradient.is_contiguous():
        return b""
    size, count, address = gradient.element_size(), gradient.numel(), gradient.data_ptr()
    if not address or not count or (gradient.storage_offset() + count) * size > gradient.untyped_storage().nbytes():
        return b""
    return b"".join(ctypes.string_at(address + at * size, size) for at in (0, count // 2, count - 1))
