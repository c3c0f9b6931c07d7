"""`%%tprofile --efficiency`: do the peaks repeat, are known operations classified as they were by hand, is what its
insights put at stake what their cures save?

Peaks: measured anew five times; the spread is the largest over the smallest. With one thread they are promised within
5 %, where nobody else uses the machine; the run in which others used it least gives the peaks of all that follows.
Operations: the kinds that were classified by hand (design notes on threads), a cell each; where a machine may differ,
each class that is right is listed with the reason. Insights: a slow cell and a cured one each; at stake against what
the cure saved, as in `insights`.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

import torch  # noqa: E402
from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.insights.insight_runs import Planted, calm, namespace_of, profiled  # noqa: E402
from torchbench_magic.process.machine import data_caches  # noqa: E402
from torchbench_magic.process.peak_performance import BUSY, Peaks, measure_peaks  # noqa: E402
from torchbench_magic.profiling.efficiency import judge  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402

RUNS = 5
REPEATS = 7
PROFILES = 3


@dataclass(frozen=True)
class Known:
    """An operation and what it is.

    Attributes:
        setup: before the cell.
        body: one line, run several times.
        op: whose class is asked for.
        right: classes that it may have.
        why: where there is more than one, or none by the rule.
    """

    name: str
    setup: str
    body: str
    op: str
    right: tuple[str, ...]
    why: str = ""


PARTLY = "between the two by how well this BLAS does that size"
KNOWN = [
    Known("mm 1024, float32", "a = torch.rand(1024, 1024)", "a @ a", "aten::mm", ("compute",)),
    Known("mm 512, bfloat16", "a = torch.rand(512, 512).bfloat16()", "a @ a", "aten::mm", ("compute",)),
    Known("mm 256, float16", "a = torch.rand(256, 256).half()", "a @ a", "aten::mm", ("compute",),
          "at its own peak, which is a hundredth of float32's: the insight slow-dtype says so"),
    Known("bmm 4K by 13, N = 13", "p, v = torch.rand(16, 512, 512), torch.rand(16, 512, 13)", "torch.bmm(p, v)",
          "aten::bmm", ("below-roof",)),
    Known("bmm 4K by 13, K = 13", "q, k = torch.rand(16, 512, 13), torch.rand(16, 13, 512)",
          "torch.bmm(q, k, out=out)", "aten::bmm", ("below-roof", "compute", "memory"), PARTLY),
    Known("div into fresh memory, 64 MiB", "s = torch.rand(16 << 20)", "s / 8", "aten::div", ("page-fault",)),
    Known("div with out=, 64 MiB", "s, out = torch.rand(16 << 20), torch.rand(16 << 20)", "torch.div(s, 8, out=out)",
          "aten::div", ("memory",)),
    Known("add in place, 2 MiB", "s = torch.rand(512 << 10)", "s.add_(1)", "aten::add_", ("memory",)),
    Known("softmax into fresh memory, 64 MiB", "p = torch.rand(64, 512, 512)", "torch.softmax(p, -1)",
          "aten::_softmax", ("page-fault",)),
    Known("sum, 64 MiB", "s = torch.rand(16 << 20)", "s.sum()", "aten::sum", ("memory",)),
    Known("copy, 64 MiB", "s, t = torch.rand(16 << 20), torch.rand(16 << 20)", "t.copy_(s)",
          "aten::copy_", ("memory",)),
    Known("add of 4 numbers", "s = torch.rand(4)", "s + s", "aten::add", ("overhead",)),
    Known("mm 2", "s = torch.rand(2, 2)", "s @ s", "aten::mm", ("overhead",)),
    Known("index_add_", "at, s, t = torch.randint(0, 1000, (200_000,)), torch.rand(200_000, 16), torch.zeros(1000, 16)",
          "t.index_add_(0, at, s)", "aten::index_add_", ("serial", ""),
          "its indices are not recorded, so it is not called again, and bandwidth is no roof for it"),
    Known("cumsum, 1 MiB", "s, out = torch.rand(256 << 10), torch.rand(256 << 10)", "torch.cumsum(s, 0, out=out)",
          "aten::cumsum", ("serial",)),
    Known("transposed copy", "s, t = torch.rand(4096, 4096), torch.rand(4096, 4096)", "t.copy_(s.t())", "aten::copy_",
          ("below-roof",)),
    Known("conv2d 3 by 3", "x, w = torch.rand(8, 64, 56, 56), torch.rand(64, 64, 3, 3)",
          "torch.nn.functional.conv2d(x, w)", "aten::convolution", ("compute", "below-roof", "page-fault"), PARTLY),
]  # fmt: skip

PRODUCT = "for i in range({}):\n    y = {}"
SLOW = [
    Planted("products in half precision", "a = torch.rand(256, 256).half()", PRODUCT.format(10, "a @ a"),
            "slow-dtype", 3,
            ("a = torch.rand(256, 256)", PRODUCT.format(10, "a @ a"))),
    Planted("a layer in half precision",
            "net, x = torch.nn.Linear(512, 512).half(), torch.rand(64, 512).half()",
            "with torch.no_grad():\n    for i in range(10):\n        y = net(x)", "slow-dtype", 4,
            ("net, x = torch.nn.Linear(512, 512), torch.rand(64, 512)",
             "with torch.no_grad():\n    for i in range(10):\n        y = net(x)")),
    Planted("a division into fresh memory", "s = torch.rand(16 << 20)", PRODUCT.format(10, "s / 8"), "page-fault", 3,
            ("s, out = torch.rand(16 << 20), torch.rand(16 << 20)", PRODUCT.format(10, "torch.div(s, 8, out=out)"))),
    Planted("a sum into fresh memory", "s, t = torch.rand(12 << 20), torch.rand(12 << 20)", PRODUCT.format(10, "s + t"),
            "page-fault", 3,
            ("s, t, out = (torch.rand(12 << 20) for _ in range(3))", PRODUCT.format(10, "torch.add(s, t, out=out)"))),
    Planted("the gist's product", "p, v = torch.rand(32, 512, 512), torch.rand(32, 512, 13)",
            PRODUCT.format(20, "torch.bmm(p, v)"), "shape", 3,
            ("p, v = torch.rand(32, 512, 512), torch.rand(32, 512, 16)", PRODUCT.format(20, "torch.bmm(p, v)"))),
    Planted("scores copied, scaled and clamped",
            "s, q = torch.rand(64, 256, 256), torch.rand(64, 256, 256)",
            "for i in range(20):\n    s.copy_(q)\n    s.mul_(0.125)\n    s.add_(1.0)\n    s.clamp_(0.0, 2.0)",
            "memory-bound-run", 4,
            ("", "for i in range(20):\n    torch.clamp(q, 0.0, 2.0, out=s)")),
    Planted("a matrix turned each time", "s, t = torch.rand(4096, 4096), torch.rand(4096, 4096)",
            "for i in range(5):\n    t.copy_(s.t())", "below-roof", 3,
            ("", "for i in range(5):\n    t.copy_(s)")),
]  # fmt: skip
HEALTHY = [
    Planted("products of 1024", "a, out = torch.rand(1024, 1024), torch.rand(1024, 1024)",
            "for i in range(10):\n    torch.mm(a, a, out=out)"),
    Planted("sums of 64 MiB", "s = torch.rand(16 << 20)", "for i in range(10):\n    y = s.sum()"),
    Planted("sums with out=", "s, t, out = (torch.rand(16 << 20) for _ in range(3))",
            "for i in range(10):\n    torch.add(s, t, out=out)"),
    Planted("random numbers", "s = torch.rand(1 << 20)", "for i in range(10):\n    s.uniform_()"),
    Planted("sorting", "s = torch.rand(1 << 18)", "for i in range(10):\n    y, at = s.sort()"),
]  # fmt: skip
KINDS = ("slow-dtype", "page-fault", "shape", "memory-bound-run", "below-roof")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        figures, peaks, best = _peaks()
        judge.peaks_here = lambda threads, progress: best
        known_figures, known = _known()
        insight_figures, insights = _insights()
    return record(
        "efficiency",
        [*figures, *known_figures, *insight_figures],
        runs=RUNS,
        repeats=REPEATS,
        peaks=peaks,
        operations=known,
        insights=insights,
    )


def _peaks() -> tuple[list[Figure], list[dict[str, Any]], Peaks]:
    threads, found, seconds = torch.get_num_threads(), [], []
    for _ in range(RUNS):
        begin = time.perf_counter()
        found.append(measure_peaks(threads, data_caches()))
        seconds.append(time.perf_counter() - begin)
    rows, kept, worst = [], [], {}
    for name, rates in _rates(found).items():
        known = [rate for rate in rates if not math.isnan(rate)]
        spread = max(known) / min(known) - 1 if known else math.nan
        count = int(name.split(" with ")[1].split()[0])
        what = name.split()[0] == "bytes"
        worst[count, what] = max(worst.get((count, what), 0.0), spread)
        middle = statistics.median(known) / 1e9 if known else math.nan
        rows.append((name, f"{middle:.3g}", f"{100 * spread:.1f} %", len(rates) - len(known)))
        kept.append({"peak": name, "giga_per_second": middle, "spread": spread, "not_known": len(rates) - len(known)})
    print("\npeaks")
    print(tabulate(rows, ("", "G/s", "spread", "not known"), "plain", disable_numparse=True))
    calls = [each.dispatch for each in found]
    busy = [each.contended for each in found]
    figures = [
        Figure("products with 1 thread: the largest spread over 5 runs", 100 * worst[1, False], "%", at_most=5),
        Figure("bandwidth with 1 thread: the same", 100 * worst[1, True], "%", at_most=5),
        Figure("the call of the smallest op: spread", 100 * (max(calls) / min(calls) - 1), "%"),
        Figure("seconds to measure all", statistics.median(seconds), "s",
               limit=10, spread=(min(seconds), max(seconds))),
        Figure("runs in which others used the machine, whose peaks would not be kept",
               sum(each > BUSY for each in busy), f"of {RUNS}"),
    ]  # fmt: skip
    if threads > 1:
        figures.insert(2, Figure(f"products with {threads} threads", 100 * worst[threads, False], "%"))
        figures.insert(3, Figure(f"bandwidth with {threads} threads", 100 * worst[threads, True], "%"))
    best = min(found, key=lambda peaks: peaks.contended if peaks.contended == peaks.contended else 0.0)
    return figures, kept, best


def _rates(found: list[Peaks]) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    for peaks in found:
        for dtype, count, rate in peaks.flops:
            rates.setdefault(f"{dtype} FLOP with {count} threads", []).append(rate)
        for size, count, rate in peaks.bandwidth:
            rates.setdefault(f"bytes at {size / 2**20:.3g} MiB with {count} threads", []).append(rate)
    return rates


def _known() -> tuple[list[Figure], list[dict[str, Any]]]:
    rows, kept = [], []
    right = 0
    for case in KNOWN:
        setup = case.setup + ("\nout = torch.empty(16, 512, 512)" if "out=out" in case.body and "out" not in case.setup
                              else "")  # fmt: skip
        planted = Planted(case.name, setup, f"for i in range(30):\n    y = {case.body}")
        table = _best(planted).efficiency.ops
        own = table[table["op"] == case.op].sort_values("seconds", ascending=False)
        row = own.iloc[0] if len(own) else None
        told = row["kind"] if row is not None else "not run"
        share = row["fraction_of_peak"] if row is not None else math.nan
        right += told in case.right
        wanted = " or ".join(each or "not told" for each in case.right)
        rows.append((case.name, wanted, told or "not told", f"{100 * share:.0f} %", case.why))
        kept.append({"operation": case.name, "right": [*case.right], "told": told, "of_roof": share, "why": case.why})
    print("\noperations")
    print(tabulate(rows, ("", "by hand", "told", "of roof", ""), "plain", disable_numparse=True))
    return [Figure("operations with the class that they have by hand", right, f"of {len(KNOWN)}",
                   at_least=len(KNOWN) - 2)], kept  # fmt: skip


def _insights() -> tuple[list[Figure], list[dict[str, Any]]]:
    rows, kept, factors = [], [], []
    right = silent = 0
    for case in SLOW:
        said = _best(case).insights
        of_kind = [each for each in said if each.kind == case.kind]
        mine = next((each for each in of_kind if case.line in {at.line for at in each.places}), None)
        right += mine is not None
        before, after = _seconds(case)
        saved = before - after
        factor = mine.seconds / saved if mine is not None and saved > 0.02 * before else math.nan
        factors += [factor] * (not math.isnan(factor))
        got = ", ".join(f"{each.kind} {each.places[0].line}" for each in said) or "nothing"
        at_stake = mine.seconds if mine is not None else math.nan
        wanted = f"{case.kind} {case.line}"
        rows.append((case.name, wanted, got, _ms(before), _ms(saved), _ms(at_stake), f"{factor:.2f}"))
        kept.append({"case": case.name, "planted": wanted, "said": got, "seconds": before,
                     "saved": saved, "at_stake": at_stake, "factor": factor})  # fmt: skip
    for case in HEALTHY:
        said = [each for each in _best(case).insights if each.kind in KINDS]
        silent += not said
        got = ", ".join(f"{each.kind} {each.places[0].line}" for each in said) or "nothing"
        rows.append((case.name, "nothing", got, "", "", "", ""))
        kept.append({"case": case.name, "planted": "nothing", "said": got})
    print("\ninsights")
    header = ("cell", "planted", "said", "takes, ms", "cure saves, ms", "at stake, ms", "factor")
    print(tabulate(rows, header, "plain", disable_numparse=True))
    bounds = (min(factors), max(factors)) if factors else None
    return [
        Figure("slow cells told by kind and line", right, f"of {len(SLOW)}", at_least=len(SLOW) - 1),
        Figure("healthy cells of which nothing is said", silent, f"of {len(HEALTHY)}", at_least=len(HEALTHY)),
        Figure("at stake, over what the cure saved: median", statistics.median(factors or [0.0]), "", spread=bounds),
        Figure("at stake, less than 0.8 of what the cure saved", sum(each < 0.8 for each in factors), "cells"),
    ], kept


def _best(case: Planted) -> Profile:
    """Of the shortest of some runs: the one that others took the processor from least."""
    profiles = [calm(profiled(case, efficiency=True)) for _ in range(PROFILES)]
    return min(profiles, key=lambda profile: profile.wall_time)


def _seconds(case: Planted) -> tuple[float, float]:
    """Of the cell and of the cured one, each the shortest of several runs, in turn."""
    setup, body = case.cured
    bodies = [(namespace_of(case.setup), case.body), (namespace_of(setup or case.setup), body)]
    codes = [(compile(text, "<cell>", "exec"), names) for names, text in bodies]
    taken: list[list[float]] = [[], []]
    for _ in range(REPEATS + 1):
        for (code, names), times in zip(codes, taken, strict=True):
            begin = time.perf_counter()
            exec(code, names)
            times.append(time.perf_counter() - begin)
    return min(taken[0]), min(taken[1])


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


if __name__ == "__main__":
    sys.exit(main())
