"""Where a measurement was made, of a result that several engines made."""

from __future__ import annotations

from dataclasses import dataclass

from .environment import Environment

__all__ = ["EnginePlace"]


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
