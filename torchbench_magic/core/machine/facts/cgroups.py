"""What the cgroups of this process allow it: processor time and memory.

Both hierarchies are read: version 2 (``cpu.max``, ``memory.max``; cgroup-v2.rst of Linux) and version 1
(``cpu.cfs_quota_us``, ``memory.limit_in_bytes``; cgroup-v1/). A limit holds for all that is below it, so the smallest
of the process's own cgroup and its parents counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .system_files import THIS_MACHINE, SystemFiles

__all__ = ["Limit", "cgroup_figures", "cpu_quota", "memory_limit", "throttled_share"]

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
