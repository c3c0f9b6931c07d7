"""Every test leaves the process as it found it: hooks and settings; every file of tests: threads and open files.

Each worker of pytest-xdist has folders of its own for whatever a test or a library caches, binds or stores.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from .quiet_machine import quiet

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


OWN_FOLDERS = {
    "IPYTHONDIR": "ipython",  # history, profiles of clusters
    "JUPYTER_CONFIG_DIR": "jupyter",
    "JUPYTER_RUNTIME_DIR": "jupyter-runtime",  # connection files
    "MPLCONFIGDIR": "matplotlib",  # its list of fonts
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "XDG_CACHE_HOME": "cache",
    "XDG_RUNTIME_DIR": "run",  # part of the name under which sessions share a process that counts
}
"""Variable -> its folder, new for each worker: nothing is shared with another worker, another run or the user."""


sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
"""Where it is installed jsonschema, and so nbformat, imports it for formats that no schema here has: 3 s to import."""


STARTED_BY = {"chromium", "cluster", "compiled", "server", "start_kernel"}
"""Fixtures that start a component: a browser, a cluster, a C++ compiler, valgrind or JupyterLab, a kernel."""

COMPONENTS = {"browser", "compiler", "interpreter", "kernel", "terminal", "valgrind"}
"""Marks of tests that start one themselves."""

EXPENSIVE = ({"compiler", "valgrind"}, {"browser", "chromium", "cluster", "interpreter"})
"""Marks and fixtures of the files that run first, and second: no long file is to run at the end, beside nothing; and
those that count follow one another, while what counts is there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-test", action="store_true", help="look for threads and open files after each test")


def pytest_configure(config: pytest.Config) -> None:
    """Kernels of all tests of a worker share the processes that count, which end five minutes after them.

    Not those of another worker: some tests kill such a process.
    """
    os.environ["COLUMNS"] = "100"  # of texts that follow the terminal: workers of xdist have another width
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a script started pytest in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started from here has it, too
    root = tempfile.mkdtemp(prefix="tbm-")
    config.add_cleanup(lambda: shutil.rmtree(root, ignore_errors=True))
    for variable, name in OWN_FOLDERS.items():
        os.environ[variable] = os.path.join(root, name)
        os.mkdir(os.environ[variable], 0o700)
    os.environ.setdefault("TORCHBENCH_MAGIC_COUNT_IDLE", "300")
    os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")  # else torch 2.8 keeps a child for each of its libraries


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the choice by `-m` and the drawing of the order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """What starts a component is slow, except the one of each that `make test` runs; `EXPENSIVE` files run first."""
    needs = {
        item: {mark.name for mark in item.iter_markers()} | set(getattr(item, "fixturenames", ())) for item in items
    }
    for item in items:
        if needs[item] & (STARTED_BY | COMPONENTS) and "one_of_each" not in needs[item]:
            item.add_marker(pytest.mark.slow)
    yield
    of_files: dict[Path, set[str]] = defaultdict(set)
    for item in items:
        of_files[item.path] |= needs[item]
    items.sort(key=lambda item: [not kinds & of_files[item.path] for kinds in EXPENSIVE])


@pytest.fixture(scope="module", autouse=True)
def looks_at_its_own_objects_only() -> Iterator[None]:
    """What the tests of a file leave in memory (caches, shells that IPython keeps) is not looked at by the collector
    again: a collection, of which each measurement makes some, took ten times as long at the end of a run."""
    yield
    gc.collect()
    gc.freeze()


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
    more_files = _open_files() - files if not _driver_runs() else Counter[str]()
    return [f"thread {name!r}" for name in more_threads] + [f"open file {name}" for name in more_files]


def _driver_runs() -> bool:
    """A GPU's driver, and its tracing library, keep files open under names of their own until the process ends."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized()


@pytest.fixture(autouse=True)
def the_machine_is_quiet() -> Iterator[None]:
    """Exact lists of doubts hold on a busy machine too; a file about other load overrides this with a fixture that
    does nothing. Not by the fixture `monkeypatch`: asked for by all, it would be undone after every other fixture's own
    end."""
    with pytest.MonkeyPatch.context() as patched:
        quiet(patched.setattr)
        yield


@pytest.fixture(autouse=True)
def leaves_the_settings() -> Iterator[None]:
    """Fails the test that leaves a hook or a changed setting behind."""
    before = _state()
    yield
    after = _state()
    changed = [f"{name} was {before[name]!r}, is {after[name]!r}" for name in before if after[name] != before[name]]
    _put_back(before)
    assert not changed, "the test changed a setting and did not put it back: " + "; ".join(changed)


@pytest.fixture(scope="module", autouse=True)
def leaves_no_thread_and_no_open_file(looks_at_its_own_objects_only: None) -> Iterator[None]:
    """Fails the last test of a file that leaves a thread or an open file behind; `--each-test` finds which one did."""
    yield from _left_clean()


@pytest.fixture(autouse=True)
def leaves_none_after_each_test(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from _left_clean() if request.config.getoption("--each-test") else [None]


def _left_clean() -> Iterator[None]:
    threads, files = _threads(), _open_files()
    yield
    gives_up = time.monotonic() + 30  # what ends by itself has done so long before: only a failure takes so long
    while (left := _left_behind(threads, files)) and time.monotonic() < gives_up:
        gc.collect()
        time.sleep(0.05)
    assert not left, "left behind: " + "; ".join(left)


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


# ==== torch.compile ===================================================================================================
# What tests of several rooms need of the compiler.


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is compiled before the test, and nothing of it stays; what the compiler warns of is not shown."""
    import torch

    with contextlib.suppress(ImportError):
        monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # the compiler's progress bar would leave a thread
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


@pytest.fixture
def compiled_eagerly(compiled_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiler's own code for graphs, but not the minutes of C++."""
    import torch

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda code, **_: real(code, backend="eager", dynamic=False))
