"""Hooks on what every training loop calls: modules, loaders, backward, optimizers, compiled functions."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from torchbench_magic.process.dynamo import Callbacks
from torchbench_magic.process.frame_owner import unlink_frame
from torchbench_magic.process.reach import is_users_module
from torchbench_magic.profiling import kineto

from .marks import BACKWARD, BATCH, FORWARD, INPUT, LOSS, OPTIMIZER, TRANSFER, ZERO_GRAD, LoopMarks, UnclearedGradients

# ---- training_hooks --------------------------------------------------------------------------------------------------
# Hooks on what every training loop calls: loaders, backward, optimizers, zero_grad, transfers, gradient scalers.
#
# Loops written by hand, Lightning, transformers' Trainer and accelerate all end up in these functions of torch. Each is
# replaced by one that writes a mark before and after; `stop` puts everything back. While ``torch.compile`` traces,
# nothing of this is there: its callbacks take it away and put it back.
#
# Nor is anything replaced that compiled code is guarded by: a compiled optimizer checks that torch's global hooks are
# as many as when it was traced, and that the function of ``step`` is the same, and would be compiled again. So its
# steps are told by the ranges that torch opens round each of them, which compiled code leaves out (`StepRanges`).

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
        import torch
        from torch import autograd, nn, optim

        put, noted, self._autograd = self._replace, self._noted, autograd
        self._engine = self._autograd._engine_run_backward
        put(autograd, "backward", lambda was: noted(was, BACKWARD, calls_engine=True, adds_gradients=True))
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
        range_type = kineto.range_type()
        put(range_type, "__enter__", self._ranges.entered)
        put(optim.Optimizer, "_optimizer_step_code", self._ranges.step_made)
        put(range_type, "__exit__", self._ranges.left)
        put(torch.enable_grad, "__enter__", self._ranges.gradients_on)
        put(torch.enable_grad, "__exit__", self._ranges.gradients_off)
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
        self,
        was: Any,
        phase: int,
        fact: Callable[..., int] | None = None,
        *,
        calls_engine: bool = False,
        adds_gradients: bool = False,
    ) -> Any:
        """``was`` with a mark before and after; ``fact`` tells from its arguments what the mark holds.

        One frame more on the stack, for ``torch.autograd.backward`` too, which ``adds_gradients`` between two looks at
        them: a warning of torch's names the place that is so many frames above it. A second one, of `_engine_called`,
        would have it name this one.
        """
        import torch

        begin, recent, extend, pack = self.marks.begin, self.marks.recent, self.marks.recent.extend, self.marks.pack
        thread, get_ident, here, now = self.marks.thread, threading.get_ident, sys._getframe, time.time_ns
        gradients = self._gradients
        of_tensor = getattr(torch.Tensor.backward, "__code__", None)  # that calls `backward`
        users: CodeType | None = None  # the user's code that called last

        @functools.wraps(was)
        def noted(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            nonlocal users
            if get_ident() != thread:
                return was(*args, **kwargs)
            if adds_gradients and gradients.watched:
                gradients.backward_begins()
            frame = here(1)
            if adds_gradients:
                gradients.depth += 1
                frame = here(2) if frame.f_code is of_tensor else frame
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
                if adds_gradients:
                    gradients.depth -= 1
                    if gradients.watched:
                        gradients.backward_ends()

        return noted

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


# ---- names_taken -----------------------------------------------------------------------------------------------------
# Names that code took of torch's functions while others stood in their place: ``from torch.autograd import grad`` in a
# profiled cell, or in a module that it imports.


def return_names(replaced: Mapping[int, tuple[Any, Any]], modules: int) -> None:
    """Let names of the notebook, and of users' modules that were imported since, mean what they would without us.

    Args:
        replaced: by id of what stood in a place: itself, and what was there before.
        modules: how many there were before.
    """
    for namespace in _namespaces(modules):
        for name, value in list(namespace.items()):
            found = replaced.get(id(value))
            if found is not None and found[0] is value:
                namespace[name] = found[1]


def _namespaces(modules: int) -> Iterator[dict[str, Any]]:
    """New modules stand at the end. All others are not asked whether they are users': that would be kept in memory."""
    yield vars(sys.modules["__main__"])
    for _, module in list(itertools.islice(sys.modules.items(), modules, None)):
        if is_users_module(module):
            yield vars(module)


