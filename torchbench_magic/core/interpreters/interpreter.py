"""One fresh interpreter, from this side: it is started, given a task, listened to, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from torchbench_magic.core.progress import Progress
from torchbench_magic.errors import BodyError
from torchbench_magic.results.timing.comparison import Comparison

from .sent_errors import raised_there
from .sent_task import SentTask

__all__ = ["Died", "Interpreter", "fixed_addresses"]

_BOOT = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("torchbench_magic", sys.argv[1] + "/__init__.py")
sys.modules[spec.name] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from torchbench_magic.core.interpreters.in_interpreter import main
main()
"""
_TICK = 0.1
_ADDR_NO_RANDOMIZE = 0x0040000  # of <sys/personality.h>, as `setarch -R` sets it


class Died(Exception):
    """The interpreter ended without an answer; the message says how, and what it said last."""


class Interpreter:
    """A process of this Python, from its start until `end`; both within `interrupts_held`.

    Raises:
        BodyError: it cannot be started.
    """

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._knows_path = False
        optimized = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONHASHSEED"}
        package = str(Path(__file__).parents[2])
        try:
            mine, theirs = socket.socketpair()
            self._connection = self._open.enter_context(mine)
            with theirs:
                self._said, self._complained = self._memory("stdout"), self._memory("stderr")
                self._process = subprocess.Popen(
                    [sys.executable, "-P", *optimized, "-c", _BOOT, package, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._said,
                    stderr=self._complained,
                    env=environment,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is the notebook's
                )
        except OSError as error:
            self._open.close()
            raise BodyError(f"a fresh interpreter cannot be started: {error.strerror or error}") from None

    def end(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with what its code has started
        self._process.wait()
        self._open.close()

    def get_ready(self) -> None:
        """Let it import torch ahead of its task."""
        if not self._knows_path:
            self._knows_path = True
            path = json.dumps([entry or os.getcwd() for entry in sys.path]).encode()
            with contextlib.suppress(ConnectionError):  # it has ended already: `measured` says why
                self._connection.sendall(struct.pack("<Q", len(path)) + path)

    def _memory(self, name: str) -> int:
        """A descriptor that what is written to it stays in, until the process has ended."""
        descriptor = os.memfd_create(name)
        self._open.callback(os.close, descriptor)
        return descriptor

    def measured(self, sent: SentTask, storages: int | None, progress: Progress) -> list[Comparison]:
        """Hand over the task; what was measured of each of its points.

        Raises:
            Died: it ended without an answer.
            RaisedThere: with the exception of the code.
        """
        try:
            self.get_ready()
            data = pickle.dumps(sent, protocol=5)
            socket.send_fds(self._connection, [struct.pack("<Q", len(data))], [] if storages is None else [storages])
            self._connection.sendall(data)
            while True:
                kind, *told = self._told()
                if kind == "progress":
                    progress.update(*told)
                elif kind == "raised":
                    raise raised_there(*told)
                else:
                    parts: list[Comparison] = told[0]
                    return parts
        except (EOFError, ConnectionError) as error:
            raise Died(self._last_words()) from error

    def printed(self) -> str:
        """What the code printed."""
        return _text_of(self._said)

    def _told(self) -> tuple[Any, ...]:
        (size,) = struct.unpack("<Q", self._read(8))
        told: tuple[Any, ...] = pickle.loads(self._read(size))
        return told

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if select.select([self._connection], [], [], _TICK)[0]:
                more = self._connection.recv(min(1 << 20, size - len(data)))
                if not more:
                    raise EOFError
                data += more
        return bytes(data)

    def _last_words(self) -> str:
        status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        if status < 0:
            with contextlib.suppress(ValueError):
                how += f" ({signal.Signals(-status).name})"
        lines = _text_of(self._complained).strip().splitlines()
        return f"{how}: {lines[-1][:300]}" if lines and status >= 0 else how


def _text_of(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, min(size, 1 << 20), 0).decode(errors="replace")


def fixed_addresses() -> bool:
    """Whether this system gives every process the same addresses, so that fresh ones show nothing."""
    with contextlib.suppress(OSError, ValueError):
        if int(Path("/proc/self/personality").read_text(), 16) & _ADDR_NO_RANDOMIZE:
            return True
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/randomize_va_space").read_text()) == 0
    return False
