"""What DataLoader workers write down for the process that profiles: a file in memory, which has no name on the disk.

So nothing is left where that process is killed. A worker opens it by the process's number and descriptor, forked or
spawned alike, and appends a line for each of its sums. The end of the profile seals it: nothing more can be written.

Only Linux has such files. Elsewhere it is a temporary file that the end of the profile removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["NotesPlace", "WorkerNotes", "WorkerPlace", "open_notes", "write_note"]

WorkerPlace = tuple[str, int, str]  # file, line (0: none), function


class NotesPlace(NamedTuple):
    """Where the file is found; ``name`` tells it from another that has taken its descriptor, and is empty for one on
    the disk."""

    path: str
    name: str


class WorkerNotes:
    """The file, from its making until `close`.

    Attributes:
        place: for the workers.
    """

    def __init__(self) -> None:
        name = f"torchbench_magic_workers_{secrets.token_hex(8)}"
        try:
            self._file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.place = NotesPlace(f"/proc/{os.getpid()}/fd/{self._file}", name)
        except (AttributeError, OSError):  # another system; a sandbox
            self._file, path = tempfile.mkstemp(prefix="torchbench_magic_workers_")
            self.place = NotesPlace(path, "")

    def close(self) -> dict[int, dict[WorkerPlace, float]]:
        """Seal it and let go of it; process id of each worker -> its seconds by place."""
        if self.place.name:
            import fcntl

            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        os.lseek(self._file, 0, os.SEEK_SET)
        with open(self._file, encoding="utf-8") as file:
            lines = file.read().splitlines()
        if not self.place.name:
            with contextlib.suppress(OSError):  # a worker still has it open, which Windows minds
                os.unlink(self.place.path)
        found: dict[int, dict[WorkerPlace, float]] = {}
        for line in lines:
            try:
                pid, rows = json.loads(line)
            except ValueError:  # its worker was killed as it wrote: what it had written before stands
                continue
            found[pid] = {(name, at, function): took for name, at, function, took in rows}
        return found


def open_notes(place: NotesPlace) -> int | None:
    """A descriptor to `write_note` to; None where the profile has ended."""
    try:
        file = os.open(place.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    if place.name and not os.readlink(f"/proc/self/fd/{file}").startswith(f"/memfd:{place.name} "):
        os.close(file)
        return None
    return file


def write_note(file: int, seconds: Mapping[WorkerPlace, float]) -> None:
    """Append the sums of this process until now.

    Raises:
        OSError: the profile has ended.
    """
    text = json.dumps([os.getpid(), [[*place, took] for place, took in seconds.items()]])
    os.write(file, f"{text}\n".encode())
