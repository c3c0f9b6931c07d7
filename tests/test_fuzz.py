"""Damaged input of every kind is read, or refused in one line; see `tests.fuzz`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .fuzz import KINDS

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).parents[1]
COUNT = 500


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_input_ends_in_an_error_of_ours_and_takes_no_memory(kind: str) -> None:
    """Ten thousand of each: `tests/benchmarks/faults.py`."""
    command = [sys.executable, "-m", "tests.fuzz", kind, "16", str(COUNT)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["count"] == COUNT
    assert found["faults"] == []
    assert found["mib"] < 200
