"""What a reader of torch's tutorials types runs with the prefix of the imports changed; see ``scripts/``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .running import changed, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.valgrind,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja, which load_inline needs, is not installed"),
]
SMALL = {"sizes": "[1, 64]", "threads": "[1, 2]", "min_run_time": "0.02"}


def test_every_step_of_the_timer_quick_start_runs(tmp_path: Path) -> None:
    report = run("timer_quick_start.py", tmp_path)
    assert report.asked == pytest.approx(0.5 + 0.1 + 0.5 + 2 + 1)
    assert "Instructions:" in report.output


def test_every_step_of_the_benchmark_recipe_runs(tmp_path: Path) -> None:
    report = run("benchmark_recipe.py", tmp_path, SMALL)
    assert "[1, 64]" in report.output
    assert "environment B: bmm" in report.output
    assert "by_reference" in report.output


@pytest.mark.parametrize("script", ["timer_quick_start.py", "benchmark_recipe.py"])
def test_no_import_of_torchs_module_is_left(script: str) -> None:
    assert "torch.utils.benchmark" not in changed(script)
