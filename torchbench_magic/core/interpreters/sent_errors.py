"""An exception on its way from another process, with the lines that it came through there."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence

from torchbench_magic.errors import BodyError

__all__ = ["RaisedThere", "SentError", "raised_there", "sent_error"]

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
    from torchbench_magic.core.code.own_frames import without_own_frames

    lines, traceback = [], without_own_frames(error.__traceback__)
    while traceback is not None:
        code = traceback.tb_frame.f_code
        lines.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return lines
