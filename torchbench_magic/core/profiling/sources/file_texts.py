"""Texts of the user's files as they were: what was compiled may not be what the file holds now.

Python keeps no text of what it imports. So the files of the user's modules are read when the module is first seen, and
again when the file has changed since: after each cell of a notebook and at the start of each profile.
"""

from __future__ import annotations

import linecache
import os
import sys
import tokenize
import types
import weakref
from collections.abc import Callable

from torchbench_magic.core.code.library_files import is_library_file

__all__ = ["FileTexts", "texts_of"]

_MOST_TEXTS = 8  # of one file that are kept
_MOST_BYTES = 2_000_000  # of one text
_seen: dict[str, list[str]] = {}  # file -> its texts, the oldest first
_read_as: dict[str, tuple[int, ...]] = {}  # file -> what told it apart when it was last read, for whomever
_of_modules: dict[str, tuple[weakref.ref[types.ModuleType], str | None]] = {}
"""Name of a module -> the module, and its file if that may be the user's: each profile looks at thousands of them."""


class FileTexts:
    """Reads the files of modules when they are imported and when they change.

    Args:
        wanted: says of a file name whether its text may be needed.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._modules = 0
        self._names: set[str] = set()
        self._files: dict[str, tuple[int, ...]] = {}  # file -> what told it apart when it was read

    def look(self) -> None:
        """Read what is new or has changed. Without either it costs some microseconds."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            for name in sys.modules.keys() - self._names:
                self._names.add(name)
                file = _file_of(name)
                if file is not None and file not in self._files and self._wanted(file):
                    self._files[file] = ()
        for file, before in self._files.items():
            now = _state(file)
            if now != before and now:
                self._files[file] = now
                if _read_as.get(file) != now:  # each profile looks anew at all files
                    _read_as[file] = now
                    _keep(file)


def texts_of(file: str) -> list[str]:
    """The texts that a code object with this file name may have come from, the newest first: what the file holds now,
    what Python shows of it, what was seen of it before. Empty where there is none."""
    entry = linecache.cache.get(file)
    shown = "".join(entry[2]) if entry is not None and len(entry) == 4 else ""
    now = _read(file)
    if now is None and not shown:
        shown = "".join(linecache.getlines(file))
    every = [now, shown, *reversed(_seen.get(file, ()))]
    return list(dict.fromkeys(text for text in every if text))


def _file_of(name: str) -> str | None:
    """The Python file of a module that may be the user's."""
    module = sys.modules.get(name)
    if module is None:
        return None
    if (known := _of_modules.get(name)) is not None and known[0]() is module:
        return known[1]
    try:  # not by `getattr`: a module that loads itself when it is asked would be loaded
        file = types.ModuleType.__getattribute__(module, "__dict__").get("__file__")
    except (TypeError, AttributeError):  # what somebody has put there is no module
        return None
    its = file if isinstance(file, str) and file.endswith(".py") and not is_library_file(file) else None
    _of_modules[name] = weakref.ref(module), its
    return its


def _state(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(file: str) -> str | None:
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


def _keep(file: str) -> None:
    text = _read(file)
    if text is None or len(text) > _MOST_BYTES:
        return
    texts = _seen.setdefault(file, [])
    if text in texts:
        texts.remove(text)
    texts.append(text)
    del texts[:-_MOST_TEXTS]
