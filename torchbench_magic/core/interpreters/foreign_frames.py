"""An exception of another process raised here, from the lines that it came through there."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

__all__ = ["raise_at"]

_MOST = 30
"""Frames; of a deeper recursion the innermost."""


def raise_at(lines: Sequence[tuple[str, int, str]], error: BaseException) -> NoReturn:
    """Raise ``error`` with a frame for each of the lines: its traceback shows them as one of this process would.

    Each frame is that of code which stands in that line of that file and does nothing but call the next one; the last
    one raises, so that no frame of this package comes after the user's.

    Args:
        lines: (file, line, name of the function), outermost first.
    """

    names: dict[str, Any] = {"error": error, "__name__": "__main__"}
    call, text = None, "raise error from None"  # what led to it stayed in the other process
    for file, line, name in reversed(lines[-_MOST:]):
        code = compile("\n" * (line - 1) + text, file, "exec")
        if name.isidentifier() and not keyword.iskeyword(name):
            code = code.replace(co_name=name, co_qualname=name)
        call = partial(exec, code, names)  # without a frame of its own
        names, text = {"call": call, "__name__": "__main__"}, "call()"
    if call is not None:
        call()
    raise error from None
