"""The notebook's side of the fork server: start it, hand it a job, read its answer, and end it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.errors import CountError, MissingTool

from . import callgrind_file
from .valgrind import launch, leftovers
from .wire import Wire

__all__ = [
    "CodeFailed",
    "NotStarted",
    "Server",
    "close_server",
    "starting_held",
    "starting_meanwhile",
    "the_server",
]

_START_SECONDS = 25.0  # what starting takes, for the progress
_PRELOADED_SECONDS = 25.0  # and what is imported besides torch
_TICK = 0.1
_NO_PROGRESS_SECONDS = 60.0
"""A process that has not used the processor for so long hangs: starting is work from its begin to its end."""
_MOST_START_SECONDS = 1800.0


class CodeFailed(CountError):
    """The code raised in the process that counts.

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

    Raises (all methods):
        MissingTool: no valgrind, or no system that it runs on.
    """

    def __init__(self, preloaded: Sequence[str] = ()) -> None:
        self._preloaded = tuple(preloaded)
        self._fuller: Server | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: leftovers.ServerWatch | None = None
        self._directory = ""
        self._control: socket.socket | None = None
        self._jobs: socket.socket | None = None
        self._is_ready = False
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the process under valgrind; None where there is none."""
        return self._process.pid if self.is_alive and self._process is not None else None

    @property
    def is_alive(self) -> bool:
        if self._owner != os.getpid():  # a fork of the notebook's process: the server is its parent's
            return False
        return self._process is not None and self._process.poll() is None

    # ---- its life ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start it in the background if it is not there; `start` waits for it."""
        with self._lock:
            if not self.is_alive:
                self._launch(launch.program())
            else:
                self._signal(signal.SIGCONT)  # it may be held

    def start(self, progress: Progress = NO_PROGRESS) -> None:
        """Start it if it is not there, and wait until it takes jobs. After Ctrl-C it goes on starting."""
        self.begin()
        self._wait(progress)

    def finish_starting(self, progress: Progress = NO_PROGRESS) -> None:
        """Wait until those that are under way take jobs."""
        if not self._is_ready and self.is_alive:
            self.start(progress)
        if self._fuller is not None:
            self._fuller.finish_starting(progress)

    @property
    def is_starting(self) -> bool:
        """Is it under way, or the second one, and keeping a core busy?"""
        if self._fuller is not None and self._fuller.is_starting:
            return True
        if not self._is_ready and self.is_alive:
            self._look()
        return not self._is_ready and self.is_alive

    def hold(self) -> bool:
        """Stop it where it is under way, and the second one; they go on with `go_on`, or where they are asked for.

        Returns:
            whether any was.
        """
        held = self._fuller is not None and self._fuller.hold()
        if self.is_starting:
            self._signal(signal.SIGSTOP)
            return True
        return held

    def go_on(self) -> None:
        """Undo `hold`."""
        self._signal(signal.SIGCONT)
        if self._fuller is not None:
            self._fuller.go_on()

    def _signal(self, number: int) -> None:
        if self._process is not None and self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _launch(self, program: str) -> None:
        self._forget()
        self._owner, self._is_ready = os.getpid(), False
        leftovers.remove_leftovers()
        try:
            self._directory = leftovers.new_directory()
            self._control, control = socket.socketpair()
            self._jobs, jobs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            with control, jobs, leftovers.locked_output(self._directory) as output:
                self._process = subprocess.Popen(
                    launch.command(program, self._directory, self._preloaded),
                    stdin=control.fileno(),
                    stdout=jobs.fileno(),
                    stderr=output,
                    env=launch.counting_environment(),
                    cwd="/",
                    start_new_session=True,  # Ctrl-C is the notebook's
                )
            self._watch = leftovers.ServerWatch(self._process.pid, self._directory)
            path = json.dumps(launch.start_path()).encode()
            with contextlib.suppress(ConnectionError):  # it has ended already: `_wait` says why
                self._control.sendall(struct.pack("<Q", len(path)) + path)
        except OSError as error:
            self._forget()
            raise NotStarted(f"the process that counts cannot be started: {error.strerror or error}") from error

    def _wait(self, progress: Progress) -> None:
        began = worked = time.monotonic()
        ticks = None
        while not self._is_ready:
            if (used := leftovers.cpu_ticks(self.pid or 0)) != ticks:
                ticks, worked = used, time.monotonic()
            waited = time.monotonic() - worked if ticks is not None else 0.0
            if waited > _NO_PROGRESS_SECONDS or time.monotonic() - began > _MOST_START_SECONDS:
                self._forget()
                raise NotStarted(self._hangs(waited, time.monotonic() - began))
            if self._control is None or not self.is_alive:
                told = self._startup_words()
                self._forget()
                launch.check_valgrind_runs()
                raise NotStarted(f"the process that counts did not start: {told}")
            passed = time.monotonic() - began
            expected, what = _START_SECONDS, "starting valgrind, once in a kernel"
            if self._preloaded:
                expected += _PRELOADED_SECONDS
                what = f"starting valgrind with {', '.join(self._preloaded)}, which the code uses, once in a kernel"
            progress.update(passed, max(expected, passed), what)
            self._look()

    @staticmethod
    def _hangs(waited: float, passed: float) -> str:
        what = f"does nothing for {waited:.0f} s" if waited > _NO_PROGRESS_SECONDS else f"takes {passed / 60:.0f} min"
        return (
            f"the process that counts {what} at its start, and was ended: try `valgrind --tool=callgrind true` in a"
            " terminal; the timings of the cell are there without counts"
        )

    def _look(self) -> None:
        """Has the server said that it is ready? Waits a little for it."""
        with self._lock:  # another thread may have read the byte meanwhile
            if self._control is None or self._is_ready:
                return
            if select.select([self._control], [], [], 0.02)[0]:
                with contextlib.suppress(ConnectionError):  # it ended before it read what it was sent
                    self._is_ready = self._control.recv(1) == b"R"

    def _startup_words(self) -> str:
        """What valgrind or Python said last."""
        said = []
        for path in [*sorted(Path(self._directory).glob("log.*")), Path(self._directory, "output")]:
            with contextlib.suppress(OSError):
                said += path.read_text(errors="replace").strip().splitlines()[-1:]
        return "; ".join(said)[-400:] or "it said nothing"

    def close(self) -> None:
        """End it, with the second one, and remove its directory."""
        with self._lock:
            self._forget()
            fuller, self._fuller = self._fuller, None
        if fuller is not None:
            fuller.close()

    def _forget(self) -> None:
        if self._owner == os.getpid():
            for end in (self._control, self._jobs):
                if end is not None:
                    end.close()  # the server ends when it reads the end of control
            if self._watch is not None:
                self._watch.end()
            if self._process is not None:
                if not self._is_ready:  # it reads control when it has started, which is long to wait
                    self._signal(signal.SIGKILL)
                try:
                    self._process.wait(2)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            if self._directory:
                shutil.rmtree(self._directory, ignore_errors=True)
        self._process, self._watch, self._control, self._jobs, self._directory = None, None, None, None, ""

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
                    self._fuller = Server([*self._preloaded, str(needs)])
            return self._fuller.count(job, storages=storages, timeout=timeout, progress=progress)

    def _count(
        self, job: Mapping[str, Any], storages: int | None, timeout: float | None, progress: Progress
    ) -> tuple[callgrind_file.Costs, callgrind_file.Costs]:
        self.start(progress)
        connection, theirs = socket.socketpair()
        with connection:
            child = 0
            try:
                assert self._control is not None  # `start` made them
                assert self._jobs is not None
                with theirs:
                    socket.send_fds(self._jobs, [b"J"], [theirs.fileno()])
                self._control.sendall(b"J")
                wire = Wire(connection, timeout, progress)
                (child,) = struct.unpack("<Q", wire.read(8))
                data = pickle.dumps(dict(job), protocol=5)
                head = struct.pack("<Q", len(data))
                socket.send_fds(connection, [head], [] if storages is None else [storages])
                connection.sendall(data)
                (size,) = struct.unpack("<Q", wire.read(8))
                answer = pickle.loads(wire.read(size))
                if "needs" in answer:
                    raise _Needs(answer["needs"])
                if not answer["ok"]:
                    raise CodeFailed(answer)
                return self._costs(child)
            except (EOFError, ConnectionError, BrokenPipeError, FileNotFoundError) as error:
                raise CountError(self._reason(child)) from error
            finally:
                self._clean_up(child)

    def _costs(self, child: int) -> tuple[callgrind_file.Costs, callgrind_file.Costs]:
        """Those of the statement and of the empty loop: the parts after that of the calls that warmed up."""
        try:
            warm, statement, empty = (
                callgrind_file.parse(Path(self._directory, f"cost.{child}.{part}").read_text(errors="replace"))
                for part in (1, 2, 3)
            )
        except (FileNotFoundError, CountError) as error:
            why = f": {error}" if isinstance(error, CountError) else ""
            raise CountError(
                f"callgrind did not write its counts into {self._directory}{why}: is the disk full? Free space there"
                " and run the cell again"
            ) from error
        return callgrind_file.since(statement, [warm]), callgrind_file.since(empty, [warm, statement])

    def _reason(self, child: int) -> str:
        """Why a child gave no answer."""
        time.sleep(_TICK)  # for the server's own end to be seen
        if not self.is_alive:
            return "the process that counts was killed; run the cell again, it starts anew"
        with contextlib.suppress(OSError):
            log = Path(self._directory, f"log.{child}").read_text(errors="replace")
            lines = [line.partition("== ")[2].strip() for line in log.splitlines()]
            why = [line for line in lines if "terminating" in line or "Access not within" in line or "signal" in line]
            if why:
                return f"the code crashed under valgrind: {'; '.join(why[:2])}"
        return "the code ended the process that counts (os._exit or a kill)"

    def _clean_up(self, child: int) -> None:
        if not child:
            return
        with contextlib.suppress(OSError):  # it has ended itself, as a rule
            os.kill(child, signal.SIGKILL)
        for kind in ("cost", "log"):
            for path in Path(self._directory).glob(f"{kind}.{child}*"):
                path.unlink(missing_ok=True)


_server = Server()


def the_server() -> Server:
    """The one server of this process; it starts with its first job."""
    return _server


@contextlib.contextmanager
def starting_meanwhile(progress: Progress = NO_PROGRESS) -> Iterator[None]:
    """Start the server beside what keeps the user waiting anyway, such as a compiler; at the end it is there.

    Nothing may be timed within: starting keeps a core busy for long. What keeps it from starting is no error here, it
    is told where something is counted. Where the block fails it goes on starting.
    """
    with contextlib.suppress(MissingTool, NotStarted):
        _server.begin()
    yield
    if _server.is_starting:
        with contextlib.suppress(MissingTool, NotStarted):
            _server.finish_starting(progress)


@contextlib.contextmanager
def starting_held() -> Iterator[None]:
    """A server that is starting, as after Ctrl-C, neither disturbs what is measured within nor is waited for.

    Where it is asked for within it goes on there, and else when the block ends.
    """
    held = _server.hold()
    try:
        yield
    finally:
        if held:
            _server.go_on()


def close_server() -> None:
    """End it, if it runs."""
    _server.close()


atexit.register(close_server)
