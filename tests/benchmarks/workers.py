"""What it costs a DataLoader's worker that a profile looks at it: its processor time, with and without.

Epochs with and without in pairs of random order, each with a worker of its own; the processor time is what the system
counted for that process, start and end included (they are the same both ways). Two data sets: many light items, which
are pure Python and keep the interpreter's lock, and few heavy ones, which are in torch and let go of it.
"""

from __future__ import annotations

import math
import random
import resource
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import torch  # noqa: E402
from record import Figure, record  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from torchbench_magic.profiling.workers.record import Workers  # noqa: E402

PAIRS = 20
PROMISE = 2.0  # %


class Light(Dataset[int]):
    """About 0.2 ms an item, in Python."""

    def __len__(self) -> int:
        return 7000

    def __getitem__(self, index: int) -> int:
        total = index
        for i in range(3000):
            total += i & 7
        return total


class Heavy(Dataset[float]):
    """About 8 ms an item, in torch."""

    def __init__(self) -> None:
        self.given = torch.ones(1 << 20)

    def __len__(self) -> int:
        return 180

    def __getitem__(self, index: int) -> float:
        return float(self.given.exp().sin().sum())


def epoch(data: Dataset[Any], batch: int, *, watched: bool) -> float:
    """Seconds of processor time of the one worker."""
    workers = Workers()
    before = _of_children()
    if watched:
        workers.start()
    try:
        for _ in DataLoader(data, batch_size=batch, num_workers=1, multiprocessing_context="fork"):
            pass
    finally:
        seen = workers.stop() if watched else None
    if seen is not None and sum(map(len, seen.seconds.values())) == 0:
        raise RuntimeError("the worker was not looked at")
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interval(values: list[float]) -> tuple[float, float]:
    """The order-statistic interval of the median, 95 % at least (David and Nagaraja, Order Statistics, 7.1)."""
    n, k, below = len(values), 0, 0.0
    while 2 * (below + math.comb(n, k) / 2**n) <= 0.05:
        below += math.comb(n, k) / 2**n
        k += 1
    if not k:
        raise ValueError(f"{n} pairs are too few for an interval")
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def measured(name: str, data: Dataset[Any], batch: int) -> list[Figure]:
    epoch(data, batch, watched=True)
    order = random.Random(5)
    extra, plain = [], []
    for _ in range(PAIRS):
        turns = [True, False] if order.random() < 0.5 else [False, True]
        took = {watched: epoch(data, batch, watched=watched) for watched in turns}
        extra.append(100 * (took[True] / took[False] - 1))
        plain.append(took[False])
    low, high = interval(extra)
    return [
        Figure(f"{name}: processor time more", statistics.median(extra), "%", limit=PROMISE, spread=(low, high)),
        Figure("  of an epoch's", statistics.median(plain), "s", spread=(min(plain), max(plain))),
        Figure("  an item", 1e3 * statistics.median(plain) / len(data), "ms"),  # type: ignore[arg-type]
    ]


def main() -> int:
    torch.set_num_threads(1)
    figures = [*measured("light items", Light(), 50), *measured("heavy items", Heavy(), 4)]
    return record("profile_workers", figures, pairs=PAIRS, range="95 % interval of the median")


if __name__ == "__main__":
    sys.exit(main())
