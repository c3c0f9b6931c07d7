"""`Engine`: one process of a cluster, as it was found when a run began."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Engine"]


@dataclass(frozen=True)
class Engine:
    """An engine of an ipyparallel cluster.

    Attributes:
        id: its number in the cluster.
        state: ``ready``; ``busy`` (it runs something and did not answer), ``silent`` (it did not answer, and nobody
            knows of a task), ``died``. Of the last three the fields below are not known.
        host: its name.
        boot: what tells hosts of one name apart, and is the same for all processes of one; empty where it is not known.
        pid: of its process, on its host.
        python: version, as "3.11.7".
        torch: version; None where there is none.
        package: version of torchbench_magic there; None where there is none.
        load: 1-minute load average of its host; NaN where that is not known.
        cores: processors that it may use.
    """

    id: int
    state: str
    host: str = ""
    boot: str = ""
    pid: int = 0
    python: str = ""
    torch: str | None = None
    package: str | None = None
    load: float = float("nan")
    cores: int = 0

    @property
    def place(self) -> tuple[str, str]:
        """What is the same for all engines of one host."""
        return self.host, self.boot

    @property
    def python_minor(self) -> str:
        """``3.11``."""
        return ".".join(self.python.split(".")[:2])

    @property
    def title(self) -> str:
        """As tables and sentences call it."""
        return f"engine {self.id}" + (f" on {self.host}" if self.host else "")
