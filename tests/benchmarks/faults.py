"""What was tried to break it: interrupts and kills at random moments, damaged input, and the wait for a first count.

``python tests/benchmarks/faults.py [SECTION ...]`` with the sections ``interrupts``, ``kills``, ``fuzz`` and ``warm``;
without one, all. A section writes ``results/faults_SECTION.json``. The options are for running a section in pieces:

* ``--keep FILE``: attempts are appended to this file, and those that are there already count.
* ``--kinds WORD``: only kinds whose name has this word in it (repeatable).
* ``--count N``: so many attempts of all kinds together, instead of 500 (of kills: 100; of damaged inputs: 10 000 each).
* ``--seconds S``: begin no further attempt after so many seconds.
* ``--page``: make ``docs/robustness.md`` from the results.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from breaking.interrupts import KINDS, attempts_of  # noqa: E402
from breaking.kernel import FaultKernel  # noqa: E402
from breaking.kills import KILLED, kills_of  # noqa: E402
from breaking.page import PAGE, page  # noqa: E402
from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.fuzz import KINDS as DAMAGED  # noqa: E402

ROOT = Path(__file__).parents[2]
SEED = 16


def main() -> int:
    asked = _asked()
    if asked.page:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return max([SECTIONS[name](asked) for name in asked.sections or SECTIONS])


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kinds", action="append", default=[])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if unknown := [name for name in asked.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    return asked


# ---- interrupts and kills ------------------------------------------------------------------------------------------


def interrupts(asked: argparse.Namespace) -> int:
    """500 times SIGINT, single and double."""
    attempts = _kept_and_new(asked, KINDS, attempts_of, 500)
    rows = []
    for kind in KINDS:
        mine = [each for each in attempts if each["kind"] == kind.name]
        outcomes = Counter(each["outcome"] for each in mine)
        rows.append({
            "cell": kind.name,
            "attempts": len(mine),
            "double": sum(len(each["moments"]) > 1 for each in mine),
            "whole": outcomes["whole"],
            "partial": outcomes["partial"],
            "nothing": outcomes["nothing"],
            "faults": sum(bool(each["faults"]) for each in mine),
        })
    _print(rows)
    _print_faults(attempts)
    figures = [
        Figure("cells that were interrupted", len(attempts), "cells"),
        Figure("of them twice", sum(row["double"] for row in rows), "cells"),
        Figure("something stayed switched, or a result was lost", sum(row["faults"] for row in rows), "cells", 1),
    ]
    return record("faults_interrupts", figures, table=rows, seed=SEED)


def kills(asked: argparse.Namespace) -> int:
    """100 kernels that are killed."""
    killed = _kept_and_new(asked, KILLED, kills_of, 100)
    rows = []
    for kind in KILLED:
        mine = [each for each in killed if each["kind"] == kind.name]
        seconds = [each["seconds"] for each in mine if not each["faults"]]
        rows.append({
            "cell": kind.name,
            "kernels": len(mine),
            "running": sum(each["was_running"] for each in mine),
            "longest": round(max(seconds, default=0.0), 1),
            "faults": sum(bool(each["faults"]) for each in mine),
        })
    _print(rows)
    _print_faults(killed)
    figures = [
        Figure("kernels that were killed", len(killed), "kernels"),
        Figure("of them while the magic ran", sum(row["running"] for row in rows), "kernels"),
        Figure("a process or a folder was left after a minute", sum(row["faults"] for row in rows), "kernels", 1),
    ]
    return record("faults_kills", figures, table=rows, seed=SEED)


def _kept_and_new(
    asked: argparse.Namespace, kinds: Sequence[Any], make: Callable[..., Iterator[Any]], count: int
) -> list[dict[str, Any]]:
    """What was kept, and what is tried now until each kind has its share."""
    done = _kept(asked.keep)
    count, until = asked.count or count, time.monotonic() + asked.seconds
    for kind in kinds:
        if asked.kinds and not any(word in kind.name for word in asked.kinds):
            continue
        had = sum(each["kind"] == kind.name for each in done)
        wanted = math.ceil(count * kind.shared / 100) - had
        if wanted <= 0 or time.monotonic() > until:
            continue
        for each in make(kind, wanted, SEED + had, until):
            done.append(each.as_json())
            if asked.keep is not None:
                with asked.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[-1]) + "\n")
            if each.faults:
                print(kind.name, each.faults, flush=True)
    return done


def _kept(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _print(rows: Sequence[dict[str, Any]]) -> None:
    print(tabulate(rows, "keys", "plain"))


def _print_faults(attempts: Sequence[dict[str, Any]]) -> None:
    for each in attempts:
        for fault in each["faults"]:
            print(f"{each['kind']}: {fault}")


# ---- damaged input -------------------------------------------------------------------------------------------------


def fuzz(asked: argparse.Namespace) -> int:
    """10,000 damaged inputs of each kind; see `tests.fuzz`."""
    done = {each["kind"]: each for each in _kept(asked.keep)}
    until = time.monotonic() + asked.seconds
    for kind in DAMAGED:
        if kind in done or (asked.kinds and kind not in asked.kinds) or time.monotonic() > until:
            continue
        command = [sys.executable, "-m", "tests.fuzz", kind, str(SEED), str(asked.count or 10_000)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        done[kind] = {"kind": kind, **json.loads(ran.stdout)}
        if asked.keep is not None:
            with asked.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(done[kind]) + "\n")
    rows = [
        {
            "input": kind,
            "damaged": done[kind]["count"],
            "mib": round(done[kind]["mib"], 1),
            "longest": round(done[kind]["longest"], 2),
            "faults": done[kind]["faulty"],
        }
        for kind in DAMAGED
        if kind in done
    ]
    _print(rows)
    figures = [
        Figure("damaged inputs", sum(row["damaged"] for row in rows), "inputs"),
        Figure("another end than a result or one line of ours", sum(row["faults"] for row in rows), "inputs", 1),
        Figure("most memory above that for good input", max(row["mib"] for row in rows), "MiB", 200),
        Figure("longest", max(row["longest"] for row in rows), "s"),
    ]
    return record("faults_fuzz", figures, table=rows, seed=SEED)


# ---- the first count -----------------------------------------------------------------------------------------------


def warm(asked: argparse.Namespace) -> int:
    """The first count of a kernel, and that of a second kernel after the first was shut down."""
    seconds = []
    cell = "%%timer --callgrind 10 -n 2 -r 2\nx.sum()"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        for name in ("one", "two"):
            folder = Path(home, name)
            folder.mkdir()
            variables = {"XDG_CACHE_HOME": str(Path(home, "cache")), "XDG_RUNTIME_DIR": home, "TMPDIR": home}
            with FaultKernel(folder, variables) as kernel:
                assert not kernel.run("import torch; x = torch.ones(8)").error
                kernel.run("%timer -q -n 1 -r 1 x.sum()")  # what a first timing loads is no part of it
                ran = kernel.run(cell, is_magic=True, timeout=240.0)
                assert not ran.error, ran.error
                counted = kernel.value("import json; print(json.dumps(len(_timer.counts)))")
                assert counted == 1, ran.displayed
                seconds.append(ran.seconds)
    figures = [
        Figure("first count of a session", seconds[0], "s"),
        Figure("first count of a second session, after the first was shut down", seconds[1], "s", 1.0),
    ]
    return record("faults_warm", figures, cell=cell)


SECTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "interrupts": interrupts,
    "kills": kills,
    "fuzz": fuzz,
    "warm": warm,
}


if __name__ == "__main__":
    sys.exit(main())
