"""How often `%%tprofile --concurrency` says the right word of planted cells, and what it costs.

Each case runs in a process of its own, on a quiet machine and beside a neighbour that keeps every core busy and is no
child of it (`thread_cases`). Beside the neighbour ``contended`` is right too: then nothing is said of the code. A
healthy cell must never be called oversubscribed. A quota is a real one, of a cgroup that is made where the kernel lets
us. The cost is measured in pairs of equal blocks of a cell that uses all cores, with and without, in random order.

Run it on an idle machine: ``python tests/benchmarks/threads.py`` takes about 15 minutes; ``--repeats N``,
``--only NAME`` (several times), ``--no-cost``, ``--no-neighbour`` and ``--dump FILE`` (all figures) for a part of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402
from thread_cases import CASES, SEVERAL, C, Work  # noqa: E402

from torchbench_magic.process.contention import CoreWatch  # noqa: E402
from torchbench_magic.profiling.cores.record import ConcurrencyRun  # noqa: E402
from torchbench_magic.timing.intervals import median_interval  # noqa: E402

SECONDS = 0.8
QUIET, BUSY = 0.9, 0.8
"""Shares of right verdicts that are promised."""
MOST_COST, MOST_SNAPSHOT = 2.0, 0.3  # %, ms
PAIRS, UNITS = 240, 40
CGROUP = Path("/sys/fs/cgroup/cpu/torchbench_magic_threads")
CGROUP_2 = Path("/sys/fs/cgroup/torchbench_magic_threads")


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """Processes that keep every core busy and are no children of the one that is looked at."""
    spin = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(C)]
    time.sleep(0.2)
    try:
        yield
    finally:
        for process in spin:
            process.kill()
            process.wait()


@contextlib.contextmanager
def quota() -> Iterator[Path | None]:
    """The ``cgroup.procs`` of a cgroup with half the cores; None where none can be made."""
    for folder, files in (
        (CGROUP, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(50_000 * C)}),
        (CGROUP_2, {"cpu.max": f"{50_000 * C} 100000"}),
    ):
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for name, text in files.items():
                (folder / name).write_text(text)
        except OSError:
            folder.rmdir()
            continue
        try:
            yield folder / "cgroup.procs"
        finally:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.1)
        return
    yield None


def run_case(name: str, repeats: int) -> list[dict[str, Any]]:
    """What was found in each profile; nothing where the case cannot be made here."""
    if name in SEVERAL and C < 2:
        return []
    command = [sys.executable, str(Path(__file__).with_name("thread_cases.py")), name, str(repeats), str(SECONDS)]
    with contextlib.ExitStack() as made:
        if name.startswith("quota"):
            procs = made.enter_context(quota())
            if procs is None:
                print("  no cgroup with a quota can be made here")
                return []
            command = ["sh", "-c", f'echo $$ > {procs}; exec "$@"', "sh", *command]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if ran.returncode:
        raise RuntimeError(f"{name}: {ran.stderr[-2000:]}")
    found: list[dict[str, Any]] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found


def judged(name: str, found: list[dict[str, Any]], beside: str) -> dict[str, Any]:
    expected = CASES[name][0]
    said = Counter(str(each["verdict"]) for each in found)
    others = said["contended"] if beside and expected != "contended" else 0
    return {
        "case": name,
        "beside": beside,
        "expected": expected,
        "runs": len(found),
        "planted": said[expected],
        "right": said[expected] + others,
        "said": ", ".join(f"{count} {verdict}" for verdict, count in said.most_common()),
        "worst": expected == "healthy" and said["oversubscribed"],
        "wanted": statistics.median(each["run"] + each["wait"] for each in found) if found else 0.0,
        "ext": statistics.median(each["ext"] for each in found) if found else 0.0,
    }


def verdicts(only: list[str], repeats: int, *, with_neighbour: bool, dump: str) -> list[dict[str, Any]]:
    rows, every = [], []
    for beside in ("", "neighbour")[: 1 + with_neighbour]:
        for name in only or CASES:
            with neighbour() if beside else contextlib.nullcontext():
                found = run_case(name, repeats)
            if not found:
                continue
            rows.append(judged(name, found, beside))
            every.append({"case": name, "beside": beside, "found": found})
            shown = {key: value for key, value in rows[-1].items() if key != "worst"}
            print(tabulate([shown.values()], tablefmt="plain", floatfmt=".2f"), flush=True)
    if dump:
        Path(dump).write_text(json.dumps(every))
    return rows


def share(rows: list[dict[str, Any]], column: str) -> float:
    runs = sum(row["runs"] for row in rows)
    return sum(row[column] for row in rows) / runs if runs else float("nan")


def figures_of(rows: list[dict[str, Any]]) -> list[Figure]:
    quiet = [row for row in rows if not row["beside"]]
    busy = [row for row in rows if row["beside"]]
    figures = [Figure("quiet: right verdicts", 100 * share(quiet, "right"), "%", at_least=100 * QUIET)]
    if busy:
        figures += [
            Figure("beside a neighbour: right, or contended", 100 * share(busy, "right"), "%", at_least=100 * BUSY),
            Figure("  the planted one", 100 * share(busy, "planted"), "%"),
        ]
    worst = float(sum(row["worst"] for row in rows))
    figures.append(Figure("healthy cells called oversubscribed", worst, "runs", at_most=0))
    for row in rows:
        name = f"{row['case']}{' + neighbour' if row['beside'] else ''}: {row['expected']}"
        figures.append(Figure(name, 100 * row["right"] / row["runs"], f"% of {row['runs']}: {row['said']}"))
    return figures


def cost() -> list[Figure]:
    """Pairs of blocks with and without what `--concurrency` adds, of a cell that uses all cores."""
    torch.set_num_threads(C)
    work = Work()

    def block(*, watched: bool) -> float:
        run = ConcurrencyRun() if watched else None
        if run is not None:
            run.start()
            run.enter()
        began = time.perf_counter()
        for _ in range(UNITS):
            work.unit()
        took = time.perf_counter() - began
        if run is not None:
            run.leave()
            run.stop()
        return took

    for watched in (False, True):
        block(watched=watched)
    order, ratios, plain = random.Random(7), [], []
    for _ in range(PAIRS):
        turns = [True, False] if order.random() < 0.5 else [False, True]
        took = {watched: block(watched=watched) for watched in turns}
        ratios.append(took[True] / took[False])
        plain.append(took[False])
    found = median_interval(np.array(ratios))
    more = tuple(100 * (end - 1) for end in (found.low, found.high))
    return [
        Figure("a cell on all cores takes longer by", 100 * (statistics.median(ratios) - 1), "%", spread=more),
        Figure("  upper end of that", more[1], "%", at_most=MOST_COST),
        Figure("  of a block of", statistics.median(plain), "s", spread=(min(plain), max(plain))),
        *snapshots(),
    ]


def snapshots() -> list[Figure]:
    """What lies between the code and the profile on either side."""
    entering, leaving, always = [], [], []
    for _ in range(40):
        run, cores = ConcurrencyRun(), CoreWatch()
        run.start()
        began = time.perf_counter()
        run.enter()
        entered = time.perf_counter()
        time.sleep(0.01)
        left = time.perf_counter()
        run.leave()
        leaving.append(1e3 * (time.perf_counter() - left))
        entering.append(1e3 * (entered - began))
        run.stop()
        began = time.perf_counter()
        cores.start()
        always.append(1e3 * (time.perf_counter() - began))
    return [
        Figure(name, statistics.median(times), "ms", spread=(min(times), max(times)), at_most=limit)
        for name, times, limit in (
            ("snapshot before the code", entering, MOST_SNAPSHOT),
            ("snapshot after the code", leaving, MOST_SNAPSHOT),
            ("what every profile reads of the threads", always, None),
        )
    ]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--repeats", type=int, default=8)
    asked.add_argument("--only", action="append", default=[], choices=[*CASES])
    asked.add_argument("--no-cost", action="store_true")
    asked.add_argument("--no-neighbour", action="store_true")
    asked.add_argument("--dump", default="")
    given = asked.parse_args()
    rows = verdicts(given.only, given.repeats, with_neighbour=not given.no_neighbour, dump=given.dump)
    figures = [*figures_of(rows), *([] if given.no_cost else cost())]
    if given.only or given.no_cost or given.no_neighbour:  # a part of it is no result to keep
        print(tabulate([figure.row() for figure in figures], tablefmt="plain", disable_numparse=True))
        return 0 if all(figure.holds for figure in figures) else 1
    return record("threads", figures, repeats=given.repeats, seconds=SECONDS, usable_cores=C, pairs=PAIRS)


if __name__ == "__main__":
    sys.exit(main())
