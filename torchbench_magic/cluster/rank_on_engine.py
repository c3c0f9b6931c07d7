"""On an engine: one rank of a job, run under the profiler, freed where it waits for ever."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import OptionError, TorchBenchError
from torchbench_magic.process.code import CompiledBody, compile_body, globals_assigned
from torchbench_magic.process.interrupts import NO_PROGRESS, interrupts_held
from torchbench_magic.process.require_torch import import_torch
from torchbench_magic.process.sent_errors import sent_error
from torchbench_magic.storage.records import decoded, pack_columns, profile_record

from .on_engine import folders_known, known_lines, made_names
from .rank_recording import clock_against_rank_0

# ---- gloo_sockets ----------------------------------------------------------------------------------------------------
# The connections of a process group over gloo: closed, they end the collectives that stand in them.
#
# No signal and no call of torch reaches a rank that waits in gloo's C++ code (``abort`` of torch 2.13 does nothing
# there); a connection that is shut down does: the collective raises "Connection closed by peer", on the other side too.
# They are found as the sockets that were opened while the group was made. Linux only; elsewhere nothing is found.

_DESCRIPTORS = "/proc/self/fd"


class GlooSockets:
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


# ---- waiting_watch ---------------------------------------------------------------------------------------------------
# On an engine: a thread that tells the notebook in which collective this rank waits, and frees it when it is to stop.
#
# A rank waits where its main thread is in a call of torch that communicates and its process uses no processor: what is
# sent or received does use it. SIGINT does not reach such a rank, but the system notes it in a descriptor at once
# (`signal.set_wakeup_fd`), whatever the main thread does.

_EACH = 0.25  # seconds
_TELL_AFTER = 1.0
_IDLE = 0.05
"""Of a look's time: a process that uses less of a processor waits."""
_STILL_WAITS = 0.5
"""Seconds after a SIGINT in which a rank in Python code has heard it."""
_COMMUNICATES = (
    os.path.join("torch", "distributed") + os.sep,
    os.path.join("torch", "autograd", "graph.py"),  # DDP's all-reduce runs within backward
    os.path.join("torch", "nn", "parallel") + os.sep,
)
_NAMES = {"_engine_run_backward": "backward", "wrapper": ""}
"""Functions of torch that stand for another name, or for none: what logs each call of torch.distributed."""


class WaitingWatch:
    """``with WaitingWatch(...)`` around the cell.

    Args:
        text_of: file -> its cell.
        sockets: of the group that was made for this job.
    """

    def __init__(self, text_of: Callable[[str], CellText | None], sockets: GlooSockets) -> None:
        self._text_of, self._sockets = text_of, sockets
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="torchbench waiting", daemon=True)
        self._told: tuple[str, str] | None = None

    def __enter__(self) -> WaitingWatch:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._ended = threading.Event()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._is_main:
            signal.set_wakeup_fd(self._before)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _watch(self) -> None:
        since, place = 0.0, ("", "")
        spent, looked = time.process_time(), time.perf_counter()
        while not self._ended.is_set():
            if select.select([self._read], [], [], _EACH)[0]:
                os.read(self._read, 64)
                if not self._ended.wait(_STILL_WAITS) and self._place() is not None:
                    self._sockets.shut()
            now, used = time.perf_counter(), time.process_time()
            found = self._place() if used - spent < _IDLE * (now - looked) else None
            if found is None or found != place:
                since, place = now, found or ("", "")
            spent, looked = used, now
            self._tell(place if found is not None and now - since >= _TELL_AFTER else None, now - since)

    def _place(self) -> tuple[str, str] | None:
        """(``all_reduce``, ``In[3]:7``) where the main thread communicates, else None."""
        frame: FrameType | None = sys._current_frames().get(self._main)
        call, is_inside = "", False
        while frame is not None:
            file = frame.f_code.co_filename
            if any(part in file for part in _COMMUNICATES):
                name = frame.f_code.co_name
                is_inside, call = True, _NAMES.get(name, name) or call
            elif not is_inside:
                return None
            cell = self._text_of(file)
            if cell is not None:
                return call, f"{cell.label}:{cell.visible_line(frame.f_lineno)}"
            frame = frame.f_back
        return None

    def _tell(self, place: tuple[str, str] | None, seconds: float) -> None:
        if place is None and self._told is None:
            return
        self._told = place
        told: dict[str, Any] = {"call": "", "place": "", "seconds": 0.0}
        if place is not None:
            told = {"call": place[0], "place": place[1], "seconds": seconds}
        from ipyparallel.datapub import publish_data

        publish_data({"waits": told})


