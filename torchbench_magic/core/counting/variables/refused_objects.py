"""What no other process can have: it is refused, where pickling would make something that only looks like it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

__all__ = ["standard_stream", "what_stays"]

_IN_MEMORY = (io.BytesIO, io.StringIO)
_STREAMS = ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__")
_NAMED: tuple[tuple[str, str, str], ...] = (
    ("socket", "socket", "a socket"),
    ("subprocess", "Popen", "a running process"),
    ("threading", "Thread", "a thread"),
    ("threading", "Event", "a lock"),
    ("threading", "Condition", "a lock"),
    ("mmap", "mmap", "a mapped file"),
    ("sqlite3", "Connection", "a connection to a database"),
    ("sqlite3", "Cursor", "a connection to a database"),
    ("concurrent.futures", "Executor", "a pool of threads or processes"),
    ("asyncio", "AbstractEventLoop", "an event loop"),
    ("asyncio", "Future", "a task"),
    ("weakref", "ref", "a weak reference"),
    ("os", "DirEntry", "a folder's entry (os.DirEntry)"),
    ("tempfile", "_TemporaryFileWrapper", "an open file"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "an iterator over a DataLoader"),
)
"""(module, class, words); what is not imported has no instance."""


def what_stays(obj: Any) -> str | None:
    """In words, what ``obj`` is if it cannot be copied to another process; None where that is not known."""
    kind = type(obj)  # isinstance would wake objects that warn when they are looked at
    if issubclass(kind, io.IOBase) and not issubclass(kind, _IN_MEMORY):
        return "an open file"
    if issubclass(kind, GeneratorType | AsyncGeneratorType):
        return "a generator"
    if issubclass(kind, CoroutineType):
        return "a coroutine"
    if kind.__module__ == "_thread" and "lock" in kind.__name__.lower():
        return "a lock"
    return next((words for known, words in _kinds() if issubclass(kind, known)), None)


def _kinds() -> Iterator[tuple[type, str]]:
    for module, name, words in _NAMED:
        known = getattr(sys.modules.get(module), name, None)
        if isinstance(known, type):
            yield known, words


def standard_stream(obj: Any) -> str | None:
    """The name in `sys` of what a process prints to or reads from: every process has its own."""
    return next((name for name in _STREAMS if getattr(sys, name, None) is obj), None) if obj is not None else None
