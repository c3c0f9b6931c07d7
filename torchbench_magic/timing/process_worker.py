"""What the fresh interpreter does: take one task, time it, and tell what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import socket
import struct
import sys
from dataclasses import replace
from typing import Any

from torchbench_magic.counting.client_requests import end_with_parent
from torchbench_magic.process.sent_errors import sent_error

from .comparison import Comparison


def main() -> None:
    """Serve the one task that comes through the socket whose descriptor stands last in the arguments."""
    end_with_parent()  # whatever the code does, and however the notebook ends
    connection = socket.socket(fileno=int(sys.argv[-1]))
    os.set_inheritable(connection.fileno(), False)  # what the code starts does not hold it open
    (size,) = struct.unpack("<Q", _exactly(connection, 8))
    sys.path[:] = json.loads(_exactly(connection, size))
    sys.argv[:] = [""]
    progress = _Told(connection)
    progress.update(0.0, None, "importing torch")
    from . import processes, run  # noqa: F401  (with torch; the task may come later: see `Interpreters`)

    head, descriptors, _, _ = socket.recv_fds(connection, 8, 1)
    (size,) = struct.unpack("<Q", head)
    data = _exactly(connection, size)
    progress.update(0.0, None, "making the variables")
    try:
        told: tuple[Any, ...] = ("measured", _measured(data, descriptors[0] if descriptors else None, progress))
    except BaseException as error:  # noqa: BLE001  (whatever the user's code raises is reported)
        told = ("raised", *sent_error(error))
    _tell(connection, told)


class _Told:
    """A progress that hands on what it is told."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def update(self, done: float, total: float | None, what: str) -> None:
        _tell(self._connection, ("progress", done, total, what))


def _measured(data: bytes, storages: int | None, progress: _Told) -> list[Comparison]:
    from .processes import unpacked
    from .run import compare_bodies_async

    sent = pickle.loads(data)
    parts: list[Comparison] = []
    task = replace(unpacked(sent, storages), keep=parts.append, progress=progress)
    if sent.awaits:
        asyncio.run(compare_bodies_async(task))
    else:
        task.measured()
    return parts


def _tell(connection: socket.socket, told: tuple[Any, ...]) -> None:
    data = pickle.dumps(told, protocol=5)
    connection.sendall(struct.pack("<Q", len(data)) + data)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(1 << 20, size - len(data)))
        if not more:
            raise EOFError("the notebook went away")
        data += more
    return bytes(data)
