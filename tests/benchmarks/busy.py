"""Which verdicts of a busy machine are withheld, and which wrong ones are let through.

``python tests/benchmarks/busy.py [SECONDS] [STORE ...]`` measures pairs of known ratio in random order, at one and two
threads, beside 0, 1, 2, 3 and 6 busy processes, for so many seconds (600), and judges what it measured together with
the runs in the stores named (those of earlier calls: what is measured is kept in the first of them). It writes
``results/busy.json``.

A verdict is *wrong* where the interval of its ratio lies outside the band in which the ratio is known to lie, by more
than the half per cent to which such bands are known (`verdicts.planted`), whether or not its word is. "Before" is the
verdict by the rounds alone, "after" that of ``.frame``. A run is called idle by its own counters, since others may use
the machine: own threads waited for less than 0.02 cores and others took less than 0.15.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Figure, record

from torchbench_magic import Comparison, compare, load
from torchbench_magic.timing.intervals import Interval, log_ratio_interval, without_order_effect
from torchbench_magic.timing.verdict import verdict

torch.manual_seed(0)


def mul_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.mul(b).sum(-1)


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).flatten()


NAMES: dict[str, Any] = {
    "torch": torch,
    "np": np,
    "mul_sum": mul_sum,
    "bmm": bmm,
    "x": torch.randn(10000, 64),
    "v": torch.randn(100_000),
    "w": torch.randn(110_000),
    "h": torch.randn(50_000),
    "h2": torch.randn(50_000),
    "vn": np.random.default_rng(0).normal(size=100_000).astype(np.float32),
    "lin": torch.nn.Linear(256, 256),
    "b": torch.randn(128, 256),
    "m": torch.randn(200, 200),
    "n": torch.randn(200, 220),
}

PAIRS = {
    "readme": ("bmm(x, x)", "mul_sum(x, x)"),
    "aa": ("mul_sum(x, x)", "( mul_sum( x,  x ) )"),
    "aalin": ("lin(b)", "( lin( b ) )"),
    "plus10": ("v.exp()", "w.exp()"),
    "mm10": ("m @ m", "m @ n"),
    "regions": ("v.exp()", "h.exp(); h2.exp()"),  # the same work in one parallel region and in two
    "serial10": ("for i in range(1000): pass", "for i in range(1100): pass"),
    "mixed": ("np.exp(vn)", "torch.exp(v)"),  # one thread against two
}

BANDS = {
    ("readme", 1): (1.09, 1.27),
    ("readme", 2): (0.72, 0.96),
    ("aa", 1): (0.985, 1.015),
    ("aa", 2): (0.985, 1.015),
    ("aalin", 2): (0.985, 1.015),
    ("plus10", 1): (1.09, 1.13),
    ("plus10", 2): (1.06, 1.15),
    ("mm10", 2): (1.38, 1.56),
    ("regions", 2): (1.28, 1.60),
    ("serial10", 2): (1.09, 1.13),
    ("mixed", 1): (0.40, 0.46),
    ("mixed", 2): (0.27, 0.38),
}
"""(pair, threads) -> where its ratio lies: by construction, or as idle runs of several hours had it."""

APART = {("readme", 1)}
"""Ratios that have two values on the idle machine, each for minutes: 1.12 and 0.78 (its 2.5 MB just fit into a cache
that is shared with other guests). Nothing in a run tells which, so it is listed by itself."""

KNOWN = 1.005

LOADS = (0, 1, 2, 3, 6)
KINDS = ("idle", "busy")


BUSY = "import os\nwhile os.getppid() == {}:\n    for _ in range(10**7): pass"
"""Computes until its parent is gone, which may be killed itself."""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", BUSY.format(os.getpid())]) for _ in range(count)]
    try:
        time.sleep(0.3 if count else 0.05)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(seconds: float, store: Path) -> None:
    """Pairs in random order beside each number of busy processes, kept one by one."""
    rng, until = random.Random(), time.monotonic() + seconds
    while True:
        for beside in rng.sample(LOADS, len(LOADS)):
            with busy_processes(beside):
                for pair, threads in rng.sample(list(BANDS), 4):
                    if time.monotonic() > until:
                        return
                    a, b = PAIRS[pair]
                    made = compare({"a": a, "b": b}, globals=NAMES, threads=threads, label=f"{pair}|{threads}|{beside}")
                    made.save(store)


def by_rounds(made: Comparison) -> tuple[str, Interval]:
    """The verdict and the ratio that the rounds alone give."""
    (rounds, logs, places), (base_rounds, base_logs, base_places) = (made._blocks[i].by_round() for i in (1, 0))
    _, mine, other = np.intersect1d(rounds, base_rounds, assume_unique=True, return_indices=True)
    paired = without_order_effect(logs[mine] - base_logs[other], places[mine] < base_places[other])
    interval = log_ratio_interval(paired, 1, made.subjects[1].look)
    return verdict(interval, made.margin), interval.exp()


def is_wrong(word: str, ratio: Interval, band: tuple[float, float]) -> bool:
    return word != "undecided" and (ratio.low > band[1] * KNOWN or ratio.high < band[0] / KNOWN)


def judged(results: Sequence[Comparison]) -> Iterator[tuple[tuple[str, int], str, str, bool, str, bool]]:
    """((pair, threads), idle or busy, verdict before, whether wrong, verdict after, whether wrong) of each run."""
    for made in results:
        pair, threads, _ = str(made.subjects[0].label).split("|")
        key, seen, row = (pair, int(threads)), made.subjects[0].contention, made.frame.iloc[1]
        assert seen is not None
        kind = "idle" if seen.waiting < 0.02 and not seen.ext >= 0.15 else "busy"
        before, by_round = by_rounds(made)
        after = Interval(row["ratio"], row["ratio_low"], row["ratio_high"])
        word = str(row["verdict"])
        yield key, kind, before, is_wrong(before, by_round, BANDS[key]), word, is_wrong(word, after, BANDS[key])


def figures_of(results: Sequence[Comparison]) -> Iterator[Figure]:
    count: Counter[tuple[object, ...]] = Counter()
    for key, kind, before, wrong_before, after, wrong in judged(results):
        place = ("apart", kind) if key in APART else (key[1], kind)
        count[(*place, "runs")] += 1
        count[(*place, "right")] += before != "undecided" and not wrong_before
        count[(*place, "wrong")] += wrong_before
        count[(*place, "withheld")] += before != "undecided" and not wrong_before and after == "undecided"
        count[(*place, "through")] += wrong
    for threads in (1, 2, "apart"):
        for kind in KINDS:
            at = {what: count[threads, kind, what] for what in ("runs", "right", "wrong", "withheld", "through")}
            if not at["runs"]:
                continue
            name = "the README's pair at one thread" if threads == "apart" else f"{threads} threads"
            right, decided = max(at["right"], 1), max(at["right"] + at["wrong"] - at["withheld"], 1)
            title = f"{name}, {kind}: wrong verdicts by the rounds alone, of {at['runs']} runs"
            yield Figure(title, at["wrong"], "runs")
            promise = {} if threads == "apart" else {"at_most": 5.0}
            share = 100 * at["through"] / decided
            yield Figure(f"  wrong verdicts let through ({at['through']}), of those given", share, "%", **promise)
            promise = {} if threads == "apart" else {"at_most": 2.0 if kind == "idle" else 25.0}
            share = 100 * at["withheld"] / right
            yield Figure(f"  right verdicts withheld ({at['withheld']} of {at['right']})", share, "%", **promise)


def main() -> int:
    arguments = sys.argv[1:]
    seconds = float(arguments.pop(0)) if arguments and arguments[0].replace(".", "").isdigit() else 600.0
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(name) for name in arguments] or [Path(folder, "busy.sqlite")]
        if seconds:
            measure(seconds, stores[0])
        results = [made for store in stores if store.exists() for made in load(store)]
        kept = [made for made in results if isinstance(made, Comparison)]
        return record("busy", list(figures_of(kept)), seconds=seconds, busy_processes=LOADS, pairs=list(PAIRS))


if __name__ == "__main__":
    sys.exit(main())
