"""Optimizers' steps, by the ranges that torch opens round them for profilers.

`record_function` calls `entered` and `left` instead of its own methods, which they call. Assumed of torch 2.13 and
newer: the wrapper that torch puts round ``step`` of every class of optimizers, the users' own too, runs it in a range
of the name of `_STEP`, and then calls the optimizer's ``_optimizer_step_code`` in it (there for profilers). Ranges of
that name which other code opens are none of these.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from .marks import BATCH, OPTIMIZER, LoopMarks
from .uncleared_gradients import UnclearedGradients

__all__ = ["StepRanges"]

_STEP = "Optimizer.step#"


class StepRanges:
    """Writes steps into ``marks``, on the thread that made them. A step that an exception ends was none."""

    def __init__(self, marks: LoopMarks, gradients: UnclearedGradients) -> None:
        self._marks = marks
        self._gradients = gradients
        self._running: list[tuple[Any, FrameType | None]] = []  # each within the one before: range, the user's caller
        self._made: Any = None  # the optimizer whose step was made last

    def entered(self, was: Any) -> Any:
        """``record_function.__enter__``"""
        begin, running, extend, now = self._marks.begin, self._running, self._marks.recent.extend, time.time_ns
        thread, get_ident, here = self._marks.thread, threading.get_ident, sys._getframe
        of_torch = _code_round_steps()
        users: CodeType | None = None  # the user's code that called last

        @functools.wraps(was)
        def entered(range_: Any) -> Any:
            nonlocal users
            if range_.name.startswith(_STEP) and here(1).f_code is of_torch and get_ident() == thread:
                frame = here(2)  # below it is torch's wrapper
                caller: FrameType | None = frame
                if frame.f_code is users:
                    extend((now(), OPTIMIZER, frame.f_lasti, users))
                else:
                    caller = begin(OPTIMIZER, frame)
                    users = frame.f_code if caller is frame else None
                running.append((range_, caller))
            return was(range_)

        return entered

    def step_made(self, was: Any) -> Any:
        """``Optimizer._optimizer_step_code``"""
        marks, thread, get_ident = self._marks, self._marks.thread, threading.get_ident

        @functools.wraps(was)
        def made(optimizer: Any) -> Any:
            if get_ident() == thread:
                self._made = optimizer
            else:
                marks.elsewhere += 1
            return was(optimizer)

        return made

    def left(self, was: Any) -> Any:
        """``record_function.__exit__``"""
        running, recent, extend, now = self._running, self._marks.recent, self._marks.recent.extend, time.time_ns
        pack, step_ends, left_alone = self._marks.pack, self._step_ends, self._gradients.left_alone
        # of an optimizer that is left alone: itself, its number, and where it was stepped
        alone: Callable[[], Any] = lambda: None
        of_alone, place = -1, -1
        code: CodeType | None = None

        @functools.wraps(was)
        def left(range_: Any, kind: Any, error: Any, traceback: Any) -> Any:
            nonlocal alone, of_alone, code, place
            result = was(range_, kind, error, traceback)
            if not running or running[-1][0] is not range_:
                return result
            caller, optimizer, self._made = running.pop()[1], self._made, None
            if kind is not None:
                extend((now(), -OPTIMIZER, -1, -1))
                return result
            if (
                caller is not None
                and caller.f_code is code
                and caller.f_lasti == place
                and optimizer is not None
                and alone() is optimizer
            ):
                number = of_alone
            else:
                number, key = step_ends(optimizer, caller)
                if key in left_alone and caller is not None:
                    alone, of_alone, code, place = weakref.ref(optimizer), number, caller.f_code, caller.f_lasti
            extend((now(), -OPTIMIZER, -1, number))
            if len(recent) >= BATCH:
                pack()
            return result

        return left

    def _step_ends(self, optimizer: Any, caller: FrameType | None) -> tuple[int, tuple[int, int, int]]:
        """The number of the optimizer that has made a step, and where: called from this frame."""
        number, gradients = self._marks.number_of(optimizer), self._gradients
        key = (number, id(caller.f_code), caller.f_lasti) if caller is not None else (number, 0, 0)
        if number >= 0 and key not in gradients.left_alone and gradients.stepped(optimizer, key):
            self._marks.uncleared()
        return number, key


def _code_round_steps() -> CodeType:
    """Of the wrapper that torch puts round each ``step``."""
    from torch.optim import Optimizer

    code: CodeType = Optimizer.profile_hook_step(lambda: None).__code__
    return code
