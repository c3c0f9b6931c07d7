"""The one place where a benchmark's numbers are printed and written down.

A benchmark is a script here with ``main() -> int``; it hands its `Figure`s to `record` and returns what that
returns. The JSON under ``results/`` holds the numbers, the limits, the date and the machine, and no path.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tabulate import tabulate

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark.

    Attributes:
        name: what was measured, in words.
        value: the number, in ``unit``.
        unit: "ms", "s", "bytes", "modules", ...
        limit: what this project promises (value < limit); None where it promises nothing.
        at_most, at_least: other forms of a promise.
        spread: smallest and largest of the repetitions, if there were any.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    spread: tuple[float, float] | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        below = self.limit is None or self.value < self.limit
        inside = self.at_most is None or self.value <= self.at_most
        return below and inside and (self.at_least is None or self.value >= self.at_least)

    def row(self) -> tuple[str, ...]:
        forms = (("<", self.limit), ("≤", self.at_most), ("≥", self.at_least))
        promise = " ".join(f"{sign} {bound:,g}" for sign, bound in forms if bound is not None)
        verdict = ("holds" if self.holds else "FAILS") if promise else ""
        spread = " … ".join(f"{end:,.4g}" for end in self.spread) if self.spread else ""
        return self.name, _number(self.value), self.unit, spread, promise, verdict


def record(benchmark: str, figures: Sequence[Figure], **conditions: Any) -> int:
    """Print the figures, write ``results/<benchmark>.json``.

    Args:
        benchmark: name of the file, without its ending.
        figures: in the order in which they are to be read.
        conditions: what a reader needs to repeat it (options, repetitions).

    Returns:
        0 if every promise holds, else 1: the exit status of the script.
    """
    print(f"\n{benchmark}")
    header = ("", "value", "unit", "range", "limit", "")
    aligned = ("left", "right", "left", "left", "left", "left")
    rows = [figure.row() for figure in figures]
    print(tabulate(rows, header, "plain", colalign=aligned, disable_numparse=True))
    RESULTS.mkdir(exist_ok=True)
    written = {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "conditions": conditions,
        "figures": [asdict(figure) | {"holds": figure.holds} for figure in figures],
    }
    text = json.dumps(written, indent=1, ensure_ascii=False, default=lambda number: number.item()) + "\n"  # numpy's
    (RESULTS / f"{benchmark}.json").write_text(text, encoding="utf-8")
    return 0 if all(figure.holds for figure in figures) else 1


def machine() -> dict[str, Any]:
    """Processor, cores, memory and versions. torch is not imported for it: `loading` times its absence."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = {name: version(name) for name in ("torch", "ipython", "ipykernel", "pandas", "numpy")}
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "not known"
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}"