# ---- compiled_calls --------------------------------------------------------------------------------------------------
# Calls of what ``torch.compile`` made of a function: which phases run within them is not seen.
#
# Compiled code calls no module, and its optimizer's step opens no range. So that the time is not taken for something
# else, each call that begins is written down, and what the compiler's own graphs call is no forward pass.
#
# Assumed of torch 2.13 and newer: each call of compiled code asks ``torch._dynamo.eval_frame._callback_from_stance``
# what compiles its frames, from a function whose variable ``fn`` is what is compiled. It runs outside of what is
# compiled and no guard looks at it. Where it is missing, profiles of loops do not say that they have compiled
# functions, nor that one was given up before them at a graph break.

_NAME = "_callback_from_stance"
_COMPILERS = tuple(os.sep + os.path.join("torch", part) + os.sep for part in ("_dynamo", "_functorch", "_inductor"))
_GRAPHS = os.sep + os.path.join("torch", "fx") + os.sep
_WRAPPERS = 4  # around a function that is compiled
_DEEPEST = 12  # frames of fx between a graph's call and who called it


def asker_of_compiled_calls() -> tuple[Any, str]:
    """(owner, name) of the function that is called as a compiled call begins; the owner is None before the compiler is
    imported."""
    return sys.modules.get("torch._dynamo.eval_frame"), _NAME


def calls_noted_at(was: Any, marks: LoopMarks) -> Any:
    """What takes its place."""
    compiled, thread, get_ident = marks.compiled, marks.thread, threading.get_ident
    asked, here = marks.asked, sys._getframe

    @functools.wraps(was)
    def noted(callback: Any) -> Any:
        __tracebackhide__ = True
        made = was(callback)
        if callable(callback) and get_ident() == thread:  # none and False: nothing is compiled
            compiled()
            if id(callback) not in asked and callable(made):
                asked[id(callback)] = callback, _code_of(here(1).f_locals.get("fn"))
        return made

    return noted


