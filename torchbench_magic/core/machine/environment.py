"""Reads the environment record of this process. psutil and py-cpuinfo are not needed for it: /proc answers in
microseconds where py-cpuinfo takes a second and gets the cache sizes wrong."""

from __future__ import annotations

import math
import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchbench_magic.results.machine.environment import Environment

__all__ = ["KERNEL", "read_environment", "usable_cores"]

_PREFIXES = ("OMP_", "MKL_", "GOMP_", "KMP_", "OPENBLAS_", "MALLOC_", "TORCH_", "PYTORCH_", "ATEN_")
KERNEL = os.urandom(6).hex()
"""Tells this process, and its forks, from others: forks have its addresses."""


def usable_cores() -> int:
    """Processors that this process may use at once: the affinity mask, cut by the cgroup's CPU quota.

    ``os.cpu_count()`` is wrong in containers.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def _quota() -> float:
    """CPU quota of the cgroup in cores; infinite when there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        v1 = Path("/sys/fs/cgroup/cpu")
        us = int((v1 / "cpu.cfs_quota_us").read_text())
        return math.inf if us <= 0 else us / int((v1 / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return math.inf


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _accelerator() -> str | None:
    import torch

    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        return None
    backend: Any = getattr(torch, device.type, None)
    return str(backend.get_device_name()) if hasattr(backend, "get_device_name") else device.type


def read_environment() -> Environment:
    """Record versions, processor, threads, load and the variables that steer threads and allocators."""
    import torch

    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        load = math.nan
    return Environment(
        python=platform.python_version(),
        torch=torch.__version__,
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_name(),
        usable_cores=usable_cores(),
        num_threads=torch.get_num_threads(),
        accelerator=_accelerator(),
        load=load,
        variables={k: v for k, v in sorted(os.environ.items()) if k.startswith(_PREFIXES)},
    )
