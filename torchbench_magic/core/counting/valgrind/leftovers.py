"""What is left where a notebook ends without a word: the process that counts, and its folder.

A kernel that is killed closes its end of control, but a server that is still starting, or that hangs, does not read
it. So a shell waits beside it for the same to happen, and ends both. Where that is killed too, as with a container,
the folder stays: the next start, of any kernel of that user, takes away those that nobody holds locked any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

__all__ = ["ServerWatch", "cpu_ticks", "locked_output", "new_directory", "remove_leftovers"]

_PREFIX = "torchbench-count-"
_OUTPUT = "output"
_JUST_MADE = 3600.0
"""Seconds for which a folder without a file may be another kernel's, on its way to a lock."""
_WAIT_AND_END = """\
read -r _
if grep -qF -- "$2" "/proc/$1/cmdline" 2>/dev/null; then kill -9 "-$1"; fi
rm -rf -- "$2"
"""
"""The number of a process may be another's by then: its command line has the name of the folder."""


def new_directory() -> str:
    """A private folder for one server.

    Raises:
        OSError: it cannot be made.
    """
    return tempfile.mkdtemp(prefix=_PREFIX)  # 0700


def locked_output(directory: str) -> IO[bytes]:
    """The file for what a server says; locked as long as a process that was given it has it open.

    Raises:
        OSError: it cannot be made.
    """
    import fcntl  # not there where valgrind is not either

    output = open(os.path.join(directory, _OUTPUT), "wb")  # noqa: SIM115  (the caller closes it)
    with contextlib.suppress(OSError):  # a file system without locks: the folder may stay, nothing else
        fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return output


def remove_leftovers() -> list[str]:
    """Remove the folders of servers that have ended; their names."""
    gone = []
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if folder.stat(follow_symlinks=False).st_uid == os.geteuid() and _is_left(folder):
                    shutil.rmtree(folder)
                    gone.append(str(folder))
    return gone


def _is_left(folder: Path) -> bool:
    import fcntl

    try:
        with open(folder / _OUTPUT, "rb") as output:
            try:
                fcntl.flock(output, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True
    except FileNotFoundError:
        return time.time() - folder.stat(follow_symlinks=False).st_mtime > _JUST_MADE


class ServerWatch:
    """Ends a server, with all that it has forked, and removes its folder when this process is gone.

    Args:
        pid: of the server, which leads a group of its own.
        directory: its folder, whose name stands in its command line.

    Raises:
        OSError: the shell cannot be started.
    """

    def __init__(self, pid: int, directory: str) -> None:
        self._held, theirs = socket.socketpair()  # its other end closes with this process
        with theirs:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT_AND_END, "sh", str(pid), directory],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # Ctrl-C is the notebook's
            )

    @property
    def pid(self) -> int:
        return self._shell.pid

    def end(self) -> None:
        """The server is seen to by others."""
        self._shell.kill()
        self._shell.wait()
        self._held.close()


def cpu_ticks(pid: int) -> int | None:
    """Processor time of a process, in the system's ticks; None where it is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])
    return None
