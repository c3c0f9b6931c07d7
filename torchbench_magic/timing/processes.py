"""Alternatives timed in fresh interpreters, one after the other: the process, and what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn, Self

from torchbench_magic.counting.client_requests import end_with_parent
from torchbench_magic.errors import BodyError, Interrupted, TorchBenchError
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.interrupts import Progress, interrupts_held, interrupts_let_through
from torchbench_magic.process.sent_errors import RaisedThere, raise_at, raised_there, sent_error
from torchbench_magic.result_base import Doubt
from torchbench_magic.units import seconds_text

from .across_runs import join_comparisons, join_processes
from .comparison import Comparison
from .identity import identifying_options
from .process_ratios import least_processes
from .run import check_alternatives, compare_bodies_async
from .sent_task import SentTask, packed, unpacked
from .sweep import Point
from .task import Task
from .warnings import doubts_of

# ---- interpreter -----------------------------------------------------------------------------------------------------
# One fresh interpreter, from this side: it is started, given a task, listened to, and ended.

_BOOT = """\
import importlib.util, json, sys
package, path, descriptors = sys.argv[1:]
sys.path[:], sys.argv[:] = json.loads(path), [""]
spec = importlib.util.spec_from_file_location("torchbench_magic", package + "/__init__.py")
sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from torchbench_magic.timing.processes import serve
serve(*json.loads(descriptors))
"""
_TICK = 0.1
_ADDR_NO_RANDOMIZE = 0x0040000  # of <sys/personality.h>, as `setarch -R` sets it


class Died(Exception):
    """The interpreter ended without an answer; the message says how, and what it said last."""


class Interpreter:
    """A process of this Python; it ends with the ``with`` block, whatever it does. Within `interrupts_held`.

    Args:
        storages: descriptor of the bytes of the tensors that its task reads; None where there are none.

    Raises:
        BodyError: it cannot be started.
    """

    def __init__(self, storages: int | None) -> None:
        self._open = contextlib.ExitStack()
        optimized = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONHASHSEED"}
        package, path = str(Path(__file__).parents[1]), json.dumps([entry or os.getcwd() for entry in sys.path])
        try:
            mine, theirs = Pipe()
            self._connection = self._open.enter_context(mine)
            with theirs:
                passed = [theirs.fileno(), *([] if storages is None else [storages])]
                self._said, self._complained = self._memory("stdout"), self._memory("stderr")
                self._process = subprocess.Popen(
                    [sys.executable, "-P", *optimized, "-c", _BOOT, package, path, json.dumps(passed)],
                    stdin=subprocess.DEVNULL,
                    stdout=self._said,
                    stderr=self._complained,
                    env=environment,
                    pass_fds=passed,
                    start_new_session=True,  # Ctrl-C is the notebook's
                )
        except OSError as error:
            self._open.close()
            raise BodyError(f"a fresh interpreter cannot be started: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with what its code has started
        self._process.wait()
        self._open.close()

    def _memory(self, name: str) -> int:
        """A descriptor that what is written to it stays in, until the process has ended."""
        descriptor = os.memfd_create(name)
        self._open.callback(os.close, descriptor)
        return descriptor

    def measured(self, sent: SentTask, progress: Progress) -> list[Comparison]:
        """Hand over the task; what was measured of each of its points.

        Raises:
            Died: it ended without an answer.
            RaisedThere: with the exception of the code.
        """
        progress.update(0.0, None, "importing torch")
        with contextlib.suppress(ConnectionError):  # it has ended already: there will be no answer
            _tell(self._connection, sent)
        while True:
            kind, *told = self._heard()
            if kind == "progress":
                progress.update(*told)
            elif kind == "raised":
                raise raised_there(*told)
            else:
                parts: list[Comparison] = told[0]
                return parts

    def _heard(self) -> tuple[Any, ...]:
        try:
            while not self._connection.poll(_TICK):  # Ctrl-C is heard
                pass
            told: tuple[Any, ...] = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Died(self._last_words()) from error
        return told

    def printed(self) -> str:
        """What the code printed."""
        return _text_of(self._said)

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


# ---- in the interpreter ----------------------------------------------------------------------------------------------
# What the fresh interpreter does: take one task, time it, and tell what came of it.


def serve(descriptor: int, storages: int | None = None) -> None:
    """Time the one task that comes through a pipe, in a process that does nothing else."""
    end_with_parent()  # whatever the code does, and however the notebook ends
    for each in (descriptor, *([] if storages is None else [storages])):
        os.set_inheritable(each, False)  # what the code starts does not hold it open
    connection = Connection(descriptor)
    sent = connection.recv_bytes()
    progress = _Told(connection)
    progress.update(0.0, None, "making the variables")
    try:
        asked: SentTask = pickle.loads(sent)
        task = replace(unpacked(asked, storages), progress=progress)
        told: tuple[Any, ...] = ("measured", _parts_of(task, awaits=asked.awaits))
    except BaseException as error:  # noqa: BLE001  (whatever the user's code raises is reported)
        told = ("raised", *sent_error(error))
    _tell(connection, told)


def _parts_of(task: Task, *, awaits: bool) -> list[Comparison]:
    parts: list[Comparison] = []
    task = replace(task, keep=parts.append)
    if awaits:
        asyncio.run(compare_bodies_async(task))
    else:
        task.measured()
    return parts


class _Told:
    """A progress that hands on what it is told."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def update(self, done: float, total: float | None, what: str) -> None:
        _tell(self._connection, ("progress", done, total, what))


