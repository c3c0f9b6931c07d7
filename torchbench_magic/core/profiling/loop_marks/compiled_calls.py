"""Calls of what ``torch.compile`` made of a function: which phases run within them is not seen.

Compiled code calls no module, and its optimizer's step opens no range. So that the time is not taken for something
else, each call that begins is written down, and what the compiler's own graphs call is no forward pass.

Assumed of torch 2.13 and newer: each call of compiled code asks ``torch._dynamo.eval_frame._callback_from_stance`` what
compiles its frames, from a function whose variable ``fn`` is what is compiled. It runs outside of what is compiled and
no guard looks at it. Where it is missing, profiles of loops do not say that they have compiled functions, nor that one
was given up before them at a graph break.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from .marks import LoopMarks

__all__ = ["asker_of_compiled_calls", "calls_noted_at", "is_called_by_compiler"]

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
