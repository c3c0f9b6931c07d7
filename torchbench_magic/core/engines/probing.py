"""Which engines are there, and whether they can serve: all are asked at once, and none is waited for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torchbench_magic
from torchbench_magic.core.process.held_interrupts import hear_interrupt
from torchbench_magic.results.machine.engines import Engine

from .cluster import Cluster
from .this_host import THIS_PYTHON, boot_id

__all__ = ["is_here", "probe", "why_not"]

ANSWERS_WITHIN = 5.0
"""Seconds in which an engine answers that runs nothing: it imports what describes packages, from a slow disk too."""
BUSY_AFTER = 0.5
"""Seconds after which an engine that the controller knows to run something is taken to be busy. It is asked anew after
as long again: it hears of a task later than the engine does."""

_LOOK = '''
def answer(asked):
    import importlib.metadata, importlib.util, os, platform, socket

    def version(name):
        if importlib.util.find_spec(name) is None:
            return None
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"

    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    package = version("torchbench_magic")
    if package is not None:
        try:
            import torchbench_magic
            package = torchbench_magic.__version__
        except Exception:
            package = None
    return {
        "host": socket.gethostname(), "boot": boot, "pid": os.getpid(), "python": platform.python_version(),
        "torch": version("torch"), "package": package,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    }
'''


def probe(
    cluster: Cluster, *, deadline: float = ANSWERS_WITHIN, clock: Callable[[], float] = time.perf_counter
) -> tuple[Engine, ...]:
    """Every engine of the cluster, in the order of their ids; a Ctrl-C that waits is heard.

    Args:
        deadline: seconds after which one that did not answer is ``silent``.
    """
    found: dict[int, Engine] = {}
    ids = cluster.ids
    occupied = frozenset[int]()
    looks = 1
    asked = {each: cluster.begin(each, _LOOK, {}) for each in ids}
    began = clock()
    while len(found) < len(ids):
        hear_interrupt()
        passed = clock() - began
        if passed > looks * BUSY_AFTER:
            occupied = _occupied(cluster)
            looks += 1
        for each in [each for each in ids if each not in found]:
            if asked[each].ready():
                found[each] = _looked_at(each, asked[each])
            elif passed > deadline or each in occupied:
                found[each] = Engine(each, "busy" if each in occupied else "silent")
                cluster.client.abort(asked[each], targets=each, block=False)
        if len(found) < len(ids):
            time.sleep(0.005)
    return tuple(found[each] for each in ids)


def _occupied(cluster: Cluster) -> frozenset[int]:
    """Ids of engines that the controller knows to have a task besides the question that they did not answer."""
    told: Mapping[Any, Any] = cluster.client.queue_status()
    rows = {each: row for each, row in told.items() if isinstance(row, Mapping)}
    return frozenset(each for each, row in rows.items() if int(row.get("queue", 0)) + int(row.get("tasks", 0)) > 1)


def _looked_at(engine: int, result: Any) -> Engine:
    try:
        return Engine(engine, "ready", **result.get(timeout=0))
    except Exception:  # noqa: BLE001  # it died, or its Python cannot even do this
        return Engine(engine, "died")


def is_here(engine: Engine) -> bool:
    """Whether it runs on this host with this Python, so that this package's folder serves it too."""
    return bool(engine.boot) and engine.boot == boot_id() and engine.python_minor == THIS_PYTHON


def why_not(engine: Engine, *, has_code: bool = False) -> str:
    """Why an engine cannot serve, in a few words for a row or a line; empty where it can.

    Args:
        has_code: functions or classes of the notebook are to travel there.
    """
    if engine.state != "ready":
        told = {"busy": "is busy with another task", "silent": "does not answer", "died": "died"}
        return told[engine.state]
    if engine.torch is None:
        return "has no torch"
    if has_code and engine.python_minor != THIS_PYTHON:
        return f"has Python {engine.python_minor}, to which functions cannot be sent from Python {THIS_PYTHON}"
    own = torchbench_magic.__version__
    if engine.package is None and not is_here(engine):
        return f"has no torchbench_magic: install {own} there"
    if engine.package not in (None, own):
        return f"has torchbench_magic {engine.package}, not {own}: install the same there"
    return ""
