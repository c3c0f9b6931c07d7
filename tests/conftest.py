"""Every test leaves the process as it found it: threads, hooks, settings and open files."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from torchbench_magic.core.machine import waiting_for_cores

# Threads that a library keeps for the life of the process, on purpose, by module and name.
KEPT_THREADS = (
    "IPython.core.history",  # one for each shell
    "zmq.",  # its garbage collector's
    "threading.Thread MainThread - runner",  # jupyter_core's: runs the async client for synchronous callers
    "threading.Thread asyncio_",  # a loop's default executor
)

# Files that a library keeps open for the life of the process, on purpose.
KEPT_FILES = (
    "anon_inode:",  # event loops and zmq contexts
    "socket:",
    "history.sqlite",  # IPython's
    "mpl-data",  # fonts that matplotlib has drawn with
)


def pytest_configure(config: pytest.Config) -> None:
    """Kernels of all tests of a worker share the processes that count, which end a minute after them.

    Not those of another worker: some tests kill such a process.
    """
    os.environ["COLUMNS"] = "100"  # of texts that follow the terminal: workers of xdist have another width
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a script started pytest in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started from here has it, too
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="torchbench-tests-")
    os.environ.setdefault("TORCHBENCH_MAGIC_COUNT_IDLE", "60")


@pytest.fixture(scope="module", autouse=True)
def looks_at_its_own_objects_only() -> Iterator[None]:
    """What the tests of a file leave in memory (caches, shells that IPython keeps) is not looked at by the collector
    again: a collection, of which each measurement makes some, took ten times as long at the end of a run."""
    yield
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)


def _state() -> dict[str, Any]:
    """The settings that a measurement may change, and must put back."""
    state: dict[str, Any] = {
        "gc.isenabled()": gc.isenabled(),
        "sys.gettrace()": sys.gettrace(),
        "sys.getprofile()": sys.getprofile(),
        "threading.gettrace()": threading.gettrace(),
        "sys.excepthook": sys.excepthook,
        "os.getcwd()": os.getcwd(),
    }
    if sys.version_info >= (3, 12):
        state["sys.monitoring tools"] = [sys.monitoring.get_tool(tool) for tool in range(6)]
    if (torch := sys.modules.get("torch")) is not None:
        state |= {
            "torch.get_num_threads()": torch.get_num_threads(),
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
            "torch.get_default_dtype()": torch.get_default_dtype(),
            "torch.autograd.profiler running": torch.autograd._profiler_enabled(),
        }
    return state


def _threads() -> Counter[str]:
    names = (f"{_kind(thread)} {thread.name}" for thread in set(threading.enumerate()) - _compilers_threads())
    return Counter(name for name in names if not name.startswith(KEPT_THREADS))


def _compilers_threads() -> set[threading.Thread]:
    """Torch's compiler begins them with the first kernel that its cache on disk does not have, and keeps them."""
    compiler = sys.modules.get("torch._inductor.async_compile")
    if compiler is None or not compiler.AsyncCompile.pool.cache_info().currsize:
        return set()
    return compiler.AsyncCompile.pool()._threads  # type: ignore[no-any-return]


def _kind(thread: threading.Thread) -> str:
    return f"{type(thread).__module__}.{type(thread).__qualname__}"


def _open_files() -> Counter[str]:
    """What this process has open, by name (empty where the system has no /proc)."""
    found: Counter[str] = Counter()
    if not os.path.isdir("/proc/self/fd"):
        return found
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the one that listed the folder
            continue
        if not any(kept in name for kept in KEPT_FILES):
            found[name] += 1
    return found


def _left_behind(threads: Counter[str], files: Counter[str]) -> list[str]:
    more_threads = _threads() - threads
    more_files = _open_files() - files
    return [f"thread {name!r}" for name in more_threads] + [f"open file {name}" for name in more_files]


@pytest.fixture(autouse=True)
def waiting_for_cores_is_not_known() -> Iterator[None]:
    """As on a system that does not count it, so that exact lists of doubts hold on a busy machine too.

    What is said of one has tests of its own, with the real reading (tests/core/profiling/test_machine_load.py).
    Not by the fixture `monkeypatch`: asked for by all, it would be undone after every other fixture's own end.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(waiting_for_cores, "thread_times", dict)  # a builtin: it is in no table of lines
        yield


@pytest.fixture(autouse=True)
def leaves_the_process_clean() -> Iterator[None]:
    """Fails the test that leaves a thread, an open file, a hook or a changed setting behind."""
    before, threads, files = _state(), _threads(), _open_files()
    yield
    after = _state()
    changed = [
        f"{name} was {before[name]!r}, is {after[name]!r}" for name in before if after[name] != before[name]
    ]
    for _ in range(20):  # what ends by itself has a moment to do so
        if not (left := _left_behind(threads, files)):
            break
        gc.collect()
        time.sleep(0.05)
    _put_back(before)
    assert not changed, "the test changed a setting and did not put it back: " + "; ".join(changed)
    assert not left, "the test left something behind: " + "; ".join(left)


def _put_back(before: dict[str, Any]) -> None:
    """So that one careless test does not fail those that follow it."""
    (gc.enable if before["gc.isenabled()"] else gc.disable)()
    sys.settrace(before["sys.gettrace()"])
    sys.setprofile(before["sys.getprofile()"])
    threading.settrace(before["threading.gettrace()"])  # type: ignore[arg-type]
    os.chdir(before["os.getcwd()"])
    if "torch.get_num_threads()" in before:
        torch = sys.modules["torch"]
        torch.set_num_threads(before["torch.get_num_threads()"])
        torch.set_grad_enabled(before["torch.is_grad_enabled()"])
