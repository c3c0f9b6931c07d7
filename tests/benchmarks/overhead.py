"""What a ``%%timer`` cell costs beyond the run time that was asked for, from the second cell on.

The cell runs in a real kernel and is timed from outside, from the moment the kernel is busy with it to the
moment it is idle again: parsing, compiling, garbage collection, statistics and the output are all in it.
``--max-run-time`` is the minimum, so that the asked time is known; warm-up is what the result says of it.
"""

from __future__ import annotations

import datetime
import statistics
import sys

import nbformat
from nbclient import NotebookClient
from record import Figure, record

CELLS = 12
SECONDS = 0.2

PREPARE = "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64, 64)"
OPTIONS = f"--min-run-time {SECONDS} --max-run-time {SECONDS}"
ONE = f"%%timer {OPTIONS}\nx + {{i}}"
TWO = f"%%timer {OPTIONS}\n# --- add\nx + {{i}}\n# --- mul\nx * {{i}}"
WARM_UP = """\
calls = _timer.details["warmup_calls"]
print(float((_timer.details["first_call"] + calls * _timer.frame["median"]).sum()))
"""


def seconds_busy(cell: nbformat.NotebookNode) -> float:
    """Seconds from the kernel's "busy" to its "idle" for this cell."""
    stamps = cell.metadata["execution"]
    start, end = (
        datetime.datetime.fromisoformat(stamps[name])
        for name in ("iopub.status.busy", "iopub.status.idle")
    )
    return (end - start).total_seconds()


def own_costs(form: str, alternatives: int) -> list[float]:
    """Milliseconds of its own for each timed cell but the first, which also imports and compiles."""
    sources = [PREPARE]
    for i in range(CELLS + 1):
        sources += [form.format(i=i), WARM_UP]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(book, timeout=120, kernel_name="python3", record_timing=True).execute()
    costs = []
    for timed, asked in zip(book.cells[1::2], book.cells[2::2], strict=True):
        warm_up = float(asked.outputs[0].text)
        costs.append((seconds_busy(timed) - alternatives * SECONDS - warm_up) * 1e3)
    return costs[1:]


def main() -> int:
    figures = []
    for name, form, alternatives in (("one statement", ONE, 1), ("two alternatives", TWO, 2)):
        costs = own_costs(form, alternatives)
        spread = min(costs), max(costs)
        figures.append(Figure(f"%%timer, {name}", statistics.median(costs), "ms", limit=150, spread=spread))
    return record("overhead", figures, cells=CELLS, options=OPTIONS)


if __name__ == "__main__":
    sys.exit(main())
