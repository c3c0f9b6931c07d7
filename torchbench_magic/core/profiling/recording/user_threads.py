"""Which threads are the user's, and what processor time they took."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType

from torchbench_magic.core.machine.proc_files import proc_text, thread_ids, thread_times

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
    # no name here may hold a frame: its own is among them, and would keep all that its callers hold until a collection
    found = (natives.get(ident) for ident, frame in sys._current_frames().items() if _is_kernels(frame))
    return frozenset(native for native in found if native is not None)


def _is_kernels(frame: FrameType | None) -> bool:
    """Whether a function of the kernel's called ``frame``, directly or not."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _KERNEL_PACKAGES:
            return True
        frame = frame.f_back
    return False


@dataclass(frozen=True)
class CpuReading:
    """Processor time so far, in seconds: of the process, of this thread, of each living thread by native id."""

    process: float
    own: float
    tasks: dict[int, float]


def read_cpu() -> CpuReading:
    return CpuReading(time.process_time(), time.thread_time(), _task_seconds())


def _task_seconds() -> dict[int, float]:
    """Empty where the system does not tell."""
    return {task: ran for task, (ran, _) in thread_times().items()}


def busy_threads(before: CpuReading) -> frozenset[int] | None:
    """Native ids of this process's threads that run, want to run, or have run since ``before``; None: not known.

    One that has work and neither runs nor has run in the milliseconds between waits for something by itself.
    """
    busy = {task for task, seconds in _task_seconds().items() if seconds != before.tasks.get(task, 0.0)}
    # proc(5): the state stands after the name, which may hold anything; nothing of a thread that has ended meanwhile
    fields = {int(task): _of_thread(task, "stat").rpartition(")")[2].split() for task in thread_ids()}
    busy |= {task for task, after_name in fields.items() if after_name and after_name[0] != "S"}
    return frozenset(busy) if any(fields.values()) and before.tasks else None


def pool_threads() -> frozenset[int]:
    """Native ids of the threads of torch's pool, by the name that torch gives them; empty where unknown."""
    return frozenset(int(task) for task in thread_ids() if _of_thread(task, "comm").strip() == _POOL)


def _of_thread(task: str, file: str) -> str:
    return proc_text(f"/proc/self/task/{task}/{file}")


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
