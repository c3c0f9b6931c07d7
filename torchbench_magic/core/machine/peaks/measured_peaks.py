"""Measure the peaks: matrix products for arithmetic, copies and sums for bandwidth, one tiny op for the call.

One thread is timed by its processor time, which others cannot take from it; several threads by the wall clock; a peak
whose two best rounds do not agree is not known. The rounds of one kind lie apart, since a round of each other kind is
between them, and take turns on several copies of their tensors: which pages of memory the system gave decides how
much of them the caches hold, and with it up to a fifth of the speed. n = 512: larger products never had a clean run
on a busy machine (design notes, threads). What is measured writes into memory that is there, so no page is faulted
in.

Nothing of torch's state is different afterwards: threads are put back, no random number is drawn, and the user's grad
mode and autocast do not reach in here. All tensors name their device.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.results.machine.peaks import Peaks

from ..contention import Counters, contention_between

__all__ = ["BUSY", "Probe", "measure_peaks", "streaming", "undisturbed", "working_sets"]

BUSY = 0.15
"""Cores that others use from which on a peak is not to be trusted (as of `Contention.ext`, design notes on threads)."""
DTYPES = ("float32", "float64", "bfloat16", "float16")
_SIDE = 512
_WIDE_SIDE = 384  # for numbers of 8 bytes: as many bytes as the others have
_SMALL_SIDE = 256  # where a product of 512 takes too long, as fp16 does on most processors
_TOO_LONG = 0.03
_ROUND = 0.02
"""Seconds of a round: from there on repeats differ by 2 % (products) and 7 % (bandwidth)."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 24
_COPIES, _MOST_COPIED = 4, 32 << 20
"""Of the tensors, and bytes of a working set up to which there are several."""
_SETTLED = 0.015
"""Of the best round: once the next two are as near, no more rounds are made."""
_AGREE = 0.05
"""Of the best round: as near the second best must be."""
_SAMPLE = 2e-4  # seconds that are timed at once, at least: short calls are timed in groups
_LEAST = 256 << 10  # bytes of a cache: copying what fits into a smaller one takes less time than the call
_LARGEST = 256 << 20  # bytes of the working set that stands for main memory
_BEYOND = 4  # times the last cache: then little of it is still in there
_CALLS = 500  # of the tiny op, timed at once

Clock = Callable[[], float]


def measure_peaks(
    threads: int, caches: Sequence[tuple[str, int]], progress: Progress = NO_PROGRESS, clock: Clock = time.perf_counter
) -> Peaks:
    """Peaks with one thread and with ``threads``; takes 3 to 9 seconds.

    Args:
        caches: (name, bytes) of the data caches, which say where to measure bandwidth.
        clock: the wall clock.
    """
    import torch

    counts = (1,) if threads == 1 else (1, threads)
    sizes = working_sets(caches)
    before = torch.get_num_threads()
    flops: list[tuple[str, int, float]] = []
    bandwidth: list[tuple[int, int, float]] = []
    dispatch = math.nan
    started = Counters.read()
    with undisturbed():
        try:
            torch.set_num_threads(1)
            dispatch = _dispatch()
            for count in counts:
                torch.set_num_threads(count)
                own = time.thread_time if count == 1 else clock
                products: list[list[Probe]] = [_product(getattr(torch, name), own) for name in DTYPES]
                streams: list[list[Probe]] = [streaming(size) for size in sizes]
                turns = f"with {count} thread{'' if count == 1 else 's'}"
                _take_turns([probe for probes in (*products, *streams) for probe in probes], own, progress, turns)
                flops += [(name, count, _best(probes)) for name, probes in zip(DTYPES, products, strict=True)]
                bandwidth += [(size, count, _best(probes)) for size, probes in zip(sizes, streams, strict=True)]
        finally:
            torch.set_num_threads(before)
    found = contention_between(Counters.read() - started)
    taken = [value for value in (found.ext, found.steal) if not math.isnan(value)]
    held = sum(taken) if not math.isnan(found.ext) else math.nan
    if found.throttled > 0:
        held = max(0.0 if math.isnan(held) else held, found.throttled * threads)
    return Peaks(threads, tuple(flops), tuple(bandwidth), dispatch, tuple(caches), held)


