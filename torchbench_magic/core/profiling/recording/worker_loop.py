"""What runs in a DataLoader's worker process while the notebook is profiled: torch's own loop, and a thread that looks.

The thread looks at the stack of the worker's main thread every 10 ms, and adds the time since its last look to the
line that runs: the innermost line of code that is neither a library's nor Python's own; without one, the innermost
outside the loop. Every 0.2 s the sums are written to a file in a folder of the notebook's; once that folder is gone the
profile has ended, and so does the thread. Nothing of this package stays in the loader or in the data set.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["WAITING", "WorkerPlace", "observed_loop", "original_loop", "replace_loop"]

WAITING = "waiting for the loop"
_EVERY, _WRITTEN_EVERY = 0.01, 0.2  # s: 20 us a look, and a file of a few lines
_LOOP = "_worker_loop"  # torch's function, in the file of this ending:
_LOOP_FILE = os.path.join("data", "_utils", "worker.py")

WorkerPlace = tuple[str, int, str]  # file, line (0: none), function


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


def observed_loop(folder: str, *args: Any, **kwargs: Any) -> None:
    """Takes the place of torch's ``_worker_loop`` as the target of a worker process."""
    _leave_trace_hooks()
    ended = threading.Event()
    looking = threading.Thread(
        target=_look, args=(threading.get_ident(), Path(folder), ended), name="torchbench_magic", daemon=True
    )
    looking.start()
    try:
        original_loop()(*args, **kwargs)
    finally:
        ended.set()
        looking.join(1.0)


def _leave_trace_hooks() -> None:
    """A forked child inherits the line source, whose record nobody would read."""
    for hook, put in ((sys.gettrace(), sys.settrace), (threading.gettrace(), threading.settrace)):
        if str(getattr(hook, "__module__", "")).startswith(__name__.partition(".")[0]):
            put(None)
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in range(6) if monitoring is not None else ():
        if monitoring.get_tool(tool) == "torchbench_magic":
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)


def _look(thread: int, folder: Path, ended: threading.Event) -> None:
    seconds: Counter[WorkerPlace] = Counter()
    before = written = time.monotonic()
    last = False
    while not last:
        last = ended.wait(_EVERY)
        now = time.monotonic()
        frame = sys._current_frames().get(thread)
        if frame is not None and not last:
            seconds[_place(frame)] += now - before  # type: ignore[assignment]  # a Counter of floats
        before = now
        if last or now - written >= _WRITTEN_EVERY:
            written = now
            try:
                _write(folder, seconds)
            except OSError:
                return


def _write(folder: Path, seconds: Counter[WorkerPlace]) -> None:
    made = folder / f"{os.getpid()}.json"
    part = made.with_suffix(".part")
    part.write_text(json.dumps([[*place, took] for place, took in seconds.items()]), encoding="utf-8")
    part.replace(made)


def _place(frame: FrameType | None) -> WorkerPlace:
    first: WorkerPlace | None = None
    while frame is not None:
        code = frame.f_code
        if code.co_name == _LOOP and code.co_filename.endswith(_LOOP_FILE):
            break
        place = (code.co_filename, frame.f_lineno or 0, code.co_name)
        if code.co_filename == __file__:
            break
        if not _is_library(code.co_filename):
            return place
        first = first or place
        if code.co_name == "get" and "multiprocessing" in code.co_filename:
            return ("", 0, WAITING)
        frame = frame.f_back
    return first or ("", 0, WAITING)


@cache
def _is_library(file: str) -> bool:
    paths = sysconfig.get_paths()
    folders = {os.path.realpath(paths[name]) for name in ("stdlib", "purelib", "platlib")}
    real = os.path.realpath(file)
    return file.startswith("<frozen") or any(real.startswith(folder + os.sep) for folder in folders)
