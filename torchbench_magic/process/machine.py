"""Facts of the machine from /proc and /sys: cgroups, frequency, caches, loaded libraries, hooks."""

from __future__ import annotations

import glob
import math
import os
import re
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

# ---- system_files ----------------------------------------------------------------------------------------------------
# The files of /proc, /sys and /dev, below a root that a test sets; what cannot be read is None, never an error.

_CHUNK = 1 << 16


@dataclass(frozen=True)
class SystemFiles:
    """A tree of system files.

    Attributes:
        root: what stands before ``/proc``; empty is this machine.
    """

    root: str = ""

    def text(self, path: str) -> str | None:
        """The text of the file at an absolute path, stripped; None where it is missing, hidden or unreadable."""
        try:
            file = os.open(self.root + path, os.O_RDONLY)
        except (OSError, ValueError):
            return None
        try:
            parts = []
            while part := os.read(file, _CHUNK):  # a file of /proc gives a page or so at a time
                parts.append(part)
        except OSError:
            return None
        finally:
            os.close(file)
        return b"".join(parts).decode("utf-8", "replace").strip()

    def names(self, folder: str) -> list[str]:
        """What stands in a folder, sorted; nothing where it is missing or unreadable."""
        try:
            return sorted(os.listdir(self.root + folder))
        except (OSError, ValueError):
            return []

    def has(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return os.path.exists(self.root + path)


THIS_MACHINE = SystemFiles()


def memory_facts(files: SystemFiles = THIS_MACHINE) -> dict[str, int]:
    """Name in ``/proc/meminfo`` -> bytes; empty where the system does not tell."""
    lines = (line.split() for line in (files.text("/proc/meminfo") or "").splitlines())
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if len(line) == 3 and line[1].isdigit()}


# ---- proc_files ------------------------------------------------------------------------------------------------------
# What /proc says of this process and its threads. A small file takes about 6 us, a third of what Python's own take.


def proc_text(path: str) -> str:
    """The text of a file; empty where there is none, or where its process has ended in between."""
    return THIS_MACHINE.text(path) or ""


def thread_ids(process: str = "self") -> list[str]:
    """Native ids of the threads of a process that live now; none where the system does not tell."""
    try:
        return os.listdir(f"/proc/{process}/task")
    except OSError:
        return []


def thread_names() -> dict[int, str]:
    """Native id -> name of each thread of this process, as the system has it; none where it does not tell."""
    return {int(thread): proc_text(f"/proc/self/task/{thread}/comm").strip() for thread in thread_ids()}


def children_of(process: str = "self") -> list[str]:
    """Process ids of the children of every thread; none where the kernel does not list them."""
    found = (proc_text(f"/proc/{process}/task/{thread}/children").split() for thread in thread_ids(process))
    return [child for children in found for child in children]


def stat_fields(process: str) -> list[str]:
    """What proc(5)'s stat has after the name, which may hold spaces and brackets; nothing where the process ended."""
    return proc_text(f"/proc/{process}/stat").rpartition(")")[2].split()


def waited_for_core() -> float:
    """Seconds for which the calling thread has waited for a core since it began; NaN where the kernel does not count
    it. A wait is booked when it ends."""
    figures = proc_text("/proc/thread-self/schedstat").split()
    return int(figures[1]) / 1e9 if len(figures) >= 2 else math.nan


def thread_times(process: str = "self") -> dict[int, tuple[float, float]]:
    """Native id -> seconds for which the thread ran, and for which it waited for a core, since it began.

    Of the threads that live now; empty where the kernel does not count it.
    """
    found = {}
    for thread in thread_ids(process):
        figures = proc_text(f"/proc/{process}/task/{thread}/schedstat").split()
        if len(figures) >= 2:
            found[int(thread)] = int(figures[0]) / 1e9, int(figures[1]) / 1e9
    return found


# ---- cgroups ---------------------------------------------------------------------------------------------------------
# What the cgroups of this process allow it: processor time and memory.
#
# Both hierarchies are read: version 2 (``cpu.max``, ``memory.max``; cgroup-v2.rst of Linux) and version 1
# (``cpu.cfs_quota_us``, ``memory.limit_in_bytes``; cgroup-v1/). A limit holds for all that is below it, so the smallest
# of the process's own cgroup and its parents counts.

