"""Can a timing be trusted: false alarms, errors, power and bias, with torch's own sequential runs beside.

``python tests/benchmarks/timing.py [SECTION ...]`` runs some sections only: aa, error, slow, power, bias,
reproducibility, mixed, far, far_busy, turns. Each prints a table and writes ``results/timing_SECTION.json``.

"Idle" trials during which other processes used more than 0.15 cores are thrown away unseen and made again; how many
is written down. "Loaded" is five busy processes beside, on two cores.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from record import Figure, record
from torch.utils.benchmark import Timer

from torchbench_magic import Comparison, compare
from torchbench_magic.cell_body import Body
from torchbench_magic.timing.intervals import order_rank
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.warnings import is_bimodal

torch.set_num_threads(1)
torch.manual_seed(0)

NAMES: dict[str, Any] = {
    "torch": torch,
    "x": torch.randn(128),
    "y": torch.randn(65_536),
    "z": torch.randn(1_000_000),
    "m": torch.randn(192, 192),
    "linear": torch.nn.Linear(128, 128),
    "batch": torch.randn(16, 128),
    "rows": torch.randn(200, 1000),
}

# Two texts of one meaning each: name -> (text, other text, microseconds of the class it stands for)
BODIES: dict[str, tuple[str, str, int]] = {
    "x * x, 128": ("x * x", "(x  *  x)", 2),
    "x * x, 65 536": ("y * y", "(y  *  y)", 20),
    "Linear, 16 x 128": ("linear(batch)", "( linear( batch ) )", 40),
    "Python loop": ("for i in range(1000): pass", "for j in range(1000):\n    pass", 20),
    "matmul 192": ("m @ m", "(m  @  m)", 300),
    "softmax 200 x 1000": ("rows.softmax(-1)", "( rows.softmax( -1 ) )", 300),
    "exp 1 000 000": ("z.exp()", "( z.exp() )", 1000),
}

IDLE_CORES, TRIES, LOAD = 0.15, 3, 5


# ---- the ground ---------------------------------------------------------------------------------------------


BUSY = "import os\nwhile os.getppid() == {}:\n    for _ in range(10**7): pass"
"""Computes until its parent is gone, which may be killed itself."""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", BUSY.format(os.getpid())]) for _ in range(count)]
    try:
        time.sleep(0.3 if count else 0)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


class Trials:
    """Makes trials, and in idle ones throws those away that others disturbed."""

    def __init__(self, loaded: bool) -> None:
        self.loaded, self.disturbed = loaded, 0

    def make(self, trial: Callable[[], Comparison]) -> Comparison:
        for attempt in range(TRIES):
            result = trial()
            contention = result.subjects[0].contention
            if self.loaded or contention is None or not contention.ext > IDLE_CORES:
                return result
            self.disturbed += 1
            time.sleep(0.5 * (attempt + 1))
        return result


def pair(text: str, other: str, least: float, most: float) -> Comparison:
    return compare({"a": text, "b": other}, globals=NAMES, threads=1, min_run_time=least, max_run_time=most)


def torch_ratio(text: str, other: str, seconds: float) -> float:
    """What one does without this package: two autoranges, one after the other."""
    first, second = (
        Timer(stmt, globals=NAMES).blocked_autorange(min_run_time=seconds).median for stmt in (text, other)
    )
    return second / first


def binomial_interval(hits: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Exact (Clopper and Pearson 1934) interval of a share, by bisection on the binomial tails."""

    def at_least(k: int, p: float) -> float:
        return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))

    def solve(rises: Callable[[float], float], target: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if rises(middle) < target else (low, middle)
        return (low + high) / 2

    lower = 0.0 if hits == 0 else solve(lambda p: at_least(hits, p), alpha / 2)
    upper = 1.0 if hits == n else solve(lambda p: at_least(hits + 1, p), 1 - alpha / 2)
    return lower, upper


def is_false(result: Comparison) -> bool:
    return result.frame["verdict"][1] in ("faster", "slower")


# ---- the sections -------------------------------------------------------------------------------------------


def aa() -> int:
    """Identical code with early stopping: how often is it called faster or slower?"""
    figures, thrown = [], {}
    n = 200
    for state, busy in (("idle", 0), ("loaded", LOAD)):
        false, torch_false, verdicts = 0, 0, Counter[str]()
        trials, where = Trials(bool(busy)), Counter[str]()
        with busy_processes(busy):
            for i in range(n):
                name = list(BODIES)[i % len(BODIES)]
                text, other, _ = BODIES[name]
                result = trials.make(lambda text=text, other=other: pair(text, other, 0.02, 0.3))
                verdicts[result.frame["verdict"][1]] += 1
                false += is_false(result)
                where[name] += is_false(result)
                torch_false += abs(math.log(torch_ratio(text, other, 0.02))) > math.log(1.01)
        thrown[state] = trials.disturbed
        low, high = binomial_interval(false, n)
        figures += [
            Figure(f"false verdicts of {n}, {state}", false, "trials", at_most=7, spread=(low * n, high * n)),
            Figure(f"  decided (same), {state}", verdicts["same"], "trials"),
            Figure(f"  torch, sequential autoranges: off by more than 1 %, {state}", torch_false, "trials"),
        ]
        print(state, dict(verdicts), {k: v for k, v in where.items() if v})
    return record("timing_aa", figures, min_run_time=0.02, max_run_time=0.3, disturbed=thrown, bodies=list(BODIES))


def error() -> int:
    """Error of the ratio of identical code at a fixed time: the median over the trials, body by body."""
    figures, thrown = [], {}
    repeats = 15
    for state, busy in (("idle", 0), ("loaded", LOAD)):
        trials = Trials(bool(busy))
        with busy_processes(busy):
            for name, (text, other, micro) in BODIES.items():
                errors, beside = [], []
                for _ in range(repeats):
                    result = trials.make(lambda text=text, other=other: pair(text, other, 0.3, 0.3))
                    errors.append(100 * abs(math.log(result.frame["ratio"][1])))
                    beside.append(100 * abs(math.log(torch_ratio(text, other, 0.3))))
                allowed = 0.5 if busy else 0.15 if micro <= 100 else 0.3
                low, high = np.percentile(errors, [10, 90])
                value = float(np.median(errors))
                figures.append(Figure(f"{name}, {state}", value, "%", at_most=allowed, spread=(low, high)))
                figures.append(Figure("  torch, sequential", float(np.median(beside)), "%"))
        thrown[state] = trials.disturbed
    return record("timing_error", figures, seconds=0.3, trials=repeats, disturbed=thrown)


def slow() -> int:
    """Bodies of 20 ms, where a second gives 50 rounds."""
    big = NAMES | {"big": torch.randn(900, 900)}
    calls = max(1, round(0.02 / Timer("big @ big", globals=big).blocked_autorange(min_run_time=0.2).median))
    text, other = f"for i in range({calls}): big @ big", f"for j in range({calls}):\n    big  @  big"
    trials, covered, false, n = Trials(False), 0, 0, 100
    times = []
    for _ in range(n):
        result = trials.make(
            lambda: compare({"a": text, "b": other}, globals=big, threads=1, min_run_time=1.0, max_run_time=1.0)
        )
        row = result.frame.iloc[1]
        covered += bool(row["ratio_low"] <= 1 <= row["ratio_high"])
        false += is_false(result)
        times.append(1000 * row["median"])
    figures = [
        Figure("one call", float(np.median(times)), "ms"),
        Figure(f"intervals that hold 1, of {n}", covered, "trials", at_least=93),
        Figure(f"false verdicts, of {n}", false, "trials", at_most=4),
    ]
    return record("timing_slow", figures, seconds=1.0, disturbed=trials.disturbed)


def power() -> int:
    """True differences of known size: how often are they found?"""
    per_iteration = Timer("for i in range(1000): pass").blocked_autorange(min_run_time=0.2).median / 1000
    base = round(20e-6 / per_iteration)
    figures, thrown = [], {}
    for percent, seconds, state, busy in ((2, 0.5, "idle", 0), (5, 1.0, "loaded", LOAD)):
        text = f"for i in range({base}): pass"
        more = f"for i in range({round(base * (1 + percent / 100))}): pass"
        trials, found, wrong, ratios, n = Trials(bool(busy)), 0, 0, [], 100
        with busy_processes(busy):
            for _ in range(n):
                result = trials.make(
                    lambda text=text, more=more, seconds=seconds: pair(text, more, min(seconds, 0.2), seconds)
                )
                found += result.frame["verdict"][1] == "slower"
                wrong += result.frame["verdict"][1] == "faster"
                ratios.append(100 * (result.frame["ratio"][1] - 1))
        thrown[state] = trials.disturbed
        low, high = np.percentile(ratios, [5, 95])
        figures += [
            Figure(
                f"+{percent} % of a 20 us body found in {seconds:g} s, {state}, of {n}", found, "trials", at_least=95
            ),
            Figure("  called faster", wrong, "trials", at_most=0),
            Figure("  measured difference", float(np.median(ratios)), "%", spread=(low, high)),
        ]
    return record("timing_power", figures, disturbed=thrown)


def bias() -> int:
    """Single times against torch's ``blocked_autorange``, pair by pair in random order.

    Two things must agree with torch's median, which is that of blocks of up to 20 ms: ours as a user gets it (blocks of
    200 us), its consecutive blocks first averaged over as many calls as one of torch's has; and ours at torch's own
    block size and number of blocks (``-n``, ``-r``), where only the loop, the clocks and what is subtracted differ.

    The plain median of our short blocks stands beside and promises nothing: a long block holds its share of every
    interruption, most short ones hold none, so the two medians are not of the same quantity (docs/method.md).

    A body whose blocks fall into two heaps is listed apart. How far torch's own medians scatter (their quartiles, per
    cent) stands beside each: on a machine where that is much, a failure says little. So pairs are made until the
    intervals are narrow enough to tell 1 % from nothing, whatever lies in them, or there are 240.
    """
    figures, generator, least, most, seconds = [], np.random.default_rng(0), 40, 240, 0.1
    disturbed = 0
    for name, (text, _, _) in BODIES.items():
        # a stall while torch looks for its block size makes it take far too short a one
        tries = [Timer(text, globals=NAMES).blocked_autorange(min_run_time=seconds) for _ in range(3)]
        first = max(tries, key=lambda tried: tried.number_per_run)
        alike, like, plain, theirs, modes = [], [], [], [], 0
        trials = Trials(False)
        form = Plan(threads=(1,), number=first.number_per_run, repeat=len(first.raw_times))

        def as_torch(text: str = text, form: Plan = form) -> Comparison:
            return compare_bodies(Task({"": Body(text, "<body>")}, setup=[], namespace=NAMES, plan=form))

        def ours(text: str = text) -> Comparison:
            return compare({"": text}, globals=NAMES, threads=1, min_run_time=seconds)

        def torchs(text: str = text) -> Any:
            return Timer(text, globals=NAMES).blocked_autorange(min_run_time=seconds)

        while len(plain) < most and not (len(plain) >= least and max(map(width, (alike, like))) <= 1.0):
            made: dict[str, Any] = {}
            for key in generator.permutation(["ours", "as torch", "torch"]):
                made[key] = torchs() if key == "torch" else trials.make(ours if key == "ours" else as_torch)
            torch_median = made["torch"].median
            result = made["ours"]
            modes += is_bimodal(result.call_times(0)) is not None
            theirs.append(torch_median)
            long = float(np.median(of_blocks(result, made["torch"].number_per_run)))
            alike.append(100 * math.log(long / torch_median))
            like.append(100 * math.log(made["as torch"].frame["median"][0] / torch_median))
            plain.append(100 * math.log(result.frame["median"][0] / torch_median))
        disturbed += trials.disturbed
        scatter = 100 * float(np.subtract(*np.percentile(np.log(theirs), [75, 25])))
        apart = modes > len(plain) / 4
        promise = {} if apart else {"at_most": 1.0}
        title = f"{name}{' (apart: two heaps)' if apart else ''}: |log ratio|, our blocks averaged to torch's"
        for what, values, promised in (
            (title, alike, promise),
            ("  at torch's block size and number", like, promise),
            ("  the median of our own blocks of 200 us", plain, {}),
        ):
            middle = float(np.median(values))
            figures += [
                Figure(what, abs(middle), "%", **promised),
                Figure("    log ratio, with its interval", middle, "%", spread=median_ends(values)),
            ]
        figures += [
            Figure("  quartiles of torch's own medians apart by", scatter, "%"),
            Figure("  calls in a block of torch's", first.number_per_run, "calls"),
            Figure("  pairs", len(plain), "pairs"),
        ]
    return record("timing_bias", figures, seconds=seconds, disturbed=disturbed)


def of_blocks(result: Comparison, calls: int) -> Any:
    """Seconds per call of consecutive blocks, taken together until they have about ``calls`` calls."""
    times = result.call_times(0)
    together = max(1, min(round(calls / float(result.samples["number"].median())), len(times)))
    return times[: len(times) // together * together].reshape(-1, together).mean(axis=1)


def median_ends(values: list[float]) -> tuple[float, float]:
    """The exact 95 % interval of the median."""
    ordered, k = sorted(values), order_rank(len(values))
    return ordered[k], ordered[-1 - k]


def width(values: list[float]) -> float:
    """Of that interval."""
    low, high = median_ends(values)
    return high - low


def reproducibility() -> int:
    """Does the range of the medians of windows that span 20 s hold the long-run median?"""
    figures = []
    for name in ("Linear, 16 x 128",):
        text, n = BODIES[name][0], 12
        results = [
            compare({"": text}, globals=NAMES, threads=1, min_run_time=21, max_run_time=21) for _ in range(n)
        ]
        long_run = float(np.median(np.concatenate([r.call_times(0) for r in results])))
        ranges = [(r.details["reproducibility_low"][0], r.details["reproducibility_high"][0]) for r in results]
        precisions = [(r.details["precision_low"][0], r.details["precision_high"][0]) for r in results]
        held = 100 * sum(low <= long_run <= high for low, high in ranges) / n
        precise = 100 * sum(low <= long_run <= high for low, high in precisions) / n
        figures.append(Figure(f"{name}: reproducibility holds the long-run median", held, "% of trials", at_least=80))
        figures.append(Figure("  95 % interval in this run holds it", precise, "% of trials"))
    short = compare({"": "x * x"}, globals=NAMES, threads=1, min_run_time=0.2)
    unknown = bool(np.isnan(short.details["reproducibility_low"][0]))
    figures.append(Figure("a short run says that it does not know it", float(unknown), "yes = 1", at_least=1))
    return record("timing_reproducibility", figures, seconds=21, trials=12)


def mixed() -> int:
    """10 us, its twin, 1 ms and 20 ms in one cell: time is shared so that all are decided."""
    per = Timer("for i in range(1000): pass").blocked_autorange(min_run_time=0.2).median / 1000
    spans = {"10 us": 10e-6, "twin": 10e-6, "1 ms": 1e-3, "20 ms": 20e-3}
    texts = {name: f"for {'ij'[name == 'twin']} in range({round(s / per)}): pass" for name, s in spans.items()}
    trials = Trials(False)
    widths, decided, seconds, n = [], 0, [], 10
    for _ in range(n):
        result = trials.make(lambda: compare(texts, globals=NAMES, threads=1, min_run_time=1.0))
        frame = result.frame
        widths.append(100 * (frame["ratio_high"][1] - frame["ratio_low"][1]))
        decided += set(frame["verdict"][2:]) == {"slower"}
        seconds.append(result.elapsed)
    figures = [
        Figure("width of the twin's ratio interval", float(np.median(widths)), "%", at_most=0.5,
               spread=(min(widths), max(widths))),
        Figure(f"both slow ones decided, of {n}", decided, "trials", at_least=n),
        Figure("the whole cell (4 s asked)", float(np.median(seconds)), "s"),
    ]
    return record("timing_mixed", figures, min_run_time=1.0, disturbed=trials.disturbed)


PAIRS = {
    "1 us": (1e-6, (3, 10)),  # more would be near the loop's own cost, where no verdict is given
    "1 ms": (1e-3, (3, 10, 100, 1000)),
    "50 ms": (0.05, (3, 10, 100, 1000)),
    "0.5 s": (0.5, (3, 10, 100, 1000)),
    "2 s": (2.0, (3, 100)),
}
"""A call of the slow side -> seconds, times that the fast one is faster."""


def far() -> int:
    """A loop beside one of many times as many turns: decided, right, and after how many seconds of waiting."""
    return _far(0, "timing_far")


def far_busy() -> int:
    """The same beside two busy processes."""
    return _far(2, "timing_far_busy")


def _far(busy: int, name: str) -> int:
    per = Timer("for i in range(1000): pass").blocked_autorange(min_run_time=0.2).median / 1000
    figures: list[Figure] = []
    right, details = 0, []
    with busy_processes(busy):
        for slow, (slow_s, all_times) in PAIRS.items():
            for times in all_times:
                turns = [round(slow_s / per / of) for of in (1, times)]
                texts = {f"{n} turns": f"for i in range({n}): pass" for n in turns}
                began = time.perf_counter()
                made = compare(texts, threads=1)
                seconds = time.perf_counter() - began
                last, others = made.frame.iloc[1], made.subjects[0].contention
                right += last["verdict"] == "faster"
                rule = "ranges" if made.by_ranges else "ranks"
                rounds = int(made.samples["round"].nunique())
                cores = round(others.ext, 2) if others is not None else None
                details.append([slow, times, str(last["verdict"]), rounds, rule, cores, 1 / last["ratio"]])
                ends = (1 / last["ratio_high"], 1 / last["ratio_low"]) if last["ratio_low"] > 0 else None
                title = f"{slow}, {times} times: {last['verdict']} by {rule}, {rounds} rounds"
                figures.append(Figure(title, seconds, "s", at_most=2 if slow_s < 0.1 else 30, spread=ends))
                print(*figures[-1].row(), cores, flush=True)
    figures.append(Figure("decided and right, of all", right, "pairs", at_least=len(details)))
    said = "slow call, times, verdict, rounds, rule, cores that others used, ratio"
    return record(name, figures, range="the interval of the ratio", busy=busy, nice=os.nice(0), **{said: details})


TURNS = {  # times 4 us in every call, and in every nth one besides
    "20 us, 10 times as much in every 16th": (5, 50, 16),
    "20 us, as much again in every 4th": (5, 5, 4),
    "20 us, 100 times in every 64th": (5, 500, 64),
    "200 us, as much again in every 3rd": (50, 50, 3),
    "200 us, 3 times in every 16th": (50, 150, 16),
    "1 ms, 5 times in every 8th": (250, 1250, 8),
    "5 ms, as much again in every 4th": (1250, 1250, 4),
}


def turns() -> int:
    """A counter decides which calls do more: is the ratio to code that always does as much that of the means?"""

    def work(times: int) -> None:
        for _ in range(times):
            for _ in range(200):
                pass

    figures, trials, off, held, n = [], Trials(False), [], 0, 3
    names = {"work": work, "step": 0}
    for title, (often, rare, every) in TURNS.items():
        texts = {"even": f"work({often})", "nth": f"step += 1\nwork({often})\nif step % {every} == 0: work({rare})"}
        right = 1 + rare / every / often
        timed = partial(compare, texts, globals=names, threads=1)
        made = [trials.make(timed) for _ in range(n)]
        ratios = [result.frame["ratio"][1] / right for result in made]
        held += sum(r.frame["ratio_low"][1] * 0.99 <= right <= r.frame["ratio_high"][1] * 1.01 for r in made)
        off += [100 * abs(ratio - 1) for ratio in ratios]
        spread = min(ratios), max(ratios)
        figures.append(Figure(f"{title}: ratio, of the right one", float(np.median(ratios)), "", spread=spread))
        figures.append(Figure("    seconds", float(np.median([result.elapsed for result in made])), "s"))
        print(*figures[-2].row(), flush=True)
    figures += [
        Figure("off by, all", float(np.median(off)), "%", spread=(min(off), max(off)), at_most=2.0),
        Figure("the interval holds it within 1 %, of all", held, "trials", at_least=len(off) - 1),
    ]
    return record("timing_turns", figures, trials=n, disturbed=trials.disturbed)


SECTIONS = {f.__name__: f for f in (aa, error, slow, power, bias, reproducibility, mixed, far, far_busy, turns)}


def main() -> int:
    asked = sys.argv[1:] or list(SECTIONS)
    return max([SECTIONS[name]() for name in asked])


if __name__ == "__main__":
    sys.exit(main())
