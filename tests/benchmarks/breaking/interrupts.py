"""SIGINT at random moments of a cell: what is shown, and what stays switched."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .kernel import FaultKernel, Ran

__all__ = ["KINDS", "Attempt", "Kind", "attempts_of"]

_BODY = """
began.append(1)
for i in range(50):
    y = model(x)
    held = [bytes(1000) for _ in range(20)]
    for j in range(40):
        total = j + i
    total = sum(range(100_000))
"""
_SECTIONS = """
# --- setup
z = x + 1
# --- linear
model(z)
# --- sums
z.sum()
"""
_SHORT = "--min-run-time 0.15 --max-run-time 0.3"
_CPP = """
// --- setup
auto x = torch::ones({{64}});
// --- add
auto y = x + {number};
// --- mul
auto y = x * 2;
"""
SET_UP = """
import gc, json, os, random, signal, sys, tempfile, threading, time, tracemalloc, torch
began = []
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
x = torch.randn(8, 16)

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def plain_calls():
    "Bytes that the process grows by over 20 000 plain calls: about 35 MB where torch's profiler is on."
    y = torch.zeros(4)
    for _ in range(1000):
        y.add_(1)
    before = resident()
    for _ in range(20_000):
        y.add_(1)
    return resident() - before

def state():
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    first = {name: descriptors.get(name) for name in "012"}
    # IPython writes its history when it likes to
    kinds = sorted(target.split("[")[0] for target in descriptors.values() if "/ipython/profile_default" not in target)
    hooks = torch.nn.modules.module
    held = sys.modules.get("torchbench_magic.process.interrupts")
    monitoring = getattr(sys, "monitoring", None)
    return {
        "torch's profiler": [torch._C._autograd._profiler_enabled(), torch.autograd.profiler._is_profiler_enabled],
        "growth over plain calls": plain_calls() > 8 << 20,
        "trace and profile functions": [
            repr(each()) for each in (sys.gettrace, sys.getprofile, threading.gettrace, threading.getprofile)
        ],
        "sys.monitoring": [monitoring.get_tool(n) for n in range(6)] if monitoring else [],
        "tracemalloc": tracemalloc.is_tracing(),
        "hooks of modules": [
            len(getattr(hooks, name)) for name in dir(hooks) if name.startswith("_global_") and name.endswith("hooks")
        ] + [len(vars(layer)[name]) for layer in model.modules() for name in vars(layer) if name.endswith("hooks")],
        "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "settings of torch": [
            torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.get_num_threads(),
            torch.is_inference_mode_enabled(), torch.get_rng_state().sum().item(),
        ],
        "generators of Python": hash(random.getstate()),
        "threads": sorted(each.name for each in threading.enumerate()),
        "descriptors 0 to 2": first,
        "other descriptors": kinds,
        "streams": [str(type(sys.stdout)), str(type(sys.stderr)), str(type(sys.displayhook))],
        "handlers of signals": [
            str(signal.getsignal(signal.SIGINT)), str(signal.getsignal(signal.SIGCHLD)), held and held._now.depth
        ],
        "worker loop": torch.utils.data._utils.worker._worker_loop.__name__,
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),
        "processes": len([n for t in os.listdir("/proc/self/task")
                          for n in open(f"/proc/self/task/{t}/children").read().split()]),
        "environment and folder": [hash(tuple(sorted(os.environ.items()))), os.getcwd()],
    }

def settled(before):
    "The state, as soon as it is as before; what ends by itself has a second to do so."
    for _ in range(20):
        now = state()
        if json.loads(json.dumps(now)) == before:
            break
        time.sleep(0.05)
    return now
