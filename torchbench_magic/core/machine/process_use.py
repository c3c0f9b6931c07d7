"""What this process used until now: page faults and processor time; two readings and their difference."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields

__all__ = ["ProcessUse", "read_use"]


@dataclass(frozen=True)
class ProcessUse:
    """Totals of the process at one moment, or between two.

    Attributes:
        faults: minor page faults: pages that the system gave, mostly zeroed ones; NaN where not known.
        user, system: seconds of processor time; NaN where not known.
        own: seconds of the calling thread's processor time.
    """

    faults: float = math.nan
    user: float = math.nan
    system: float = math.nan
    own: float = math.nan

    def __sub__(self, other: ProcessUse) -> ProcessUse:
        return ProcessUse(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    @property
    def system_share(self) -> float:
        """Of its processor time, spent in the system; 0 where there is none."""
        total = self.user + self.system
        return self.system / total if total else 0.0

    @property
    def worker_share(self) -> float:
        """Processor time of the other threads over that of the calling one; NaN where not known."""
        return max(self.user + self.system - self.own, 0.0) / self.own if self.own > 0 else math.nan


def read_use() -> ProcessUse:
    """Takes 1 to 2 us."""
    try:
        import resource
    except ImportError:  # Windows
        return ProcessUse(own=time.thread_time())
    used = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUse(float(used.ru_minflt), used.ru_utime, used.ru_stime, time.thread_time())
