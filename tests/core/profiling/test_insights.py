"""Slow cells, of which the right kind and line is said; and healthy ones, of which nothing is.

What is said of a run depends on its times, so each cell's run was recorded (`insight_cells`); cells that run, their
cures and what these save are ``tests/benchmarks/insights.py``.
"""

from __future__ import annotations

from pathlib import Path

from tests.every_case import every_case
from torchbench_magic import load_trace
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.results import Insight
from torchbench_magic.storage.store import load, save

from .insight_cells import HEALTHY, SLOW, recorded
from .insight_runs import Planted, found, profiled


def said(case: Planted) -> list[tuple[str, int]]:
    return list(found(recorded(case)))


def test_a_slow_cell_is_told_by_its_kind_and_line() -> None:
    def check(case: Planted) -> None:
        assert said(case)[:1] == [(case.kind, case.line)], case.body

    every_case(((case,) for case in SLOW), check)


def test_nothing_is_said_of_a_healthy_cell() -> None:
    def check(case: Planted) -> None:
        assert said(case) == [], case.body

    every_case(((case,) for case in HEALTHY), check)


def test_what_is_at_stake_is_no_more_than_the_run_took() -> None:
    profile = recorded(SLOW[0])
    (insight,) = profile.insights
    assert 0 < insight.seconds <= profile.wall_time
    assert 0.3 < insight.share <= 1


def facts(insights: tuple[Insight, ...]) -> list[dict[str, object]]:
    return [each.as_dict() for each in insights]


def stored(profile: Profile, file: Path) -> Profile:
    save(profile, file)
    (again,) = load(file)
    assert isinstance(again, Profile)
    return again


def test_a_stored_profile_has_its_insights_again(tmp_path: Path) -> None:
    profile = recorded(SLOW[2])
    assert profile.insights
    assert facts(stored(profile, tmp_path / "runs.sqlite").insights) == facts(profile.insights)


def test_a_trace_that_was_exported_has_them_again(tmp_path: Path) -> None:
    profile = recorded(SLOW[5])
    profile.export_trace(tmp_path / "trace.json")
    assert profile.insights
    assert facts(load_trace(tmp_path / "trace.json").insights) == facts(profile.insights)


def test_a_run_of_now_is_read_as_its_trace_and_its_stored_result_are(tmp_path: Path) -> None:
    """Whatever is said of it, which its times decide."""
    profile = profiled(SLOW[1])
    profile.export_trace(tmp_path / "trace.json")
    told = facts(profile.insights)
    assert facts(load_trace(tmp_path / "trace.json").insights) == told
    assert facts(stored(profile, tmp_path / "runs.sqlite").insights) == told
