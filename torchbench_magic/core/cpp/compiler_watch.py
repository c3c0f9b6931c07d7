"""Ends a compiler, and removes its folder, when this process is gone, however it ended."""

from __future__ import annotations

import socket
import subprocess

__all__ = ["CompilerWatch"]

_WAIT_AND_END = """\
read -r _
if grep -qF -- "$2" "/proc/$1/cmdline" 2>/dev/null; then kill -9 "-$1"; fi
rm -rf -- "$2"
"""
"""The number of a process may be another's by then: its command line has the name of the folder."""


class CompilerWatch:
    """A shell that waits for the end of this process.

    Args:
        pid: of the compiler, which leads a group of its own.
        folder: what it works in, whose name stands in its command line.

    Raises:
        OSError: the shell cannot be started.
    """

    def __init__(self, pid: int, folder: str) -> None:
        self._held, theirs = socket.socketpair()  # its other end closes with this process
        with theirs:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT_AND_END, "sh", str(pid), folder],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # Ctrl-C is the notebook's
            )

    def end(self) -> None:
        """The compiler has ended, and its folder is seen to by others."""
        self._shell.kill()
        self._shell.wait()
        self._held.close()
