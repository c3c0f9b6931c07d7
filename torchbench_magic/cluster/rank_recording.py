"""What one rank of a job does, recorded into a trace that says which rank it is and how its clock stands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torchbench_magic.errors import Busy, InputError, TraceError
from torchbench_magic.files import TRACE, path_of, whole_file
from torchbench_magic.process.interrupts import interrupts_held
from torchbench_magic.profiling.kineto import torch_profiler_runs

RANK_KEY = "torchbench_magic_rank"
"""Key of a trace under which rank, size of the job and clock are written."""
MERGED_KEY = "torchbench_magic_ranks"
"""Key of a merged trace: the ranks in it."""

_ROUNDS = 15
"""Of asking rank 0 for its time: the quickest of them held within 4 us on one host, see docs/ranks.md."""


class RankRecording:
    """``recording.start()``, the job, ``recording.stop()``, then `write`.

    Args:
        folder: made where there is none; this rank writes ``rankN.json.gz`` in it.
        stack: functions are recorded too, so that the one that makes a rank late is known.

    Attributes:
        ended: the name of the exception that ends the job on this rank, and when; the trace tells it.
        gave_way: the job started a torch profiler of its own, at which this recording ended. Two at a time break each
            other: torch 2.13 loses the events of the outer one and then crashes.

    Raises:
        InputError: the folder cannot be made, or RANK and WORLD_SIZE hold no numbers.
    """

    def __init__(self, folder: str | os.PathLike[str], *, stack: bool = True) -> None:
        self.folder = path_of(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: no folder can be made there ({error.strerror or error})") from None
        self.rank, self.world_size, self.backend = _number("RANK", 0), _number("WORLD_SIZE", 1), ""
        self._clock: tuple[int, int] | None = None
        self._stack = stack
        self.ended: tuple[str, int] | None = None
        self.gave_way = False
        self.profiler: Any = None
        self._is_on = False
        self._undone = contextlib.ExitStack()

    def start(self) -> None:
        """Begin. Where the process group is there, every rank must begin: they compare their clocks.

        Raises:
            Busy: a torch profiler runs already.
        """
        if torch_profiler_runs():
            raise Busy("a torch profiler is already running; stop it first")
        import torch.profiler

        self.look()
        record = torch.profiler.ProfilerAction.RECORD
        self.profiler = torch.profiler.profile(
            schedule=lambda step: record,
            record_shapes=True,
            with_stack=self._stack,  # with a schedule steps are marked
        )
        self.profiler.start()
        self._is_on = True
        self._undone.callback(_before_profilers(self._give_way))

    def _give_way(self, starting: Any) -> None:
        if self._is_on and starting is not getattr(self.profiler, "profiler", None):
            self.gave_way = True
            sys.stderr.write(
                f"torchbench_magic: rank {self.rank} starts a torch profiler of its own, and only one can run at a"
                " time: this recording ends here. To see all of it, pass the script's own traces to load_ranks.\n"
            )
            self.stop()

    def look(self) -> None:
        """Learn rank and clock from the process group, if there is one now: it may be gone before the end."""
        from torch import distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return
        known = bool(self.backend)
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        self.backend = str(distributed.get_backend())
        of_one_host = os.environ.get("LOCAL_WORLD_SIZE") == str(self.world_size)  # as torchrun says it: one clock
        if not known and self.world_size > 1 and self.backend == "gloo" and not of_one_host:
            self._clock = clock_against_rank_0(self.rank, self.world_size)

    def end_with(self, error: BaseException) -> None:
        """Note what ends the job on this rank, now."""
        self.ended = type(error).__name__, time.time_ns()

    def stop(self) -> None:
        """End the recording; what was recorded is held until `write`. Safe to call twice."""
        if not self._is_on:
            return
        self._is_on = False
        self._undone.close()
        self.look()
        told: dict[str, Any] = {"rank": self.rank, "world_size": self.world_size, "backend": self.backend}
        if self.ended is not None:
            told["ended"], told["ended_ns"] = self.ended
        if self.gave_way:
            told["gave_way"] = True
        if self._clock is not None:
            told["clock"] = {"offset_ns": self._clock[0], "error_ns": self._clock[1]}
        self.profiler.add_metadata_json(RANK_KEY, json.dumps(told))
        self.profiler.stop()

    def write(self) -> Path:
        """The file, whole or not at all.

        Raises:
            TraceError: it cannot be written.
        """
        path = self.folder / f"rank{self.rank}.json.gz"
        with whole_file(path, TRACE) as part:
            plain = part.with_name(f"{part.name}.json.gz")  # torch packs by the name's end
            try:
                self.profiler.export_chrome_trace(os.fspath(plain))
                os.replace(plain, part)
            except RuntimeError as error:
                raise TraceError(f"{path}: cannot be written ({str(error).splitlines()[0]})") from None
            finally:
                plain.unlink(missing_ok=True)
        return path


def _before_profilers(told: Callable[[Any], None]) -> Callable[[], None]:
    """Have ``told`` called with each of torch's profilers that is about to start; what is returned ends that."""
    from torch.autograd import profiler

    kind: Any = profiler.profile
    name = "_prepare_trace"  # assumed of torch 2.13 and newer: profilers of both its modules begin with it
    was = vars(kind).get(name)
    if was is None:
        return lambda: None

    @functools.wraps(was)
    def prepared(profile: Any, *given: Any, **named: Any) -> Any:
        told(profile)
        return was(profile, *given, **named)

    setattr(kind, name, prepared)

    def end() -> None:
        if vars(kind).get(name) is prepared:
            setattr(kind, name, was)

    return end


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "") or str(otherwise)
    if not text.isdigit():
        raise InputError(f"{name}={text!r} in the environment is not a rank number; unset it, or start with torchrun")
    return int(text)


def clock_against_rank_0(rank: int, world_size: int) -> tuple[int, int]:
    """(ns this clock is ahead of rank 0's, ns that may be off): Cristian's method (1989), of several rounds the
    quickest. Rank 0 read its clock between asking and answer, so half of the round is the bound."""
    import torch
    from torch import distributed

    number = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        for other in range(1, world_size):
            for _ in range(_ROUNDS):
                distributed.recv(number, other)
                number[0] = time.time_ns()
                distributed.send(number, other)
        return 0, 0
    rounds = []
    for _ in range(_ROUNDS):
        asked = time.time_ns()
        distributed.send(number, 0)
        distributed.recv(number, 0)
        answered = time.time_ns()
        rounds.append((answered - asked, (asked + answered) // 2 - int(number)))
    took, offset = min(rounds)
    return offset, took // 2 + 1


@contextlib.contextmanager
def rank_profile(folder: str | os.PathLike[str] = "traces", *, stack: bool = True) -> Iterator[Any]:
    """``with rank_profile("traces"): train()`` on every rank: one trace a rank, for `cluster.rank_traces`.

    The trace says which rank it is of, also where the process group is gone at the end. Over gloo on several hosts the
    clocks are measured as well. The trace is written after an exception and Ctrl-C too.

    Args:
        folder: made where there is none; an older trace of this rank in it is replaced.
        stack: record functions, so that the one that makes a rank late can be named; it makes Python slower.

    Yields:
        torch's profiler; its ``step()`` marks steps.

    Raises:
        Busy: a torch profiler runs already.
        InputError: the folder or the file cannot be made.
    """
    recording = RankRecording(folder, stack=stack)
    recording.start()
    try:
        yield recording.profiler
    except Exception as error:
        recording.end_with(error)
        raise
    finally:
        with interrupts_held():
            recording.stop()
            recording.write()
