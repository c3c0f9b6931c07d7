"""Hooks on what every training loop calls: loaders, backward, optimizers, zero_grad, transfers, gradient scalers.

Loops written by hand, Lightning, transformers' Trainer and accelerate all end up in these functions of torch. Each is
replaced by one that writes a mark before and after; `stop` puts everything back. While ``torch.compile`` traces,
nothing of this is there (`compile_pause`).

Nor is anything replaced that compiled code is guarded by: a compiled optimizer checks that torch's global hooks are as
many as when it was traced, and that the function of ``step`` is the same, and would be compiled again. So its steps are
told by the `record_function` that torch opens round each of them, which compiled code leaves out.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..torch_events import torch_profiler
from .compile_pause import CompilePause
from .compiled_calls import asker_of_compiled_calls, calls_noted_at
from .marks import BACKWARD, INPUT, OPTIMIZER, TRANSFER, ZERO_GRAD, LoopMarks
from .outer_modules import OuterCalls, calls_noted
from .uncleared_gradients import UnclearedGradients

__all__ = ["TrainingHooks"]

_MISSING = object()
_STEP_RANGE = "Optimizer.step#"
"""Assumed of torch 2.13 and newer: the wrapper that it puts round ``step`` of every class of optimizers, the users' own
too, runs it in a `record_function` of this name, and holds the optimizer in its variable ``self``."""


class TrainingHooks:
    """Writes the phases of loops into ``marks`` between `start` and `stop`, on the thread that made them.

    Args:
        with_modules: note the outermost calls of modules too, by ``nn.Module.__call__``; else somebody tells `outer`.
    """

    def __init__(self, marks: LoopMarks, *, with_modules: bool) -> None:
        self.marks = marks
        self.outer = OuterCalls(marks)
        self._with_modules = with_modules
        self._gradients = UnclearedGradients()
        self._put: list[tuple[Any, str, Any, Any]] = []  # owner, name, what was there, what we put
        self._pause = CompilePause(self._leave, self._enter)
        self._is_on = False

    def start(self) -> None:
        """Everything is put in place, or nothing."""
        try:
            self._is_on = True
            self._enter()
            self._pause.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Put everything back. Safe to call twice."""
        self._is_on = False
        self._pause.stop()
        self._leave()

    def _enter(self) -> None:
        if not self._is_on or self._put:
            return
        from torch import autograd, nn, optim

        put, noted = self._replace, self._noted
        put(autograd, "backward", self._watched_backward)
        put(autograd, "grad", lambda was: noted(was, BACKWARD))
        put(optim.Optimizer, "zero_grad", lambda was: noted(was, ZERO_GRAD))
        put(nn.Module, "zero_grad", lambda was: noted(was, ZERO_GRAD))
        self._replace_loading()
        self._replace_scaling()
        self._replace_transfer()
        if self._with_modules:
            put(nn.Module, "__call__", lambda was: calls_noted(was, self.marks, self.outer))
        range_type = torch_profiler.range_type()
        put(range_type, "__enter__", self._step_begins)
        put(range_type, "__exit__", self._step_ends)
        asker, name = asker_of_compiled_calls()
        if asker is not None:
            put(asker, name, lambda was: calls_noted_at(was, self.marks))

    def _leave(self) -> None:
        for owner, name, was, put in reversed(self._put):
            if vars(owner).get(name) is put:  # what the user's code put there since stays
                if was is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, was)
        self._put = []

    def _replace(self, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        there = getattr(owner, name, None)
        if there is None:
            return
        was = vars(owner).get(name, _MISSING)
        new = made(there)
        setattr(owner, name, new)
        self._put.append((owner, name, was, new))

    def _replace_loading(self) -> None:
        """Iterators of loaders, those that were made before the run too, and the making of one: it starts workers."""
        from torch.utils.data import DataLoader, dataloader

        # assumed of torch 2.13 and newer: all iterators of a DataLoader have the `__next__` of this class
        iterator = getattr(dataloader, "_BaseDataLoaderIter", None)
        loaders: dict[int, int] = {}  # id of an iterator -> number of its loader

        def number(it: Any) -> int:
            return loaders.get(id(it), -1)

        def iter_noted(was: Any) -> Any:
            @functools.wraps(was)
            def iterator_of(loader: Any) -> Any:
                __tracebackhide__ = True
                marks = self.marks
                if threading.get_ident() != marks.thread:
                    return was(loader)
                marks.begin(INPUT)
                of_loader = marks.number_of(loader)
                try:
                    made = was(loader)
                    loaders[id(made)] = of_loader
                    return made
                finally:
                    marks.end(INPUT, of_loader)

            return iterator_of

        self._replace(DataLoader, "__iter__", iter_noted)
        if iterator is not None and "__next__" in vars(iterator):
            self._replace(iterator, "__next__", lambda was: self._noted(was, INPUT, number))

    def _replace_scaling(self) -> None:
        """A step that the scaler leaves out, since a gradient was infinite, is a step of the loop all the same."""
        import torch

        scaler = getattr(torch.amp, "GradScaler", None)
        if scaler is None:
            return
        number = self.marks.number_of
        self._replace(scaler, "step", lambda was: self._noted(was, OPTIMIZER, lambda _, opt=None, *__: number(opt)))
        for name in ("unscale_", "update"):
            self._replace(scaler, name, lambda was: self._noted(was, OPTIMIZER))

    def _replace_transfer(self) -> None:
        """Only where there is a device to transfer to. A call that moved nothing is no transfer."""
        import torch

        if not torch.accelerator.is_available():
            return
        for name in ("to", "cuda", "cpu"):
            self._replace(torch.Tensor, name, lambda was: self._moved(was))

    def _moved(self, was: Any) -> Any:
        @functools.wraps(was)
        def moved(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            marks = self.marks
            if threading.get_ident() != marks.thread:
                return was(tensor, *args, **kwargs)
            marks.begin(TRANSFER)
            made = tensor
            try:
                made = was(tensor, *args, **kwargs)
                return made
            finally:
                marks.end(TRANSFER, int(made.device != tensor.device))

        return moved

    def _noted(self, was: Any, phase: int, fact: Callable[..., int] | None = None) -> Any:
        """``was`` with a mark before and after; ``fact`` tells from its arguments what the mark holds."""
        marks, thread, get_ident = self.marks, self.marks.thread, threading.get_ident

        @functools.wraps(was)
        def noted(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if get_ident() != thread:
                return was(*args, **kwargs)
            marks.begin(phase)
            try:
                return was(*args, **kwargs)
            finally:
                marks.end(phase, fact(*args) if fact is not None else -1)

        return noted

    def _watched_backward(self, was: Any) -> Any:
        """``torch.autograd.backward`` with its marks, between two looks at gradients.

        One frame more on the stack, as with every phase: a warning of torch's names the place that is so many frames
        above it.
        """
        marks, gradients = self.marks, self._gradients
        thread, get_ident = marks.thread, threading.get_ident

        @functools.wraps(was)
        def backward(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if get_ident() != thread:
                return was(*args, **kwargs)
            gradients.backward_begins()
            marks.begin(BACKWARD)
            try:
                return was(*args, **kwargs)
            finally:
                marks.end(BACKWARD, -1)
                gradients.backward_ends()

        return backward

    def _step_begins(self, was: Any) -> Any:
        """`record_function.__enter__` that tells of an optimizer's step."""
        begin_at, thread, get_ident, here = self.marks.begin_at, self.marks.thread, threading.get_ident, sys._getframe

        @functools.wraps(was)
        def entered(range_: Any) -> Any:
            if range_.name.startswith(_STEP_RANGE) and get_ident() == thread:
                begin_at(OPTIMIZER, here(1))
            return was(range_)

        return entered

    def _step_ends(self, was: Any) -> Any:
        """`record_function.__exit__` that does; a step that an exception ends was none."""
        marks, gradients, thread = self.marks, self._gradients, self.marks.thread
        get_ident, here = threading.get_ident, sys._getframe

        @functools.wraps(was)
        def left(range_: Any, kind: Any, error: Any, traceback: Any) -> Any:
            made = was(range_, kind, error, traceback)
            if range_.name.startswith(_STEP_RANGE) and get_ident() == thread:
                optimizer = here(1).f_locals.get("self") if kind is None else None
                if kind is None and gradients.stepped(optimizer):
                    marks.uncleared()
                marks.end(OPTIMIZER, marks.number_of(optimizer) if kind is None else -1)
            return made

        return left
