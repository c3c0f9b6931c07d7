"""On an engine: one rank of a job, made ready, run under the profiler, and put away.

A job has three questions. `prepare` does all that can fail by itself (torch, the names, the code), while no other rank
waits for this one. `run_rank` makes the process group, unless the user has one, and profiles the cell; a rank that
fails ends the group at once, which frees the others from the collectives in which they wait for it (else they stand
there until the backend's timeout, 30 minutes by default). `end_job` ends the group that was made, when all are back:
a rank that ended it earlier could break the last collective of the others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchbench_magic.core.code.body import CompiledBody, compile_body
from torchbench_magic.core.code.code_reads import globals_assigned
from torchbench_magic.core.code.own_frames import without_own_frames
from torchbench_magic.core.engines.sent_cells import known_cells
from torchbench_magic.core.engines.sent_names import folders_known, sent_versions, unpack_names
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.core.process.torch_import import import_torch
from torchbench_magic.errors import OptionError, TorchBenchError
from torchbench_magic.results.cell_text import Body, CellText
from torchbench_magic.results.storage.packed_columns import pack_columns
from torchbench_magic.results.storage.profile_record import profile_record
from torchbench_magic.results.storage.records import decoded

from .gloo_sockets import GlooSockets
from .rank_recording import clock_against_rank_0
from .waiting_watch import WaitingWatch

__all__ = ["GIVEN", "end_job", "prepare", "run_rank"]

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
        sent: those of the names that came from the notebook.
    """

    asked: Mapping[str, Any]
    code: CompiledBody
    names: dict[str, Any]
    folder: str = ""
    made_group: bool = False
    sockets: GlooSockets = field(default_factory=GlooSockets)
    sent: frozenset[str] = frozenset()


_job: list[_Job] = []
"""One at most: an engine runs one thing at a time."""
_warm: list[bool] = []


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
            names = unpack_names(asked["names"])
        sent = frozenset(names)
        for name, value in _own_names().items():
            names.setdefault(name, value)
        body = Body(**asked["body"])
        job = _Job(asked, compile_body(body, flags=asked["flags"]), names, sent=sent)
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
        ``profile`` (header and packed tables), ``backend``, ``clock``, ``error`` (``kind text lines when freed``),
        ``grouped``, whether there were groups of some ranks, and ``changed``, names whose sent tensors are no longer
        what they were.
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
    groups, before = _groups_made(), sent_versions(job.names, job.sent)
    with WaitingWatch(text_of, job.sockets) as watch:
        _warm_up()
        distributed.barrier()  # profilers start at different moments
        told = {**_profiled(job, text_of, watch), "backend": backend, "clock": clock}
    now = sent_versions(job.names, job.sent)
    told["changed"] = [name for name, version in before.items() if name in now and now[name] != version]
    return {**told, "grouped": _groups_made() > groups or _groups_there() > 1}


def _groups_made() -> int:
    """How many process groups this process has made, those that it has ended too; -1 where torch does not tell."""
    return int(getattr(_world(), "group_count", -1))


def _groups_there() -> int:
    return len(getattr(_world(), "pg_map", ()))


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


def _warm_up() -> None:
    """The first start of torch's profiler in a process takes 0.2 s, in which the others would wait."""
    if _warm:
        return
    from torchbench_magic.core.profiling.torch_events.kineto import make_ready
    from torchbench_magic.core.progress import NO_PROGRESS

    make_ready(NO_PROGRESS)
    _warm.append(True)


def _profiled(job: _Job, text_of: _Texts, watch: WaitingWatch) -> dict[str, Any]:
    from torchbench_magic.core.profiling.profiler import Asked, profile_body

    options = decoded(job.asked["options"])
    outcome = profile_body(job.code, Asked(options=options, namespace=job.names, cells=text_of))
    error = None
    if outcome.error is not None:
        error = _error(outcome.error, text_of, freed=watch.has_freed)
    elif job.asked["shows_value"] and outcome.value is not None:
        sys.stdout.write(f"{_text(outcome.value)}\n")
    record = profile_record(outcome.profile)
    tables = {
        name: [(c.name, c.dtype, c.rows, c.codec, c.data) for c in pack_columns(table)]
        for name, table in record.tables.items()
    }
    return {"profile": {"version": record.version, "header": record.header, "tables": tables}, "error": error}


def _text(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # the user's own `__repr__`
        return f"<{type(value).__name__}: its text raised {type(error).__name__}>"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _error(error: BaseException, text_of: _Texts, *, freed: bool) -> dict[str, Any]:
    """What ended the cell: its type, its text, the line of the cell, its traceback."""
    shown = without_own_frames(error.__traceback__)
    place = ""
    for frame, line in traceback.walk_tb(shown):
        cell = text_of(frame.f_code.co_filename)
        if cell is not None:
            place = f"{cell.label}:{cell.visible_line(line)}"
    lines = "".join(traceback.format_exception(type(error), error, shown))
    return {
        "kind": type(error).__name__,
        "text": str(error),
        "place": place,
        "lines": lines,
        "when": time.time(),
        "freed": freed,
    }


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
