"""A sweep that is killed again and again: is every finished point still there, and does the rest follow?

A process measures a sweep with a store beside it and is killed with SIGKILL at a random moment, then the next one is
started with ``--resume``'s rules, and so on; after the last kill one is left to finish. The process says each point
when it begins and when its keeping has returned: what it said was kept must be in the store, and no point may be
measured twice but the one that was under way when the kill came.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from record import Figure, record

ROOT = Path(__file__).parents[2]
POINTS, KILLS, SEED = 1000, 20, 4

SWEEP = """
import os, sys
from torchbench_magic.process.environment import read_environment
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.sweep import sweep_points
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.cell_body import Body
from torchbench_magic.storage.resume import Recording
from torchbench_magic.storage.store import Store

def say(text):
    os.write(1, (text + "\\n").encode())

recording = Recording(Store(sys.argv[1]), read_environment(), resume=True)

def keep(finished):
    recording.keep(finished)
    say(f"kept {finished.subjects[0].axes[0][1]}")

say("ready")
task = Task(
    {"add": Body("n + 1"), "mul": Body("n * 2")},
    setup=[Body("begin(n)")],
    namespace={"begin": lambda n: say(f"begun {n}")},
    plan=Plan(threads=(1,), min_run_time=1e-3, max_run_time=2e-3),
    points=sweep_points([f"n=range({sys.argv[2]})"], {}),
    keep=keep,
    skip=recording.skip,
)
result = compare_bodies(task)
result = recording.finish(result)
say(f"done {len(result.frame)}")
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a sweep.

    Attributes:
        kept: points of which the keeping returned, in order, over all processes.
        begun: how often each point was begun.
        stored: points in the store at the end, in its order.
        lost: kept, and not in the store that the next process found.
        measured_again: begun by a process though the store had them when it started.
        results: how many results `load` gives at the end; they are to be one.
        finished: the last process's result has every point.
        kills: how often a process was killed while it measured.
        under_way: kills that came while a point was under way, so that it had to be measured again.
        seconds: of it all.
    """

    kept: list[int]
    begun: Counter[int]
    stored: list[int]
    lost: set[int]
    measured_again: set[int]
    results: int
    finished: bool
    kills: int
    under_way: int
    seconds: float


def stored_points(path: Path) -> tuple[list[int], int]:
    from torchbench_magic import load

    results = load(path)
    points = [int(n) for result in results for n in result.frame["n"]]
    return list(dict.fromkeys(points)), len(results)


def run(points: int, kills: int, path: Path, seed: int) -> Outcome:
    """Kill the sweep ``kills`` times at random moments, then let it finish."""
    rng = random.Random(seed)
    start = time.monotonic()
    kept: list[int] = []
    begun: Counter[int] = Counter()
    lost: set[int] = set()
    there: set[int] = set()
    again: set[int] = set()
    under_way, killed, finished = 0, 0, False
    while not finished:
        child = subprocess.Popen(
            [sys.executable, "-c", SWEEP, str(path), str(points)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        left = kills - killed
        last_words = rng.randint(1, max(1, 2 * 2 * (points - len(kept)) // (left + 1) - 2)) if left else None
        heard, open_point = 0, None
        for line in child.stdout:
            word, _, value = line.strip().partition(" ")
            if word == "begun":
                begun[int(value)] += 1
                again |= there & {int(value)}
                open_point = int(value)
            elif word == "kept":
                kept.append(int(value))
                open_point = None
            elif word == "done":
                finished = int(value) == 2 * points
            heard += word in ("begun", "kept")
            if last_words is not None and heard == last_words:
                time.sleep(rng.uniform(0, 0.12))  # so that every moment of a point is met, its writing included
                child.kill()
                last_words = None
                killed += 1
        under_way += open_point is not None
        status = child.wait()
        if status not in (0, -9):
            raise RuntimeError(f"the sweep ended with status {status}")
        if path.exists() and path.stat().st_size:
            there = set(stored_points(path)[0])
            lost |= set(kept) - there
    stored, results = stored_points(path)
    seconds = time.monotonic() - start
    return Outcome(kept, begun, stored, lost, again, results, finished, killed, under_way, seconds)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.sqlite")
        outcome = run(POINTS, KILLS, path, SEED)
        size = path.stat().st_size / POINTS
    missing = set(range(POINTS)) - set(outcome.stored)
    figures = [
        Figure("points", POINTS, "points"),
        Figure("killed with SIGKILL", outcome.kills, "times"),
        Figure("kills while a point was under way", outcome.under_way, "kills"),
        Figure("finished points lost", len(outcome.lost), "points", at_most=0),
        Figure("finished points measured again", len(outcome.measured_again), "points", at_most=0),
        Figure("points missing at the end", len(missing), "points", at_most=0),
        Figure("results that the store holds at the end", outcome.results, "results", at_most=1),
        Figure("the last process did not finish", int(not outcome.finished), "processes", at_most=0),
        Figure("on disk a point (two alternatives)", size, "bytes"),
        Figure("time", outcome.seconds, "s"),
    ]
    return record("kill_resume", figures, points=POINTS, kills=KILLS, seed=SEED)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
