"""Whose a file is: a library's or the user's.

A library's is what Python and its installers put where they put things: the standard library, as files or as a zip,
and every folder called site-packages or dist-packages; and this package. All else is the user's: cells, files beside
the notebook, editable installs. The rest of ``sys.prefix`` is the user's too, for projects stand there: an environment
may be made in the folder of a project, a container has its code in ``/usr/local``, pip puts repositories into ``src``.

From that follows which functions of a library's module the user has put there (``F.linear = mine``).
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import FunctionType, ModuleType

__all__ = ["is_library_file", "is_library_path", "is_users_file", "replaced_functions"]

_PACKAGE = str(Path(__file__).parents[2])
_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3\.\d+t?|python3\d+t?\.zip)[/\\]")
"""Folders of libraries by their names alone, on any machine."""
_OFTEN_REPLACED = ("torch", "torch.nn.functional", "numpy")
"""Modules whose functions other libraries call too."""


def is_users_file(file: str | None) -> bool:
    """Whether there is such a file, or name of a cell, and no library's."""
    return file is not None and not is_library_file(file)


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
    every = (_PACKAGE, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")))
    return tuple({os.path.realpath(path) + os.sep for path in every})


def replaced_functions(modules: Iterable[object] = ()) -> Iterator[tuple[str, FunctionType]]:
    """(name such as ``torch.nn.functional.linear``, what stands there) of functions of the user's in a library.

    Args:
        modules: looked at besides those that are replaced most often; what is no module of a library is left out.
    """
    every = {id(each): each for each in (*map(sys.modules.get, _OFTEN_REPLACED), *modules)}
    for module in every.values():
        if type(module) is not ModuleType or is_users_file(vars(module).get("__file__")):
            continue
        for name, value in list(vars(module).items()):
            if type(value) is FunctionType and is_users_file(value.__code__.co_filename):
                yield f"{module.__name__}.{name}", value
