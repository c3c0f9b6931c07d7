"""What torch's tutorials take through the drop-in: ``tests/conformance/scripts`` with the imports' prefix changed.

A script may take 1.3 times the sum of the ``min_run_time`` that it asks for, and 120 s; C++ compiles are told apart.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from record import Figure, record

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conformance.running import run

SCRIPTS = {"Timer quick start": "timer_quick_start.py", "benchmark recipe": "benchmark_recipe.py"}


def main() -> int:
    figures = []
    for name, script in SCRIPTS.items():
        with tempfile.TemporaryDirectory() as folder:
            report = run(script, Path(folder))
        figures += [
            Figure(f"{name}: min_run_time asked for", report.asked, "s"),
            Figure(f"{name}: in C++ compilers", report.compiling, "s"),
            Figure(f"{name}: all else", report.seconds - report.compiling, "s", at_most=report.allowed),
        ]
    return record("dropin", figures, compiles="whatever the cache does not hold; load_inline always")


if __name__ == "__main__":
    sys.exit(main())
