"""How the cores were used, as a value: evidence, several stretches, what is stored."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pandas as pd
import pytest

from torchbench_magic import load
from torchbench_magic.profiling.cores.table import TIMELINE_COLUMNS, Concurrency, CoreUse, joined_concurrency
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.steps import sum_of_cycles
from torchbench_magic.storage.records import Record, profile_of, profile_record

from ..profiles import profile_of_two_kernels

USE = CoreUse(
    wall=2.0, cores=2, run=1.5, wait=2.5, ext=math.nan, steal=0.0, throttled=0.0, threads=8, most=6,
    alone=0.1, idle=0.0, gil=0.0, lock=0.0, samples=200,
)  # fmt: skip


def seen(**changed: object) -> Concurrency:
    timeline = pd.DataFrame(dict(zip(TIMELINE_COLUMNS, ([1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [0.0, 0.5]), strict=True)))
    known = {
        "verdict": "oversubscribed",
        "use": USE,
        "timeline": timeline,
        "torch_threads": 8,
        "missing": ("Load of others: no.",),
        "proof": "%%timer --threads 1,2,8\nf()",
    }
    return Concurrency(**(known | changed))  # type: ignore[arg-type]


def test_the_evidence_has_what_is_known() -> None:
    evidence = seen().evidence
    assert evidence["threads_wanted"] == 4.0
    assert evidence["usable_cores"] == 2
    assert "cores_used_by_others" not in evidence
    assert str(seen()) == "oversubscribed: 4.00 threads wanted one of 2 cores"
    assert str(Concurrency()) == "not available"
    assert seen().proof_line == "%%timer --threads 1,2,8"


def test_a_timeline_of_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"columns of \.timeline"):
        seen(timeline=pd.DataFrame({"time": [1.0]}))


def test_several_stretches_are_judged_together_and_stand_one_after_the_other() -> None:
    joined = joined_concurrency([seen(), seen(), Concurrency(missing=("Load of others: no.", "More."))])
    assert joined is not None
    assert joined.verdict == "oversubscribed"
    assert joined.use.wall == 4.0
    assert joined.timeline["time"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert joined.missing == ("Load of others: no.", "More.")
    assert joined_concurrency([]) is None
    nothing = joined_concurrency([Concurrency(), Concurrency()])
    assert nothing is not None
    assert nothing.verdict == "not available"


def test_the_sum_of_cycles_has_it() -> None:
    cycles = [profile_of_two_kernels(concurrency=seen()), profile_of_two_kernels(concurrency=seen())]
    summed = sum_of_cycles(cycles, ProfileOptions(concurrency=True), []).concurrency
    assert summed is not None
    assert summed.use.wall == 4.0


@pytest.mark.parametrize("concurrency", [None, seen(), Concurrency()])
def test_it_is_stored_and_read_back(tmp_path: Path, concurrency: Concurrency | None) -> None:
    profile_of_two_kernels(concurrency=concurrency).save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    if concurrency is None:
        assert read.concurrency is None
        return
    assert repr(read.concurrency.use) == repr(concurrency.use)
    assert (read.concurrency.verdict, read.concurrency.missing) == (concurrency.verdict, concurrency.missing)
    assert (read.concurrency.proof, read.concurrency.torch_threads) == (concurrency.proof, concurrency.torch_threads)
    pd.testing.assert_frame_equal(read.concurrency.timeline, concurrency.timeline)
    assert [each.kind for each in read.insights] == [
        each.kind for each in profile_of_two_kernels(concurrency=concurrency).insights
    ]


def test_cycles_are_stored_with_theirs(tmp_path: Path) -> None:
    cycles = [profile_of_two_kernels(concurrency=seen()), profile_of_two_kernels(concurrency=seen(verdict="healthy"))]
    sum_of_cycles(cycles, ProfileOptions(concurrency=True), []).save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    assert [each.concurrency.verdict for each in read.cycles] == ["oversubscribed", "healthy"]


def test_a_record_from_before_there_was_one_is_read() -> None:
    record = profile_record(profile_of_two_kernels())
    older = {name: value for name, value in record.header.items() if name != "concurrency"}
    options = {k: v for k, v in older["options"]["ProfileOptions"].items() if k != "concurrency"}
    older["options"] = {"ProfileOptions": options}
    assert profile_of(Record("Profile", 1, older, record.tables)).concurrency is None


def test_it_pickles() -> None:
    again = pickle.loads(pickle.dumps(seen()))
    assert again.evidence == seen().evidence
