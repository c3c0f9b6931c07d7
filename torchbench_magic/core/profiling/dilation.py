"""How much longer a body took because it was profiled: estimated from what an event costs in this process.

The costs are measured once per process and kind of profile, by short bodies that run with and without: of an op, of
an allocation and its freeing, of a recorded line, of a call of an nn.Module, and of a call into Python code that is not
recorded (which only the trace function of Python 3.11 makes dearer). What a run has of each is known, so its time
without can be estimated. Costs are CPU time of the thread; in a run whose thread had to wait for a processor they took
as much longer as all that it did.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, replace
from functools import cache
from typing import Any

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profile import Profile
from torchbench_magic.units import seconds_text

from .events import read_events
from .kineto import Kineto
from .lines import choose_line_source
from .modules import ModuleCalls
from .run import torch_threads
from .streams import LineRecord

__all__ = [
    "Costs",
    "Counts",
    "calibrated",
    "dilation_doubt",
    "estimated_without",
    "time_again",
    "time_again_async",
    "with_unprofiled",
]

_FILE = "<torchbench_magic calibration>"
_TIMES = 400  # runs of each loop
_RUNS = 5  # of which the median counts
_WORTH_TELLING = 0.02
_NEARLY_ALL = 9.0  # ten times slower
_clock = time.thread_time if time.get_clock_info("thread_time").resolution <= 1e-6 else time.perf_counter


@dataclass(frozen=True)
class Costs:
    """Seconds that profiling adds.

    Attributes:
        op: to an op.
        allocation: to an allocation or a freeing; 0 without ``--memory``.
        line: to a line event of recorded code.
        call: to a call of Python code that is not recorded.
        module: to a call of an nn.Module.
    """

    op: float
    allocation: float
    line: float
    call: float
    module: float = 0.0


@dataclass(frozen=True)
class Counts:
    """What a run had."""

    ops: int
    allocations: int
    line_events: int
    outside_calls: int
    modules: int = 0


def estimated_without(wall_time: float, counts: Counts, costs: Costs, stretch: float = 1.0) -> float:
    """Seconds that the run would have taken without the profiler; not below a twentieth of what it took.

    Args:
        stretch: wall time over CPU time of the thread while it was ready to run.
    """
    return max(wall_time - _added(counts, costs) * stretch, 0.05 * wall_time)


def _added(counts: Counts, costs: Costs) -> float:
    """Seconds of CPU time."""
    return math.fsum(count * cost for count, cost in zip(astuple(counts), astuple(costs), strict=True))


@cache
def calibrated(memory: bool, shapes: bool, lines: bool) -> Costs:
    """Measure the costs, a second or so; once per process for each kind of profile. No profiler may run meanwhile."""
    import torch

    a, b = torch.ones(4), torch.ones(4)

    def ops() -> None:
        for _ in range(_TIMES):
            torch.add(a, b, out=a)

    def allocations() -> None:
        for _ in range(_TIMES):
            torch.empty(4)

    def profiled(body: Callable[[], None]) -> float:
        kineto = Kineto(memory=memory, shapes=shapes, all_threads=not memory)
        kineto.start()
        try:
            return _typical(body)
        finally:
            kineto.stop()

    op = (profiled(ops) - _typical(ops)) / _TIMES
    both = (profiled(allocations) - _typical(allocations)) / _TIMES if memory else op
    line, call = _line_costs() if lines else (0.0, 0.0)
    module = _module_cost(call, lines)
    costs = Costs(max(op, 0.0), max(both - op, 0.0) / 2, line, call, module)
    factor = _together(costs, memory, shapes, lines)
    return replace(costs, call=costs.call * factor, module=costs.module * factor)


def _typical(body: Callable[[], Any]) -> float:
    took = []
    for _ in range(_RUNS):
        started = _clock()
        body()
        took.append(_clock() - started)
    return statistics.median(took)


def _line_costs() -> tuple[float, float]:
    """Of a line event, and of a call of library code, with the line source of this Python.

    While Python 3.11 traces, all that a function does is slower, recorded or not; so the calls are of torch's own code.
    """
    recorded, module = _function("x = 0\n" + "    x = 1\n" * 20, _FILE), _identity()

    def lines() -> None:
        for _ in range(_TIMES):  # some ms, so that a busy machine interrupts it as it does a run
            recorded()

    took, record = _traced(lines)
    line = (took - _typical(lines)) * _RUNS / record.n_events if record.n_events else 0.0
    took, record = _traced(module)
    call = (took - _typical(module)) * _RUNS / record.outside_calls if record.outside_calls else 0.0
    return max(line, 0.0), max(call, 0.0)


def _module_cost(call: float, lines: bool) -> float:
    """What recording the call of a module adds, besides the calls of library code that this makes."""
    module = _identity()
    plain = _typical(module)
    recorder = ModuleCalls({})
    recorder.start()
    try:
        took, record = _traced(module) if lines else (_typical(module), None)
    finally:
        recorder.stop()
    calls = record.outside_calls / _RUNS if record is not None else 0.0
    return max(took - plain - calls * call, 0.0) / _TIMES


def _together(costs: Costs, memory: bool, shapes: bool, lines: bool) -> float:
    """By how much the calls of library code and of modules are dearer in a small network than alone.

    That is what the network takes more, less the costs of its ops and lines.
    """
    import torch

    net, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)), torch.ones(4)

    def body() -> None:
        for _ in range(_TIMES // 8):
            net(x)

    plain = _typical(body)
    kineto, modules = Kineto(memory=memory, shapes=shapes, all_threads=not memory), ModuleCalls({})
    kineto.start()
    modules.start()
    try:
        took, record = _traced(body) if lines else (_typical(body), LineRecord("none"))
    finally:
        calls = modules.stop()
        results = kineto.stop()
    events = read_events(results)
    counts = Counts(
        ops=int(events.is_kind("cpu_op", "user_annotation").sum()),
        allocations=int(events.is_memory.sum()),
        line_events=record.n_events,
        outside_calls=record.outside_calls,
        modules=sum(map(len, calls.streams.values())) // 4,
    )
    calls_cost = _added(counts, replace(costs, op=0.0, allocation=0.0, line=0.0)) / _RUNS
    others = _added(counts, replace(costs, call=0.0, module=0.0)) / _RUNS
    return min(max((took - plain - others) / calls_cost, 1.0), 4.0) if calls_cost > 0 else 1.0


def _identity() -> Callable[[], None]:
    """Calls a module that does nothing."""
    import torch

    module, nothing = torch.nn.Identity(), None

    def calls() -> None:
        for _ in range(_TIMES):
            module(nothing)

    return calls


def _traced(body: Callable[[], None]) -> tuple[float, LineRecord]:
    source = choose_line_source(_FILE.__eq__)
    source.start()
    try:
        took = _typical(body)
    finally:
        record = source.stop()
    return took, record


def _function(body: str, file: str) -> Callable[[], None]:
    names: dict[str, Any] = {}
    exec(compile(f"def body():\n    {body}", file, "exec"), names)
    made: Callable[[], None] = names["body"]
    return made


def time_again(body: Callable[[], object], threads: int | None) -> tuple[float, BaseException | None]:
    """Run ``body`` as it is, unprofiled: its seconds, and what it raised."""
    with torch_threads(threads):
        started = time.perf_counter()
        try:
            body()
        except BaseException as caught:  # noqa: BLE001  # Ctrl-C too: the caller raises it
            return time.perf_counter() - started, caught
        return time.perf_counter() - started, None


async def time_again_async(
    body: Callable[[], Awaitable[object]], threads: int | None
) -> tuple[float, BaseException | None]:
    """As `time_again`, within a running event loop."""
    with torch_threads(threads):
        started = time.perf_counter()
        try:
            await body()
        except BaseException as caught:  # noqa: BLE001  # Ctrl-C too: the caller raises it
            return time.perf_counter() - started, caught
        return time.perf_counter() - started, None


def with_unprofiled(profile: Profile, seconds: float, *, complete: bool) -> Profile:
    """The profile with the time of a second, unprofiled run, and what that says."""
    others = [doubt for doubt in profile.warnings if doubt.kind != "dilation"]
    if not complete:
        said = Doubt(
            "twice-failed", f"The second, unprofiled run ended early after {seconds_text(seconds)}: it tells no time."
        )
        return replace(profile, warnings=[*others, said])
    made = replace(profile, unprofiled_time=seconds)
    text = dilation_doubt(profile.wall_time, seconds, measured=True)
    return replace(made, warnings=[*others, text] if text is not None else others)


def dilation_doubt(wall_time: float, without: float, *, measured: bool) -> Doubt | None:
    """How much slower the body was; of an estimate only what is worth telling."""
    share = wall_time / without - 1 if without > 0 else 0.0
    facts = {"dilation": share, "without": without}
    if measured:
        ran = f"the body ran a second time for that, {seconds_text(without)} without"
        if share < _WORTH_TELLING:
            return Doubt("dilation", f"Profiling did not make this cell slower ({ran}).", facts=facts)
        return Doubt("dilation", f"Profiling made this cell about {100 * share:.0f} % slower ({ran}).", facts=facts)
    if share < _WORTH_TELLING:
        return None
    if share > _NEARLY_ALL:  # the small rest of a subtraction is no estimate
        text = "Nearly all of this cell's time is the cost of profiling it."
        return Doubt("dilation", text, "For a number to quote, use `%%timer`.", facts)
    return Doubt(
        "dilation",
        f"Profiling made this cell about {100 * share:.0f} % slower ({seconds_text(without)} without, estimated).",
        "For a number to quote, use `%%timer`.",
        facts,
    )
