"""On an engine: a thread that tells the notebook in which collective this rank waits, and frees it when it is to stop.

A rank waits where its main thread is in a call of torch that communicates and its process uses no processor: what is
sent or received does use it. SIGINT does not reach such a rank, but the system notes it in a descriptor at once
(`signal.set_wakeup_fd`), whatever the main thread does.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchbench_magic.results.cell_text import CellText

from .gloo_sockets import GlooSockets

__all__ = ["WaitingWatch"]

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

    Attributes:
        has_freed: the connections were shut down.
    """

    def __init__(self, text_of: Callable[[str], CellText | None], sockets: GlooSockets) -> None:
        self._text_of, self._sockets = text_of, sockets
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="torchbench waiting", daemon=True)
        self._told: tuple[str, str] | None = None
        self.has_freed = False

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
                if not self._ended.is_set():
                    self._free()
            now, used = time.perf_counter(), time.process_time()
            found = self._place() if used - spent < _IDLE * (now - looked) else None
            if found is None or found != place:
                since, place = now, found or ("", "")
            spent, looked = used, now
            self._tell(place if found is not None and now - since >= _TELL_AFTER else None, now - since)

    def _free(self) -> None:
        if not self._ended.wait(_STILL_WAITS) and self._place() is not None:
            self.has_freed = True
            self._sockets.shut()

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
