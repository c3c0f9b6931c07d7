"""Which code gets lines of its own: the user's, not the libraries'."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from pathlib import Path

from torchbench_magic.core.code.library_files import is_library_file
from torchbench_magic.errors import OptionError
from torchbench_magic.results.cell_text import CellText

__all__ = ["RecordedFiles", "resolve_lines_of"]


class RecordedFiles:
    """Says of a code's file name whether its lines are recorded.

    In are: the files of ``always``, cells, files under ``extra``, and ``.py`` files under ``root`` but libraries'.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        cells: Callable[[str], CellText | None],
        extra: Sequence[str] = (),
        always: Collection[str] = (),
    ) -> None:
        self._root = os.path.realpath(root)
        self._cells = cells
        self._extra = tuple(extra)
        self._always = frozenset(always)

    def __call__(self, file: str) -> bool:
        if file in self._always or self._cells(file) is not None:
            return True
        if file.startswith("<") and file.endswith(">"):
            return False
        path = _real(file) if os.path.isabs(file) else os.path.realpath(file)
        if any(_under(path, prefix) for prefix in self._extra):
            return True
        return path.endswith(".py") and _under(path, self._root) and not is_library_file(file)


@lru_cache(maxsize=1 << 15)
def _real(file: str) -> str:
    """Remembered from run to run: some 30 us a file, which would be the time of the line that calls into it first."""
    return os.path.realpath(file)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix.rstrip(os.sep) + os.sep)


def resolve_lines_of(names: Sequence[str]) -> tuple[str, ...]:
    """Paths of the modules, files and folders named by ``--lines-of``.

    A name that is an existing path is that path; any other is a module (a package means all its files).
    Raises OptionError for a name that is neither.
    """
    return tuple(_resolved(name) for name in names)


def _resolved(name: str) -> str:
    path = Path(name).expanduser()
    if name and path.exists() and (path.suffix == ".py" or os.sep in name or path.is_dir()):
        return os.path.realpath(path)
    origin = getattr(sys.modules.get(name), "__file__", None)
    if origin is None and all(part.isidentifier() for part in name.split(".")):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        origin = spec.origin if spec is not None and spec.has_location else None
    if origin is None:
        raise OptionError(f"--lines-of {name}: no Python module and no path of that name")
    if not origin.endswith(".py"):
        raise OptionError(f"--lines-of {name}: {Path(origin).name} is compiled and has no Python lines")
    return os.path.realpath(Path(origin).parent if Path(origin).name == "__init__.py" else origin)
