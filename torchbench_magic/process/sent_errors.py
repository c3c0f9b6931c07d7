"""An exception on its way from another process, with the lines that it came through there; raised here from them."""

from __future__ import annotations

import contextlib
import keyword
import pickle
from collections.abc import Sequence
from functools import partial
from traceback import walk_tb
from typing import Any, NoReturn

from torchbench_magic.errors import BodyError

from .frame_owner import without_own_frames

Lines = list[tuple[str, int, str]]
SentError = tuple[bytes | None, str, str, Lines]
"""Pickled, where it can be; name of its class; its text; (file, line, function) outermost first."""


class RaisedThere(Exception):
    """The code, or this package, raised in the interpreter.

    Attributes:
        error: what was raised; where that cannot travel, a `BodyError` with its name and text.
        lines: (file, line, function) that it came through, outermost first.
    """

    def __init__(self, error: BaseException, lines: Sequence[tuple[str, int, str]]) -> None:
        super().__init__(str(error))
        self.error, self.lines = error, lines


def sent_error(error: BaseException) -> SentError:
    """What travels of it."""
    return _pickled(error), type(error).__name__, _text(error), _lines(error)


def raised_there(pickled: bytes | None, kind: str, message: str, lines: Sequence[tuple[str, int, str]]) -> RaisedThere:
    """What `sent_error` made, to be raised."""
    return RaisedThere(_raised(pickled, kind, message), lines)


def _raised(pickled: bytes | None, kind: str, message: str) -> BaseException:
    with contextlib.suppress(Exception):  # a class of the user's that does not unpickle
        error = pickle.loads(pickled) if pickled is not None else None
        if isinstance(error, BaseException):
            return error
    return BodyError(f"{kind}: {message}" if message else kind)


def _pickled(error: BaseException) -> bytes | None:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(error)
    except Exception:  # noqa: BLE001  (an exception that holds what cannot be sent)
        return None
    return data


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception:  # noqa: BLE001  (a user's __str__)
        return ""


def _lines(error: BaseException) -> list[tuple[str, int, str]]:
    """(file, line, name) of the frames that are not this package's, outermost first."""
    shown = walk_tb(without_own_frames(error.__traceback__))
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in shown]


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
