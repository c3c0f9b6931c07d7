"""Damaged input of every kind is read, or refused in one line; see `tests.fuzz`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import KINDS

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(1200)  # 10,000 stores take four minutes on one core
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_input_ends_in_an_error_of_ours_and_takes_no_memory(kind: str, count: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz", kind, "16", str(count)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1100)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["count"] == count
    assert found["faults"] == []
    assert found["mib"] < 200
    assert found["longest"] < 20
