"""The notebook's side of the fork server: ask for it, hand it a job, hear what it counted."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchbench_magic.errors import CountError
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress, interrupts_held

from . import callgrind_file
from .lease import Lease, idle_seconds, path_of_valgrind

_TICK = 0.1
_START_SECONDS = 25.0  # what starting takes, for the progress
_PRELOADED_SECONDS = 25.0  # and what is imported besides torch
_LOOK = 0.02
_ENDS = 0.5  # seconds until the end of a server that was killed is known
_MOST_START_SECONDS = 600.0


class CodeFailed(CountError):
    """The code raised in the counting process.

    Attributes:
        stage: "load" (bringing the variables over) or "stmt".
        kind, message: of the exception.
        frames: (file, line), outermost first.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.stage, self.kind, self.message = answer["stage"], answer["type"], answer["message"]
        self.frames: list[tuple[str, int]] = answer["frames"]
        first = (self.message.splitlines() or [""])[0]
        super().__init__(f"{self.kind}: {first}" if first else self.kind)


class _Needs(CountError):
    """The code imports a module that takes long, and another server has it."""


class NotStarted(CountError):
    """The process that counts is not there, and trying again at once would not help."""


class Server:
    """A process under valgrind that forks once for each job. Start it with the first `count`.

    Args:
        preloaded: modules that it imports besides torch. Code that imports one which takes long, as an optimizer's
            step does, is counted by a second server which has it: that one starts with the first such job.
        idle: seconds for which it waits for other kernels of this user and environment, which it then serves too;
            0: it serves this one only. None: as `counting.lease.idle_seconds` says.

    Raises (all methods):
        MissingTool: no valgrind, or no system that it runs on.
    """

    def __init__(self, preloaded: Sequence[str] = (), *, idle: float | None = None) -> None:
        self._preloaded, self._idle = tuple(preloaded), idle
        self._fuller: Server | None = None
        self._lease: Lease | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the process under valgrind; None where there is none."""
        return self._lease.pid if self._lease is not None and self.is_alive else None

    @property
    def is_alive(self) -> bool:
        if self._owner != os.getpid():  # a fork of the notebook's process: the server is its parent's
            return False
        return self._lease is not None and self._lease.is_alive

    @property
    def _is_ready(self) -> bool:
        return self._lease is not None and self._lease.control is not None

    # ---- its life ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start it if it is not there; `start` waits for it."""
        with self._lock:
            if not self.is_alive:
                self._forget()
                self._owner = os.getpid()
                path_of_valgrind()  # says what is missing where there is no valgrind
                try:
                    idle = idle_seconds() if self._idle is None else self._idle
                    with interrupts_held():
                        self._lease = Lease.take(self._preloaded, idle)
                except ValueError as error:
                    raise NotStarted(str(error)) from error
                except OSError as error:
                    why = error.strerror or error
                    raise NotStarted(f"the counting process cannot be started: {why}") from error

    def start(self, progress: Progress = NO_PROGRESS) -> None:
        """Start it if it is not there, and wait until it takes jobs. After Ctrl-C it goes on starting."""
        self.begin()
        self._wait(progress)

    def _wait(self, progress: Progress) -> None:
        while (lease := self._lease) is not None and not self._is_ready:
            passed = time.monotonic() - lease.began
            if passed > _MOST_START_SECONDS:
                self._forget(for_all=True)
                raise NotStarted(
                    f"the counting process takes {passed / 60:.0f} min at its start, and was ended: try `valgrind"
                    " --tool=callgrind true` in a terminal; the cell's timings are complete, without counts"
                )
            if not self.is_alive:
                told = self._startup_words(lease)
                self._forget()
                raise NotStarted(f"the counting process did not start: {told}")
            expected = _START_SECONDS + (_PRELOADED_SECONDS if self._preloaded else 0)
            progress.update(passed, max(expected, passed), self._what_starts(lease))
            self._look()

    def _what_starts(self, lease: Lease) -> str:
        what = "starting valgrind"
        if self._preloaded:
            what = f"starting valgrind with {', '.join(self._preloaded)}, which the code uses"
        return f"{what}, once {'for all sessions' if lease.is_shared else 'in a session'}"

    def _look(self) -> None:
        """Has the server said that it is ready? Waits a little for it."""
        with self._lock:  # another thread may have read it meanwhile
            if self._lease is not None:
                self._lease.look(_LOOK)

    @staticmethod
    def _startup_words(lease: Lease) -> str:
        """What valgrind or Python said last."""
        said, directory = [], Path(lease.directory)
        for path in [*sorted(directory.glob("log.*")), directory / "output"]:
            with contextlib.suppress(OSError):
                said += path.read_text(errors="replace").strip().splitlines()[-1:]
        return "; ".join(said)[-400:] or "it said nothing"

    def close(self) -> None:
        """Give it up, with the second one. One that serves this kernel only ends, and its directory is removed."""
        with self._lock:
            self._forget()
            fuller, self._fuller = self._fuller, None
        if fuller is not None:
            fuller.close()

    def _forget(self, *, for_all: bool = False) -> None:
        lease, self._lease = self._lease, None
        if lease is not None and self._owner == os.getpid():
            lease.end(for_all=for_all)

    # ---- a job ------------------------------------------------------------------------------------------------

    def count(
        self,
        job: Mapping[str, Any],
        *,
        storages: int | None = None,
        timeout: float | None = None,
        progress: Progress = NO_PROGRESS,
    ) -> tuple[callgrind_file.Costs, callgrind_file.Costs]:
        """Hand over one job and the bytes of its tensors; the costs of the statement and of the empty loop.

        Raises:
            CodeFailed: the code raised.
            CountError: the child died (with valgrind's reason), took longer than ``timeout`` seconds, or the server
                was killed. The next call starts what is not there.
        """
        try:
            return self._count(job, storages, timeout, progress)
        except _Needs as needs:
            with self._lock:
                if self._fuller is None:
                    self._fuller = Server([*self._preloaded, str(needs)], idle=self._idle)
            return self._fuller.count(job, storages=storages, timeout=timeout, progress=progress)

    def _count(
        self, job: Mapping[str, Any], storages: int | None, timeout: float | None, progress: Progress
    ) -> tuple[callgrind_file.Costs, callgrind_file.Costs]:
        self.start(progress)
        lease = self._lease
        assert lease is not None  # `start` made it
        assert lease.control is not None
        assert lease.jobs is not None
        connection, theirs = socket.socketpair()
        with connection:
            child = 0
            try:
                with theirs:
                    socket.send_fds(lease.jobs, [b"J"], [theirs.fileno()])
                lease.control.sendall(b"J")
                read = partial(_read, connection, time.monotonic(), timeout, progress)
                (child,) = struct.unpack("<Q", read(8))
                with lease.counted_by(child):
                    self._hand_over(connection, job, storages)
                    (size,) = struct.unpack("<Q", read(8))
                    answer: dict[str, Any] = pickle.loads(read(size))
                if "needs" in answer:
                    raise _Needs(answer["needs"])
                if not answer["ok"]:
                    raise CodeFailed(answer)
                return self._costs(lease, child)
            except (EOFError, ConnectionError, FileNotFoundError) as error:
                why = self._death(lease, child) or "the code ended the counting process (os._exit or a kill)"
                raise CountError(why) from error
            finally:
                self._clean_up(lease, child)

    @staticmethod
    def _hand_over(connection: socket.socket, job: Mapping[str, Any], storages: int | None) -> None:
        data = pickle.dumps(dict(job), protocol=5)
        socket.send_fds(connection, [struct.pack("<Q", len(data))], [] if storages is None else [storages])
        connection.sendall(data)

    @classmethod
    def _costs(cls, lease: Lease, child: int) -> tuple[callgrind_file.Costs, callgrind_file.Costs]:
        """Those of the statement and of the empty loop: the parts after that of the calls that warmed up."""
        try:
            warm, statement, empty = (
                callgrind_file.parse(Path(lease.directory, f"cost.{child}.{part}").read_text(errors="replace"))
                for part in (1, 2, 3)
            )
        except (FileNotFoundError, CountError) as error:
            why = f": {error}" if isinstance(error, CountError) else ""
            raise CountError(
                cls._death(lease, child)
                or f"callgrind did not write its counts into {lease.directory}{why}: is the disk full? Free space there"
                " and run the cell again"
            ) from error
        return callgrind_file.since(statement, [warm]), callgrind_file.since(empty, [warm, statement])

    @staticmethod
    def _death(lease: Lease, child: int) -> str:
        """How the server or a child of it died, where that is known."""
        with contextlib.suppress(OSError):
            log = Path(lease.directory, f"log.{child}").read_text(errors="replace")
            lines = [line.partition("== ")[2].strip() for line in log.splitlines()]
            why = [line for line in lines if "terminating" in line or "Access not within" in line or "signal" in line]
            if why:
                return f"the code crashed under valgrind: {'; '.join(why[:2])}"
        return "the counting process was killed; run the cell again to restart it" if lease.has_ended(_ENDS) else ""

    @staticmethod
    def _clean_up(lease: Lease, child: int) -> None:
        if not child:
            return
        with contextlib.suppress(OSError):  # it has ended itself, as a rule
            os.kill(child, signal.SIGKILL)
        for kind in ("cost", "log"):
            for path in Path(lease.directory).glob(f"{kind}.{child}*"):
                path.unlink(missing_ok=True)


def _read(connection: socket.socket, began: float, timeout: float | None, progress: Progress, size: int) -> bytes:
    """So many bytes; Ctrl-C is heard.

    Raises:
        CountError: the time is over.
        EOFError: the other end was closed.
    """
    data = bytearray()
    while len(data) < size:
        if not select.select([connection], [], [], _TICK)[0]:
            passed = time.monotonic() - began
            if timeout is not None and passed > timeout:
                raise CountError(f"no count after {timeout:.0f} s: use fewer calls, --callgrind N")
            progress.update(passed, None, "counting instructions")
            continue
        more = connection.recv(min(1 << 20, size - len(data)))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


_server = Server()


def the_server() -> Server:
    """The one server of this process; it starts with its first job."""
    return _server


def close_server() -> None:
    """End it, if it runs."""
    _server.close()


atexit.register(close_server)
