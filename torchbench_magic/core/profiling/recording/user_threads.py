"""Which threads are the user's, and what processor time they took."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CpuReading",
    "busy_threads",
    "kernel_threads",
    "pool_threads",
    "python_threads",
    "read_cpu",
    "unseen_cpu_seconds",
]

# A thread whose Python frames include one of these runs the kernel, not the user's code.
_KERNEL_PACKAGES = frozenset(
    {
        "ipykernel",
        "IPython",
        "zmq",
        "tornado",
        "jupyter_client",
        "ipyparallel",
        "debugpy",
        "pydevd",
        "torchbench_magic",
    }
)
_POOL = "PTThreadPool"  # ATen/PTThreadPool.h: the pool of `at::launch`


def python_threads() -> dict[int, str]:
    """Native id -> name of the threads that run Python now."""
    return {t.native_id: t.name for t in threading.enumerate() if t.native_id is not None}


def kernel_threads() -> frozenset[int]:
    """Native ids of the kernel's own threads (heartbeat, output, control, ...), without the calling one."""
    natives = {t.ident: t.native_id for t in threading.enumerate() if t is not threading.current_thread()}
    found = set()
    for ident, frame in sys._current_frames().items():
        native = natives.get(ident)
        while native is not None and frame is not None:
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _KERNEL_PACKAGES:
                found.add(native)
                break
            frame = frame.f_back  # type: ignore[assignment]
    return frozenset(found)


@dataclass(frozen=True)
class CpuReading:
    """Processor time so far, in seconds: of the process, of this thread, of each living thread by native id."""

    process: float
    own: float
    tasks: dict[int, float]


def read_cpu() -> CpuReading:
    return CpuReading(time.process_time(), time.thread_time(), _task_seconds())


def _task_seconds() -> dict[int, float]:
    """From ``/proc/self/task/*/schedstat``; empty where the system has none."""
    seconds: dict[int, float] = {}
    for stat in Path("/proc/self/task").glob("*/schedstat"):
        try:
            seconds[int(stat.parent.name)] = int(stat.read_text().split()[0]) / 1e9
        except (OSError, IndexError):  # the thread has ended in the meantime
            continue
    return seconds


def busy_threads(before: CpuReading) -> frozenset[int] | None:
    """Native ids of this process's threads that run, want to run, or have run since ``before``; None: not known.

    One that has work and neither runs nor has run in the milliseconds between waits for something by itself.
    """
    busy = {task for task, seconds in _task_seconds().items() if seconds != before.tasks.get(task, 0.0)}
    states = 0
    for stat in Path("/proc/self/task").glob("*/stat"):
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]  # proc(5): after the name, which may hold anything
        except (OSError, IndexError):
            continue
        states += 1
        if state != "S":
            busy.add(int(stat.parent.name))
    return frozenset(busy) if states and before.tasks else None


def pool_threads() -> frozenset[int]:
    """Native ids of the threads of torch's pool, by the name that torch gives them; empty where unknown."""
    found = set()
    for name in Path("/proc/self/task").glob("*/comm"):
        try:
            if name.read_text().strip() == _POOL:
                found.add(int(name.parent.name))
        except OSError:
            continue
    return frozenset(found)


def unseen_cpu_seconds(before: CpuReading, after: CpuReading, user_threads: frozenset[int]) -> float | None:
    """Processor time of the user's other threads between two readings, threads that ended included.

    It is what the process used, without this thread and without the living threads that are not the user's
    (the kernel's, torch's thread pools). None where the system does not tell.
    """
    if not before.tasks or not after.tasks:
        return None
    others = sum(
        seconds - before.tasks.get(task, 0.0)
        for task, seconds in after.tasks.items()
        if task != threading.get_native_id() and task not in user_threads
    )
    return max(0.0, (after.process - before.process) - (after.own - before.own) - others)
