"""Runs a script that was written for torch with the prefix of its imports changed, and tells what it took."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
_ROOT = Path(__file__).parents[2]

_LAUNCHER = """\
import json, runpy, shlex, sys, time
import torch.utils.cpp_extension as extension
from torch.utils.benchmark.utils.timer import Timer
import torchbench_magic.benchmark.utils.timer as cpp

extension.TORCH_LIB_PATH = shlex.quote(extension.TORCH_LIB_PATH)  # torch does not: its path may hold a space
asked, compiling = [], []

def noting(method, default):
    def noted(self, *args, **more):
        asked.append(more.get("min_run_time", args[1] if method is blocked and len(args) > 1 else default))
        return method(self, *args, **more)
    return noted

def timed(function):
    def noted(*args, **more):
        began = time.perf_counter()
        try:
            return function(*args, **more)
        finally:
            compiling.append(time.perf_counter() - began)
    return noted

blocked = Timer.blocked_autorange
Timer.blocked_autorange = noting(blocked, 0.2)
Timer.adaptive_autorange = noting(Timer.adaptive_autorange, 0.01)
cpp.compile_snippet = timed(cpp.compile_snippet)
extension.load_inline = timed(extension.load_inline)
report = sys.argv.pop()
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
with open(report, "w") as file:
    json.dump({"asked": asked, "compiling": compiling}, file)
"""


@dataclass(frozen=True)
class Report:
    """What a script took.

    Attributes:
        seconds: from start to end of its process, C++ compiles included.
        asked: sum of the ``min_run_time`` of its measurements.
        compiling: seconds in compilers of C++.
        output: what it printed.
    """

    seconds: float
    asked: float
    compiling: float
    output: str

    @property
    def allowed(self) -> float:
        """Seconds that it may take, compiles apart."""
        return 1.3 * self.asked + 120


def changed(script: str, values: Mapping[str, str] | None = None) -> str:
    """The script with the prefix of its imports changed; ``values``: assignments (name -> expression) to replace."""
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    text, count = re.subn(r"(?m)^(from|import) torch\.utils\.benchmark\b", r"\1 torchbench_magic.benchmark", text)
    assert count
    for name, value in (values or {}).items():
        text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
        assert count == 1, name
    return text


def run(script: str, folder: Path, values: Mapping[str, str] | None = None, timeout: float = 1800) -> Report:
    """Run it in a process of its own.

    Raises:
        AssertionError: it failed; with the end of what it said.
    """
    path, launcher, report = folder / script, folder / "launcher.py", folder / "report.json"
    path.write_text(changed(script, values), encoding="utf-8")
    launcher.write_text(_LAUNCHER, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(launcher), str(path), str(report)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        cwd=folder,
    )
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(report.read_text())
    return Report(seconds, sum(told["asked"]), sum(told["compiling"]), done.stdout)
