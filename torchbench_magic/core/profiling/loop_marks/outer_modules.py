"""The outermost calls of nn.Modules: the forward passes of a loop, with what the modules and torch were set to.

With lines, the line source reports the calls of modules (see `recording.module_calls`), and those within no other are
written down here. Without, ``nn.Module.__call__`` is replaced for the time of the run: 0.25 us a call; hooks would be
traced by ``torch.compile`` and cost more.
"""

from __future__ import annotations

import sys
import threading
import weakref
from types import FrameType
from typing import Any

from .marks import FORWARD, LOSS, LoopMarks

__all__ = ["GRAD", "TRAINING", "VARIES", "OuterCalls", "calls_noted"]

TRAINING, GRAD, VARIES = 1, 2, 4
"""Flags of a call: the module is in training mode; it records a graph (gradients are on, and it has parameters that
want them); it has parts to which training mode makes a difference (dropout, batch norm)."""


class OuterCalls:
    """Writes the outermost calls of modules on the thread of ``marks``."""

    def __init__(self, marks: LoopMarks) -> None:
        self._marks = marks
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.depth = 0

    def enter(self, module: Any, frame: FrameType | None) -> None:
        """Any module is called, from ``frame``."""
        if threading.get_ident() != self._marks.thread:
            return
        self.depth += 1
        if self.depth == 1:
            self._marks.begin_at(phase_of(module), frame)

    def leave(self, module: Any) -> None:
        if threading.get_ident() != self._marks.thread or not self.depth:
            return
        self.depth -= 1
        if not self.depth:
            self._marks.end(phase_of(module), self.flags(module))

    def flags(self, module: Any) -> int:
        """What the call was made with; of a module's parts and parameters what they were at its first call."""
        import torch

        known = self._known_of(module)
        grad = known & GRAD if torch.is_grad_enabled() else 0
        return (known & VARIES) | (TRAINING if getattr(module, "training", False) else 0) | grad

    def _known_of(self, module: Any) -> int:
        try:
            known = self._known.get(module)
            if known is None:
                known = self._known[module] = _kept_flags(module)
        except TypeError:  # a user's module that cannot be hashed
            return _kept_flags(module)
        return known


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
    """What takes the place of ``nn.Module.__call__``."""
    get_ident, thread = threading.get_ident, marks.thread

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        __tracebackhide__ = True
        if outer.depth or get_ident() != thread:
            return original(self, *args, **kwargs)
        outer.enter(self, sys._getframe(1))
        try:
            return original(self, *args, **kwargs)
        finally:
            outer.leave(self)

    return __call__