_ROOT = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""Bytes that no machine has: version 1 writes "no limit" as the largest page-aligned number."""


@dataclass(frozen=True)
class Limit:
    """The smallest limit that holds.

    Attributes:
        value: cores or bytes; infinite where there is none, NaN where it is not known.
        said: the file that sets it and its text; empty without one.
        folder: the cgroup that sets it, as a path of the file system; empty without one.
    """

    value: float = math.nan
    said: str = ""
    folder: str = ""

    @property
    def is_set(self) -> bool:
        return math.isfinite(self.value)


def cpu_quota(files: SystemFiles = THIS_MACHINE) -> Limit:
    """Processor time that this process and its neighbours in the cgroup may use, in cores."""
    return _smallest(files, "cpu", _quota_of)


def memory_limit(files: SystemFiles = THIS_MACHINE) -> Limit:
    """Bytes of memory that the cgroup may hold."""
    return _smallest(files, "memory", _memory_of)


def throttled_share(quota: Limit, files: SystemFiles = THIS_MACHINE) -> float:
    """Share of the periods in which the quota stopped the cgroup, since it was made; NaN where it is not counted."""
    counted = cgroup_figures(f"{quota.folder}/cpu.stat", files)
    periods = counted.get("nr_periods", 0)
    return counted["nr_throttled"] / periods if periods and "nr_throttled" in counted else math.nan


def cgroup_figures(path: str, files: SystemFiles = THIS_MACHINE) -> dict[str, int]:
    """Name -> number, of a file that has one of each in a line; nothing where it cannot be read."""
    lines = (line.split() for line in (files.text(path) or "").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


_Reader = Callable[[SystemFiles, str], tuple[float, str] | None]


def _smallest(files: SystemFiles, controller: str, read: _Reader) -> Limit:
    found = Limit(math.inf) if files.has(_ROOT) and files.names(_ROOT) else Limit()
    for folder in _folders(files, controller):
        known = read(files, folder)
        if known is not None and not known[0] >= found.value:  # NaN is larger than nothing
            found = Limit(known[0], known[1], folder) if math.isfinite(known[0]) else Limit(math.inf)
    return found


def _folders(files: SystemFiles, controller: str) -> Iterator[str]:
    """The cgroups that hold this process, the innermost first, in both hierarchies.

    A container without a cgroup namespace of its own sees the host's path in ``/proc/self/cgroup``, and its own cgroup
    mounted as the root: folders that are not there have no files, and the root is always among them.
    """
    seen: dict[str, None] = {}
    for line in (files.text("/proc/self/cgroup") or "0::/").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [f"{_ROOT}/{controllers}", f"{_ROOT}/{controller}"] if controllers else [_ROOT, f"{_ROOT}/unified"]
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount in mounts:
            for length in range(len(parts), -1, -1):
                seen["/".join([mount, *parts[:length]])] = None
    yield from seen


def _quota_of(files: SystemFiles, folder: str) -> tuple[float, str] | None:
    """(cores, the file and its text) of one cgroup; None where it says nothing."""
    text = files.text(f"{folder}/cpu.max")
    try:
        if text is not None:
            quota, period = text.split()[:2]
            return math.inf if quota == "max" else int(quota) / int(period), f"{folder}/cpu.max: {text}"
        text = files.text(f"{folder}/cpu.cfs_quota_us")
        if text is None:
            return None
        if int(text) <= 0:
            return math.inf, ""
        length = int(files.text(f"{folder}/cpu.cfs_period_us") or "")
        return int(text) / length, f"{folder}/cpu.cfs_quota_us: {text} of {length}"
    except (ValueError, ZeroDivisionError):
        return None


def _memory_of(files: SystemFiles, folder: str) -> tuple[float, str] | None:
    """(bytes, the file and its text) of one cgroup; None where it says nothing."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = files.text(f"{folder}/{name}")
        if text == "max":
            return math.inf, ""
        if text is not None and text.isdigit():
            return (int(text), f"{folder}/{name}: {text}") if int(text) < _NO_LIMIT else (math.inf, "")
    return None


def usable_cores(files: SystemFiles = THIS_MACHINE) -> int:
    """Processors that this process may use at once: the affinity mask, cut by the cgroup's CPU quota.

    ``os.cpu_count()`` is wrong in containers.
    """
    return cores_under(cpu_quota(files))


def cores_under(quota: Limit) -> int:
    """The same, where the quota is known already; takes some microseconds."""
    cores = len(affinity()) or os.cpu_count() or 1
    return max(1, math.ceil(min(cores, quota.value))) if quota.is_set else cores


def affinity() -> frozenset[int]:
    """Numbers of the processors that this process may run on; empty where the system does not tell: macOS, Windows."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def ranges_text(numbers: Iterable[int]) -> str:
    """Whole numbers in the notation of Linux: ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


# ---- frequency -------------------------------------------------------------------------------------------------------
# How the clock of the processors is steered, from /sys (cpufreq of Linux).

CPUS = "/sys/devices/system/cpu"


def governor(files: SystemFiles = THIS_MACHINE) -> str:
    """``powersave``, or where processors differ ``performance, powersave``; empty where it cannot be read: of a guest
    nothing is known as a rule."""
    cpus = [name for name in files.names(CPUS) if re.fullmatch(r"cpu\d+", name)]
    found = {files.text(f"{CPUS}/{cpu}/cpufreq/scaling_governor") for cpu in cpus}
    return ", ".join(sorted(text for text in found if text))


# ---- hooks -----------------------------------------------------------------------------------------------------------
# What is called for every line, call or allocation of this process: a debugger, a coverage tool, a tracer.

_TOOLS = 6
"""That ``sys.monitoring`` has place for."""


HOOKS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "sys.settrace": (sys.gettrace, sys.settrace),
    "sys.setprofile": (sys.getprofile, sys.setprofile),
    "threading.settrace": (threading.gettrace, threading.settrace),
    "threading.setprofile": (threading.getprofile, threading.setprofile),
}
"""How Python is told of a function to call, with what reads it and what sets it."""


