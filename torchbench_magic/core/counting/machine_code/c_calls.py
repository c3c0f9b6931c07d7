"""C functions that the counting process calls: of the C library, and of a compiled snippet."""

from __future__ import annotations

import ctypes
import signal

__all__ = ["CountedSnippet", "be_threaded", "end_with_parent"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # opened before the fork: a child allocates as little as it can


def end_with_parent() -> None:
    """Let the system kill this process as soon as the one that forked it has ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def be_threaded() -> None:
    """Start and join a thread: a notebook has threads, and the C library locks differently from the first one on.

    The thread runs no Python, so that nothing depends on how the two are scheduled.
    """
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong(0)
    if libc.pthread_create(ctypes.byref(thread), None, libc.getpid, None) == 0:
        libc.pthread_join(thread, None)


class CountedSnippet:
    """The function of a compiled C++ snippet that switches the collection itself (`core/cpp/runtime.h`).

    Args:
        library: the file.
        number: calls that are counted.
        warm: calls before.
    """

    def __init__(self, library: str, number: int, warm: int) -> None:
        self._run = ctypes.CDLL(library).torchbench_count
        self._text = ctypes.create_string_buffer(2000)
        self._given = tuple(ctypes.c_int64(n) for n in (number, warm, len(self._text)))

    def run(self) -> tuple[int, str]:
        """(status as runtime.h has it, what the code threw as "type: message")."""
        number, warm, size = self._given
        status: int = self._run(number, warm, self._text, size)
        return status, self._text.value.decode(errors="replace")
