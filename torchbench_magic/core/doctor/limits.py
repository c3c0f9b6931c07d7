"""How much of the machine this process may use: cores, quota, memory, and what the system ends it for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torchbench_magic import units
from torchbench_magic.results.machine.diagnosis import Finding

from ..machine.environment import affinity_text, usable_cores
from ..machine.facts.cgroups import Limit, cgroup_figures, cpu_quota, memory_limit, throttled_share
from ..machine.facts.system_files import THIS_MACHINE, SystemFiles

__all__ = ["CoreLimits", "core_limits", "limit_findings", "memory_findings"]

_SCARCE = 0.1
"""Share of the memory below which the system begins to take pages away from processes."""
_STALLED = 1.0  # per cent of the last 10 s
_THROTTLED = 0.05
_ULIMITS = (
    ("RLIMIT_CPU", "processor seconds", "-t"),
    ("RLIMIT_AS", "bytes of addresses", "-v"),
    ("RLIMIT_DATA", "bytes of data", "-d"),
)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class CoreLimits:
    """What bears on threads.

    Attributes:
        installed: processors of the machine, ``os.cpu_count()``.
        affinity: numbers of those that this process may use; empty where the system does not tell.
        allowed: how many these are.
        quota: of the cgroup, in cores.
        throttled: share of the periods in which the quota stopped the cgroup, since it was made.
        usable: what is left of all this.
        threads: torch's intra-op threads.
        variables: environment variables that set numbers of threads.
    """

    installed: int
    affinity: str
    allowed: int
    quota: Limit
    throttled: float
    usable: int
    threads: int
    variables: Mapping[str, str] = field(default_factory=dict)


def core_limits(threads: int, files: SystemFiles = THIS_MACHINE) -> CoreLimits:
    """Read them."""
    installed, quota = os.cpu_count() or 1, cpu_quota(files)
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        allowed = installed
    return CoreLimits(
        installed=installed,
        affinity=affinity_text(),
        allowed=allowed,
        quota=quota,
        throttled=throttled_share(quota, files),
        usable=usable_cores(files),
        threads=threads,
        variables={name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ},
    )


def limit_findings(limits: CoreLimits) -> Iterator[Finding]:
    """Threads, affinity, quota."""
    yield _of_threads(limits)
    yield _of_affinity(limits)
    yield from _of_quota(limits)


def _of_threads(limits: CoreLimits) -> Finding:
    named = ", ".join(f"{name}={value}" for name, value in limits.variables.items())
    said = f"torch.get_num_threads() {limits.threads}; {named or 'OMP_NUM_THREADS is not set'}"
    threads = f"{limits.threads} thread{'' if limits.threads == 1 else 's'}"
    if limits.threads > limits.usable:
        text = f"torch uses {threads} on {_count(limits.usable)}: the threads wait for each other."
        fix = f"`torch.set_num_threads({limits.usable})`, or OMP_NUM_THREADS={limits.usable} before Python starts."
        return Finding("threads", "warn", text, said, fix)
    if limits.usable == 1:
        text = "torch uses 1 thread on 1 usable core: thread counts cannot be compared here."
        return Finding("threads", "not available", text, said)
    return Finding("threads", "ok", f"torch uses {threads} on {_count(limits.usable)}.", said)


def _of_affinity(limits: CoreLimits) -> Finding:
    if not limits.affinity:
        text = "Which CPUs this process may use is unknown here."
        return Finding("affinity", "not available", text, f"os.cpu_count() {limits.installed}")
    text = f"This process may use {limits.allowed} of {limits.installed} CPUs."
    return Finding("affinity", "ok", text, f"sched_getaffinity: {limits.affinity}; os.cpu_count() {limits.installed}")


def _of_quota(limits: CoreLimits) -> Iterator[Finding]:
    quota, cores = limits.quota, limits.quota.value
    if math.isnan(cores):
        yield Finding("quota", "not available", "Whether a CPU quota applies is unknown: there are no cgroups here.")
        return
    if math.isinf(cores):
        yield Finding("quota", "ok", "No cgroup limits the CPU time.", f"os.cpu_count() {limits.installed}")
        return
    said = f"{quota.said}; os.cpu_count() {limits.installed}"
    has = f"The cgroup's quota is {cores:g} core{'' if cores == 1 else 's'}"
    if cores < 1:
        text = f"{has}: even one thread is stopped for part of each period."
        fix = "Raise the quota to at least 1 core (`docker run --cpus`, `resources.limits.cpu`)."
        yield Finding("quota", "warn", text, said, fix)
    elif limits.threads > cores:
        text = f"{has}, less than torch's {limits.threads} threads: they are stopped for part of each period."
        fix = f"`torch.set_num_threads({math.floor(cores)})`, or a larger quota."
        yield Finding("quota", "warn", text, said, fix)
    elif limits.installed > cores and not limits.variables:
        of = limits.installed
        text = f"{has} of {of}, and OMP_NUM_THREADS is not set: libraries may start {of} threads."
        fix = f"Set OMP_NUM_THREADS={math.floor(cores)} before Python starts."
        yield Finding("quota", "warn", text, said, fix)
    else:
        yield Finding("quota", "ok", f"{has}, enough for torch's threads.", said)
    if limits.throttled > _THROTTLED:
        text = f"The quota stopped this cgroup in {100 * limits.throttled:.0f} % of its periods since it was created."
        fix = "Use fewer threads, or raise the quota."
        yield Finding("throttling", "warn", text, f"{quota.folder}/cpu.stat", fix)


def _count(cores: int) -> str:
    return f"{cores} usable core{'' if cores == 1 else 's'}"


# ---- memory -------------------------------------------------------------------------------------------------


def memory_findings(files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """Whether there is memory left: of the cgroup and the machine; what the system ends this process for."""
    limit = memory_limit(files)
    if limit.is_set:
        used = _used(files, limit.folder)
        of = f"{_bytes(limit.value)} that its cgroup allows"
        if used is None:
            yield Finding("memory limit", "not available", f"How much of the {of} is used is unknown.", limit.said)
        else:
            yield _memory("memory limit", 1 - used / limit.value, f"{_bytes(used)} used of the {of}", limit.said)
    known = _meminfo(files)
    if known.get("MemTotal", 0) > 0 and "MemAvailable" in known:
        left = known["MemAvailable"] / known["MemTotal"]
        said = f"{_bytes(known['MemAvailable'])} of {_bytes(known['MemTotal'])} available"
        yield _memory("memory", left, said, "/proc/meminfo", _stalls(files))
    elif not limit.is_set:
        yield Finding("memory", "not available", "How much memory is free is unknown: /proc/meminfo cannot be read.")
    yield from _of_ulimits()


def _memory(kind: str, left: float, said: str, source: str, stalls: float = math.nan) -> Finding:
    fix = "Free memory, or raise the limit: paging costs milliseconds."
    if stalls > _STALLED:
        text = f"Tasks waited for memory {stalls:.1f} % of the last 10 s ({said})."
        return Finding(kind, "warn", text, "/proc/pressure/memory", fix)
    if left < _SCARCE:
        return Finding(kind, "warn", f"Memory is scarce: {said}.", source, fix)
    return Finding(kind, "ok", f"Memory: {said}.", source)


def _used(files: SystemFiles, folder: str) -> int | None:
    """Bytes that a cgroup holds, without files that it has merely read."""
    text = files.text(f"{folder}/memory.current") or files.text(f"{folder}/memory.usage_in_bytes") or ""
    if not text.isdigit():
        return None
    counted = cgroup_figures(f"{folder}/memory.stat", files)
    cache = counted.get("total_inactive_file", counted.get("inactive_file", 0))  # version 1, version 2
    return max(int(text) - cache, 0)


def _meminfo(files: SystemFiles) -> dict[str, int]:
    """Name -> bytes."""
    lines = (line.split() for line in (files.text("/proc/meminfo") or "").splitlines())
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if len(line) == 3 and line[1].isdigit()}


def _stalls(files: SystemFiles) -> float:
    """Per cent of the last 10 s in which some task waited for memory; NaN where it is not told."""
    for word in (files.text("/proc/pressure/memory") or "").split():
        if word.startswith("avg10="):
            return float(word.removeprefix("avg10="))
    return math.nan


def _of_ulimits() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, what, flag in _ULIMITS:
        soft = resource.getrlimit(getattr(resource, name))[0] if hasattr(resource, name) else resource.RLIM_INFINITY
        if soft != resource.RLIM_INFINITY:
            value = f"{units.count(soft)} {what}"
            text = f"This process may have {value} at most: a long or large measurement would be stopped."
            yield Finding("ulimit", "warn", text, f"ulimit {flag}", f"`ulimit {flag} unlimited` before Python starts.")


def _bytes(value: float) -> str:
    return units.bytes_text(value)
