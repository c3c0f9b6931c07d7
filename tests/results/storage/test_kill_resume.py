"""The benchmark ``kill_resume`` in small: a sweep that is killed three times loses no finished point."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_sweep_killed_three_times_loses_no_finished_point_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)  # where it finds `record`
    spec = importlib.util.spec_from_file_location("kill_resume", BENCHMARKS / "kill_resume.py")
    assert spec is not None
    assert spec.loader is not None
    kill_resume = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kill_resume", kill_resume)
    spec.loader.exec_module(kill_resume)
    outcome = kill_resume.run(points=60, kills=3, path=tmp_path / "runs.sqlite", seed=1)
    assert outcome.kills == 3
    assert outcome.lost == set()
    assert outcome.stored == list(range(60))
    assert outcome.results == 1
    assert outcome.finished
    assert outcome.measured_again == set()
    assert set(outcome.begun) == set(range(60))
