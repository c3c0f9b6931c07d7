"""Where a result was measured: versions, processor, threads, load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

__all__ = ["Environment", "common_environment"]


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
