"""Tracebacks as the user would see them without a magic.

An exception of the measured code passes through the frames of this package on its way up. IPython would show
them (or a note that it hides some), and after a syntax error the whole way through its own machinery. Both of
its formatters are wrapped here: our frames are unlinked, and of the cell's own frames the one that stands on the
magic line goes too where the next one stands in the same cell. Groups of exceptions IPython leaves to Python to
print, which asks no formatter: so the shell's `showtraceback` is wrapped too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from traceback import FrameSummary
from types import TracebackType
from typing import Any

from torchbench_magic.errors import TorchBenchError

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_Format = Callable[..., list[str]]
_CALLERS = {"run_cell_magic", "run_line_magic"}


class Tracebacks:
    """Wraps how one shell shows tracebacks until closed."""

    def __init__(self, shell: Any, is_cell: Callable[[str], bool]) -> None:
        self._wrappers: list[tuple[Any, str, Callable[..., Any]]] = [
            (shell.InteractiveTB, "structured_traceback", partial(_formatted, is_cell)),
            (shell.SyntaxTB, "structured_traceback", _formatted_syntax_error),
            (shell, "showtraceback", partial(_shown, is_cell)),
        ]
        self._wrapped: list[tuple[Any, str, Any]] = []

    def open(self) -> None:
        for owner, method, wrapper in self._wrappers:
            ours = partial(wrapper, getattr(owner, method))
            setattr(owner, method, ours)
            self._wrapped.append((owner, method, ours))

    def close(self) -> None:
        for owner, method, ours in self._wrapped:
            if vars(owner).get(method) is ours:
                delattr(owner, method)
        self._wrapped.clear()


def unlink_own_frames(
    error: type[BaseException] | None, tb: TracebackType | None, is_cell: Callable[[str], bool]
) -> TracebackType | None:
    """``tb`` with the frames of this package unlinked.

    Unchanged when there are none, and when the last one did not call a cell's code: then this package is what
    failed, and its frames are needed (an interrupt excepted, which may come at any moment). An error of its own that
    a cell's call of its functions raises says all in its line.
    """
    entries: list[TracebackType] = []
    while tb is not None:
        entries.append(tb)
        tb = tb.tb_next
    own = [index for index, entry in enumerate(entries) if _is_own(entry.tb_frame.f_code.co_filename)]
    interrupted = error is not None and issubclass(error, KeyboardInterrupt)
    inner = entries[own[-1] + 1 :] if own else []
    if own and own[0] and not inner and error is not None and issubclass(error, TorchBenchError):
        if is_cell(_file(entries[own[0] - 1])):
            entries[own[0] - 1].tb_next = None
        return entries[0]
    if not own or not (interrupted or (inner and is_cell(_file(inner[0])))):
        return entries[0] if entries else None
    outer = entries[: own[0]]
    while outer and outer[-1].tb_frame.f_code.co_name in _CALLERS:
        outer.pop()
    if outer and inner and _file(outer[-1]) == _file(inner[0]):
        outer.pop()  # the magic line of the same cell
    kept = outer + inner
    for entry, following in zip(kept, [*kept[1:], None], strict=True):
        entry.tb_next = following
    return kept[0] if kept else None


def _formatted(
    is_cell: Callable[[str], bool],
    original: _Format,
    etype: Any,
    evalue: Any,
    etb: Any,
    *args: Any,
    **kwargs: Any,
) -> list[str]:
    return original(etype, evalue, unlink_own_frames(etype, etb, is_cell), *args, **kwargs)


def _shown(
    is_cell: Callable[[str], bool], original: Callable[..., None], exc_tuple: Any = None, *args: Any, **kwargs: Any
) -> None:
    """The frames are unlinked in place, where Python's own printing finds the traceback too."""
    error, _, tb = exc_tuple or sys.exc_info()
    unlink_own_frames(error, tb, is_cell)
    original(exc_tuple, *args, **kwargs)


def _formatted_syntax_error(
    original: _Format, etype: Any, evalue: Any, entries: Any, *args: Any, **kwargs: Any
) -> list[str]:
    """Syntax errors come with a list of frame summaries; one of our own compiling shows none, as a cell's does."""
    own = [at for at, entry in enumerate(entries) if isinstance(entry, FrameSummary) and _is_own(entry.filename)]
    return original(etype, evalue, entries[own[-1] + 1 :] if own else entries, *args, **kwargs)


def _is_own(file: str) -> bool:
    return file.startswith(_PACKAGE)


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename
