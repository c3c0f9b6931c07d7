"""How long ``%tdoctor`` takes in a kernel that has torch, and ``python -m torchbench_magic doctor`` in all.

Half a second of it is the window in which the load is watched. Each repetition of the first is a fresh process, so that
nothing is imported or read before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from record import Figure, record

REPETITIONS = 7
CELL = """
import time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "torchbench_magic")
import torch, pandas
seconds = []
for _ in range(2):
    start = time.perf_counter()
    shell.run_cell("%tdoctor -q")
    seconds.append(time.perf_counter() - start)
print(*seconds)
"""


def in_shell() -> tuple[float, float]:
    """Seconds of the first and of the second ``%tdoctor`` of a process."""
    said = subprocess.check_output([sys.executable, "-c", CELL], text=True, timeout=120)
    first, second = map(float, said.split()[-2:])
    return first, second


def as_command() -> float:
    """Seconds of the command, the start of Python and the import of torch included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "torchbench_magic", "doctor"], check=True, capture_output=True, timeout=120)
    return time.perf_counter() - start


def figure(name: str, seconds: list[float], limit: float | None = None) -> Figure:
    """The median of the repetitions, and their range."""
    return Figure(name, statistics.median(seconds), "s", limit=limit, spread=(min(seconds), max(seconds)))


def main() -> int:
    in_shell(), as_command()  # byte code and the disk cache are there from here on
    shells = [in_shell() for _ in range(REPETITIONS)]
    commands = [as_command() for _ in range(REPETITIONS)]
    figures = [
        figure("%tdoctor, the first of a kernel", [first for first, _ in shells], limit=2),
        figure("%tdoctor, the next one", [second for _, second in shells], limit=2),
        figure("python -m torchbench_magic doctor, with the import of torch", commands),
    ]
    return record("doctor", figures, repetitions=REPETITIONS)


if __name__ == "__main__":
    sys.exit(main())