"""


@dataclass(frozen=True)
class Kind:
    """Cells of one kind.

    Attributes:
        name: as it stands in the tables.
        cell: its text; ``{number}`` is another number each time.
        result: the variable that keeps its result.
        shared: how many of 100 attempts are of this kind.
        is_live: somebody sits before the notebook.
    """

    name: str
    cell: str
    result: str = "_tprofile"
    shared: int = 10
    is_live: bool = False


KINDS = (
    Kind("%%tprofile", f"%%tprofile{_BODY}", shared=14),
    Kind("%%tprofile --memory", f"%%tprofile --memory{_BODY}", shared=14),
    Kind(
        "%%tprofile --memory --shapes --host-memory", f"%%tprofile --memory --shapes --host-memory{_BODY}", shared=12
    ),
    Kind("%%tprofile --steps 20", f"%%tprofile --steps 20{_BODY}", shared=12),
    Kind("%%tprofile -w", f"%%tprofile -w{_BODY}", shared=8, is_live=True),
    Kind("%%timer", f"%%timer {_SHORT}{_SECTIONS}", "_timer", 12),
    Kind("%%timer -w", f"%%timer -w {_SHORT}{_SECTIONS}", "_timer", 8, is_live=True),
    Kind("%%timer --callgrind", f"%%timer --callgrind 10 -n 5 -r 5{_SECTIONS}", "_timer", 12),
    Kind("%%timer --cpp, compiled before", f"%%timer --cpp {_SHORT}{_CPP.format(number=3)}", "_timer", 6),
    Kind("%%timer --cpp, compiled in the cell", f"%%timer --cpp {_SHORT}{_CPP}", "_timer", 2),
)


@dataclass(frozen=True)
class Attempt:
    """One cell that was interrupted.

    Attributes:
        kind: name of its `Kind`.
        moments: seconds after the magic began at which SIGINT was to be sent.
        sent: how many were, before it ended.
        outcome: "whole" or "partial" result shown and kept; "nothing" where nothing was measured yet.
        faults: in words; empty as it should be.
    """

    kind: str
    moments: tuple[float, ...]
    sent: int
    outcome: str
    faults: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def attempts_of(kind: Kind, count: int, seed: int, until: float = float("inf")) -> Iterator[Attempt]:
    """``count`` attempts in one kernel, half of them with a second SIGINT up to 0.3 s after the first.

    Args:
        until: value of ``time.monotonic`` at which no further attempt is begun.
    """
    drawn = random.Random(f"{kind.name} {seed}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables = {"XDG_CACHE_HOME": str(Path(folder, "cache"))}
        with FaultKernel(Path(folder), variables, has_reader=kind.is_live) as kernel:
            assert not kernel.run(SET_UP).error
            lasts = _lasts(kernel, kind, drawn)
            before = kernel.value("print(json.dumps(state()))")
            for nth in range(count):
                if time.monotonic() > until:
                    return
                first = drawn.uniform(0.0, 1.1 * lasts)
                moments = (first,) if nth % 2 == 0 else (first, first + drawn.uniform(0.0, 0.3))
                yield _attempt(kernel, kind, moments, before, drawn)


def _lasts(kernel: FaultKernel, kind: Kind, drawn: random.Random) -> float:
    """Seconds of the cell that nobody interrupts; the first ones load what stays."""
    lasts = 0.0
    for _ in range(3):
        ran = kernel.run(_text(kind, drawn), is_magic=True, timeout=240.0)
        if ran.error or ran.is_lost or not any("text/html" in each or _is_view(each) for each in ran.displayed):
            raise RuntimeError(f"{kind.name}: {ran.error or ran.stderr or 'no result'}")
        lasts = ran.seconds
    return lasts


def _text(kind: Kind, drawn: random.Random) -> str:
    return kind.cell.replace("{{", "{").replace("}}", "}").replace("{number}", str(drawn.randrange(10**9)))


def _attempt(
    kernel: FaultKernel, kind: Kind, moments: tuple[float, ...], before: dict[str, Any], drawn: random.Random
) -> Attempt:
    began = kernel.run(f"began.clear(); {kind.result} = None")
    assert not began.error
    ran = kernel.run(_text(kind, drawn), moments, timeout=120.0)
    if ran.is_lost:
        return Attempt(kind.name, moments, ran.sent, "lost", ("the cell's reply did not come",))
    kept = kernel.value(
        f"_r = {kind.result}; print(json.dumps([_r is not None, bool(_r is not None and _r.partial), len(began)]))"
    )
    faults = [*_wrong_output(ran, kind, *kept)]
    after = kernel.value(f"_before = {before!r}; print(json.dumps(settled(_before)))")
    faults += [f"{name}: {_change(before[name], after[name])}" for name in before if before[name] != after[name]]
    outcome = "nothing" if not kept[0] else "partial" if kept[1] else "whole"
    return Attempt(kind.name, moments, ran.sent, outcome, tuple(faults))


def _change(before: Any, after: Any) -> str:
    if isinstance(before, list) and all(isinstance(each, str) for each in [*before, *after]):
        return f"gone {[*(Counter(before) - Counter(after))]}, new {[*(Counter(after) - Counter(before))]}"
    return f"{before} -> {after}"


def _wrong_output(ran: Ran, kind: Kind, is_kept: bool, is_partial: bool, began: int) -> Iterator[str]:
    result = [each for each in ran.displayed if "text/html" in each or _is_view(each)]
    if is_kept != bool(result):
        yield f"kept: {is_kept}, shown: {bool(result)}"
    if kind.result == "_tprofile" and began and not is_kept:
        yield "the code ran and there is no profile"
    if "torchbench_magic" in ran.error:
        yield f"a traceback with frames of the package: {ran.error}"
    if ran.error and "KeyboardInterrupt" not in ran.error:
        yield f"another error: {ran.error}"
    if ran.stderr.strip():
        yield f"on stderr: {ran.stderr}"
    if ran.sent and not ran.error:
        yield "the interrupt was lost"


def _is_view(bundle: dict[str, Any]) -> bool:
    return "application/vnd.jupyter.widget-view+json" in bundle
