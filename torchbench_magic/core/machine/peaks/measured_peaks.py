"""Measure the peaks: matrix products for arithmetic, copies and sums for bandwidth, one tiny op for the call.

One thread is timed by its processor time, which others cannot take from it; several threads by the wall clock, again
and again until the two best rounds agree, else that peak is not known. n = 512: larger products never had a clean run
on a busy machine (design notes, threads). What is measured writes into memory that is there, so no page is faulted in.

Nothing of torch's state is different afterwards: threads are put back, no random number is drawn, and the user's grad
mode and autocast do not reach in here. All tensors name their device.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.results.machine.peaks import Peaks

from ..contention import Counters, contention_between

__all__ = ["BUSY", "measure_peaks", "settled_best"]

BUSY = 0.15
"""Cores that others use from which on a peak is not to be trusted (as of `Contention.ext`, design notes on threads)."""
DTYPES = ("float32", "float64", "bfloat16", "float16")
_SIDE = 512
_SMALL_SIDE = 256  # where a product of 512 takes too long, as fp16 does on most processors
_TOO_LONG = 0.03
_ROUND = 0.02
"""Seconds of a round: from there on repeats differ by 2 % (products) and 7 % (bandwidth)."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 10
_AGREE = 0.05  # of the best round: as near the second best must be, where several threads are timed by the wall clock
_SAMPLE = 2e-4  # seconds that are timed at once, at least: short calls are timed in groups
_LEAST = 256 << 10  # bytes of a cache: copying what fits into a smaller one takes less time than the call
_LARGEST = 256 << 20  # bytes of the working set that stands for main memory
_BEYOND = 4  # times the last cache: then little of it is still in there
_CALLS = 500  # of the tiny op, timed at once

Clock = Callable[[], float]


def measure_peaks(
    threads: int, caches: Sequence[tuple[str, int]], progress: Progress = NO_PROGRESS, clock: Clock = time.perf_counter
) -> Peaks:
    """Peaks with one thread and with ``threads``; takes 2 to 4 seconds.

    Args:
        caches: (name, bytes) of the data caches, which say where to measure bandwidth.
        clock: the wall clock.
    """
    import torch

    counts = (1,) if threads == 1 else (1, threads)
    sizes = working_sets(caches)
    total = len(counts) * (len(DTYPES) + len(sizes)) + 1
    before = torch.get_num_threads()
    flops: list[tuple[str, int, float]] = []
    bandwidth: list[tuple[int, int, float]] = []
    dispatch = math.nan
    started, done = Counters.read(), 0
    with _undisturbed():
        try:
            torch.set_num_threads(1)
            dispatch = _dispatch()
            for count in counts:
                torch.set_num_threads(count)
                own = time.thread_time if count == 1 else clock
                for name in DTYPES:
                    progress.update(0.0, None, f"measuring this machine's peaks, {done} of {total}")
                    flops.append((name, count, _product(getattr(torch, name), own)))
                    done += 1
                for size in sizes:
                    progress.update(0.0, None, f"measuring this machine's peaks, {done} of {total}")
                    bandwidth.append((size, count, _streaming(size, own)))
                    done += 1
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
    return sorted({*(level * 3 // 4 for level in levels), levels[-1] // 4, beyond})


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
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


def _product(dtype: Any, clock: Clock) -> float:
    import torch

    def made(side: int) -> Callable[[], object]:
        a = torch.full((side, side), 0.5, dtype=dtype, device="cpu")
        out = torch.empty_like(a)
        return lambda: torch.mm(a, a, out=out)

    try:
        side, run = _SIDE, made(_SIDE)
        run()
        begin = clock()
        run()
        if clock() - begin > _TOO_LONG:
            side, run = _SMALL_SIDE, made(_SMALL_SIDE)
    except RuntimeError:  # this torch has no product of this dtype here
        return math.nan
    return settled_best(run, 2.0 * side**3, clock)


def _streaming(size: int, clock: Clock) -> float:
    """Bytes/s at a working set of so many bytes: the better of copying and of adding two, float32."""
    import torch

    two, three = max(size // 8, 1), max(size // 12, 1)
    try:
        a, b, c = (torch.full((two,), 0.5, dtype=torch.float32, device="cpu") for _ in range(3))
    except RuntimeError:  # not enough memory
        return math.nan
    first, second, out = a[:three], b[:three], c[:three]
    rates = [
        settled_best(lambda: torch.add(first, second, alpha=1.01, out=out), 12.0 * three, clock),
        settled_best(lambda: b.copy_(a), 8.0 * two, clock),
    ]
    return max((rate for rate in rates if not math.isnan(rate)), default=math.nan)


def settled_best(run: Callable[[], object], work: float, clock: Clock) -> float:
    """The highest rate of ``work`` per second, NaN where its two best rounds of 20 ms do not agree within 5 %."""
    run()
    group = 1
    while _took(run, group, clock) < _SAMPLE and group < 1 << 16:
        group *= 2
    best: list[float] = []
    for _ in range(_MOST_ROUNDS):
        least, spent = math.inf, 0.0
        while spent < _ROUND:
            took = _took(run, group, clock)
            least, spent = min(least, took), spent + max(took, 1e-9)
        best = sorted([*best, work * group / max(least, 1e-12)], reverse=True)
        if len(best) >= _FEWEST_ROUNDS and best[1] >= (1 - _AGREE / 2) * best[0]:
            return best[0]
    return best[0] if best[1] >= (1 - _AGREE) * best[0] else math.nan


def _took(run: Callable[[], object], group: int, clock: Clock) -> float:
    begin = clock()
    for _ in range(group):
        run()
    return clock() - begin
