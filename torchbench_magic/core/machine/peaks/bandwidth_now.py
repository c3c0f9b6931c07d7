"""Bandwidth of what is shared with others, measured right after a run: the last cache and main memory.

A guest's share of them depends on what the other guests of its host do. Copies of 128 MiB by two threads ran at 30 GB/s
for four seconds and at 50 for the next eight, with nobody else on the guest, and a number that is kept from another day
says less. So the roof of a run is what was reached at the time of the run, in the median round, not the best.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from torchbench_magic.results.machine.peaks import Peaks

from .measured_peaks import Probe, streaming, undisturbed

__all__ = ["with_bandwidth_now"]

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