def active_hooks() -> Iterator[str]:
    """Each with what is called, where that is known: ``sys.settrace: coverage.tracer.CTracer``."""
    found = ((name, read()) for name, (read, _) in HOOKS.items())
    yield from (f"{name}: {called_by(hook)}" for name, hook in found if hook is not None)
    monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
    for tool in range(_TOOLS) if monitoring is not None else ():
        name = monitoring.get_tool(tool)
        if name is not None and monitoring.get_events(tool):
            yield f"sys.monitoring: {name}"
    if tracemalloc.is_tracing():
        yield "tracemalloc"


def called_by(hook: object) -> str:
    """The function or the class of an object, with its module."""
    kind = hook if hasattr(hook, "__qualname__") else type(hook)
    name = str(getattr(kind, "__qualname__", kind)).removeprefix("__tb_block.<locals>.")  # of a timed cell
    return f"{getattr(kind, '__module__', '?')}.{name}"


# ---- native_libraries ------------------------------------------------------------------------------------------------
# Which OpenMP, BLAS and allocator libraries this process has loaded, from ``/proc/self/maps``.
#
# What is linked into another library (MKL into torch's own) has no file of its own and is not seen here.

_KINDS = {
    "OpenMP": re.compile(r"lib(gomp|iomp5|omp)(?=[-.\d])"),
    "BLAS": re.compile(r"lib(scipy_openblas|openblas|mkl_rt|mkl_core|blis|flexiblas|cblas|blas)(?=[-_.\d])"),
    "allocator": re.compile(r"lib(jemalloc|tcmalloc|mimalloc|tbbmalloc)(?=[-_.\d])"),
}
_MAPPED = re.compile(r" (/[^\n]*\.so[^\n]*)")
_PACKAGES = ("/site-packages/", "/dist-packages/")
_SHARED = ("/usr/", "/lib", "/opt/")
"""Folders that belong to nobody: they may be shown whole."""


@dataclass(frozen=True, order=True)
class NativeLibrary:
    """A library that is loaded.

    Attributes:
        kind: ``OpenMP``, ``BLAS`` or ``allocator``.
        name: its family, such as ``gomp``.
        file: name of the file.
        place: the Python package that brings it, else its folder; of a folder below a home its last name only.
        path: where the file is, whole; not shown.
    """

    kind: str
    name: str
    file: str
    place: str
    path: str

    def __str__(self) -> str:
        return f"{self.file} ({self.place})"


def native_libraries(files: SystemFiles = THIS_MACHINE) -> tuple[NativeLibrary, ...] | None:
    """The libraries of these kinds, each file once, in a fixed order; None where the system does not tell."""
    maps = files.text("/proc/self/maps")
    if maps is None:
        return None
    paths = set(_MAPPED.findall(maps))
    found = set()
    for path in paths:
        file = path.rpartition("/")[2].removesuffix(" (deleted)")
        for kind, pattern in _KINDS.items():
            if match := pattern.match(file):
                found.add(NativeLibrary(kind, match[1], file, _place(path), path))
    return tuple(sorted(found))


def _place(path: str) -> str:
    for marker in _PACKAGES:
        if marker in path:
            return path.rpartition(marker)[2].partition("/")[0].removesuffix(".libs")
    folder = path.rpartition("/")[0]
    return folder if folder.startswith(_SHARED) else f"…/{folder.rpartition('/')[2]}"


# ---- caches ----------------------------------------------------------------------------------------------------------

_FALLBACK = 64 << 20
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache(maxsize=1)
def last_level_cache() -> int:
    """Bytes of the largest cache that processor 0 sees; 64 MiB where the system does not tell."""
    return max((size for _, size in data_caches()), default=_FALLBACK)


def data_caches() -> tuple[tuple[str, int], ...]:
    """("L1", bytes), ("L2", bytes), ... of the caches for data that processor 0 sees, the smallest first; empty where
    the system does not tell."""
    found: dict[str, int] = {}
    for folder in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        try:
            if Path(folder, "type").read_text().strip() == "Instruction":
                continue
            found[f"L{int(Path(folder, 'level').read_text())}"] = _bytes(Path(folder, "size").read_text())
        except (OSError, ValueError, KeyError):
            continue
    return tuple(sorted(((name, size) for name, size in found.items() if size > 0), key=lambda each: each[1]))


def _bytes(text: str) -> int:
    """``32K`` in bytes."""
    text = text.strip()
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def cache_flusher() -> Callable[[], None]:
    """A function that evicts everything else from the caches, by writing twice the last level's size."""
    import torch

    buffer = torch.zeros(2 * last_level_cache() // 8, dtype=torch.int64)

    def flush() -> None:
        buffer.add_(1)

    return flush


# ---- cache_folder ----------------------------------------------------------------------------------------------------
# Where this user's programs keep what can be made again.


def user_cache_folder() -> Path:
    """``XDG_CACHE_HOME`` where it names a place, else the platform's.

    Raises:
        RuntimeError: this user has no home folder.
    """
    asked = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(asked):
        return Path(asked)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
