"""``%%tprofile`` names the right line in all of: operators, a function from an earlier cell, a loop, and more.

A case says in comments which ops run on which line. Right are the calls that are found on that line; torch's own
call counts of the same run say whether one is missing. Beside each: how far the rows are from the wall time, and
the share that stands on no line.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.profiling.cases import CASES, Case  # noqa: E402
from tests.profiling.running import Ran, placed, run_case  # noqa: E402


def main() -> int:
    rows, wrong, missing, beyond, residual, rest = [], 0, 0, 0, 0.0, 0.0
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            ran = run_case(case, Path(folder).resolve())
        right, named = _right_calls(case, ran)
        profile = ran.outcome.profile
        ops = Counter(profile.ops.groupby("op")["calls"].sum().to_dict())
        unseen = sum(abs(ops[op] - ran.plain[op]) for op in ops.keys() | ran.plain.keys())
        own = profile.lines[profile.lines["thread"] == 0]
        off = abs((own["self_cpu_time"] + own["python_time"]).sum() / profile.wall_time - 1)
        left = profile.not_attributed
        wrong, missing, residual = wrong + named - right, missing + unseen, max(residual, off)
        beyond += left > 0.03 * profile.wall_time + 0.005
        rest = max(rest, left)
        torch_calls = sum(ran.plain.values())
        rows.append(
            (case.name, f"{right} of {named}", f"{torch_calls - unseen} of {torch_calls}", f"{off:.1e}",
             f"{left * 1e3:.2f}", f"{profile.wall_time * 1e3:.1f}")
        )  # fmt: skip
    print("\nlines")
    header = ("case", "on its line", "torch's calls", "residual", "no line, ms", "wall, ms")
    print(tabulate(rows, header, "plain", colalign=("left", *["right"] * 5), disable_numparse=True))
    figures = [
        Figure("calls on a wrong line", wrong, "calls", limit=1),
        Figure("calls that differ from torch's own count", missing, "calls", limit=1),
        Figure("largest difference of rows and wall time", residual * 100, "%", limit=1),
        Figure("cases with more than 3 % + 5 ms on no line", beyond, "cases", limit=1),
        Figure("longest time on no line", rest * 1e3, "ms"),
    ]
    return record("lines", figures, cases=[{"case": row[0], "right": row[1], "residual": row[3]} for row in rows])


def _right_calls(case: Case, ran: Ran) -> tuple[int, int]:
    """Calls that are on the line the case names, and calls of the named ops altogether."""
    named = {op for op, _, _ in case.ops}
    found = Counter({key: calls for key, calls in placed(ran).items() if key[0] in named})
    return (found & case.ops).total(), max(found.total(), case.ops.total())


if __name__ == "__main__":
    sys.exit(main())
