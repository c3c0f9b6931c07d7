"""Do verdicts over processes hold in the next kernel, and does the interval hold the ratio over many processes?

``python tests/benchmarks/process_verdicts.py [SECTION ...] [--runs N] [--keep FILE]`` runs some sections only; what
``same`` and ``planted`` have measured is kept in FILE, and counts among the runs of the next call:

same:     ten pairs of equal meaning, each in N (10) runs of ``--processes``, each run from a kernel of its own. A pair
          must not be faster in one run and slower in another. Each run's interval and verdict are held against the
          median ratio of the processes of all other runs of that pair.
planted:  3 and 10 % more of the same statement, at 1 us and 50 us, in N (20) runs each.
layout:   do the addresses of inputs matter within a process? One text on inputs that the alternatives share, against
          inputs of their own at N (12) places each: offsets within a page, and whether both lie at the same.

Each prints a table and writes ``results/process_verdicts_SECTION.json``. The seconds are those of a whole comparison of
two alternatives, the start of its interpreters included, beside those of ``import torch`` on the same machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from processes import PAIRS, names
from record import Figure, record
from timing import binomial_interval

from torchbench_magic import compare

SAME = {
    f"{pair}, {threads} thread{'s' * (threads > 1)}": (*PAIRS[pair][:2], threads)
    for pair, threads in (
        ("Python: sum of 100", 1),
        ("numpy: add, 256", 1),
        ("torch: mul, 256", 1),
        ("torch: mul, 256", 2),
        ("torch: mul, 64 k", 1),
        ("torch: mul, 64 k", 2),
        ("torch: Linear 128 x 256, and its copy", 1),
        ("torch: Linear 128 x 256, and its copy", 2),
        ("torch: mul, 1 M", 2),
        ("torch: matmul 512", 2),
    )
}


def more(text: str, less: int, count: int) -> tuple[str, str, int]:
    """A statement so many times in a row, and so many times, at one thread."""
    return "\n".join([text] * less), "\n".join([text] * count), 1


PLANTED = {
    "3 % at 1 us": more("f * f", 99, 102),
    "10 % at 1 us": more("f * f", 90, 99),
    "3 % at 50 us": more("e.exp()", 33, 34),
    "10 % at 50 us": more("e.exp()", 30, 33),
}


@dataclass(frozen=True)
class Run:
    """One comparison over processes: seconds of a call, the ratio with its interval, the log ratio of each process."""

    pair: str
    call: float
    ratio: float
    low: float
    high: float
    verdict: str
    seconds: float
    logs: list[float] = field(default_factory=list)


def plain(run: Run) -> dict[str, Any]:
    """A run as JSON: what is not known is null."""
    values = asdict(run).items()
    return {name: None if isinstance(it, float) and not np.isfinite(it) else it for name, it in values}


def one_run(pairs: dict[str, tuple[str, str, int]]) -> list[Run]:
    """Every pair once, in random order, over the default number of processes."""
    given, found = {**names(), "f": 3.7, "e": torch.randn(1000)}, []
    for pair in map(str, np.random.default_rng().permutation([*pairs])):
        first, second, threads = pairs[pair]
        began = time.monotonic()
        made = compare({"a": first, "b": second}, globals=given, threads=threads, processes="auto")
        seconds = time.monotonic() - began
        row, base = made.frame.iloc[1], made.frame.iloc[0]
        figures = [float(at) for at in (base["median"], row["ratio"], row["ratio_low"], row["ratio_high"])]
        logs = [*made.ratio_by_process(1).values()]
        found.append(Run(pair, *figures, str(row["verdict"]), seconds, logs))
    return found


def runs_of(section: str, count: int, keep: Path | None) -> list[Run]:
    """So many runs of a section, each from a process of its own."""
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    kept = [found for of, found in map(json.loads, lines) if of == section]
    while len(kept) < count:
        command = [sys.executable, __file__, "--one", section]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        kept.append(json.loads(done.stdout.splitlines()[-1]))
        if keep is not None:
            with keep.open("a") as file:
                print(json.dumps([section, kept[-1]]), file=file)
        print(f"run {len(kept)} of {count}", flush=True)
    return [Run(**each) for found in kept for each in found]


def seconds_of_import() -> float:
    took = []
    for _ in range(5):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        took.append(time.monotonic() - began)
    return float(np.median(took))


def of_others(runs: list[Run]) -> list[tuple[Run, float]]:
    """Each run of one pair that has a ratio (others left enough of its processes alone), and the median ratio of the
    processes of its other runs."""
    runs = [run for run in runs if np.isfinite(run.ratio)]
    without = lambda run: [log for other in runs if other is not run for log in other.logs]
    return [(run, float(np.exp(np.median(without(run))))) for run in runs]


def held(runs: list[Run]) -> list[bool]:
    """Whether the interval of each run holds the ratio of the others."""
    return [run.low <= true <= run.high for run, true in of_others(runs)]


def is_false(verdict: str, true: float) -> bool:
    """Whether a verdict is not that of the ratio of the other runs: two texts of one meaning may well differ (calling
    ``torch.mul`` costs 5 % more than the method at 1 us)."""
    right = "same" if abs(np.log(true)) <= np.log(1.01) else "slower" if true > 1 else "faster"
    return verdict not in (right, "undecided")


def seconds_figures(runs: list[Run]) -> list[Figure]:
    imports, processes = seconds_of_import(), float(np.median([len(run.logs) for run in runs]))
    took = [run.seconds for run in runs]
    return [
        Figure("seconds of a comparison of two alternatives, the median", float(np.median(took)), "s", at_most=25.0),
        Figure("  of the longest", max(took), "s", at_most=25.0),
        Figure("  processes, the median", processes, "processes"),
        Figure("  import of torch", imports, "s"),
        Figure(
            "  of the median, in N (import of torch + 1.5 s)",
            float(np.median(took)) / (processes * (imports + 1.5)),
            "times",
            at_most=1.0,
        ),
    ]


def same(count: int, keep: Path | None) -> int:
    runs = runs_of("same", count, keep)
    by_pair = {pair: [run for run in runs if run.pair == pair] for pair in SAME}
    figures, all_held, intervals, false = [], 0, 0, 0
    for pair, seen in by_pair.items():
        words, within = Counter(run.verdict for run in seen), held(seen)
        false += sum(is_false(run.verdict, true) for run, true in of_others(seen))
        all_held, intervals = all_held + sum(within), intervals + len(within)
        logs = [100 * np.log(run.ratio) for run in seen if np.isfinite(run.ratio)]
        figures += [
            Figure(f"{pair}: a call", 1e6 * float(np.median([run.call for run in seen])), "us"),
            Figure("  ratio over processes, the median run", float(np.median(logs)), "% from 1", spread=_ends(logs)),
            Figure("  called faster in one run and slower in another", min(words["faster"], words["slower"]), "times",
                   at_most=0),
            Figure("  faster or slower", words["faster"] + words["slower"], "runs"),
            Figure("  same", words["same"], "runs"),
            Figure("  undecided", words["undecided"], "runs"),
            Figure("  no ratio: others held too many processes up", len(seen) - len(within), "runs"),
        ]  # fmt: skip
    low, high = (100 * end for end in binomial_interval(false, len(runs)))
    share = 100 * all_held / intervals
    low_held, high_held = (100 * end for end in binomial_interval(all_held, intervals))
    figures += [
        Figure(f"false verdicts, of {len(runs)}", 100 * false / len(runs), "%", at_most=2.0, spread=(low, high)),
        Figure("intervals that hold the ratio of the other runs' processes", share, "%", at_least=93.0,
               spread=(low_held, high_held)),
        *seconds_figures(runs),
    ]  # fmt: skip
    return record("process_verdicts_same", figures, runs=count, seen=[*map(plain, runs)])


def planted(count: int, keep: Path | None) -> int:
    runs = runs_of("planted", count, keep)
    figures = []
    for pair, (less, other, _) in PLANTED.items():
        seen = [run for run in runs if run.pair == pair]
        true = (other.count("\n") + 1) / (less.count("\n") + 1)
        right = sum(run.verdict == "slower" for run in seen)
        wrong = sum(run.verdict in ("faster", "same") for run in seen)
        off = [100 * (run.ratio / true - 1) for run in seen if np.isfinite(run.ratio)]
        least = 99.0 if true > 1.05 else 80.0
        figures += [
            Figure(f"{pair}: right, of {len(seen)}", 100 * right / len(seen), "%", at_least=least,
                   spread=tuple(100 * end for end in binomial_interval(right, len(seen)))),
            Figure("  wrong", wrong, "runs", at_most=0),
            Figure("  a call", 1e6 * float(np.median([run.call for run in seen])), "us"),
            Figure("  distance from the planted ratio, the median", float(np.median(off)), "%", spread=_ends(off)),
        ]  # fmt: skip
    figures += seconds_figures(runs)
    return record("process_verdicts_planted", figures, runs=count, seen=[*map(plain, runs)])


PAGE = 4096
LAYOUTS = ("shared", "own, at one offset", "own, apart by half a page")


def placed(base: torch.Tensor, size: int, offset: int) -> torch.Tensor:
    """A tensor of so many floats whose first byte lies ``offset`` bytes into a page."""
    start = (offset - base.data_ptr()) % PAGE // 4
    return base[start : start + size].normal_()


def layout(count: int, _: Path | None) -> int:
    figures, draw = [], np.random.default_rng(0)
    for size in (256, 4096, 65_536, 1_000_000):
        for kind in LAYOUTS:
            ratios = []
            for _ in range(count):
                at = 64 * int(draw.integers(0, PAGE // 64))
                other = at if kind == LAYOUTS[1] else (at + PAGE // 2) % PAGE
                x, y, out = (placed(torch.empty(size + 2 * PAGE), size, at) for _ in range(3))
                u, v = (placed(torch.empty(size + 2 * PAGE), size, other) for _ in range(2))
                given = {"torch": torch, "x": x, "y": y, "out": out, "u": u, "v": v}
                second = "torch.mul(x, y, out=out)" if kind == "shared" else "torch.mul(u, v, out=out)"
                made = compare({"a": "torch.mul(x, y, out=out)", "b": second}, globals=given, threads=1)
                ratios += [100 * float(np.log(ratio)) for ratio in [made.frame["ratio"][1]] if np.isfinite(ratio)]
            figures.append(
                Figure(f"{size:,} floats, inputs {kind}: median ratio", float(np.median(ratios)), "% from 1",
                       spread=_ends(ratios))
            )  # fmt: skip
    return record("process_verdicts_layout", figures, places=count)


SECTIONS = {"same": (same, 10), "planted": (planted, 20), "layout": (layout, 12)}


def _ends(values: Any) -> tuple[float, float]:
    return float(np.min(values)), float(np.max(values))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--one", choices=("same", "planted"), help="print one run as JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps([asdict(run) for run in one_run(SAME if given.one == "same" else PLANTED)]))
        return 0
    code = 0
    for section in given.sections or SECTIONS:
        run, count = SECTIONS[section]
        code |= run(given.runs or count, given.keep)
    return code


if __name__ == "__main__":
    sys.exit(main())
