"""Reading what a process that counts answers: with a deadline, and Ctrl-C is heard."""

from __future__ import annotations

import select
import socket
import time

from torchbench_magic.core.progress import Progress
from torchbench_magic.errors import CountError

__all__ = ["Wire"]

_TICK = 0.1


class Wire:
    """One connection.

    Args:
        connection: to read from.
        timeout: seconds from now after which `read` gives up; None: never.
        progress: told that something is counted.
    """

    def __init__(self, connection: socket.socket, timeout: float | None, progress: Progress) -> None:
        self._connection, self._timeout, self._progress = connection, timeout, progress
        self._began = time.monotonic()

    def read(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            CountError: the time is over.
            EOFError: the other end was closed.
        """
        data = bytearray()
        while len(data) < size:
            if not select.select([self._connection], [], [], _TICK)[0]:
                passed = time.monotonic() - self._began
                if self._timeout is not None and passed > self._timeout:
                    raise CountError(
                        f"no count after {self._timeout:.0f} s: use fewer calls, --callgrind N"
                    )
                self._progress.update(passed, None, "counting instructions")
                continue
            more = self._connection.recv(min(1 << 20, size - len(data)))
            if not more:
                raise EOFError
            data += more
        return bytes(data)