def _code_of(function: Any) -> CodeType | None:
    """The user's code of what is called: of a module its class's ``forward``."""
    for _ in range(_WRAPPERS):
        around, function = function, vars(function).get("__wrapped__") if isinstance(function, FunctionType) else None
        if function is None:
            function = around
            break
    of = function.__self__ if isinstance(function, MethodType) else function
    if isinstance(of, sys.modules["torch"].nn.Module):
        function = getattr(type(of), "forward", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def is_called_by_compiler(module: Any, frame: FrameType | None) -> bool:
    """Whether a module is a graph that the compiler made and calls: no module of the user's.

    Args:
        frame: that the module is called from.
    """
    graphs = sys.modules.get("torch.fx.graph_module")
    if graphs is None or not isinstance(module, graphs.GraphModule):
        return False
    for _ in range(_DEEPEST):
        if frame is None:
            return False
        file = frame.f_code.co_filename
        if _GRAPHS not in file:
            return any(part in file for part in _COMPILERS)
        frame = frame.f_back
    return False


# ---- outer_modules ---------------------------------------------------------------------------------------------------
# The outermost calls of nn.Modules: the forward passes of a loop, with what the modules and torch were set to.
#
# With lines, the line source reports the calls of modules (see `profiling.module_calls`), and those within no other are
# written down here. Without, ``nn.Module.__call__`` is replaced for the time of the run; hooks would be traced by
# ``torch.compile`` and cost more.

TRAINING, GRAD, VARIES = 1, 2, 4
"""Flags of a call: the module is in training mode; it records a graph (gradients are on, and it has parameters that
want them); it has parts to which training mode makes a difference (dropout, batch norm)."""


class OuterCalls:
    """Writes the outermost calls of modules on the thread of ``marks``.

    Attributes:
        known: by id of a module, (itself, its phase, its kept flags).
    """

    def __init__(self, marks: LoopMarks) -> None:
        import torch

        self._marks = marks
        self.known: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._is_grad_enabled = torch.is_grad_enabled
        self._phase = 0  # of the outermost call that runs
        self.depth = 0

    def enter(self, module: Any, frame: FrameType | None) -> None:
        """Any module is called, from ``frame``."""
        if threading.get_ident() != self._marks.thread:
            return
        self.depth += 1
        if self.depth == 1:
            self._phase = 0
            if frame is not None and (phase := self.known_of(module, frame)[0]):
                self._phase = phase
                self._marks.begin(phase, frame)

    def leave(self, module: Any) -> None:
        if threading.get_ident() != self._marks.thread or not self.depth:
            return
        self.depth -= 1
        if not self.depth and self._phase:
            phase, kept = self.known_of(module, None)
            self._marks.end(phase, flags_of(module, kept, self._is_grad_enabled()))

    def known_of(self, module: Any, frame: FrameType | None) -> tuple[int, int]:
        """The phase of a module (0: a graph of the compiler's) called from ``frame``, and its kept flags.

        A plain dict: a weak one costs four times as much, since a step of torch leaves the processor's caches cold.
        """
        known = self.known.get(id(module))
        if known is not None and known[0]() is module:
            return known[1], known[2]
        if is_called_by_compiler(module, frame):
            phase, kept = 0, 0
        else:
            phase = phase_of(module)
            kept = (VARIES if _varies(module) else 0) | (GRAD if _learns(module) else 0)
        with contextlib.suppress(TypeError):  # a user's module that takes no weak reference
            self.known[id(module)] = weakref.ref(module), phase, kept
        return phase, kept


def flags_of(module: Any, kept: int, is_grad_enabled: bool) -> int:
    """What a call was made with; of a module's parts and parameters what they were at its first call."""
    flags = kept if is_grad_enabled else kept & ~GRAD
    return flags | TRAINING if getattr(module, "training", False) else flags


def phase_of(module: Any) -> int:
    """A module that computes a loss is one of torch's, or says so by its name."""
    kind = type(module)
    return LOSS if kind.__module__ == "torch.nn.modules.loss" or kind.__name__.endswith("Loss") else FORWARD


def _varies(module: Any) -> bool:
    """Whether training mode and evaluation mode give different results."""
    from torch.nn.modules import batchnorm, dropout

    try:
        parts = list(module.modules())
    except Exception:  # noqa: BLE001  # a user's override may do anything
        return False
    for part in parts:
        if isinstance(part, batchnorm._BatchNorm) and part.track_running_stats:
            return True
        if isinstance(part, dropout._DropoutNd) and part.p > 0:
            return True
    return False


def _learns(module: Any) -> bool:
    try:
        return any(each.requires_grad for each in module.parameters())
    except Exception:  # noqa: BLE001  # as above
        return False


def calls_noted(original: Any, marks: LoopMarks, outer: OuterCalls) -> Any:
    """What takes the place of ``nn.Module.__call__``. A step may call hundreds of modules: for those within another it
    does next to nothing."""
    import torch

    get_ident, thread, here, is_grad_enabled = threading.get_ident, marks.thread, sys._getframe, torch.is_grad_enabled
    begin, recent, extend, pack, now = marks.begin, marks.recent, marks.recent.extend, marks.pack, time.time_ns
    known_of, known_as = outer.known_of, outer.known.get
    users: CodeType | None = None  # the user's code that called last

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        __tracebackhide__ = True
        nonlocal users
        if outer.depth or get_ident() != thread:
            return original(self, *args, **kwargs)
        frame, known = here(1), known_as(id(self))
        if known is not None and known[0]() is self:
            _, phase, kept = known
        else:
            phase, kept = known_of(self, frame)
        if not phase:
            return original(self, *args, **kwargs)
        outer.depth = 1  # not a cell: a compilation in the call leaves this function for a new one
        try:
            if frame.f_code is users:
                extend((now(), phase, frame.f_lasti, users))
            else:
                users = frame.f_code if begin(phase, frame) is frame else None
            return original(self, *args, **kwargs)
        except BaseException as error:
            unlink_frame(error)
            raise
        finally:
            outer.depth = 0
            extend((now(), -phase, -1, flags_of(self, kept, is_grad_enabled())))
            if len(recent) >= BATCH:
                pack()

    return __call__


# ---- step_ranges -----------------------------------------------------------------------------------------------------
# Optimizers' steps, by the ranges that torch opens round them for profilers.
#
# `record_function` calls `entered` and `left` instead of its own methods, which they call. Assumed of torch 2.13 and
# newer: the wrapper that torch puts round ``step`` of every class of optimizers, the users' own too, runs it in a range
# of the name of `_STEP`, and then calls the optimizer's ``_optimizer_step_code`` in it (there for profilers). Ranges of
# that name which other code opens are none of these.
#
# Optimizers step with gradients off, and put them on for their closure: all of torch's do so by `enable_grad`. So that
# tells when the closure of a step runs, however often.

_STEP = "Optimizer.step#"


class StepRanges:
    """Writes steps into ``marks``, on the thread that made them. A step that an exception ends was none."""

    def __init__(self, marks: LoopMarks, gradients: UnclearedGradients) -> None:
        self._marks = marks
        self._gradients = gradients
        # each within the one before: range, the user's caller, the frame of torch's wrapper
        self._running: list[tuple[Any, FrameType | None, FrameType]] = []
        self._closures: list[tuple[Any, Any]] = []  # that run: the range of the step, what put gradients on
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
                wrapper, frame = here(1), here(2)
                caller: FrameType | None = frame
                if frame.f_code is users:
                    extend((now(), OPTIMIZER, frame.f_lasti, users))
                else:
                    caller = begin(OPTIMIZER, frame)
                    users = frame.f_code if caller is frame else None
                running.append((range_, caller, wrapper))
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

    def gradients_on(self, was: Any) -> Any:
        """``enable_grad.__enter__``"""
        marks, running, closures = self._marks, self._running, self._closures
        thread, get_ident = marks.thread, threading.get_ident

        @functools.wraps(was)
        def gradients_on(context: Any) -> Any:
            result = was(context)
            if running and get_ident() == thread:
                step, _, wrapper = running[-1]
                is_inside = bool(closures) and closures[-1][0] is step  # the closure's own
                if not is_inside and _has_closure(wrapper):
                    closures.append((step, context))
                    marks.closure(begins=True)
            return result

        return gradients_on

    def gradients_off(self, was: Any) -> Any:
        """``enable_grad.__exit__``"""
        marks, closures = self._marks, self._closures

        @functools.wraps(was)
        def gradients_off(context: Any, *error: Any) -> Any:
            if closures and closures[-1][1] is context:
                closures.pop()
                marks.closure(begins=False)
            return was(context, *error)

        return gradients_off

    def _step_ends(self, optimizer: Any, caller: FrameType | None) -> tuple[int, tuple[int, int, int]]:
        """The number of the optimizer that has made a step, and where: called from this frame."""
        number, gradients = self._marks.number_of(optimizer), self._gradients
        key = (number, id(caller.f_code), caller.f_lasti) if caller is not None else (number, 0, 0)
        if number >= 0 and key not in gradients.left_alone and gradients.stepped(optimizer, key):
            self._marks.uncleared()
        return number, key


def _has_closure(wrapper: FrameType) -> bool:
    """Whether a step was called with one, by the frame of the wrapper that torch puts round it."""
    given = wrapper.f_locals
    return len(given.get("args", ())) > 1 or given.get("kwargs", {}).get("closure") is not None


def _code_round_steps() -> CodeType:
    """Of the wrapper that torch puts round each ``step``."""
    from torch.optim import Optimizer

    code: CodeType = Optimizer.profile_hook_step(lambda: None).__code__
    return code
