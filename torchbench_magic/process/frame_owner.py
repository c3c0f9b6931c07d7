"""Whose code a frame is of: the user's, a library's or this package's."""

from __future__ import annotations

import itertools
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from pathlib import Path
from traceback import walk_tb
from types import FunctionType, ModuleType, TracebackType

# ---- library_files ---------------------------------------------------------------------------------------------------
# Whose a file is: a library's or the user's.
#
# A library's is what Python and its installers put where they put things: the standard library, as files or as a zip,
# and every folder called site-packages or dist-packages; and this package. All else is the user's: cells, files beside
# the notebook, editable installs. The rest of ``sys.prefix`` is the user's too, for projects stand there: an
# environment may be made in the folder of a project, a container has its code in ``/usr/local``, pip puts repositories
# into ``src``.
#
# From that follows which functions of a library's module the user has put there (``F.linear = mine``).

_OUR_FOLDER = str(Path(__file__).parents[1])
_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3\.\d+t?|python3\d+t?\.zip)[/\\]")
"""Folders of libraries by their names alone, on any machine."""
_OFTEN_REPLACED = ("torch", "torch.nn.functional", "numpy")
"""Modules whose functions other libraries call too."""


def is_users_file(file: str | None) -> bool:
    """Whether there is such a file, or name of a cell, and no library's."""
    return file is not None and not is_library_file(file)


def is_own_error(error: BaseException) -> bool:
    """Whether an exception was raised in this package with no code of the user's under way."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    return any(file.startswith(_OUR_FOLDER) for file in files) and not any(map(is_users_file, files))


@lru_cache(maxsize=1 << 15)
def is_library_file(file: str) -> bool:
    """Whether code of this file name is a library's.

    Links are followed for its folder, not for the file itself: single files that an installer links into site-packages
    are installed; a project's folder that is linked there is an editable install.
    """
    if file.startswith("<"):
        return file.startswith("<frozen")
    return _is_library_folder(os.path.dirname(file))


def is_library_path(file: str) -> bool:
    """The same as far as the path itself says it: of a file of another machine."""
    return _INSTALLED.search(f"/{file}") is not None


@lru_cache(maxsize=1 << 15)
def _is_library_folder(folder: str) -> bool:
    real = os.path.realpath(folder) + os.sep
    return is_library_path(real) or real.startswith(_folders())


@cache
def _folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    every = (_OUR_FOLDER, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")))
    return tuple({os.path.realpath(path) + os.sep for path in every})


def often_replaced() -> list[ModuleType]:
    """The modules whose functions are replaced most often."""
    return [module for module in map(sys.modules.get, _OFTEN_REPLACED) if type(module) is ModuleType]


def replaced_functions(module: ModuleType) -> list[tuple[str, FunctionType]]:
    """(name such as ``torch.nn.functional.linear``, what stands there) of the user's functions in a library's module;
    none in the user's own."""
    functions = [(name, value) for name, value in vars(module).items() if type(value) is FunctionType]
    users = set(filter(is_users_file, {value.__code__.co_filename for _, value in functions}))
    if not users or is_users_file(vars(module).get("__file__")):
        return []
    return [(f"{module.__name__}.{name}", value) for name, value in functions if value.__code__.co_filename in users]


# ---- own_frames ------------------------------------------------------------------------------------------------------
# The frames of this package in a traceback that is the user's: unlinked where a script's entrance hands it on.
#
# An exception that is raised again (a bare ``raise``) gets no new entry for the frame that does so: with the entrance's
# own entry taken out before, none of this package is left.

PROFILED_CELL = "<profiled cell>"
"""File of the text of a cell that an insight holds, in tracebacks."""

_OUR_PACKAGE = __name__.partition(".")[0]


def without_own_frames(traceback: TracebackType | None, files: Collection[str] = ()) -> TracebackType | None:
    """The traceback without this package's frames: those that called the body, and the trace function in which
    a Ctrl-C may have come.

    Args:
        files: file names of code that this package wrote, whose frames go too.
    """
    frames = []
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] != _OUR_PACKAGE and traceback.tb_frame.f_code.co_filename not in files:
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
    files = {frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)}
    is_of_texts = isinstance(error, SyntaxError) and error.filename in texts
    if not (files & texts.keys() or is_of_texts or isinstance(error, KeyboardInterrupt)):
        return error.__traceback__
    for file in files & texts.keys():
        text = texts[file]
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    return without_own_frames(error.__traceback__, calls)


def is_users_class(kind: type) -> bool:
    """Whether a class is the user's: of the notebook, a script, or a file of theirs."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or (module is not None and is_users_file(vars(module).get("__file__")))
