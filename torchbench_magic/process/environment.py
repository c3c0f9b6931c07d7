"""Where a result was measured: versions, processor, threads, load and commit."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from .device import devices_in_use
from .machine import (
    affinity,
    cpu_quota,
    governor,
    native_libraries,
    proc_text,
    ranges_text,
    usable_cores,
)


@dataclass(frozen=True)
class Environment:
    """The facts of a machine and a process that a measurement depends on.

    Attributes:
        python: version, as "3.11.7".
        torch: version, as "2.13.0+cpu".
        system: operating system and machine, as "Linux x86_64".
        cpu: the processor's own name; empty where it cannot be read.
        usable_cores: processors this process may use (affinity and cgroup quota).
        num_threads: torch's intra-op threads before the run.
        accelerator: name of the accelerator, or None.
        load: 1-minute load average at the start; NaN where there is none.
        commit: git commit of the working folder, with "+" where files differ from it; None where it was not read
            (it is when a result is stored) or there is no repository.
        variables: the environment variables that steer threads and allocators, as they are set.
        quota: cores that the cgroup allows; infinite where it sets no limit, None where it was not recorded.
        affinity: numbers of the processors that this process may use, as "0-3,8"; empty where it was not recorded.
        governor: what steers the processor's clock; empty where it was not recorded, or cannot be read.
        libraries: the OpenMP, BLAS and allocator libraries that were loaded, with the package that brought them; None
            where they were not recorded.
    """

    python: str
    torch: str
    system: str = ""
    cpu: str = ""
    usable_cores: int = 1
    num_threads: int = 1
    accelerator: str | None = None
    load: float = float("nan")
    commit: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    quota: float | None = None
    affinity: str = ""
    governor: str = ""
    libraries: tuple[str, ...] | None = None

    def footer(self) -> str:
        """Device and versions in one line, as the end of a result's footer."""
        return f"{self.accelerator or 'CPU'} · torch {self.torch} · Python {self.python}"


def common_environment(environments: Sequence[Environment]) -> Environment:
    """One record; texts that differ stand beside each other."""
    made: dict[str, Any] = {}
    for item in fields(Environment):
        values = [getattr(environment, item.name) for environment in environments]
        if all(value is None or isinstance(value, str) for value in values):
            absent = "CPU" if item.name == "accelerator" else "none"
            texts = list(dict.fromkeys(absent if value is None else value for value in values))
            made[item.name] = " / ".join(texts) if len(texts) > 1 else values[0]
    return replace(environments[0], **made)


# ---- engine_place ----------------------------------------------------------------------------------------------------
# Where a measurement was made, of a result that several engines made.


@dataclass(frozen=True)
class EnginePlace:
    """An engine of a cluster.

    Attributes:
        engine: its number in the cluster; below zero: none was left.
        host: name of its machine; empty where it did not tell.
        environment: of the engine, with the load of its machine at the start; None where it did not tell.
        why_not: why nothing was measured there; empty where something was.
    """

    engine: int
    host: str = ""
    environment: Environment | None = None
    why_not: str = ""

    @property
    def name(self) -> str:
        """``worker1/3``; empty where no engine was left."""
        if self.engine < 0:
            return ""
        return f"{self.host}/{self.engine}" if self.host else f"engine {self.engine}"


# ---- environment -----------------------------------------------------------------------------------------------------
# Reads the environment record of this process. psutil and py-cpuinfo are not needed for it: /proc answers in
# microseconds where py-cpuinfo takes a second and gets the cache sizes wrong.

_PREFIXES = (
    *("OMP_", "MKL_", "GOMP_", "KMP_", "OPENBLAS_", "BLIS_", "VECLIB_", "ONEDNN_", "DNNL_"),
    *("TORCH_", "PYTORCH_", "ATEN_", "CUBLAS_", "CUDA_LAUNCH_BLOCKING"),
    *("MALLOC_", "TCMALLOC_", "MIMALLOC_", "GLIBC_TUNABLES", "PYTHONMALLOC"),
    *("LD_PRELOAD", "DYLD_INSERT_LIBRARIES"),
)
"""Variables that steer threads, libraries of mathematics, torch, allocators, and what is loaded before all others."""


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    found = re.search(r"^model name\s*:(.*)$", proc_text("/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.processor()


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
        affinity=ranges_text(affinity()),
        governor=governor(),
        libraries=None if libraries is None else tuple(f"{one.kind}: {one}" for one in libraries),
    )


# ---- commit ----------------------------------------------------------------------------------------------------------
# The git commit of a folder, read when a result is stored: it takes a process and some milliseconds.


def read_commit(folder: str | os.PathLike[str] | None = None, *, timeout: float = 2.0) -> str | None:
    """The commit that the folder's files are of, 12 hex digits, with "+" where tracked files differ from it.

    None outside a repository, before the first commit, without git, and where git takes longer than ``timeout``
    seconds (a huge tree on a network disk).

    Args:
        folder: the working folder by default; for a notebook that is where its kernel was started.
    """
    # No hook, pager or watcher of the repository's configuration is run, and its index is not rewritten.
    git = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks"]
    asked = [*git, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        said = subprocess.run(
            asked, cwd=folder, capture_output=True, text=True, timeout=timeout, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return said.stdout.strip() or None
