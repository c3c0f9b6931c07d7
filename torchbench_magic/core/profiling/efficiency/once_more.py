"""One op called a few times more, after the run: do page faults hold it up, and what does oneDNN run for it?

It is called on fresh random inputs of the recorded sizes, strides and dtypes. Nothing of the user's is touched: random
numbers go on as before, and what oneDNN writes to the process's stdout is read from a file.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from torchbench_magic.core.machine.process_use import read_use
from torchbench_magic.core.process.held_interrupts import interrupts_held

from ..op_benchmark import code_of
from ..tables.call_arguments import RecordedCall

__all__ = ["MoreCalls", "implementation_in", "once_more"]

_STDOUT = 1
_WARM = 2
"""Calls before any is looked at: the allocator then keeps what it will keep."""
_LEAST = 0.02
"""Seconds that are looked at: processor time is counted well enough then, and threads that still wait for the end of
an earlier op sleep."""
_MOST_CALLS = 1000
_LONGEST = 300


@dataclass(frozen=True)
class MoreCalls:
    """What one call did.

    Attributes:
        faults: minor page faults; NaN where the system does not count.
        worker_share: processor time of other threads over that of the calling one; NaN where not known.
        system_share: of its processor time, spent in the system.
        implementation: what oneDNN ran, in its own words; empty where it ran nothing.
        seconds: of the median call, with memory and caches that are warm.
    """

    faults: float
    system_share: float
    worker_share: float
    implementation: str
    seconds: float = math.nan


def once_more(recorded: RecordedCall, threads: int) -> MoreCalls | None:
    """Call it again with so many threads; None where it cannot be rebuilt or does not run on fresh inputs."""
    import torch

    if torch.get_default_dtype() != torch.float32 or torch.get_default_device().type != "cpu":
        return None  # the code that makes inputs relies on them
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        setup, stmt = code_of(recorded)
        names: dict[str, Any] = {}
        with (
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
            warnings.catch_warnings(action="ignore"),
        ):
            exec(compile(setup, "<op>", "exec"), names)
            code = compile(stmt, "<op>", "exec")
            return _looked_at(lambda: exec(code, names))
    except Exception:  # noqa: BLE001  # whatever an op raises on inputs that are not the user's: the profile is there
        return None
    finally:
        torch.set_num_threads(before)


def _looked_at(call: Callable[[], object]) -> MoreCalls:
    begin = time.perf_counter()
    for _ in range(_WARM):
        call()
        if time.perf_counter() - begin > _LEAST:
            break
    times: list[float] = []
    before, now = read_use(), time.perf_counter()
    until = now + _LEAST
    while not times or (now < until and len(times) < _MOST_CALLS):
        call()
        after = time.perf_counter()
        times.append(after - now)
        now = after
    used = read_use() - before
    system = 0.0 if math.isnan(used.system) else used.system_share
    return MoreCalls(used.faults / len(times), system, used.worker_share, _words(call), statistics.median(times))


def _words(call: Callable[[], object]) -> str:
    import torch

    if not torch.backends.mkldnn.is_available():
        return ""
    with tempfile.TemporaryFile() as kept:
        with _stdout_to(kept), torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            call()
        kept.seek(0)
        return implementation_in(kept.read().decode(errors="replace"))


@contextlib.contextmanager
def _stdout_to(file: IO[bytes]) -> Iterator[None]:
    """The process's own stdout, as C knows it, led into a file."""
    with interrupts_held():
        before = os.dup(_STDOUT)
        try:
            os.dup2(file.fileno(), _STDOUT)
            yield
        finally:
            os.dup2(before, _STDOUT)
            os.close(before)


def implementation_in(said: str) -> str:
    """``matmul by brg_matmul:avx512_core_bf16`` of what oneDNN wrote; empty where it executed nothing.

    A line is ``onednn_verbose,v1,primitive,exec,cpu,KIND,IMPLEMENTATION,...`` (oneDNN's manual, "Verbose Mode"; without
    ``v1`` and ``primitive`` in older versions).
    """
    found: dict[str, None] = {}
    for line in said.splitlines():
        parts = line.split(",")
        if not parts[0].startswith(("onednn_verbose", "dnnl_verbose")) or "exec" not in parts:
            continue
        at = parts.index("exec")
        if len(parts) > at + 3:
            found[f"{parts[at + 2]} by {parts[at + 3]}"] = None
    return ", ".join(found)[:_LONGEST]
