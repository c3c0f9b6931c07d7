"""Runs a tier of the suite again and again beside busy processes, in another order each time: what `make soak` calls.

    .venv/bin/python tests/soak.py -n 20                       # the tests of `make test`
    .venv/bin/python tests/soak.py -n 5 --tier slow            # those of `make test-slow`
    .venv/bin/python tests/soak.py -n 3 --pauses -- tests/timing

Each failure is printed at once, below the seed that repeats its order: ``pytest --randomly-seed=SEED``.
With ``--pauses`` the processes of the tests stop where they read a clock, 20 ms on average, most of the time
(`stalls.c`, which a C compiler builds): a test that decides by a real clock fails in the first run, on any machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SELECTED = {"fast": "not slow", "slow": "slow"}
SPIN = "while True: pass"


def main() -> int:
    """Exit status 1 if a run had a failure."""
    asked = _arguments()
    runs = _runs_before(asked.out) if asked.more else []
    with _busy(asked.busy):
        for number in range(asked.n):
            runs.append(run(asked, asked.seed + number))
            _tell(number, asked.n, runs[-1])
            if asked.out:
                asked.out.write_text(json.dumps(_record(asked, runs), indent=1) + "\n", encoding="utf-8")
    failed = sum(map(_failed, runs))
    print(f"{failed} of {len(runs)} runs of the {asked.tier} tier failed beside {asked.busy} busy processes")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=20, help="how many runs (20)")
    parser.add_argument("--tier", choices=SELECTED, default="fast")
    parser.add_argument("--busy", type=int, default=2, help="how many processes compute beside (2)")
    parser.add_argument("--pauses", action="store_true", help="stop the tests' processes where they read a clock")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the first run; then 1 more each")
    parser.add_argument("--out", type=Path, help="write a JSON file, after each run")
    parser.add_argument("--more", action="store_true", help="keep the runs that the file has, and add to them")
    parser.add_argument("tests", nargs="*", help="what pytest is to run instead of all tests")
    return parser.parse_args()


def _runs_before(out: Path | None) -> list[dict[str, Any]]:
    return json.loads(out.read_text(encoding="utf-8"))["each"] if out is not None and out.exists() else []


def _failed(run: dict[str, Any]) -> bool:
    return bool(run["failures"]) or bool(run["status"])


def run(asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One run: its seed, wall and processor seconds, how many passed, and its failures as [test, message]."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-m", SELECTED[asked.tier], "-n", "2"),
            *("--dist", "loadfile", "--no-loadscope-reorder", f"--randomly-seed={seed}", f"--junitxml={report}"),
            *asked.tests,
        ]
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with _pauses() if asked.pauses else contextlib.nullcontext({}) as more:
            said = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | more
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found: dict[str, Any] = {"commit": _commit(), "busy": asked.busy, "pauses": asked.pauses, "seed": seed}
        found |= {"seconds": round(time.perf_counter() - began, 1), "status": said.returncode}
        found["processor_seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        if not report.exists():
            return {**found, "tests": 0, "failures": [["pytest", said.stdout[-2000:]]]}
        return {**found, **_read(report)}


def _read(report: Path) -> dict[str, Any]:
    cases = list(ElementTree.parse(report).iter("testcase"))
    failures = [
        [f"{case.get('classname')}::{case.get('name')}", bad.get("message", "")[:300], (bad.text or "")[-1500:]]
        for case in cases
        for bad in (*case.findall("failure"), *case.findall("error"))
    ]
    return {"tests": len(cases), "failures": failures}


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


@contextlib.contextmanager
def _pauses() -> Iterator[dict[str, str]]:
    """The variables of processes that pause."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "stalls.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "tests/stalls.c", "-lm"], check=True)
        yield {"LD_PRELOAD": str(library)}


def _tell(number: int, count: int, found: dict[str, Any]) -> None:
    print(
        f"run {number + 1} of {count}: seed {found['seed']}, {found['tests']} tests in {found['seconds']:.0f} s"
        f" ({found['processor_seconds']:.0f} s of processor time), {len(found['failures'])} failed",
        flush=True,
    )
    for test, message, *_ in found["failures"]:
        print(f"    {test}: {message.splitlines()[0] if message else ''}", flush=True)


def _record(asked: argparse.Namespace, runs: list[dict[str, Any]]) -> dict[str, Any]:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    failed = sum(map(_failed, runs))
    about = {"tier": asked.tier, "machine": machine, "commit": _commit()}
    return {**about, "date": time.strftime("%Y-%m-%d"), "runs": len(runs), "failed": failed, "each": runs}


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
