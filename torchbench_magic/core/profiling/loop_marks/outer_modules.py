"""The outermost calls of nn.Modules: the forward passes of a loop, with what the modules and torch were set to.

With lines, the line source reports the calls of modules (see `recording.module_calls`), and those within no other are
written down here. Without, ``nn.Module.__call__`` is replaced for the time of the run; hooks would be traced by
``torch.compile`` and cost more.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from types import CodeType, FrameType
from typing import Any

from torchbench_magic.core.code.own_frames import unlink_frame

from .compiled_calls import is_called_by_compiler
from .marks import BATCH, FORWARD, LOSS, LoopMarks

__all__ = ["GRAD", "TRAINING", "VARIES", "OuterCalls", "calls_noted"]

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
            phase, kept = phase_of(module), _kept_flags(module)
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


def _kept_flags(module: Any) -> int:
    return (VARIES if _varies(module) else 0) | (GRAD if _learns(module) else 0)


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
