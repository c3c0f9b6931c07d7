"""How far does the ratio of two texts of one meaning move from kernel to kernel, beside the interval within one?

``python tests/benchmarks/processes.py [PROCESSES]`` (16) compares pairs of equal meaning, at the defaults, in so many
fresh interpreters one after the other; addresses and hash seed are drawn anew by each. It prints a table by duration of
the call and writes ``results/processes.json``.

The spread between processes is the standard deviation of the logs of their ratios, in per cents; the one within is half
the width of the interval, the median of the processes. The largest distance of a ratio from 1 stands beside both,
and how many processes called the pair faster, and slower.
"""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from record import Figure, record
from tabulate import tabulate

from torchbench_magic import compare
from torchbench_magic.cell_body import Body
from torchbench_magic.cpp.run import SnippetTask, compare_snippets
from torchbench_magic.timing.plan import Plan

BOTH = (1, 2)
"""Thread counts of torch's code; Python's and numpy's elementwise code runs on one thread whatever torch is set to."""
PAIRS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "Python: loop of 10": ("for i in range(10): pass", "for j in range(10):\n    pass", (1,)),
    "Python: sum of 100": ("sum(q)", "(sum(q))", (1,)),
    "Python: loop of 1000": ("for i in range(1000): pass", "for j in range(1000):\n    pass", (1,)),
    "Python: sorted, 10 000": ("sorted(r)", "(sorted(r))", (1,)),
    "numpy: add, 256": ("n256 + n256", "np.add(n256, n256)", (1,)),
    "numpy: exp, 64 k": ("np.exp(n64k)", "(np.exp(n64k))", (1,)),
    "numpy: add, 4 M": ("n4m + n4m", "np.add(n4m, n4m)", (1,)),
    "torch: mul, 256": ("t256.mul(t256)", "torch.mul(t256, t256)", BOTH),
    "torch: mul, 64 k": ("t64k.mul(t64k)", "torch.mul(t64k, t64k)", BOTH),
    "torch: Linear 128 x 256, and its copy": ("lin(b)", "lin2(b)", BOTH),
    "torch: mul, 1 M": ("t1m.mul(t1m)", "torch.mul(t1m, t1m)", BOTH),
    "torch: matmul 512": ("m @ m", "torch.mm(m, m)", BOTH),
    "torch: matmul 800": ("m8 @ m8", "torch.mm(m8, m8)", BOTH),
}
SNIPPETS = {
    "C++: mul, 256": (256, "x.mul(x);", "torch::mul(x, x);", BOTH),
    "C++: mul, 64 k": (65_536, "x.mul(x);", "torch::mul(x, x);", BOTH),
    "C++: mul, 1 M": (1_000_000, "x.mul(x);", "torch::mul(x, x);", BOTH),
}


@dataclass(frozen=True)
class Seen:
    """One pair at one thread count, in one process: seconds of a call, the ratio with its interval, the verdict."""

    pair: str
    threads: int
    call: float
    ratio: float
    low: float
    high: float
    verdict: str


def names() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 256)
    return {
        "np": np,
        "torch": torch,
        "q": list(range(100)),
        "r": draw.integers(0, 10**6, 10_000).tolist(),
        "n256": draw.normal(size=256).astype(np.float32),
        "n64k": draw.normal(size=65_536).astype(np.float32),
        "n4m": draw.normal(size=4_000_000).astype(np.float32),
        "t256": torch.randn(256),
        "t64k": torch.randn(65_536),
        "t1m": torch.randn(1_000_000),
        "m": torch.randn(512, 512),
        "m8": torch.randn(800, 800),
        "b": torch.randn(128, 256),
        "lin": linear,
        "lin2": copy.deepcopy(linear),
    }


def in_this_process() -> list[Seen]:
    """Every pair once, in random order, each at the defaults."""
    given, found = names(), []
    jobs = [(pair, threads) for pair, (*_, counts) in {**PAIRS, **SNIPPETS}.items() for threads in counts]
    np.random.default_rng().shuffle(jobs)
    for pair, threads in [(str(pair), int(threads)) for pair, threads in jobs]:
        if pair in PAIRS:
            first, second, _ = PAIRS[pair]
            result = compare({"a": first, "b": second}, globals=given, threads=threads)
        else:
            size, one, other, _ = SNIPPETS[pair]
            bodies = {"a": Body(one, "<a>"), "b": Body(other, "<b>")}
            setup = [Body(f"auto x = torch::randn({{{size}}});", "<setup>")]
            result = compare_snippets(SnippetTask(bodies, setup=setup, plan=Plan(threads=(threads,))))
        row, base = result.frame.iloc[1], result.frame.iloc[0]
        figures = (base["median"], row["ratio"], row["ratio_low"], row["ratio_high"])
        found.append(Seen(pair, threads, *map(float, figures), str(row["verdict"])))
    return found


def in_fresh_processes(count: int) -> list[list[Seen]]:
    """The same of so many interpreters, one after the other."""
    found = []
    for index in range(count):
        done = subprocess.run([sys.executable, __file__, "--one"], capture_output=True, text=True, check=True)
        found.append([Seen(**each) for each in json.loads(done.stdout.splitlines()[-1])])
        print(f"process {index + 1} of {count}", flush=True)
    return found


def main() -> int:
    if sys.argv[1:] == ["--one"]:
        print(json.dumps([asdict(each) for each in in_this_process()]))
        return 0
    count = int(sys.argv[1]) if sys.argv[1:] else 16
    found = in_fresh_processes(count)
    by_pair: dict[tuple[str, int], list[Seen]] = {}
    for each in (each for process in found for each in process):
        by_pair.setdefault((each.pair, each.threads), []).append(each)
    figures, rows = [], []
    for (pair, threads), seen in sorted(by_pair.items(), key=lambda item: np.median([s.call for s in item[1]])):
        known = [s for s in seen if s.low > 0 and math.isfinite(s.high)]  # the others were disturbed, and said so
        logs = np.log([s.ratio for s in known])
        within = float(np.median([(math.log(s.high) - math.log(s.low)) / 2 for s in known])) * 100
        between, farthest = 100 * float(np.std(logs, ddof=1)), 100 * float(np.abs(logs).max())
        call, words = float(np.median([s.call for s in seen])), Counter(s.verdict for s in seen)
        title = f"{pair}, {threads} thread{'s' * (threads > 1)}"
        decided = f"{words['faster']} faster, {words['slower']} slower, {words['same']} same"
        decided += f", {len(seen) - len(known)} without an interval" if len(known) < len(seen) else ""
        rows.append((title, f"{call * 1e6:,.3g}", f"{between:.2f}", f"{within:.2f}", f"{farthest:.1f}", decided))
        figures += [
            Figure(f"{title}: a call", call * 1e6, "us"),
            Figure("  between processes", between, "%", spread=(100 * logs.min(), 100 * logs.max())),
            Figure("  within one, half the interval", within, "%"),
            Figure("  called faster", words["faster"], "processes"),
            Figure("  called slower", words["slower"], "processes"),
        ]
    headers = ("pair", "call, us", "between, %", "within, %", "farthest from 1, %", f"of {count} processes")
    print(tabulate(rows, headers, disable_numparse=True))
    return record("processes", figures, processes=count, seen=[[asdict(s) for s in process] for process in found])


if __name__ == "__main__":
    sys.exit(main())
