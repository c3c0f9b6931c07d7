"""How much longer a body took because it was profiled: estimated from what an event costs in this process.

The costs are measured once per process and kind of profile, by short bodies that run with and without: of an op, of
an allocation and its freeing, of a recorded line, of a call of an nn.Module, and of a call into Python code that is not
recorded (which only the trace function of Python 3.11 makes dearer). What a run has of each is known, so its time
without can be estimated.

A processor that is shared with others runs at half its speed one moment and at all of it the next. So costs are
measured against a fixed piece of work that is done between the bodies, and told in its time; what they are in a run's
seconds follows from the time that the work takes just before and after the run (`pace.pace`). All of this is CPU time
of the thread; in a run whose thread had to wait for a processor costs took as much longer as all that it did.
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
from .pace import clock, work
from .run import torch_threads
from .streams import MANY, LineRecord

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
_PASSES = 4  # of the small network in a run
_RUNS = 60
_STALLED = 1.5  # times the median: such runs do not count; what is paid every few runs does
_DEARER_AT_MOST = 3.0  # all observers together, against each alone
_WORTH_TELLING = 0.02
_NEARLY_ALL = 9.0  # ten times slower


@dataclass(frozen=True)
class Costs:
    """What profiling adds, as multiples of `pace.pace`.

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

    ops: float
    allocations: float
    line_events: float
    outside_calls: float
    modules: float = 0


def estimated_without(
    wall_time: float, counts: Counts, costs: Costs, pace: float = 1.0, stretch: float = 1.0
) -> float:
    """Seconds that the run would have taken without the profiler; not below a twentieth of what it took.

    Args:
        pace: `pace.pace`, of the time around the run.
        stretch: wall time over CPU time of the thread while it was ready to run.
    """
    return max(wall_time - _added(counts, costs) * pace * stretch, 0.05 * wall_time)


def _added(counts: Counts, costs: Costs) -> float:
    """As multiples of the pace."""
    return math.fsum(count * cost for count, cost in zip(astuple(counts), astuple(costs), strict=True))


@cache
def calibrated(memory: bool, shapes: bool, lines: bool) -> Costs:
    """Measure the costs, in half a second or a whole one; once per process for each kind of profile.

    No profiler may run meanwhile. The body is a small network: in a loop that does nothing else an op or a call costs
    half of what it costs there.
    """
    import torch

    net, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)), torch.ones(4)

    def body() -> None:
        for _ in range(_PASSES):
            net(x)

    def kineto(with_memory: bool = memory) -> Kineto:
        return Kineto(memory=with_memory, shapes=shapes, all_threads=not memory)

    def each(took: float, events: float) -> float:
        return max(took, 0.0) / events if events else 0.0

    _typical(body)  # warm
    plain = _typical(body)
    took, counts = _observed(body, kineto(False))
    op = each(took - plain, counts.ops)
    allocation = _allocation_cost(kineto) if memory else 0.0
    took, counts = _observed(body, lines=True) if lines else (plain, Counts(0, 0, 0, 0))
    call = each(took - plain, counts.outside_calls)
    took, counts = _observed(body, modules=True)
    module = each(took - plain, counts.modules)
    apart = Costs(op, allocation, _line_cost() if lines else 0.0, call, module)
    took, counts = _observed(body, kineto(), lines=lines, modules=True)
    added = _added(counts, apart)
    together = min(max((took - plain) / added, 1.0), _DEARER_AT_MOST) if added > 0 else 1.0
    return replace(apart, op=op * together, call=call * together, module=module * together)


def _allocation_cost(kineto: Callable[[bool], Kineto]) -> float:
    """Of an allocation or a freeing: of a loop of them what is more with ``memory``."""
    import torch

    def body() -> None:
        for _ in range(10 * _PASSES):
            torch.empty(4)

    without, _ = _observed(body, kineto(False))
    took, counts = _observed(body, kineto(True))
    return max(took - without, 0.0) / counts.allocations if counts.allocations else 0.0


def _observed(
    body: Callable[[], None], kineto: Kineto | None = None, *, lines: bool = False, modules: bool = False
) -> tuple[float, Counts]:
    """`_typical` while these observe the body, and what a run of it had for them."""
    recorder, record, results = ModuleCalls({}), LineRecord("none"), None
    if kineto is not None:
        kineto.start()
    if modules:
        recorder.start()
    try:
        took, record = _traced(body) if lines else (_typical(body), record)
    finally:
        calls = recorder.stop() if modules else None
        if kineto is not None:
            results = kineto.stop()
    ops = allocations = 0
    if results is not None:
        events = read_events(results)
        ops, allocations = int(events.is_kind("cpu_op", "user_annotation").sum()), int(events.is_memory.sum())
    marks = 0 if calls is None else sum(map(len, calls.streams.values()))
    counts = Counts(ops, allocations, record.n_events, record.outside_calls, marks // 4)
    return took, Counts(*(count / _RUNS for count in astuple(counts)))


def _typical(body: Callable[[], Any]) -> float:
    """CPU time of the body as a multiple of the work's before and after it; nothing is called here that is traced."""
    took: list[float] = []
    at = [0.0] * 4
    at[0] = clock()
    work()
    at[1] = clock()
    for _ in range(_RUNS):
        body()
        at[2] = clock()
        work()
        at[3] = clock()
        took.append(2 * (at[2] - at[1]) / max(at[1] - at[0] + at[3] - at[2], 1e-9))
        at[0], at[1] = at[2], at[3]
    most = _STALLED * statistics.median(took)
    return statistics.fmean(one for one in took if one <= most)


def _line_cost() -> float:
    """Of a line event, with the line source of this Python, with the packing of `MANY`.

    A loop of a few lines: on Python 3.12 lines far below the first take longer (twice at 200 lines, six times at 1000).
    """
    recorded = _function(f"for _ in range({MANY // 20}):\n" + "        x = 1\n" * 20, _FILE)
    took, record = _traced(recorded)
    return max(took - _typical(recorded), 0.0) * _RUNS / record.n_events if record.n_events else 0.0


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
