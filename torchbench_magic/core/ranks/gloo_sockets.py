"""The connections of a process group over gloo: closed, they end the collectives that stand in them.

No signal and no call of torch reaches a rank that waits in gloo's C++ code (``abort`` of torch 2.13 does nothing
there); a connection that is shut down does: the collective raises "Connection closed by peer", on the other side too.
They are found as the sockets that were opened while the group was made. Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["GlooSockets"]

_DESCRIPTORS = "/proc/self/fd"


class GlooSockets:
    """Of one group."""

    def __init__(self) -> None:
        self._held: dict[int, str] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """The group is made in the block, and nothing else connects meanwhile."""
        before = _sockets()
        yield
        self._held = {number: link for number, link in _sockets().items() if before.get(number) != link}

    def shut(self) -> bool:
        """Shut down those that are still open; whether there were any."""
        some = False
        for number, link in self._held.items():
            if _link(number) != link:
                continue
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
                if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):  # with its listener gloo aborts
                    one.shutdown(socket.SHUT_RDWR)
                    some = True
        return some


def _link(number: int) -> str:
    try:
        return os.readlink(f"{_DESCRIPTORS}/{number}")
    except OSError:
        return ""


def _sockets() -> dict[int, str]:
    if not os.path.isdir(_DESCRIPTORS):
        return {}
    links = {int(name): _link(int(name)) for name in os.listdir(_DESCRIPTORS)}
    return {number: link for number, link in links.items() if link.startswith("socket:")}