def _tell(connection: Connection, told: object) -> None:
    connection.send_bytes(pickle.dumps(told, protocol=5))  # by itself it would share the memory of tensors


# ---- process_runs ----------------------------------------------------------------------------------------------------
# Timing the alternatives in fresh interpreters, one after the other: `compare_in_processes`.
#
# One process measures at a time, and the next starts when it has ended: it would take a core from a measurement.

_EXPECTED = 3.0
"""Seconds of the first process, for the progress."""
MORE = 2
"""Processes that are measured besides, in the place of those that died or whose ratios decide nothing."""


def compare_in_processes(task: Task, *, awaits: bool = False) -> Comparison:
    """Time each body against the others in ``task.plan.processes`` interpreters, which run setup each.

    Ratios are those over the processes.

    Args:
        awaits: the code awaits at its own level.

    Raises:
        BodyError: a variable that cannot travel; an interpreter that cannot be started, or that the code ends.
        OptionError, CheckFailed, SnippetError: as without processes.
        Interrupted: on Ctrl-C; ``.partial`` holds the processes that had finished.
        Exception: whatever setup or a body raises.
    """
    check_alternatives(task.bodies, task.plan)
    with interrupts_held():
        return _Run(task, awaits).whole()


class _Run:
    """The processes of one task.

    Attributes:
        found: index of a point -> its stored result, which is not measured again.
        finished: number of a process -> what it measured of each other point.
    """

    def __init__(self, task: Task, awaits: bool) -> None:
        self.task, self.awaits = task, awaits
        points: list[Point | None] = [*task.points] or [None]
        skip = task.skip if task.skip is not None else lambda *_: None
        self.found = {at: stored for at, point in enumerate(points) if (stored := skip(task, point)) is not None}
        self.points = len(points)
        self.open = [point for at, point in enumerate(points) if at not in self.found and point is not None]
        self.family = self.points * len(task.plan.threads or (1,)) * (len(task.bodies) - 1)
        asked = task.plan.processes
        self.asked = asked if isinstance(asked, int) else least_processes(self.family)
        self.began = time.monotonic()
        self.finished: dict[int, list[Comparison]] = {}
        self.spent: list[float] = []
        self.doubts: list[Doubt] = []

    def whole(self) -> Comparison:
        if len(self.found) < self.points:
            sent, parcel = packed(self.task, self.open, awaits=self.awaits)
            with parcel:
                try:
                    self._measure(sent, parcel.storages)
                except KeyboardInterrupt:
                    self._interrupted()
        made = self._joined()
        if self.task.keep is not None:
            for part in self._new_points():
                self.task.keep(part)
        return made

    def _measure(self, sent: SentTask, storages: int | None) -> None:
        number = 0
        while self.asked > sum(map(self._counts, self.finished)) and number < self.asked + MORE:
            number += 1
            began = time.monotonic()
            with Interpreter(storages) as interpreter:
                try:
                    with interrupts_let_through():
                        self.finished[number] = interpreter.measured(sent, _Progress(self, number))
                except Died as died:
                    self._note_death(number, str(died))
                except RaisedThere as there:
                    self._raise(there, number)
                if number == 1 and (text := interpreter.printed()):
                    sys.stdout.write(text)
            self.spent.append(time.monotonic() - began)

    def _counts(self, number: int) -> bool:
        """Whether all ratios of a process hold in themselves."""
        return not any(part.voids for part in self.finished[number])

    def _note_death(self, number: int, how: str) -> None:
        """
        Raises:
            BodyError: two of the first two have died: it is the code.
        """
        if number > 1 and not self.finished:
            raise BodyError(f"the code ends its interpreter: each {how}")
        text = f"Process {number} {how}; its ratio is left out."
        self.doubts.append(Doubt("process-died", text, "", {"process": number}))

    def _raise(self, there: RaisedThere, number: int) -> NoReturn:
        """Raise what the code raised, after what other processes have measured was handed over."""
        error = there.error
        if not isinstance(error, TorchBenchError):
            error.add_note(f"Raised in process {number} of {self.asked} (--processes).")
        if self.finished and self.task.failed is not None:
            self.task.failed(self._partial(f"the code raised {type(error).__name__}"))
        raise_at(there.lines, error)

    def _interrupted(self) -> NoReturn:
        if self.finished:
            raise Interrupted(self._partial("interrupted")) from None
        waited = seconds_text(time.monotonic() - self.began)
        said = f"Nothing was measured yet: interrupted after {waited}, in process 1 of {self.asked}."
        raise Interrupted(None, said) from None

    def _partial(self, why: str) -> Comparison:
        made = self._joined()
        count = len(self.finished)
        text = f"Partial: {why} after {count} of {self.asked} processes. Their results are kept."
        said = Doubt("partial", text, "", {"processes": count, "elapsed": made.elapsed})
        return replace(made, partial=True, warnings=[said, *made.warnings])

    def _new_points(self) -> list[Comparison]:
        """What the processes measured of each point that was not stored."""
        of_points = [*zip(*self.finished.values(), strict=True)]
        environment, options = read_environment(), identifying_options(self.task.plan)
        return [
            replace(
                self._named(join_processes(dict(zip(self.finished, parts, strict=True)))),
                environment=environment,
                family=self.family,
                elapsed=sum(self.spent) / len(of_points),
                options=options,
            )
            for parts in of_points
        ]

    def _named(self, made: Comparison) -> Comparison:
        """With the functions that the code may call as this process knows them: the others have no text of them."""
        if not self.task.python:
            return made
        named = zip(made.subjects, itertools.cycle(self.task.bodies), strict=False)  # each thread count has their order
        subjects = tuple(replace(subject, functions=self.task.functions[name]) for subject, name in named)
        return replace(made, subjects=subjects, sources=self.task.sources)

    def _joined(self) -> Comparison:
        new = iter(self._new_points())
        parts = [self.found[at] if at in self.found else next(new) for at in range(self.points)]
        whole = join_comparisons(parts)
        doubts = [*self.doubts, *whole.warnings, *doubts_of(whole)]
        if fixed_addresses():
            text = (
                "Every process gets the same addresses on this system, so processes differ less here than on"
                " other systems or on other days."
            )
            doubts.insert(0, Doubt("fixed-addresses", text, "Run without `setarch -R` and `randomize_va_space=0`."))
        return replace(whole, warnings=doubts)


class _Progress:
    """What one process tells, as part of all of them."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run, self._number = run, number

    def update(self, done: float, total: float | None, what: str) -> None:
        run = self._run
        before = sum(run.spent)
        one = before / len(run.spent) if run.spent else _EXPECTED
        told: Progress = run.task.progress
        after = one * max(run.asked - self._number, 0)
        where = f"process {self._number} of {run.asked}: {what}"
        with interrupts_held():
            told.update(before + done, before + max(one, done) + after, where)
