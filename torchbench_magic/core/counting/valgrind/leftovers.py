"""What is left of a process that counts where all ends without a word, as with a container: its folder.

The next start, of any kernel of that user, takes away those that nobody holds locked any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["WorkDone", "locked_output", "new_directory", "remove_leftovers", "work_done"]

_PREFIX = "torchbench-count-"
_OUTPUT = "output"
_JUST_MADE = 3600.0
"""Seconds for which a folder without a file may be another kernel's, on its way to a lock."""


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


class WorkDone(NamedTuple):
    """How far a process is.

    Attributes:
        ticks: of processor time, in the system's.
        is_stopped: by a signal, as `Server.hold` sends.
    """

    ticks: int
    is_stopped: bool


def work_done(pid: int) -> WorkDone | None:
    """None where it has ended, or is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return None
        return WorkDone(int(fields[11]) + int(fields[12]), fields[0] == b"T")
    return None
