"""Hooks on what every training loop calls: loaders, backward, optimizers, zero_grad, transfers, gradient scalers.

Loops written by hand, Lightning, transformers' Trainer and accelerate all end up in these functions of torch. Each is
replaced by one that writes a mark before and after; `stop` puts everything back. While ``torch.compile`` traces,
nothing of this is there: its callbacks take it away and put it back.

Nor is anything replaced that compiled code is guarded by: a compiled optimizer checks that torch's global hooks are as
many as when it was traced, and that the function of ``step`` is the same, and would be compiled again. So its steps are
told by the ranges that torch opens round each of them, which compiled code leaves out (`step_ranges`).
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from torchbench_magic.core.code.own_frames import unlink_frame
from torchbench_magic.core.compiler.dynamo import Callbacks

from ..torch_events import torch_profiler
from .compiled_calls import asker_of_compiled_calls, calls_noted_at
from .marks import BACKWARD, BATCH, INPUT, OPTIMIZER, TRANSFER, ZERO_GRAD, LoopMarks
from .names_taken import return_names
from .outer_modules import OuterCalls, calls_noted
from .step_ranges import StepRanges
from .uncleared_gradients import UnclearedGradients

__all__ = ["TrainingHooks"]

_MISSING = object()


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
        self._ranges = StepRanges(marks, self._gradients)
        self._put: list[tuple[Any, str, Any, Any]] = []  # owner, name, what was there, what we put
        self._ours: dict[int, tuple[Any, Any]] = {}  # by id of what we put at any time: itself, what was there
        self._pause = Callbacks(lambda _: self._leave(), lambda _: self._enter())
        self._modules = len(sys.modules)
        self._is_on = False
        self._autograd: Any = None
        self._engine: Any = None

    def start(self) -> None:
        """Everything is put in place, or nothing."""
        try:
            self._modules = len(sys.modules)
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
        return_names(self._ours, self._modules)
        self._ours = {}

    def _enter(self) -> None:
        if not self._is_on or self._put:
            return
        from torch import autograd, nn, optim

        put, noted, self._autograd = self._replace, self._noted, autograd
        self._engine = self._autograd._engine_run_backward
        put(autograd, "backward", self._watched_backward)
        put(autograd, "grad", lambda was: noted(was, BACKWARD, calls_engine=True))
        # assumed of torch 2.13 and newer: what both call, also by names that the user's code took before the run
        put(autograd, "_engine_run_backward", self._engine_called)
        put(optim.Optimizer, "zero_grad", lambda was: noted(was, ZERO_GRAD))
        put(nn.Module, "zero_grad", lambda was: noted(was, ZERO_GRAD))
        self._replace_loading()
        self._replace_scaling()
        self._replace_transfer()
        if self._with_modules:
            put(nn.Module, "__call__", lambda was: calls_noted(was, self.marks, self.outer))
        range_type = torch_profiler.range_type()
        put(range_type, "__enter__", self._ranges.entered)
        put(optim.Optimizer, "_optimizer_step_code", self._ranges.step_made)
        put(range_type, "__exit__", self._ranges.left)
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
        self._ours[id(new)] = new, there

    def _replace_loading(self) -> None:
        """Iterators of loaders, those that were made before the run too, and the making of one: it starts workers."""
        from torch.utils.data import DataLoader, dataloader

        # assumed of torch 2.13 and newer: all iterators of a DataLoader have the `__next__` of this class
        iterator = getattr(dataloader, "_BaseDataLoaderIter", None)
        loaders: dict[int, int] = {}  # id of an iterator -> number of its loader
        number, begin, end = loaders.get, self.marks.begin, self.marks.end
        thread, get_ident, here = self.marks.thread, threading.get_ident, sys._getframe

        def iter_noted(was: Any) -> Any:
            @functools.wraps(was)
            def iterator_of(loader: Any) -> Any:
                __tracebackhide__ = True
                if get_ident() != thread:
                    return was(loader)
                begin(INPUT, here(1))
                of_loader = self.marks.number_of(loader)
                try:
                    made = was(loader)
                    loaders[id(made)] = of_loader
                    return made
                except BaseException as error:
                    unlink_frame(error)
                    raise
                finally:
                    end(INPUT, of_loader)

            return iterator_of

        self._replace(DataLoader, "__iter__", iter_noted)
        if iterator is not None and "__next__" in vars(iterator):
            self._replace(iterator, "__next__", lambda was: self._noted(was, INPUT, lambda it: number(id(it), -1)))

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
            marks.begin(TRANSFER, sys._getframe(1))
            made = tensor
            try:
                made = was(tensor, *args, **kwargs)
                return made
            except BaseException as error:
                unlink_frame(error)
                raise
            finally:
                marks.end(TRANSFER, int(made.device != tensor.device))

        return moved

    def _noted(
        self, was: Any, phase: int, fact: Callable[..., int] | None = None, *, calls_engine: bool = False
    ) -> Any:
        """``was`` with a mark before and after; ``fact`` tells from its arguments what the mark holds."""
        begin, recent, extend, pack = self.marks.begin, self.marks.recent, self.marks.recent.extend, self.marks.pack
        thread, get_ident, here, now = self.marks.thread, threading.get_ident, sys._getframe, time.time_ns
        users: CodeType | None = None  # the user's code that called last

        @functools.wraps(was)
        def noted(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            nonlocal users
            if get_ident() != thread:
                return was(*args, **kwargs)
            frame = here(1)
            if frame.f_code is users:
                extend((now(), phase, frame.f_lasti, users))
            else:
                users = frame.f_code if begin(phase, frame) is frame else None
            ours = self._engine_taken() if calls_engine else None
            try:
                return was(*args, **kwargs)
            except BaseException as error:
                unlink_frame(error)
                raise
            finally:
                if ours is not None:
                    self._engine_returned(ours)
                extend((now(), -phase, -1, fact(*args) if fact is not None else -1))
                if len(recent) >= BATCH:
                    pack()

        return noted

    def _watched_backward(self, was: Any) -> Any:
        """``torch.autograd.backward`` with its marks, between two looks at gradients.

        One frame more on the stack, as with every phase: a warning of torch's names the place that is so many frames
        above it. A second one, of `_engine_called`, would have it name this one.
        """
        import torch

        begin, recent, extend, pack = self.marks.begin, self.marks.recent, self.marks.recent.extend, self.marks.pack
        thread, get_ident, here, now = self.marks.thread, threading.get_ident, sys._getframe, time.time_ns
        gradients = self._gradients
        of_tensor = getattr(torch.Tensor.backward, "__code__", None)  # that calls it
        users: CodeType | None = None  # the user's code that called last

        @functools.wraps(was)
        def backward(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            nonlocal users
            if get_ident() != thread:
                return was(*args, **kwargs)
            if gradients.watched:
                gradients.backward_begins()
            gradients.depth += 1
            frame = here(1)
            if frame.f_code is of_tensor:
                frame = here(2)
            if frame.f_code is users:
                extend((now(), BACKWARD, frame.f_lasti, users))
            else:
                users = frame.f_code if begin(BACKWARD, frame) is frame else None
            ours = self._engine_taken()
            try:
                return was(*args, **kwargs)
            except BaseException as error:
                unlink_frame(error)
                raise
            finally:
                self._engine_returned(ours)
                extend((now(), -BACKWARD, -1, -1))
                if len(recent) >= BATCH:
                    pack()
                gradients.depth -= 1
                if gradients.watched:
                    gradients.backward_ends()

        return backward

    def _engine_taken(self) -> Any:
        """Torch's own engine, for a call that is noted already: what `_engine_called` put is handed out."""
        ours, self._autograd._engine_run_backward = self._autograd._engine_run_backward, self._engine
        return ours

    def _engine_returned(self, ours: Any) -> None:
        if self._put and self._autograd._engine_run_backward is self._engine:  # the hooks did not leave meanwhile
            self._autograd._engine_run_backward = ours

    def _engine_called(self, was: Any) -> Any:
        """What ``backward`` and ``grad`` of torch call, with marks where they were not called through our own."""
        marks, gradients, get_ident, here = self.marks, self._gradients, threading.get_ident, sys._getframe

        @functools.wraps(was)
        def engine_called(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            is_first = not gradients.depth and get_ident() == marks.thread
            adds = is_first and bool(kwargs.get("accumulate_grad"))
            if adds:
                gradients.backward_begins()
            if is_first:
                gradients.depth += 1
                marks.begin(BACKWARD, here(1))
            try:
                return was(*args, **kwargs)
            except BaseException as error:
                unlink_frame(error)
                raise
            finally:
                if is_first:
                    marks.end(BACKWARD)
                    gradients.depth -= 1
                if adds:
                    gradients.backward_ends()

        return engine_called
