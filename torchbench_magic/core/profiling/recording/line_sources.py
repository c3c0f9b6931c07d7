"""The line sources: where line events come from on this Python, or why there are none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol

from ..loop_marks import marks
from ..python_tree import sampler
from .streams import NO_LIMIT, Callers, LineRecord, Watch

__all__ = ["SOURCE_MODULES", "LineSource", "NoLines", "choose_line_source"]

SOURCE_MODULES = (*(f"{__package__}.{name}" for name in ("monitoring", "tracing")), sampler.__name__, marks.__name__)
"""Where the functions stand that the interpreter calls for each line, and for samples: an event has two numbers, and a
hook that raises is taken away."""


class LineSource(Protocol):
    """Records line events between ``start`` and ``stop``, both called on the thread that runs the cell.

    ``callers`` are the frames below the code that is recorded, where it is in the middle of running; without them
    all frames of ``start``'s caller are. ``watch`` is told of the frames of one function, in scope or not.
    """

    name: str

    def start(self, callers: Callers | None = None, watch: Watch | None = None) -> None: ...

    def stop(self) -> LineRecord: ...

    def outside_calls(self) -> int:
        """Calls of code that is not recorded, which the source has looked at so far (``sys.settrace`` only)."""
        ...

    def held(self) -> int:
        """Bytes of the record of the thread that started the source."""
        ...


class NoLines:
    """Records nothing, for a ``reason`` that the result shows."""

    name = "none"

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self, callers: Callers | None = None, watch: Watch | None = None) -> None:
        return

    def outside_calls(self) -> int:
        return 0

    def held(self) -> int:
        return 0

    def stop(self) -> LineRecord:
        return LineRecord(self.name, reason=self._reason)


def choose_line_source(
    in_scope: Callable[[str], bool], limit: int = NO_LIMIT, now: Callable[[], int] = time.time_ns
) -> LineSource:
    """``sys.monitoring`` from Python 3.12 on, ``sys.settrace`` before; none where another tool holds the hook.

    From ``limit`` events of a thread on it is followed by calls and returns only. ``now`` is asked once an event, on
    its thread.
    """
    if hasattr(sys, "monitoring"):
        from .monitoring import MonitoringSource, free_tool

        tool = free_tool()
        if tool is None:
            return NoLines("other tools use every tool id of sys.monitoring")
        return MonitoringSource(in_scope, tool, limit, now)
    hook = sys.gettrace()
    if hook is not None:
        holder = getattr(hook, "__module__", None) or type(hook).__module__
        return NoLines(f"a debugger or coverage tool ({holder}) uses Python's trace hook")
    from .tracing import SettraceSource

    return SettraceSource(in_scope, limit, now)
