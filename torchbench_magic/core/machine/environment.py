"""Reads the environment record of this process. psutil and py-cpuinfo are not needed for it: /proc answers in
microseconds where py-cpuinfo takes a second and gets the cache sizes wrong."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchbench_magic.results.machine.environment import Environment

from .devices_in_use import devices_in_use
from .facts.cgroups import Limit, cpu_quota
from .facts.frequency import clock_control, governor_text
from .facts.native_libraries import native_libraries
from .facts.system_files import THIS_MACHINE, SystemFiles

__all__ = ["KERNEL", "affinity_text", "cores_under", "ranges_text", "read_environment", "usable_cores"]

_PREFIXES = (
    *("OMP_", "MKL_", "GOMP_", "KMP_", "OPENBLAS_", "BLIS_", "VECLIB_", "ONEDNN_", "DNNL_"),
    *("TORCH_", "PYTORCH_", "ATEN_", "CUBLAS_", "CUDA_LAUNCH_BLOCKING"),
    *("MALLOC_", "TCMALLOC_", "MIMALLOC_", "GLIBC_TUNABLES", "PYTHONMALLOC"),
    *("LD_PRELOAD", "DYLD_INSERT_LIBRARIES"),
)
"""Variables that steer threads, libraries of mathematics, torch, allocators, and what is loaded before all others."""
KERNEL = os.urandom(6).hex()
"""Tells this process, and its forks, from others: forks have its addresses."""


def usable_cores(files: SystemFiles = THIS_MACHINE) -> int:
    """Processors that this process may use at once: the affinity mask, cut by the cgroup's CPU quota.

    ``os.cpu_count()`` is wrong in containers.
    """
    return cores_under(cpu_quota(files))


def cores_under(quota: Limit) -> int:
    """The same, where the quota is known already; takes some microseconds."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, quota.value))) if quota.is_set else cores


def affinity_text() -> str:
    """Numbers of the processors that this process may run on, as ``0-3,8``; empty where the system does not tell."""
    try:
        return ranges_text(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return ""


def ranges_text(numbers: Iterable[int]) -> str:
    """Whole numbers in the notation of Linux: ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


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
    if devices_in_use():
        backend: Any = getattr(torch, device.type, None)
        return str(backend.get_device_name()) if hasattr(backend, "get_device_name") else device.type
    models = _models() if device.type == "cuda" else set()  # to ask torch would make a context
    return models.pop() if len(models) == 1 else device.type


def _models() -> set[str]:
    """What NVIDIA's driver says that its devices are; empty where it does not say."""
    found = set()
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        found |= {line.partition(":")[2].strip() for line in lines if line.startswith("Model:")}
    return found


def read_environment() -> Environment:
    """Record versions, processor, threads, load, limits, libraries and variables that steer threads and allocators."""
    import torch

    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        load = math.nan
    quota, libraries = cpu_quota(), native_libraries()
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
        quota=None if math.isnan(quota.value) else quota.value,
        affinity=affinity_text(),
        governor=governor_text(clock_control()),
        libraries=None if libraries is None else tuple(f"{one.kind}: {one}" for one in libraries),
    )
