"""What runs in a DataLoader's worker process while the notebook is profiled, and what it writes down."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torchbench_magic.process.frame_owner import is_library_file

# ---- worker_notes ----------------------------------------------------------------------------------------------------
# What DataLoader workers write down for the process that profiles: a temporary file.
#
# A worker, forked or spawned, opens it by its path and appends a line for each of its sums. The end of the profile
# removes it: nothing more can be written.

WorkerPlace = tuple[str, int, str]  # file, line (0: none), function


class WorkerNotes:
    """The file, from its making until `close`.

    Attributes:
        path: for the workers.
    """

    def __init__(self) -> None:
        file, self.path = tempfile.mkstemp(prefix="torchbench_magic_workers_")
        os.close(file)

    def close(self) -> dict[int, dict[WorkerPlace, float]]:
        """Read and remove it; process id of each worker -> its seconds by place."""
        lines: list[str] = []
        with contextlib.suppress(OSError):  # it is gone; a worker has it open just now, which Windows minds
            lines = Path(self.path).read_text(encoding="utf-8").splitlines()
            os.unlink(self.path)
        found: dict[int, dict[WorkerPlace, float]] = {}
        for line in lines:
            try:
                pid, rows = json.loads(line)
            except ValueError:  # its worker was killed as it wrote: what it had written before stands
                continue
            found[pid] = {(name, at, function): took for name, at, function, took in rows}
        return found


def write_note(path: str, seconds: Mapping[WorkerPlace, float]) -> None:
    """Append the sums of this process until now.

    Raises:
        OSError: the profile has ended.
    """
    text = json.dumps([os.getpid(), [[*place, took] for place, took in seconds.items()]])
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


# ---- worker_loop -----------------------------------------------------------------------------------------------------
# What runs in a DataLoader's worker process while the notebook is profiled: torch's own loop, and a thread that looks.
#
# The thread looks at the stack of the worker's main thread every 10 ms in the mean, and adds the time since its last
# look to the line that runs: the innermost line of code that is neither a library's nor Python's own; without one, the
# innermost outside the loop. Two things would make such samples wrong. A thread that asks for the interpreter's lock
# gets it after the switch interval, 5 ms, or as soon as the main thread lets go of it by itself, so that lines that do
# (torch's calls, files) are seen in place of those before them: the interval is 0.1 ms here while the thread looks. And
# equal waits fall into step with items that take about as long: so they are 5 to 15 ms. No signal is used: it would
# break off system calls of libraries that do not expect it. What the process did before the loop (a spawned one
# imports), and the loop before it asks for its first batch, is the start of the worker, no line of the user's.
#
# Every 0.2 s, and as time goes on every tenth of it, the sums are written to the profile's file (`WorkerNotes`); once
# that is gone the profile has ended, and so does the thread. Nothing of this package stays in the loader or
# in the data set.

WAITING = "waiting for the loop"
STARTING = "starting the worker"
_SHORTEST, _SPREAD, _GOLDEN = 0.005, 0.01, 0.6180339887498949
"""Seconds of a wait between looks, spread evenly (multiples of the golden ratio, modulo 1): nothing random is drawn."""
_WRITTEN_EVERY, _WRITTEN_SHARE = 0.2, 0.1
"""Seconds, and share of the time until then, after which the sums are written again: beside a loop in Python a write
takes as long as ten looks, since each of its system calls waits for the interpreter's lock."""
_SWITCH = 1e-4
"""Seconds for which the main thread may go on once the looking thread asks for the lock."""
_LOOP = "_worker_loop"  # torch's function, in the file of this ending:
_LOOP_FILE = os.path.join("data", "_utils", "worker.py")
_FETCH_FILE = os.path.join("data", "_utils", "fetch.py")

_original: Callable[..., None] | None = None


def original_loop() -> Callable[..., None]:
    """torch's own loop; a forked worker inherits it, a spawned one imports it."""
    if _original is not None:
        return _original
    from torch.utils.data._utils import worker

    found: Callable[..., None] = worker._worker_loop
    return found


def replace_loop(original: Callable[..., None] | None) -> None:
    """Say which loop is torch's own while another stands in its place; None: it is back."""
    global _original
    _original = original


def observed_loop(notes: str, *args: Any, **kwargs: Any) -> None:
    """Takes the place of torch's ``_worker_loop`` as the target of a worker process."""
    ended = threading.Event()
    looking = threading.Thread(
        target=_look, args=(threading.get_ident(), notes, ended), name="torchbench_magic", daemon=True
    )
    looking.start()
    try:
        original_loop()(*args, **kwargs)
    finally:
        ended.set()
        looking.join(1.0)


def _look(thread: int, notes: str, ended: threading.Event) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        _sample(thread, notes, ended)
    finally:
        if sys.getswitchinterval() < 2 * _SWITCH:  # the user's code set no other
            sys.setswitchinterval(interval)


def _sample(thread: int, notes: str, ended: threading.Event) -> None:
    seconds: Counter[WorkerPlace] = Counter({("", 0, STARTING): _age()})
    before = written = began = time.monotonic()
    looks, has_started, last = 0, False, False
    while not last:
        looks += 1
        last = ended.wait(_SHORTEST + _SPREAD * (looks * _GOLDEN % 1.0))
        now = time.monotonic()
        frame = sys._current_frames().get(thread)
        if frame is not None and not last:
            place, is_of_loop = _place(frame)
            has_started |= not is_of_loop
            seconds[place if has_started else ("", 0, STARTING)] += now - before  # type: ignore[assignment]
        before = now
        del frame
        if last or now - written >= max(_WRITTEN_EVERY, _WRITTEN_SHARE * (now - began)):
            written = now
            try:
                write_note(notes, seconds)
            except OSError:
                return


def _age() -> float:
    """Seconds since this process began, to 10 ms (field 22 of proc(5)'s stat); 0 where that is not known."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def _place(frame: FrameType | None) -> tuple[WorkerPlace, bool]:
    """The place, and whether it is of the loop itself: neither the user's code nor a batch being made or waited for."""
    first: WorkerPlace | None = None
    is_of_loop = True
    while frame is not None:
        code = frame.f_code
        if code.co_name == _LOOP and code.co_filename.endswith(_LOOP_FILE):
            break
        place = (code.co_filename, frame.f_lineno or 0, code.co_name)
        if code.co_filename == __file__:
            break
        if not is_library_file(code.co_filename):
            return place, False
        first = first or place
        if code.co_name == "get" and "multiprocessing" in code.co_filename:
            return ("", 0, WAITING), False
        is_of_loop &= not code.co_filename.endswith(_FETCH_FILE)
        frame = frame.f_back
    return first or ("", 0, WAITING), is_of_loop
