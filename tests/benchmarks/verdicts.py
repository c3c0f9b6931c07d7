"""Are the verdicts of ordinary cells right, idle and beside busy processes, at 1 and 2 threads, and when do they come?

``python tests/benchmarks/verdicts.py [SECTION ...]`` runs some sections only: planted, same, levers, neighbours,
regions, families, power, seconds. Each prints a table and writes ``results/verdicts_SECTION.json``.

"Busy" is one process beside that computes without an end for each state but ``seconds``, which also knows five. Trials
called idle during which others took more than 0.15 cores are made again (``timing.Trials``).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Figure, record
from timing import Trials, binomial_interval, busy_processes

from torchbench_magic import Comparison, compare

torch.manual_seed(0)

NAMES: dict[str, Any] = {
    "torch": torch,
    "y": torch.randn(65_536),
    "m": torch.randn(512, 512),
    "lin": torch.nn.Linear(256, 256),
    "b": torch.randn(128, 256),
    "h": torch.randn(200, 200),
    "z": torch.randn(300_000),
    "x": torch.randn(10_000, 64),
    **{f"e{i}": torch.randn(50_000) for i in range(3)},
    "e": torch.randn(100_000),
    "numpy": np,
    "a": np.random.default_rng(0).random((64, 64)),
    "v": np.random.default_rng(0).random(12_000),
}
STATES = (("idle", 0), ("busy", 1))
DECIDED = ("faster", "slower")

# Two texts of one meaning each
TWINS = {
    "y + 1": ("y + 1", "(y  +  1)"),
    "Linear 128 x 256": ("lin(b)", "( lin( b ) )"),
    "matmul 200": ("h @ h", "(h  @  h)"),
    "exp 300 000": ("z.exp()", "( z.exp() )"),
    "Python loop": ("for i in range(1000): pass", "for j in range(1000):\n    pass"),
}

# What no setting of torch changes, and what is tried on it
UNTOUCHED = {
    "NumPy matmul 64": "a @ a",
    "NumPy exp 12 000": "numpy.exp(v)",
    "Python loop": "for i in range(3000): pass",
}
IDLE_LEVERS = ("no_grad", "inference_mode", "threads", "matmul-medium", "flush-denormal")

# Eight bodies at two threads, each against a second text of it
EIGHT = {
    **{name: TWINS[name] for name in ("y + 1", "Linear 128 x 256", "matmul 200", "exp 300 000")},
    "mul and sum": ("x.mul(x).sum(-1)", "( x.mul(x).sum(-1) )"),
    "bmm": ("torch.bmm(x.unsqueeze(1), x.unsqueeze(2))", "(torch.bmm(x.unsqueeze(1), x.unsqueeze(2)))"),
    "matmul 512": ("m @ m", "(m  @  m)"),
    "softmax": ("x.softmax(-1)", "( x.softmax( -1 ) )"),
}

# Each ends its parallel regions another number of times than the other
REGIONS = {
    "one region of 100 000 exp, two of 50 000": ("e.exp()", "e0.exp(); e1.exp()"),
    "one region of 100 000 exp, three of 50 000": ("e.exp()", "e0.exp(); e1.exp(); e2.exp()"),
    "two regions of 50 000 exp, three": ("e0.exp(); e1.exp()", "e0.exp(); e1.exp(); e2.exp()"),
    "bmm, and mul with sum": ("torch.bmm(x.unsqueeze(1), x.unsqueeze(2))", "x.mul(x).sum(-1)"),
}


def times(text: str, count: int) -> str:
    """The statement ``count`` times in a row."""
    return "\n".join([text] * count)


def planted() -> int:
    """Ratios known from the text: a statement k times against the same statement j times.

    The machine's own truth is known to about half a per cent: code that is repeated is not quite k times as slow. So
    what is promised is the distance from the planted ratio; how often the interval holds it stands beside.
    """
    figures: list[Figure] = []
    trials_each = {"idle": 8, "busy": 5}
    for state, busy in STATES:
        trials = Trials(bool(busy))
        with busy_processes(busy):
            for name, text, ratios in (
                ("y + 1", "y + 1", ((2, 3), (1, 2), (1, 3), (1, 10), (1, 100))),
                ("exp 65 536", "y.exp()", ((2, 3), (1, 2), (1, 3), (1, 10), (1, 100))),
                ("matmul 512, a block is one call", "m @ m", ((2, 3), (1, 2), (1, 3), (1, 10))),
            ):
                for low, high in ratios:
                    off, held, wrong = [], 0, 0
                    for _ in range(trials_each[state]):
                        result = trials.make(
                            lambda text=text, low=low, high=high: compare(
                                {"a": times(text, low), "b": times(text, high)}, globals=NAMES, threads=1
                            )
                        )
                        row, true = result.frame.iloc[1], high / low
                        off.append(100 * (row["ratio"] / true - 1))
                        held += bool(row["ratio_low"] <= true <= row["ratio_high"])
                        wrong += row["verdict"] not in ("slower", "undecided")
                    n, bound = len(off), 3.0 if busy else 1.0 if high / low <= 10 else 2.0
                    title = f"{name}: {high / low:g} times, {state}: |bias|, the median of {n}"
                    figures += [
                        Figure(title, abs(float(np.median(off))), "%", at_most=bound, spread=(min(off), max(off))),
                        Figure("  intervals that hold it", held, "trials"),
                        Figure("  wrong verdicts", wrong, "trials", at_most=0),
                    ]
                    print(state, name, high / low, np.round(off, 2), held, flush=True)
    return record("verdicts_planted", figures, trials=trials_each)


def same() -> int:
    """Identical code: how often is it called faster or slower?"""
    figures, n, thrown = [], 120, {}
    for threads in (1, 2):
        for state, busy in STATES:
            counts, trials = Counter[str](), Trials(bool(busy))
            with busy_processes(busy):
                for i in range(n):
                    first, second = list(TWINS.values())[i % len(TWINS)]
                    result = trials.make(
                        lambda first=first, second=second, threads=threads: compare(
                            {"a": first, "b": second},
                            globals=NAMES,
                            threads=threads,
                            min_run_time=0.05,
                            max_run_time=0.5,
                        )
                    )
                    counts[result.frame["verdict"][1]] += 1
            false = sum(counts[word] for word in DECIDED)
            low, high = binomial_interval(false, n)
            thrown[f"{threads}, {state}"] = trials.disturbed
            title = f"false verdicts, of {n}, {_threads(threads)}, {state}"
            figures += [
                Figure(title, false, "trials", at_most=0.02 * n, spread=(low * n, high * n)),
                Figure("  said to be the same", counts["same"], "trials"),
            ]
            print(title, dict(counts), flush=True)
    return record("verdicts_same", figures, min_run_time=0.05, max_run_time=0.5, disturbed=thrown, bodies=list(TWINS))


def levers() -> int:
    """Levers that change nothing for the cell, which reads a Linear and leaves it alone: how often is one called faster
    or slower?"""
    figures, trials_each = [], 4
    for state, busy in STATES:
        trials, by_lever = Trials(bool(busy)), {lever: Counter[str]() for lever in IDLE_LEVERS}
        with busy_processes(busy):
            for text in UNTOUCHED.values():
                for lever, counts in by_lever.items():
                    for _ in range(trials_each):
                        result = trials.make(
                            lambda text=text, lever=lever: compare({"cell": f"lin\n{text}"}, globals=NAMES, try_=lever)
                        )
                        counts[_verdict(result)] += 1
        n = trials_each * len(UNTOUCHED)
        for lever, counts in by_lever.items():
            false, title = sum(counts[word] for word in DECIDED), f"{lever}: false verdicts, of {n}, {state}"
            figures += [
                Figure(title, false, "trials", at_most=1),
                Figure("  said to be the same", counts["same"], "trials"),
            ]
            print(title, dict(counts), flush=True)
    return record("verdicts_levers", figures, trials=trials_each, cells=list(UNTOUCHED))


def neighbours() -> int:
    """Identical code at two threads, beside two busy processes: how often is it called faster or slower?"""
    counts, n, bodies = Counter[str](), 200, list(EIGHT)
    by_body: dict[str, Counter[str]] = {name: Counter() for name in bodies}
    with busy_processes(2):
        for i in range(n):
            name = bodies[i % len(bodies)]
            word = _verdict(compare(dict(zip("ab", EIGHT[name], strict=True)), globals=NAMES, threads=2))
            counts[word] += 1
            by_body[name][word] += 1
    false = sum(counts[word] for word in DECIDED)
    low, high = binomial_interval(false, n)
    figures = [
        Figure(f"false verdicts, of {n}", false, "trials", at_most=0.02 * n, spread=(low * n, high * n)),
        Figure("  undecided", counts["undecided"], "trials", at_most=n / 2),
        Figure("  said to be the same", counts["same"], "trials"),
        *(Figure(f"  {name}: faster or slower", sum(by_body[name][w] for w in DECIDED), "trials") for name in bodies),
    ]
    words = {name: dict(found) for name, found in by_body.items()}
    return record("verdicts_neighbours", figures, threads=2, busy_processes=2, words=words)


def regions() -> int:
    """Different numbers of parallel regions at two threads: do verdicts beside busy processes agree with the quiet one?

    The quiet ratio is the range of idle runs of the same process, half of them before and half after the busy ones:
    that of bmm has two values, each for minutes.
    """
    n, quiet, figures = 100, {name: _ratios_of(name, 6) for name in REGIONS}, []
    seen: dict[tuple[str, int], list[tuple[str, float]]] = {}
    for busy in (1, 3):
        with busy_processes(busy):
            for i in range(n):
                name = [*REGIONS][i % len(REGIONS)]
                result = _of_regions(name)
                seen.setdefault((name, busy), []).append((_verdict(result), float(result.frame["ratio"][1])))
    for name, ratios in quiet.items():
        ratios += _ratios_of(name, 6)
    for busy in (1, 3):
        decided, right = 0, 0
        for name, ratios in quiet.items():
            true, runs = float(np.median(ratios)), seen[name, busy]
            found = [(word, ratio) for word, ratio in runs if word in (*DECIDED, "same")]
            agree = sum(_agrees(word, ratio, ratios) for word, ratio in found)
            decided, right = decided + len(found), right + agree
            least = {"at_least": 200 / 3} if busy == 1 and 1.4 < true < 2.1 else {}
            figures += [
                Figure(f"{name}: quiet ratio", true, "times", spread=(min(ratios), max(ratios))),
                Figure(f"  decided beside {busy}, of {len(runs)}", 100 * len(found) / len(runs), "%", **least),
                Figure("  of these as in quiet, within 25 %", agree, "runs"),
            ]
        low, high = binomial_interval(right, decided)
        share = 100 * right / max(decided, 1)
        spread = (100 * low, 100 * high)
        title = f"beside {busy}: verdicts that agree with the quiet one, of {decided} decided in {n} runs"
        figures.append(Figure(title, share, "%", at_least=98.0, spread=spread))
    runs = {f"{name}, beside {busy}": found for (name, busy), found in seen.items()}
    return record("verdicts_regions", figures, threads=2, seen=runs)


def _of_regions(name: str) -> Comparison:
    return compare(dict(zip("ab", REGIONS[name], strict=True)), globals=NAMES, threads=2)


def _ratios_of(name: str, count: int) -> list[float]:
    """Of runs on the idle machine."""
    trials = Trials(False)
    return [float(trials.make(lambda: _of_regions(name)).frame["ratio"][1]) for _ in range(count)]


def _agrees(word: str, ratio: float, quiet: Sequence[float]) -> bool:
    """Whether a verdict has the direction of the quiet ratios, and its ratio lies within 25 % of their range."""
    true = float(np.median(quiet))
    direction = "slower" if true > 1.01 else "faster" if true < 0.99 else "same"
    return word == direction and min(quiet) / 1.25 < ratio < 1.25 * max(quiet)


def _verdict(result: Comparison) -> str:
    return str(result.frame["verdict"][1])


def families() -> int:
    """Cells and sweeps of identical alternatives: how many hold at least one false verdict?"""
    figures = []
    four = {name: f"{'(' * i}y + 1{')' * i}" for i, name in enumerate("abcd")}
    for state, busy in STATES:
        for threads in ((1,), (1, 2)):
            n = 30
            with busy_processes(busy):
                false = sum(
                    _any_false(compare(four, globals=NAMES, threads=threads, min_run_time=0.1)) for _ in range(n)
                )
            low, high = binomial_interval(false, n)
            title = f"cells of 3 comparisons x {len(threads)} thread counts with a false verdict, of {n}, {state}"
            figures.append(Figure(title, false, "cells", at_most=max(1, 0.02 * n), spread=(low * n, high * n)))
            print(title, false, flush=True)
        n = 8
        with busy_processes(busy):
            false = _sweeps(n)
        low, high = binomial_interval(false, n)
        title = f"sweeps of 10 points x 3 comparisons with a false verdict, of {n}, {state}"
        figures.append(Figure(title, false, "sweeps", at_most=1, spread=(low * n, high * n)))
        print(title, false, flush=True)
    return record("verdicts_families", figures)


def power() -> int:
    """True differences of known size, at the defaults: how often are they found?"""
    figures, n = [], 40
    loop = ("for i in range(1000): pass", "for i in range(1030): pass")
    work = (times("h @ h", 20), times("h @ h", 21))
    for name, (text, more), threads in (
        ("+3 % of a loop in Python, 1 thread", loop, 1),
        ("+5 % of matmuls, 1 thread", work, 1),
        ("+5 % of matmuls, 2 threads", work, 2),
    ):
        for state, busy in STATES:
            counts, trials, seconds = Counter[str](), Trials(bool(busy)), []
            with busy_processes(busy):
                for _ in range(n):
                    result = trials.make(
                        lambda text=text, more=more, threads=threads: compare(
                            {"a": text, "b": more}, globals=NAMES, threads=threads
                        )
                    )
                    counts[result.frame["verdict"][1]] += 1
                    seconds.append(result.elapsed)
            least = {"at_least": 0.95 * n} if not busy else {}
            figures += [
                Figure(f"{name}: found, of {n}, {state}", counts["slower"], "trials", **least),
                Figure("  called faster", counts["faster"], "trials", at_most=0),
                Figure("  the cell", float(np.median(seconds)), "s", spread=(min(seconds), max(seconds))),
            ]
            print(name, state, dict(counts), f"{np.median(seconds):.2f} s", flush=True)
    return record("verdicts_power", figures)


SWEEP = """\
%%timer --sweep "n=[64 * 2**k for k in range(10)]" --min-run-time 0.05 -q
# --- setup
x = torch.randn(n)
# --- a
x.mul(2)
# --- b
(x.mul(2))
# --- c
x.mul( 2 )
# --- d
( x.mul(2) )
"""


def _sweeps(count: int) -> int:
    """How many of so many sweeps of identical code, in a real kernel, hold a false verdict."""
    with _kernel() as (run, client):
        run(client, "import torch\ntorch.set_num_threads(1)\n%load_ext torchbench_magic")
        said = ""
        for _ in range(count):
            run(client, SWEEP)
            said += run(client, "print(_timer.frame.verdict.isin(['faster', 'slower']).any(), len(_timer.frame))")
    lines = said.split("\n")
    if any(line not in ("True 40", "False 40") for line in lines if line):
        raise RuntimeError(said)
    return said.count("True")


HALF_MS = "for _ in range(20): y + 1.5"
CELLS = {
    "y + 1 against y.add(1)": "%%timer\n# --- a\ny + 1\n# --- b\ny.add(1)",
    "half a millisecond, two forms": f"%%timer\n# --- a\n{HALF_MS}\n# --- b\n{HALF_MS.replace('_', 'i')}",
    "ten alternatives of y + 1": "%%timer\n" + "\n".join(f"# --- a{i}\ny + {i}" for i in range(10)),
    "--max-run-time 0.2, y + 1": "%timer --max-run-time 0.2 y + 1",
}
BOUNDS = (3.0, 3.0, None, 0.5)


def seconds() -> int:
    """How long a person waits for a cell, by the clock of the client that ran it in a real kernel."""
    figures = []
    repeats = 10
    for state, busy in (("idle", 0), ("busy", 1), ("beside five", 5)):
        with busy_processes(busy):
            waited = _waited(list(CELLS.values()), repeats)
        for (name, bound), first, spans in zip(
            zip(CELLS, BOUNDS, strict=True), waited[0], np.array(waited[1:]).T, strict=True
        ):
            promise = {} if bound is None else {"at_most": bound}
            figures += [
                Figure(f"{name}, {state}", float(np.median(spans)), "s", spread=(min(spans), max(spans)), **promise),
                Figure("  the first such cell of the kernel", float(first), "s"),
            ]
            print(state, name, np.round(spans, 2), round(float(first), 2), flush=True)
    return record("verdicts_seconds", figures, cells=CELLS, repeats=repeats)


def _waited(cells: Sequence[str], repeats: int) -> list[list[float]]:
    """Seconds of each cell, round by round, in one kernel; the first round is the first time of each."""
    with _kernel() as (run, client):
        run(client, "import torch\ny = torch.randn(65536)\n%load_ext torchbench_magic")
        rounds = []
        for _ in range(repeats + 1):
            spans = []
            for cell in cells:
                began = time.perf_counter()
                said = run(client, cell)
                spans.append(time.perf_counter() - began)
                if "a" not in said or "Error" in said:
                    raise RuntimeError(said)
            rounds.append(spans)
    return rounds


@contextmanager
def _kernel() -> Iterator[tuple[Callable[[Any, str], str], Any]]:
    """How to run a cell, and the client of a fresh kernel."""
    sys.path[:0] = [str(Path(__file__).parents[2])]
    import nbformat
    from nbclient import NotebookClient
    from ordinary import run

    from tests.kernel.conftest import environment_of

    client = NotebookClient(nbformat.v4.new_notebook(), timeout=300)
    with tempfile.TemporaryDirectory() as home, client.setup_kernel(env=environment_of(Path(home), quiet=False)):
        yield run, client


def _any_false(result: Comparison) -> bool:
    return bool(result.frame["verdict"].isin(DECIDED).any())


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


SECTIONS = {f.__name__: f for f in (planted, same, levers, neighbours, regions, families, power, seconds)}


def main() -> int:
    asked = sys.argv[1:] or list(SECTIONS)
    return max([SECTIONS[name]() for name in asked])


if __name__ == "__main__":
    sys.exit(main())
