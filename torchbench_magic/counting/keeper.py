"""Keeps a process that counts: a process of its own, started by path, which imports nothing of this package.

Starting the counting process takes half a minute, so one serves all kernels of a user and an environment (see
`counting.lease`). This keeper starts it, waits until it takes jobs, and hands the ends of its sockets to each
kernel that asks. It ends it, with its folder, when no kernel has been there for the idle time: at once where that is 0,
the setting for which every kernel has its own.

A kernel is gone when its connection is closed. What such a kernel was counting is ended then.

Messages (SOCK_SEQPACKET). To a kernel: JSON with pid, directory and began (`time.monotonic`) when it comes; ``R`` with
the two ends when jobs are taken; the end of the stream where the counting process has ended. From a kernel:
``idle SECONDS``, ``+PID`` and ``-PID`` around what counts for it, ``end`` for a server that is of no use to anybody.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

_FAREWELL = 5.0
"""Seconds that kernels have to read why the counting process has ended."""
_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: pid, uid, gid


class _Kernel:
    """One that asked.

    Attributes:
        connection: to it.
        counting: processes that count for it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.counting: set[int] = set()

    def say(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        with contextlib.suppress(OSError):  # it has gone: the selector tells
            socket.send_fds(self.connection, [message], descriptors)

    def listen(self) -> bytes:
        """What it says next; empty where it has gone."""
        for _ in range(2):  # of one that went before it read all there is an error first, then its last words
            with contextlib.suppress(OSError):
                return self.connection.recv(64)
        return b""


class Keeper:
    """Starts the counting process; `serve` returns when it, or the last kernel, is gone.

    Args:
        plan: command, directory, path (what the process is told: see `counting.server.main`), idle (seconds), listener
            and kernel (descriptors, or None).
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._directory: str = plan["directory"]
        self._idle: float = plan["idle"]
        self._kernels: list[_Kernel] = []
        self._is_ready, self._is_to_end = False, False
        self._since = self._began = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._control, control = socket.socketpair()
        self._jobs, jobs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with control, jobs:
            self._server = subprocess.Popen(
                plan["command"],
                stdin=control.fileno(),
                stdout=jobs.fileno(),
                cwd="/",
                start_new_session=True,
            )
        path = json.dumps(plan["path"]).encode()
        with contextlib.suppress(ConnectionError):  # it has ended already
            self._control.sendall(struct.pack("<Q", len(path)) + path)
        self._watch(self._control.fileno(), self._hear_server)
        self._listener = None if plan["listener"] is None else socket.socket(fileno=plan["listener"])
        if self._listener is not None:
            self._watch(self._listener.fileno(), self._accept)
        if plan["kernel"] is not None:
            self._welcome(socket.socket(fileno=plan["kernel"]))

    def serve(self) -> None:
        while self._server.poll() is None and not self._is_to_end:
            left = None if self._kernels else self._since + self._idle - time.monotonic()
            if left is not None and left <= 0:
                self._withdraw()
                return
            for key, _ in self._selector.select(left):
                key.data()

    # ---- kernels ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):  # gone again
                self._welcome(self._listener.accept()[0])

    def _welcome(self, connection: socket.socket) -> None:
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        kernel = _Kernel(connection)
        self._kernels.append(kernel)
        self._watch(connection.fileno(), lambda: self._hear(kernel))
        hello = {"pid": self._server.pid, "directory": self._directory, "began": self._began}
        kernel.say(json.dumps(hello).encode())
        if self._is_ready:
            self._hand_out(kernel)

    def _hand_out(self, kernel: _Kernel) -> None:
        kernel.say(b"R", (self._control.fileno(), self._jobs.fileno()))

    def _hear(self, kernel: _Kernel) -> None:
        message = kernel.listen()
        word, number = message[:1], message[1:]
        if not message:
            self._dismiss(kernel)
        elif message == b"end":
            self._is_to_end = True
        elif message.startswith(b"idle "):
            self._idle = float(message[5:])
        elif word == b"+":
            kernel.counting.add(int(number))
        elif word == b"-":
            kernel.counting.discard(int(number))

    def _dismiss(self, kernel: _Kernel) -> None:
        self._kernels.remove(kernel)
        self._since = time.monotonic()
        self._selector.unregister(kernel.connection.fileno())
        kernel.connection.close()
        for pid in kernel.counting:
            if _parent_of(pid) == self._server.pid:  # the number may be another's by now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for name in os.listdir(self._directory):
                if name.startswith((f"cost.{pid}", f"log.{pid}")):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self._directory, name))

    # ---- the counting process ------------------------------------------------------------------------------

    def _hear_server(self) -> None:
        """It takes jobs, or has ended, at which its end of the socket is closed."""
        said = b""
        with contextlib.suppress(ConnectionError):  # it ended before it read what it was sent
            said = self._control.recv(1)
        if said != b"R":
            self._is_to_end = True
            return
        self._is_ready = True
        for kernel in self._kernels:
            self._hand_out(kernel)

    def _watch(self, descriptor: int, call: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, call)

    def _withdraw(self) -> None:
        """Let no kernel find it any more: the name is free for the next."""
        if self._listener is not None:
            self._selector.unregister(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def end(self) -> None:
        """End it, tell the kernels, and remove the folder when they have read what it says."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        for key, _ in self._selector.select(0):  # one that has come meanwhile is to hear of it too
            key.data()
        self._withdraw()
        self._server.wait()
        until = time.monotonic() + _FAREWELL
        for kernel in self._kernels:
            with contextlib.suppress(OSError):
                kernel.connection.shutdown(socket.SHUT_WR)
                kernel.connection.settimeout(max(until - time.monotonic(), 0.01))
                while kernel.connection.recv(64):
                    pass
        shutil.rmtree(self._directory, ignore_errors=True)


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end, as the system knows them."""
    found = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return found[0], found[1], found[2]


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return 0


def main() -> None:
    """Keep what the plan, the first argument, says. It ends with SIGTERM as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    keeper = Keeper(json.loads(sys.argv[1]))
    try:
        keeper.serve()
    finally:
        keeper.end()


if __name__ == "__main__":
    main()
