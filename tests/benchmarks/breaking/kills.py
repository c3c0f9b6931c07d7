"""SIGKILL to kernels at random moments: which processes and files are left a minute later."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .interrupts import SET_UP
from .kernel import FaultKernel

__all__ = ["KILLED", "Kill", "KilledKind", "kills_of"]

_MINUTE = 60.0
_MARK = "TORCHBENCH_FAULTS"
_BODY = "\nfor i in range(400):\n    y = model(x)\n"
_LOADER = """
from torch.utils.data import DataLoader
for batch in DataLoader(list(range(200)), batch_size=4, num_workers=2):
    time.sleep(0.01)
"""
_SECTIONS = "\n# --- linear\nmodel(x)\n# --- sums\nx.sum()\n"
_CPP = """
// --- setup
auto x = torch::ones({64});
// --- add
auto y = x + {number};
// --- mul
auto y = x * {number};
"""


@dataclass(frozen=True)
class KilledKind:
    """A cell of a fresh kernel.

    Attributes:
        name: as it stands in the table.
        cell: its text; ``{number}`` is another number each time.
        longest: seconds after the magic began within which the kernel is killed.
        shared: how many of 100 kills are of this kind.
    """

    name: str
    cell: str
    longest: float
    shared: int


KILLED = (
    KilledKind("%%tprofile --memory --host-memory", f"%%tprofile --memory --host-memory{_BODY}", 4.0, 25),
    KilledKind("%%tprofile of a DataLoader with workers", f"%%tprofile{_LOADER}", 4.0, 15),
    KilledKind("%%timer --save", f"%%timer --save runs.sqlite --min-run-time 0.5{_SECTIONS}", 2.0, 10),
    KilledKind("%%timer --processes 3", f"%%timer --processes 3 --min-run-time 0.5{_SECTIONS}", 8.0, 15),
    KilledKind("%%timer --callgrind", f"%%timer --callgrind -n 5 -r 5{_SECTIONS}", 15.0, 20),
    KilledKind("%%timer --cpp, compiled in the cell", f"%%timer --cpp -n 50 -r 20{_CPP}", 10.0, 15),
)


@dataclass(frozen=True)
class Kill:
    """One kernel that was killed.

    Attributes:
        kind: name of its `KilledKind`.
        moment: seconds after the magic began.
        was_running: the magic had not ended.
        seconds: after which nothing was left; `faults` say what was left after a minute.
    """

    kind: str
    moment: float
    was_running: bool
    seconds: float
    faults: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def kills_of(kind: KilledKind, count: int, seed: int, until: float = float("inf")) -> Iterator[Kill]:
    """``count`` fresh kernels, each killed; what is left is looked at until nothing is, or a minute has passed."""
    drawn = random.Random(f"{kind.name} {seed}")
    waiting: list[_Left] = []
    for _ in range(count):
        if time.monotonic() > until:
            break
        waiting.append(_killed(kind, drawn))
        ended = [each for each in waiting if each.is_over()]
        waiting = [each for each in waiting if each not in ended]
        yield from (each.told() for each in ended)
    while waiting:
        time.sleep(0.1)
        ended = [each for each in waiting if each.is_over()]
        waiting = [each for each in waiting if each not in ended]
        yield from (each.told() for each in ended)


class _Left:
    """What one killed kernel left."""

    def __init__(self, kind: KilledKind, moment: float, mark: str, folder: Path, *, was_running: bool) -> None:
        self.kind, self.moment, self.mark, self.folder, self.was_running = kind, moment, mark, folder, was_running
        self.killed, self.seconds = time.monotonic(), 0.0
        self.faults: list[str] = []

    def is_over(self) -> bool:
        self.seconds = time.monotonic() - self.killed
        self.faults = [*processes_of(self.mark), *folders_in(self.folder)]
        return not self.faults or self.seconds > _MINUTE

    def told(self) -> Kill:
        for name in processes_of(self.mark):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(name.split()[1]), 9)
        shutil.rmtree(self.folder, ignore_errors=True)
        return Kill(self.kind.name, self.moment, self.was_running, self.seconds, tuple(self.faults))


def _killed(kind: KilledKind, drawn: random.Random) -> _Left:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    mark = f"{_MARK}={os.getpid()}.{drawn.randrange(10**9)}"
    variables = {
        _MARK: mark.partition("=")[2],
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TORCHBENCH_MAGIC_COUNT_IDLE": "0",  # a server that several kernels share outlives one of them on purpose
    }
    kernel = FaultKernel(folder, variables)
    assert not kernel.run(SET_UP).error
    moment = drawn.uniform(0.0, kind.longest)
    kernel.begin(kind.cell.replace("{number}", str(drawn.randrange(10**9))))
    began = kernel.waits_for_magic()
    time.sleep(max(0.0, (began or 0.0) + moment - time.monotonic()))
    was_running = kernel.is_running
    kernel.kill()
    return _Left(kind, moment, mark, folder, was_running=was_running)


def processes_of(mark: str) -> list[str]:
    """Processes that have the mark in their environment, with their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append(f"process {entry.name} {line[:200]}")
    return found


def folders_in(folder: Path) -> list[str]:
    """Folders and files that a kernel made for itself: temporary ones, and those of a cache that nobody would use.

    ``torchinductor_USER`` is a cache of torch's, of all kernels of a user.
    """
    made = [each for each in (folder / "tmp").iterdir() if not each.name.startswith("torchinductor_")]
    made += (folder / "cache").rglob("*.tmp")
    return [f"left {each.relative_to(folder)}" for each in made]
