"""`waiting-for` on jobs that are known: where it speaks, and where it must stay silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.core.ranks.planted import MS, arrivals, document, event, of_rank, write
from torchbench_magic import load_ranks
from torchbench_magic.cluster.ranks import RankProfile


def job(folder: Path, arrival: np.ndarray, transfer: float = 0.3, *, hidden: bool = False) -> RankProfile:
    """``transfer`` ms from the last arrival to the end of each all-reduce; ``hidden``: ranks compute meanwhile."""
    for rank in range(len(arrival)):
        made: list[dict[str, Any]] = []
        for each in of_rank(rank, arrival):
            made.append(each)
            if each["name"] == "gloo:all_reduce":
                each["dur"] += (transfer - 0.3) * MS
                if hidden:
                    made.append(event("cpu_op", "aten::mm", each["ts"], each["ts"] + each["dur"], 3))
        write(folder / f"rank{rank}.json", document(rank, made, len(arrival)))
    return load_ranks(folder)


def by_turns(late: float) -> np.ndarray:
    """us; now the one and now the other comes ``late`` us after the other."""
    made = arrivals(0.0, count=12)
    for at in range(12):
        made[at % 2, at] += late
    return made


def test_data_on_their_way_are_waited_for(tmp_path: Path) -> None:
    profile = job(tmp_path, arrivals(0.0), transfer=8.0)
    (only,) = profile.insights
    assert only.kind == "waiting-for"
    assert 0.078 < only.seconds < 0.082
    assert only.share == only.seconds / profile.span
    assert only.text.startswith("The ranks wait for data in transfer, 79.")
    assert any("async_op" in cure.text for cure in only.cures)
    assert not any("no_sync" in (cure.code or "") for cure in only.cures), "nothing of DistributedDataParallel is here"


def test_ranks_that_wait_for_each_other_by_turns_are_told_so(tmp_path: Path) -> None:
    profile = job(tmp_path, by_turns(20 * MS))
    assert profile.straggler is None
    (only,) = profile.insights
    assert only.kind == "waiting-for"
    assert "for each other in turn" in only.text
    assert 0.1 < only.seconds < 0.125, "six times 20 ms on the one that waits most, the first one aside"


def test_a_healthy_job_has_no_insight(tmp_path: Path) -> None:
    assert job(tmp_path / "a", arrivals(0.0)).insights == ()
    assert job(tmp_path / "b", by_turns(5 * MS)).insights == (), "a tenth of the time is lost by turns with no fault"


def test_what_is_hidden_behind_computation_is_not_waited_for(tmp_path: Path) -> None:
    assert job(tmp_path, arrivals(0.0), transfer=8.0, hidden=True).insights == ()


def test_with_a_straggler_only_what_is_not_its_fault_is_told(tmp_path: Path) -> None:
    assert [each.kind for each in job(tmp_path / "a", arrivals(20 * MS)).insights] == ["straggler"]
    both = job(tmp_path / "b", arrivals(20 * MS), transfer=6.0).insights
    assert [each.kind for each in both] == ["straggler", "waiting-for"]
    assert 0.05 < both[1].seconds < 0.065


def test_where_clocks_are_not_known_well_enough_it_is_silent(tmp_path: Path) -> None:
    profile = job(tmp_path, by_turns(20 * MS))
    assert replace(profile, threshold=0.1 * profile.span).insights == ()
    assert replace(profile, ended="Rank 1 failed first").insights == (), "it waited for a rank that had failed"


def test_one_rank_alone_waits_for_nobody(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", document(0, of_rank(0, arrivals(0.0))))
    assert load_ranks(tmp_path).insights == ()
