"""One timing on a host at a time, whoever asked for it: a lock on the folder of temporary files; no file is made."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator

from torchbench_magic.errors import Busy

__all__ = ["PATIENCE", "host_to_itself"]

PATIENCE = 60.0
"""Seconds that a timing waits for another one: of a point that takes the 30 s of a slow comparison it is the next."""
_AGAIN = 0.02


@contextlib.contextmanager
def host_to_itself(
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """No other block of this kind runs on this host meanwhile; without `fcntl` (Windows) nothing is locked.

    Raises:
        Busy: another one held it for ``patience`` seconds.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        until = clock() + patience
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock() > until:
                    raise Busy(f"its host was measuring something else for {patience:.0f} s") from None
                sleep(_AGAIN)
        yield
    finally:
        os.close(folder)  # which unlocks it
