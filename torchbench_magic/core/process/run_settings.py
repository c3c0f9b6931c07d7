"""What a run changes in the process, and puts back whatever happens."""

from __future__ import annotations

import contextlib
import gc
import io
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

from torchbench_magic.errors import Busy

from .process_state import ProcessState

__all__ = [
    "SINK_CODES",
    "CountingSink",
    "Unclosable",
    "collector",
    "measured_alone",
    "output_to",
    "preserved_state",
    "set_threads",
]


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Put all that `process_state` knows back, random generators included.

    Accelerator generators are included where an accelerator was in use before. Where modules were imported meanwhile,
    warning filters and variables of the environment stay as they are: they may be the modules' own.
    """
    before = ProcessState()
    try:
        yield
    finally:
        before.put_back(without=before.left_to_imports)


_alone = threading.RLock()


@contextlib.contextmanager
def measured_alone() -> Iterator[None]:
    """One thread of the process measures; it may measure within what it measures.

    Two at once would be in each other's times, and each would put back what the other had set: of two that send stdout
    elsewhere the one that ends last puts back the other's.

    Raises:
        Busy: another thread does.
    """
    if not _alone.acquire(blocking=False):
        raise Busy("another thread is measuring: run one after the other, or compare both in one cell")
    try:
        yield
    finally:
        _alone.release()


@contextlib.contextmanager
def collector(*, is_on: bool) -> Iterator[None]:
    """Collect what is young, then keep the cyclic collector off, or on.

    A full collection takes 65 to 120 ms with torch loaded, a large part of what a short cell may cost, and what is old
    does not run in the blocks either way.
    """
    was = gc.isenabled()
    gc.collect(1)
    _switch_collector(is_on)
    try:
        yield
    finally:
        _switch_collector(was)


def _switch_collector(on: bool) -> None:
    (gc.enable if on else gc.disable)()


def set_threads(threads: int) -> None:
    """Set torch's intra-op threads; nothing happens when that many are set already (a set rebuilds the team)."""
    import torch

    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


_WARNING = re.compile(r"\S.*:\d+: \w*Warning: ")
"""Begins a warning as Python writes it."""


class CountingSink(io.TextIOBase):
    """A text stream that keeps nothing but the number of characters it was given, those of warnings apart: code that is
    warned of something prints nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not _WARNING.match(text):
            self.characters += len(text)
        return len(text)

    def close(self) -> None:
        """Do nothing: code that closes its output goes on writing to nowhere."""


class Unclosable(io.TextIOBase):
    """Another stream, which code may write to but not close."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written: int = self._stream.write(text)
        return written

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the stream is the kernel's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class MainThreadShown(io.TextIOBase):
    """A stream for the code of another thread, past which the main thread writes to the stream that was there: what it
    shows is another cell's.

    Args:
        there: of the main thread; ``stream``: of all others.
    """

    def __init__(self, there: Any, stream: io.TextIOBase) -> None:
        super().__init__()
        self._there, self._stream = there, stream
        self._main = threading.main_thread().ident

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        stream = self._there if threading.get_ident() == self._main else self._stream
        written: int = stream.write(text)
        return written

    def flush(self) -> None:
        (self._there if threading.get_ident() == self._main else self._stream).flush()

    def close(self) -> None:
        """Do nothing: one of the streams is the kernel's."""


SINK_CODES = tuple(
    function.__code__
    for kind in (CountingSink, MainThreadShown, Unclosable)
    for function in (kind.write, kind.writable, kind.close)
)
"""Of ours that run within the user's calls."""


@contextlib.contextmanager
def output_to(stdout: io.TextIOBase, stderr: io.TextIOBase) -> Iterator[None]:
    """Send Python's stdout and stderr elsewhere: a timed body that prints would flood the notebook. Where that is on
    another thread, the main one still shows what it prints."""
    if threading.current_thread() is not threading.main_thread():
        stdout, stderr = MainThreadShown(sys.stdout, stdout), MainThreadShown(sys.stderr, stderr)
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        yield
