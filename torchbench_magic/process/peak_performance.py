"""What this machine reaches at most: arithmetic by dtype, bandwidth by working set, and the call of the smallest op."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from .contention import Counters, contention_between
from .environment import Environment, read_environment
from .interrupts import NO_PROGRESS, Progress
from .machine import data_caches, user_cache_folder

_SLOW = 0.5
"""Of the peak of float32: below it a dtype is slower than a wider one by more than what converting may cost."""


@dataclass(frozen=True)
class Peaks:
    """Measured peaks of one processor, with one thread and with ``threads`` of them.

    Attributes:
        threads: of the run that they are for.
        flops: (dtype, threads, FLOP/s) of a matrix product; NaN where two measurements did not agree.
        bandwidth: (bytes of the working set, threads, bytes/s) of copying and adding; NaN as above.
        dispatch: seconds that calling the smallest op takes.
        caches: (name, bytes) of the data caches; empty where the system does not tell.
        contended: cores that others used meanwhile; NaN where that is not known.
        is_kept: they were read from the user's cache, not measured now.
        notes: what is not known of this machine, one line each.
    """

    threads: int
    flops: tuple[tuple[str, int, float], ...] = ()
    bandwidth: tuple[tuple[int, int, float], ...] = ()
    dispatch: float = math.nan
    caches: tuple[tuple[str, int], ...] = ()
    contended: float = math.nan
    is_kept: bool = False
    notes: tuple[str, ...] = ()

    def flops_of(self, dtype: str, threads: int | None = None) -> float:
        """FLOP/s of matrix products in ``dtype`` ("float32"); NaN where not known."""
        count = self.threads if threads is None else threads
        return next((rate for name, at, rate in self.flops if name == dtype and at == count), math.nan)

    def is_slow(self, dtype: str) -> bool:
        """Whether products in a narrow dtype are slower here than in float32 by more than converting may cost."""
        is_narrow = dtype in ("float16", "bfloat16")
        return is_narrow and self.flops_of(dtype) < _SLOW * self.flops_of("float32")

    def bandwidth_of(self, working_set: float, threads: int | None = None) -> float:
        """Bytes/s for so many bytes that are touched once; NaN where not known.

        Between two measured sizes on the straight line between them, both axes logarithmic; beyond them, the last one.
        """
        count = self.threads if threads is None else threads
        known = sorted((size, rate) for size, at, rate in self.bandwidth if at == count and rate > 0)
        if not known or not working_set > 0:
            return math.nan
        for (low, slow), (high, fast) in pairwise(known):
            if low <= working_set <= high:
                part = math.log(working_set / low) / math.log(high / low)
                return math.exp(math.log(slow) + part * math.log(fast / slow))
        return known[0][1] if working_set < known[0][0] else known[-1][1]

    def roof(self, flops: float, moved: float, dtype: str, threads: int | None = None) -> tuple[float, str]:
        """(seconds at least, ``compute`` or ``memory``) for an op of so many FLOP (NaN: not counted) and bytes.

        NaN seconds where a peak that is needed is not known.
        """
        computing = flops / self.flops_of(dtype, threads) if flops > 0 else 0.0
        moving = moved / self.bandwidth_of(moved, threads) if moved > 0 else 0.0
        if math.isnan(computing) or math.isnan(moving):
            return math.nan, ""
        if not max(computing, moving) > 0:
            return math.nan, ""
        return max(computing, moving), "compute" if computing >= moving else "memory"

    def cache(self, name: str) -> int:
        """Bytes of ``L2`` or another level; 0 where not known."""
        return dict(self.caches).get(name, 0)


# ---- measured_peaks --------------------------------------------------------------------------------------------------
# Measure the peaks: matrix products for arithmetic, copies and sums for bandwidth, one tiny op for the call.
#
# One thread is timed by its processor time, which others cannot take from it; several threads by the wall clock; a peak
# whose two best rounds do not agree is not known. The rounds of one kind lie apart, since a round of each other kind is
# between them, and take turns on several copies of their tensors: which pages of memory the system gave decides how
# much of them the caches hold, and with it up to a fifth of the speed. n = 512: larger products never had a clean run
# on a busy machine (design notes, threads). What is measured writes into memory that is there, so no page is faulted
# in.
#
# Nothing of torch's state is different afterwards: threads are put back, no random number is drawn, and the user's grad
# mode and autocast do not reach in here. All tensors name their device.

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


def measure_peaks(threads: int, caches: Sequence[tuple[str, int]], progress: Progress = NO_PROGRESS) -> Peaks:
    """Peaks with one thread and with ``threads``; takes 3 to 9 seconds.

    Args:
        caches: (name, bytes) of the data caches, which say where to measure bandwidth.
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
                own = time.thread_time if count == 1 else time.perf_counter
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


# ---- kept_peaks ------------------------------------------------------------------------------------------------------
# The peaks of this machine: those that were kept, or measured now and kept.
#
# They are kept as numbers in a JSON file in the user's cache, one for each processor, torch, number of threads and
# setting of torch that decides how fast a product is. What was measured while others used the machine is used once and
# not kept; so is what cannot be known to be undisturbed.