# ---- engine_rank -----------------------------------------------------------------------------------------------------
# A job has three questions. `prepare` does all that can fail by itself (torch, the names, the code), while no other
# rank waits for this one. `run_rank` makes the process group, unless the user has one, and profiles the cell; a rank
# that fails ends the group at once, which frees the others from the collectives in which they wait for it (else they
# stand there until the backend's timeout, 30 minutes by default). `end_job` ends the group that was made, when all are
# back: a rank that ended it earlier could break the last collective of the others.

GIVEN = ("rank", "world_size")
"""Names that the cell finds on every rank."""
_LONGEST_VALUE = 10_000  # characters of the text of the cell's last expression


_Texts = Callable[[str], CellText | None]


@dataclass
class _Job:
    """What is kept between the questions.

    Attributes:
        asked: of `prepare`.
        code: of the cell.
        names: globals of the cell.
        folder: made for the store of the group; empty for none.
        made_group: the process group is ours.
    """

    asked: Mapping[str, Any]
    code: CompiledBody
    names: dict[str, Any]
    folder: str = ""
    made_group: bool = False
    sockets: GlooSockets = field(default_factory=GlooSockets)


_job: list[_Job] = []
"""One at most: an engine runs one thing at a time."""


def prepare(**asked: Any) -> dict[str, Any]:
    """Get all ready but for the process group.

    Args:
        asked: ``body flags names cells folders options shows_value first``.

    Returns:
        ``wrong``, a line for the user, empty where all is well; ``group``, (rank, size, backend) of the user's own
        process group, or None; of the ``first`` engine ``folder``, ``address`` and ``port`` for a store.
    """
    _job.clear()
    told: dict[str, Any] = {"wrong": "", "group": None, "folder": "", "address": "", "port": 0}
    try:
        with interrupts_held():  # a second import of what a Ctrl-C broke off fails
            import_torch()
        from torch import distributed

        if not distributed.is_available():
            raise OptionError("torch has no torch.distributed here")
        with folders_known(asked["folders"]), known_cells(asked["cells"]):
            names = made_names(asked["names"])
        for name, value in _own_names().items():
            names.setdefault(name, value)
        body = Body(**asked["body"])
        job = _Job(asked, compile_body(body, flags=asked["flags"]), names)
    except TorchBenchError as error:
        return {**told, "wrong": str(error)}
    if distributed.is_initialized():
        told["group"] = distributed.get_rank(), distributed.get_world_size(), str(distributed.get_backend())
    elif asked["first"]:
        job.folder = told["folder"] = tempfile.mkdtemp(prefix="torchbench-ranks-")
        told["address"] = socket.gethostname()
        with socket.socket() as free:
            free.bind(("", 0))
            told["port"] = free.getsockname()[1]
    _job[:] = [job]
    return told


@contextmanager
def known_cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[Callable[[str], CellText | None]]:
    """On the engine: `linecache` has the texts in the block; gives file -> its cell, None for what is no cell."""
    made = {}
    for each in cells:
        text = CellText(**{**each["text"], "visible": tuple(each["text"]["visible"])})
        made[text.file] = text
    pairs = zip(made.values(), cells, strict=True)
    with known_lines({text.file: each["lines"] or [f"{line}\n" for line in text.lines] for text, each in pairs}):
        yield made.get


