"""What a long loop pays for ``%%tprofile --steps``: the steps that are not recorded run at full speed.

One loop of small ops, in a shell of this process, in turns: as it is, and with ten of its steps recorded. The loop's
own seconds are read in the cell, so that what is done when the cell has ended is apart.
"""

from __future__ import annotations

import io
import itertools
import statistics
import sys
import time
from contextlib import redirect_stdout

from IPython.core.interactiveshell import InteractiveShell
from record import Figure, record

STEPS, ACTIVE, REPEATS = 300, 10, 5
BEFORE = """\
import time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)])
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.ones(16, 32)
stamps = []
"""
LOOP = f"""\
stamps.clear()
for i in range({STEPS}):
    stamps.append(time.perf_counter())
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
stamps.append(time.perf_counter())
"""


def main() -> int:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "torchbench_magic")
    for text in (BEFORE, LOOP, f"%%tprofile --steps {ACTIVE} -q\n{LOOP}"):
        shell.run_cell(text).raise_error()
    plain, recorded, after, whole = [], [], [], []
    for _ in range(REPEATS):
        for text, seconds in ((LOOP, plain), (f"%%tprofile --steps {ACTIVE} -q\n{LOOP}", whole)):
            began = time.perf_counter()
            with redirect_stdout(io.StringIO()):
                shell.run_cell(text).raise_error()
            seconds.append(time.perf_counter() - began)
            stamps = shell.user_ns["stamps"]
            took = [(b - a) * 1e3 for a, b in itertools.pairwise(stamps)]
            if seconds is whole:
                recorded.append(stamps[-1] - stamps[0])
                after.append(statistics.median(took[STEPS // 2 :]))
            else:
                unrecorded = statistics.median(took[STEPS // 2 :])
    figures = [
        Figure("the loop as it is", statistics.median(plain), "s", spread=(min(plain), max(plain))),
        Figure("the same loop with --steps", statistics.median(recorded), "s", spread=(min(recorded), max(recorded))),
        Figure("the whole cell with --steps", statistics.median(whole), "s", spread=(min(whole), max(whole))),
        Figure("a step that is not recorded, of the second half", statistics.median(after), "ms"),
        Figure("that step without a profile", unrecorded, "ms"),
        Figure("ratio of the two", statistics.median(after) / unrecorded, "", limit=1.5),
    ]
    return record("steps", figures, steps=STEPS, active=ACTIVE, repeats=REPEATS)


if __name__ == "__main__":
    sys.exit(main())