def working_sets(caches: Sequence[tuple[str, int]]) -> list[int]:
    """Bytes to measure bandwidth at: within each cache, within the last one twice, and far beyond it.

    What fits into the first cache is done before it is called: its bandwidth cannot be measured by calls of torch.
    """
    levels = [size for _, size in sorted(caches, key=lambda each: each[1]) if size >= _LEAST]
    if not levels:
        levels = [1 << 20, 32 << 20]  # of an ordinary processor: the curve between is interpolated
    beyond = min(_BEYOND * levels[-1], max(_LARGEST, 2 * levels[-1]))
    return sorted({*(level // 2 for level in levels[:-1]), levels[-1] // 4, levels[-1] * 3 // 4, beyond})


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Without autograd and autocast."""
    import torch

    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        yield


def _dispatch() -> float:
    """Seconds of the smallest op; the least of twenty groups, of this thread's processor time."""
    import torch

    x = torch.ones(1, dtype=torch.float32, device="cpu")
    add, times = torch.add, []
    for _ in range(20):
        begin = time.thread_time()
        for _ in range(_CALLS):
            add(x, x)
        times.append((time.thread_time() - begin) / _CALLS)
    return min(times)


@dataclass
class Probe:
    """Something that can be done again and again, and how fast it was in each round.

    Attributes:
        runs: the same on copies of the tensors, of which one is asked in each round.
        work: FLOP or bytes of a call.
        group: calls that are timed at once.
        rates: work per second of each round, the best first.
    """

    runs: Sequence[Callable[[], object]]
    work: float
    group: int = 1
    rates: list[float] = field(default_factory=list)

    def warm_up(self, clock: Clock) -> None:
        """Once, and find how many calls are long enough to be timed."""
        for run in self.runs:
            run()
        while self._took(self.runs[0], clock) < _SAMPLE and self.group < 1 << 16:
            self.group *= 2

    def round(self, clock: Clock) -> None:
        """20 ms; the shortest time of a group counts."""
        run, least, spent = self.runs[len(self.rates) % len(self.runs)], math.inf, 0.0
        while spent < _ROUND:
            took = self._took(run, clock)
            least, spent = min(least, took), spent + max(took, 1e-9)
        self.rates = sorted([*self.rates, self.work * self.group / max(least, 1e-12)], reverse=True)

    @property
    def is_settled(self) -> bool:
        return len(self.rates) >= _FEWEST_ROUNDS and self.rates[2] >= (1 - _SETTLED) * self.rates[0]

    @property
    def peak(self) -> float:
        """The highest rate; NaN where the two best rounds do not agree within 5 %."""
        known = len(self.rates) > 1 and self.rates[1] >= (1 - _AGREE) * self.rates[0]
        return self.rates[0] if known else math.nan

    def _took(self, run: Callable[[], object], clock: Clock) -> float:
        begin = clock()
        for _ in range(self.group):
            run()
        return clock() - begin


def _take_turns(probes: Sequence[Probe], clock: Clock, progress: Progress, said: str) -> None:
    """A round of each after the other, until all are settled or had 24."""
    for probe in probes:
        probe.warm_up(clock)
    for turn in range(_MOST_ROUNDS):
        progress.update(0.0, None, f"measuring this machine's peaks {said}, round {turn + 1} of {_MOST_ROUNDS} at most")
        for probe in probes:
            if not probe.is_settled:
                probe.round(clock)


def _best(probes: Sequence[Probe]) -> float:
    rates = [probe.peak for probe in probes]
    return max((rate for rate in rates if not math.isnan(rate)), default=math.nan)


def _product(dtype: Any, clock: Clock) -> list[Probe]:
    import torch

    def made(side: int) -> Callable[[], object]:
        a = torch.full((side, side), 0.5, dtype=dtype, device="cpu")
        out = torch.empty_like(a)
        return lambda: torch.mm(a, a, out=out)

    try:
        side = _SIDE if dtype.itemsize <= 4 else _WIDE_SIDE
        run = made(side)
        run()
        begin = clock()
        run()
        if clock() - begin > _TOO_LONG:
            side, run = _SMALL_SIDE, made(_SMALL_SIDE)
    except RuntimeError:  # this torch has no product of this dtype here
        return []
    return [Probe([run, *(made(side) for _ in range(_COPIES - 1))], 2.0 * side**3)]


def streaming(size: int) -> list[Probe]:
    """A working set of so many bytes, in bytes/s: adding two, and copying, float32; what is faster counts. Empty where
    there is not memory enough."""
    import torch

    two, three = max(size // 8, 1), max(size // 12, 1)
    adds: list[Callable[[], object]] = []
    copies: list[Callable[[], object]] = []
    try:
        for _ in range(_COPIES if size <= _MOST_COPIED else 1):
            a, b, c = (torch.full((two,), 0.5, dtype=torch.float32, device="cpu") for _ in range(3))
            adds.append(partial(torch.add, a[:three], b[:three], alpha=1.01, out=c[:three]))
            copies.append(partial(b.copy_, a))
    except RuntimeError:  # not enough memory
        return []
    return [Probe(adds, 12.0 * three), Probe(copies, 8.0 * two)]
