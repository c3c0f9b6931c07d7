"""What is called for every line, call or allocation of this process: a debugger, a coverage tool, a tracer."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

__all__ = ["active_hooks"]

_TOOLS = 6
"""That ``sys.monitoring`` has place for."""


def active_hooks() -> Iterator[str]:
    """Each with what is called, where that is known: ``sys.settrace: coverage.tracer.CTracer``."""
    found = {
        "sys.settrace": sys.gettrace(),
        "sys.setprofile": sys.getprofile(),
        "threading.settrace": threading.gettrace(),
        "threading.setprofile": threading.getprofile(),
    }
    yield from (f"{name}: {_named(hook)}" for name, hook in found.items() if hook is not None)
    monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
    for tool in range(_TOOLS) if monitoring is not None else ():
        name = monitoring.get_tool(tool)
        if name is not None and monitoring.get_events(tool):
            yield f"sys.monitoring: {name}"
    if tracemalloc.is_tracing():
        yield "tracemalloc"


def _named(hook: object) -> str:
    """The function or the class of an object, with its module."""
    kind = hook if hasattr(hook, "__qualname__") else type(hook)
    return f"{getattr(kind, '__module__', '?')}.{getattr(kind, '__qualname__', kind)}"
