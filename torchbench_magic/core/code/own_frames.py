"""The frames of this package in a traceback that is the user's: unlinked where a script's entrance hands it on.

An exception that is raised again (a bare ``raise``) gets no new entry for the frame that does so: with the entrance's
own entry taken out before, none of this package is left.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Collection, Mapping
from types import TracebackType

__all__ = ["PROFILED_CELL", "unlink_frame", "users_traceback", "without_own_frames"]

PROFILED_CELL = "<profiled cell>"
"""File of the text of a cell that an insight holds, in tracebacks."""

_PACKAGE = __name__.partition(".")[0]


def without_own_frames(traceback: TracebackType | None, files: Collection[str] = ()) -> TracebackType | None:
    """The traceback without this package's frames: those that called the body, and the trace function in which
    a Ctrl-C may have come.

    Args:
        files: file names of code that this package wrote, whose frames go too.
    """
    frames = []
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] != _PACKAGE and traceback.tb_frame.f_code.co_filename not in files:
            frames.append(traceback)
        traceback = traceback.tb_next
    for outer, inner in itertools.pairwise(frames):
        outer.tb_next = inner
    if frames:
        frames[-1].tb_next = None
    return frames[0] if frames else None


def unlink_frame(error: BaseException) -> None:
    """Take the calling frame, one of this package's, out of the traceback of an exception that it has caught and raises
    again with a bare ``raise``: the user's code may print it on its way."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def users_traceback(
    error: BaseException, texts: Mapping[str, str], calls: Collection[str] = ()
) -> TracebackType | None:
    """The traceback of an exception of the user's statements without this package's frames; that of any other error
    as it is.

    Args:
        texts: file name of each statement -> its text, which the traceback is to show.
        calls: those of them that only call what the user gave: they are left out.
    """
    files = set()
    entry = error.__traceback__
    while entry is not None:
        files.add(entry.tb_frame.f_code.co_filename)
        entry = entry.tb_next
    is_of_texts = isinstance(error, SyntaxError) and error.filename in texts
    if not (files & texts.keys() or is_of_texts or isinstance(error, KeyboardInterrupt)):
        return error.__traceback__
    for file in files & texts.keys():
        text = texts[file]
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    return without_own_frames(error.__traceback__, calls)
