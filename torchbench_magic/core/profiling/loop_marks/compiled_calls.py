"""Calls of what ``torch.compile`` made of a function: which phases run within them is not seen.

Compiled code calls no module, and its optimizer's step opens no range. So that the time is not taken for something
else, each call that begins is written down, and what the compiler's own graphs call is no forward pass.

Assumed of torch 2.13 and newer: each call of compiled code asks ``torch._dynamo.eval_frame._callback_from_stance`` what
compiles its frames. It runs outside of what is compiled and no guard looks at it. Where it is missing, profiles of
loops do not say that they have compiled functions.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from types import FrameType
from typing import Any

from .marks import LoopMarks

__all__ = ["asker_of_compiled_calls", "calls_noted_at", "is_called_by_compiler"]

_NAME = "_callback_from_stance"
_COMPILERS = tuple(os.sep + os.path.join("torch", part) + os.sep for part in ("_dynamo", "_functorch", "_inductor"))
_GRAPHS = os.sep + os.path.join("torch", "fx") + os.sep
_DEEPEST = 12  # frames of fx between a graph's call and who called it


def asker_of_compiled_calls() -> tuple[Any, str]:
    """(owner, name) of the function that is called as a compiled call begins; the owner is None before the compiler is
    imported."""
    return sys.modules.get("torch._dynamo.eval_frame"), _NAME


def calls_noted_at(was: Any, marks: LoopMarks) -> Any:
    """What takes its place."""
    compiled, thread, get_ident = marks.compiled, marks.thread, threading.get_ident

    @functools.wraps(was)
    def noted(callback: Any) -> Any:
        __tracebackhide__ = True
        if callable(callback) and get_ident() == thread:  # none and False: nothing is compiled
            compiled()
        return was(callback)

    return noted


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
