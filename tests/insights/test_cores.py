"""Insights about the use of the cores: one for its verdict, with what is at stake by given figures and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchbench_magic.insights import cores
from torchbench_magic.profiling.cores.verdict import Concurrency, CoreUse
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Doubt, Insight

from .built import Did, Op, built_profile

CELL = "%%tprofile --concurrency\nfor i in range(100):\n    y = x @ w"
DID = {2: Did(101, 0.01), 3: Did(100, 0.09, [Op("aten::mm", 100, 0.9)])}
PROOF = "%%timer --threads 1,4\nfor i in range(100):\n    y = x @ w"
USE = CoreUse(
    wall=1.0, cores=4, run=3.0, wait=3.0, ext=0.0, steal=0.0, throttled=0.0, threads=8, most=8,
    alone=0.1, idle=0.0, gil=0.0, lock=0.0, samples=100,
)  # fmt: skip


def profile_of(verdict: Any, torch_threads: int = 8, **changed: Any) -> Profile:
    warnings = changed.pop("warnings", [])
    partial = changed.pop("partial", False)
    seen = Concurrency(verdict, replace(USE, **changed), torch_threads=torch_threads, proof=PROOF)
    return built_profile(CELL, DID, concurrency=seen, warnings=warnings, partial=partial)


def only(profile: Profile) -> Insight:
    (found,) = (each for each in profile.insights if not each.places)
    return found


def test_oversubscription_is_told_by_the_waiting_and_cured_by_as_many_threads_as_cores() -> None:
    found = only(profile_of("oversubscribed"))
    assert (found.kind, found.share) == ("oversubscribed", pytest.approx(0.5))
    assert found.seconds == pytest.approx(0.5)
    assert found.text.startswith("6.0 threads wanted one of 4 cores, and waited for it 50 % of that time: fewer may be")
    assert (found.cures[0].code, found.cures[0].lever) == ("torch.set_num_threads(4)", "threads:4")
    assert found.cures[-1].code == "%%timer --threads 1,4"
    assert found.evidence["threads_waiting_for_a_core"] == 3.0


def test_workers_and_pools_are_told_from_torchs_own_threads() -> None:
    workers = only(profile_of("oversubscribed", 4, below=4.0, processes=4))
    assert "4 processes below it" in workers.text
    assert "worker_init_fn" in str(workers.cures[0].code)
    pool = only(profile_of("oversubscribed", 4))
    assert str(pool.cures[0].code).startswith("torch.set_num_threads(1)")
    assert "ThreadPoolExecutor(4)" in pool.cures[1].text


def test_others_are_named_beside_it_and_where_they_had_the_cores_nothing_is_said_of_the_code() -> None:
    assert "other processes used 2.0 meanwhile" in only(profile_of("oversubscribed", ext=2.0)).text
    found = only(profile_of("contended", ext=2.0))
    assert found.kind == "contended"
    assert "%tdoctor" in found.cures[0].text


def test_turns_at_a_lock_are_at_most_what_the_other_cores_would_save() -> None:
    found = only(profile_of("gil-bound", run=1.0, wait=0.0, gil=2.5))
    assert found.seconds == pytest.approx(1 - 1 / 3.5)
    assert "ProcessPoolExecutor" in found.cures[0].text
    assert only(profile_of("gil-bound", run=1.0, wait=0.0, gil=9.0)).seconds == pytest.approx(0.75)
    assert only(profile_of("lock-bound", run=1.0, wait=0.0, lock=2.5)).seconds == pytest.approx(1 - 1 / 3.5)


def test_one_thread_at_a_time() -> None:
    found = only(profile_of("serial", 4, run=1.0, wait=0.0, alone=0.8, idle=0.2))
    assert found.seconds == pytest.approx(0.6 * 0.75)
    assert "torch.set_num_threads" not in [cure.code for cure in found.cures]
    fewer = only(profile_of("serial", 1, run=1.0, wait=0.0, alone=1.0, idle=0.0))
    assert fewer.cures[0].code == "torch.set_num_threads(4)"


def test_waiting_and_a_quota() -> None:
    assert only(profile_of("waiting", run=0.1, wait=0.0, idle=0.9)).seconds == pytest.approx(0.9)
    assert only(profile_of("throttled", throttled=0.5)).seconds == pytest.approx(0.5)


@pytest.mark.parametrize("verdict", ["healthy", "not available"])
def test_of_a_healthy_cell_nothing_is_said(verdict: str) -> None:
    assert [each for each in profile_of(verdict).insights if not each.places] == []
    assert [each for each in built_profile(CELL, DID).insights if not each.places] == []


def test_nothing_is_said_of_a_twentieth_of_the_time() -> None:
    assert profile_of("oversubscribed", run=6.0, wait=0.2).insights == ()


@pytest.mark.parametrize("kind", ["partial", "clock-set"])
def test_doubts_about_the_stretch_silence_it(kind: str) -> None:
    assert profile_of("oversubscribed", warnings=[Doubt(kind, "so")]).insights == ()
    assert profile_of("oversubscribed", partial=True).insights == ()


def test_a_doubt_of_the_same_cause_does_not_silence_it() -> None:
    found = profile_of("oversubscribed", warnings=[Doubt("oversubscribed", "so"), Doubt("busy", "so")])
    assert [each.kind for each in found.insights] == ["oversubscribed"]


@pytest.mark.parametrize("verdict", ["serial", "waiting", "contended", "oversubscribed"])
def test_while_a_device_works_or_is_waited_for_nothing_is_at_stake(verdict: str) -> None:
    facts = {"run": 1.0, "wait": 1.0, "alone": 1.0, "idle": 0.1, "threads": 4}
    whole = only(profile_of(verdict, **facts)).seconds
    most = only(profile_of(verdict, **facts, device=0.8)).seconds
    assert most == pytest.approx(min(whole, 0.2))
    assert [each for each in profile_of(verdict, **facts, device=0.97).insights if not each.places] == []


def test_each_kind_speaks_for_its_verdict_alone() -> None:
    verdicts = ("contended", "oversubscribed", "gil-bound", "lock-bound", "serial", "waiting", "throttled")
    kinds = {verdict: getattr(cores, verdict.replace("-", "_")) for verdict in verdicts}
    for name, kind in kinds.items():
        seen = {"run": 0.5, "wait": 0.0 if name == "waiting" else 3.0, "gil": 3.0, "lock": 3.0, "alone": 0.9}
        profile = profile_of(name, **seen, idle=0.3, throttled=0.5, ext=2.0)
        assert [each.kind for each in kind(profile)] == [name]
        others = [speaks for other, speaks in kinds.items() if other != name]
        assert [each.kind for speaks in others for each in speaks(profile)] == []


def test_a_comparison_says_what_came_and_went() -> None:
    before, now = profile_of("oversubscribed"), profile_of("healthy")
    diff = ProfileDiff(before, now, ("before", "now"))
    assert [each.kind for each in diff.insights_gone if not each.places] == ["oversubscribed"]
    assert [each for each in diff.insights_new if not each.places] == []
    same = ProfileDiff(before, profile_of("oversubscribed", run=2.0), ("before", "now"))
    assert [each for each in (*same.insights_new, *same.insights_gone) if not each.places] == []
    not_asked = ProfileDiff(before, built_profile(CELL, DID), ("before", "now"))
    assert [each for each in (*not_asked.insights_new, *not_asked.insights_gone) if not each.places] == []
    doubted = profile_of("oversubscribed", warnings=[Doubt("oversubscribed", "so")])
    assert [each.kind for each in ProfileDiff(doubted, now, ("before", "now")).insights_gone] == ["oversubscribed"]


def test_where_recording_took_most_of_the_time_nothing_is_said() -> None:
    """A loop of Python of 50 ms took 700 ms recorded, and 340 of them were "serial"."""
    profile = profile_of("serial", run=1.0, wait=0.0, alone=1.0)
    assert only(profile).kind == "serial"
    assert replace(profile, profiler_cost="most").insights == ()


def test_workers_are_told_to_be_as_many_as_cores_and_of_one_thread_and_never_fewer() -> None:
    """Two workers on two cores were 1.7 times as fast as one."""

    def said(**changed: Any) -> str:
        cures = only(profile_of("oversubscribed", 1, cores=2, run=2.0, wait=3.0, below=3.0, **changed)).cures
        return " ".join(cure.text for cure in cures)

    assert "at most 2 processes" in said(processes=4, threads=5)
    assert "one thread" not in said(processes=4, threads=5)
    assert "processes at once" not in said(processes=2, threads=6)
    assert "one thread" in said(processes=2, threads=6)
