"""`compare` and `profile` in a script print what the magics show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kernel

NAMES = "import torch\nx = torch.ones(64)\ndef work():\n    y = x.exp()\n    return (y * 2).sum()\n"
TIMED = "%%timer -n 50 -r 20\n# --- one\nx + 1\n# --- two\nx.exp()"
SCRIPT = f"""\
import torchbench_magic
{NAMES}
print(torchbench_magic.compare({{"one": "x + 1", "two": "x.exp()"}}, globals={{"x": x}}, min_run_time=0.02))
print("====")
print(torchbench_magic.profile(work))
"""


def headers(text: str) -> list[str]:
    """Headers of tables and rules, which no number changes; widths aside."""
    kept = (line for line in text.splitlines() if re.match(r" *(threads +alter|operation +calls|self time|-{9})", line))
    return [" ".join(re.sub("-+", "-", line).split()) for line in kept]


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Any]) -> Any:
    return start_kernel(NAMES)


@pytest.mark.slow
def test_a_script_prints_what_the_magics_show(kernel: Any, tmp_path: Path) -> None:
    timed, profiled = kernel.run(TIMED), kernel.run("%%tprofile\nwork();")
    for shown, name in ((timed, "_timer"), (profiled, "_tprofile")):
        without_name = shown.text("text/plain").replace(f"{name}.", ".")
        # words alone: where a line ends depends on the name
        assert kernel.run(f"print({name})").stdout.split() == without_name.split()
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    compared, _, in_script = done.stdout.partition("====")
    assert headers(compared) == headers(timed.text("text/plain")) != []
    assert headers(in_script) == headers(profiled.text("text/plain")) != []
