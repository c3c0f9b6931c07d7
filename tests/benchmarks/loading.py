"""What ``%load_ext torchbench_magic`` and the startup file cost, beside an extension that does nothing.

Each repetition is a fresh IPython; the three are taken in turn, so that a busy machine is busy for all.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from record import Figure, record

REPETITIONS = 15
STARTUP_FILE = Path(__file__).parents[2] / "jupyter-config" / "50-torchbench_magic.py"
HEAVY = ("torch", "pandas", "ipywidgets", "anywidget")

PROBE = """
import json, sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
sys.path.insert(0, {folder!r})
before = set(sys.modules)
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""


def once(statement: str, folder: str) -> tuple[float, list[str]]:
    """Seconds of the statement in a fresh IPython, and the modules it imported."""
    code = PROBE.format(statement=statement, folder=folder)
    # Byte code is kept, as it is for a user: pip writes it on installing.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120, env=environment)
    seconds, modules = json.loads(said.splitlines()[-1])
    return seconds, modules


def main() -> int:
    statements = {
        "an empty extension": "shell.extension_manager.load_extension('empty_extension')",
        "%load_ext torchbench_magic": "shell.extension_manager.load_extension('torchbench_magic')",
        "the startup file": f"shell.safe_execfile({str(STARTUP_FILE)!r}, {{}}, raise_exceptions=True)",
    }
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty_extension.py")
        empty.write_text("def load_ipython_extension(shell):\n    pass\n", encoding="utf-8")
        for statement in statements.values():
            once(statement, folder)  # byte code and the disk cache are there from here on
        runs = {name: [] for name in statements}
        for _ in range(REPETITIONS):
            for name, statement in statements.items():
                runs[name].append(once(statement, folder))

    milliseconds = {name: [seconds * 1e3 for seconds, _ in found] for name, found in runs.items()}
    empty_median = statistics.median(milliseconds["an empty extension"])
    figures = [
        Figure(name, statistics.median(times), "ms", spread=(min(times), max(times)))
        for name, times in milliseconds.items()
    ]
    for name in ("%load_ext torchbench_magic", "the startup file"):
        more = statistics.median(milliseconds[name]) - empty_median
        modules = runs[name][0][1]
        heavy = [module for module in HEAVY if module in modules]
        figures += [
            Figure(f"{name}: more than an empty extension", more, "ms", limit=50),
            Figure(f"{name}: newly imported modules", len(modules), "modules"),
            Figure(f"{name}: of them {', '.join(HEAVY)}", len(heavy), "modules", limit=1),
        ]
    return record("loading", figures, repetitions=REPETITIONS)


if __name__ == "__main__":
    sys.exit(main())