def _own_names() -> dict[str, Any]:
    """What the user has on the engine, as after ``%%px``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    found: dict[str, Any] = getattr(shell, "user_ns", {})
    return found


def run_rank(*, rank: int, world_size: int, store: Mapping[str, Any], several_hosts: bool) -> dict[str, Any]:
    """Run the prepared cell as this rank; what it raises is a value here.

    Args:
        store: ``folder``, or ``address`` and ``port``, of the group that is to be made; empty for the user's own.

    Returns:
        ``profile`` (header and packed tables), ``backend``, ``clock``, ``error`` (``sent place when``), and
        ``grouped``, whether there were groups of some ranks.
    """
    (job,) = _job
    try:
        with folders_known(job.asked["folders"]), known_cells(job.asked["cells"]) as text_of:
            told = _ran(job, rank, world_size, store, text_of, several_hosts=several_hosts)
    except BaseException:  # before or after the cell: a profiler that runs already, a Ctrl-C
        _free_the_others(job)
        raise
    if told["error"] is not None:
        _free_the_others(job)
    _keep_names(job)
    return told


def _ran(
    job: _Job, rank: int, world_size: int, store: Mapping[str, Any], text_of: _Texts, *, several_hosts: bool
) -> dict[str, Any]:
    if store:
        _make_group(job, rank, world_size, store)
    from torch import distributed

    backend = str(distributed.get_backend())
    clock = clock_against_rank_0(rank, world_size) if several_hosts and backend == "gloo" else None
    job.names.update(rank=rank, world_size=world_size)
    job.names.setdefault("__name__", "__main__")
    groups = _groups_made()
    with WaitingWatch(text_of, job.sockets):
        _warm_up()
        distributed.barrier()  # profilers start at different moments
        told = {**_profiled(job, text_of), "backend": backend, "clock": clock}
    return {**told, "grouped": _groups_made() > groups or len(getattr(_world(), "pg_map", ())) > 1}


def _groups_made() -> int:
    """How many process groups this process has made, those that it has ended too; -1 where torch does not tell."""
    return int(getattr(_world(), "group_count", -1))


def _world() -> Any:
    from torch import distributed

    # assumed of torch 2.13 and newer: a private name
    return getattr(sys.modules.get(f"{distributed.__name__}.distributed_c10d"), "_world", None)


def _make_group(job: _Job, rank: int, world_size: int, store: Mapping[str, Any]) -> None:
    from torch import distributed

    stores: Any = distributed
    with job.sockets.noted():
        if store.get("folder"):
            made = stores.FileStore(os.path.join(store["folder"], "store"), world_size)
        else:
            made = stores.TCPStore(store["address"], store["port"], world_size, is_master=rank == 0)
        distributed.init_process_group("gloo", store=made, rank=rank, world_size=world_size)
    job.made_group = True


@cache
def _warm_up() -> None:
    """The first start of torch's profiler in a process takes 0.2 s, in which the others would wait."""
    from torchbench_magic.profiling.kineto import make_ready

    make_ready(NO_PROGRESS)


def _profiled(job: _Job, text_of: _Texts) -> dict[str, Any]:
    from torchbench_magic.profiling.run import Asked, profile_body

    options = decoded(job.asked["options"])
    outcome = profile_body(job.code, Asked(options=options, namespace=job.names, cells=text_of))
    error = None
    if outcome.error is not None:
        error = _error(outcome.error, text_of)
    elif job.asked["shows_value"] and outcome.value is not None:
        sys.stdout.write(f"{_text(outcome.value)}\n")
    record = profile_record(outcome.profile)
    tables = {name: [tuple(column) for column in pack_columns(table)] for name, table in record.tables.items()}
    return {"profile": {"version": record.version, "header": record.header, "tables": tables}, "error": error}


def _text(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # the user's own `__repr__`
        return f"<{type(value).__name__}: its text raised {type(error).__name__}>"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _error(error: BaseException, text_of: _Texts) -> dict[str, Any]:
    """What ended the cell, the line of the cell, and when."""
    sent, place = sent_error(error), ""
    for file, line, _ in sent[3]:
        cell = text_of(file)
        if cell is not None:
            place = f"{cell.label}:{cell.visible_line(line)}"
    return {"sent": sent, "place": place, "when": time.time()}


def _free_the_others(job: _Job) -> None:
    """End this rank's part in the group. Its connections are shut, too: whatever still holds the group, as the first
    job of a process may, keeps them open, and the others would wait for ever."""
    from torch import distributed

    if distributed.is_initialized():
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):  # it may be broken already
            distributed.destroy_process_group()
    job.sockets.shut()


def _keep_names(job: _Job) -> None:
    """What the cell assigned is there for the next cell on this engine, as after any other."""
    own = _own_names()
    codes = [job.code.code] if job.code.last is None else [job.code.code, job.code.last]
    for name in {name for code in codes for name in globals_assigned(code)}:
        if name in job.names and name not in GIVEN:
            own[name] = job.names[name]


def end_job() -> None:
    """Put away what `prepare` and `run_rank` made."""
    while _job:
        job = _job.pop()
        if job.made_group:
            _free_the_others(job)
        if job.folder:
            shutil.rmtree(job.folder, ignore_errors=True)