_LAYOUT = 2
"""Of the file; a changed meaning, or a changed way to measure, needs a new one."""
_in_this_process: dict[str, Peaks] = {}
"""Peaks of which it is not known whether others were in the way: for this process only."""


def peaks_here(threads: int, progress: Progress = NO_PROGRESS) -> Peaks:
    """Peaks for runs with so many threads; measured only where none are kept."""
    environment = read_environment()
    key = _key(environment, threads)
    found = _in_this_process.get(key) or _read(key)
    if found is not None:
        return found
    caches = data_caches()
    notes = () if caches else ("Cache sizes: unknown here; typical sizes were used.",)
    made = replace(measure_peaks(threads, caches, progress), notes=notes)
    if math.isnan(made.contended):
        said = "Whether other processes used the CPU while peaks were measured is unknown here: the peaks are not kept."
        made = replace(made, notes=(*notes, said))
        _in_this_process[key] = made
    elif made.contended > BUSY:
        several = " Peaks of several threads are unknown." if threads > 1 else ""
        said = (
            f"Other processes used {made.contended:.1f} cores while peaks were measured: the peaks may be too low"
            f" and are not kept.{several}"
        )
        made = replace(_of_one_thread(made), notes=(*notes, said))
    else:
        why = _write(key, made)
        made = replace(made, notes=(*notes, f"Peaks could not be kept: {why}.")) if why else made
        if why:
            _in_this_process[key] = made
    return made


def _of_one_thread(peaks: Peaks) -> Peaks:
    """Without what several threads reach: they wait for each other, and one that others hold up holds up all, for
    whole time slices, so even two rounds that agree may be a thousandth of the peak."""
    return replace(
        peaks,
        flops=tuple((name, count, rate if count == 1 else math.nan) for name, count, rate in peaks.flops),
        bandwidth=tuple((size, count, rate if count == 1 else math.nan) for size, count, rate in peaks.bandwidth),
    )


def _key(environment: Environment, threads: int) -> str:
    import torch

    switches = (torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled)
    return json.dumps([environment.cpu, environment.torch, environment.usable_cores, threads, *switches, _LAYOUT])


def _file(key: str) -> Path:
    """Raises RuntimeError without a home folder."""
    name = hashlib.sha256(key.encode()).hexdigest()[:20]
    return user_cache_folder() / "torchbench_magic" / f"peaks-{name}.json"


def _read(key: str) -> Peaks | None:
    """Those that are kept; None where there are none, or no numbers stand there."""
    try:
        held = json.loads(_file(key).read_text(encoding="utf-8"))
        if held.pop("key") != key:
            return None
        rows = {name: tuple(map(tuple, held[name])) for name in ("flops", "bandwidth", "caches")}
        made = Peaks(**{**held, **rows, "notes": tuple(held["notes"]), "is_kept": True})
        return made if min(made.dispatch, *(rate for *_, rate in (*made.flops, *made.bandwidth))) > 0 else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(key: str, peaks: Peaks) -> str:
    """Keep them; the reason where that cannot be done, else empty."""
    if any(math.isnan(rate) for *_, rate in (*peaks.flops, *peaks.bandwidth)):
        return "not all of them could be measured"
    try:
        path = _file(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"key": key, **asdict(peaks)}, file)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except RuntimeError:
        return "this user has no home folder"
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


# ---- bandwidth_now ---------------------------------------------------------------------------------------------------
# Bandwidth of what is shared with others, measured right after a run: the last cache and main memory.
#
# A guest's share of them depends on what the other guests of its host do. Copies of 128 MiB by two threads ran at 30
# GB/s for four seconds and at 50 for the next eight, with nobody else on the guest, and a number that is kept from
# another day says less. So the roof of a run is what was reached at the time of the run, in the median round, not the
# best.

_ROUNDS = 5


def with_bandwidth_now(peaks: Peaks) -> Peaks:
    """The same with the bandwidth of now, by the run's threads, at sizes above half of the last cache; takes 0.5 s."""
    import torch

    last = max((size for _, size in peaks.caches), default=0)
    before = torch.get_num_threads()
    now: dict[int, float] = {}
    with undisturbed():
        try:
            torch.set_num_threads(peaks.threads)
            for size, count, _ in peaks.bandwidth:
                if count == peaks.threads and size > last / 2:
                    rates = [_typical(probe) for probe in streaming(size)]
                    if rates:
                        now[size] = max(rates)
        finally:
            torch.set_num_threads(before)
    rows = (
        (size, count, now.get(size, rate) if count == peaks.threads else rate) for size, count, rate in peaks.bandwidth
    )
    return replace(peaks, bandwidth=tuple(rows))


def _typical(probe: Probe) -> float:
    probe.warm_up(time.perf_counter)
    for _ in range(_ROUNDS):
        probe.round(time.perf_counter)
    return statistics.median(probe.rates)
