"""A store of the first layout, written on 28 November 2026 and kept: what is changed later still reads it."""

from __future__ import annotations

import gzip
import math
import warnings
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from torchbench_magic.cluster.ranks import RankProfile
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.storage.store import load, save
from torchbench_magic.timing.comparison import Comparison

KEPT = Path(__file__).parent / "first_layout.sqlite.gz"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "runs.sqlite").write_bytes(gzip.decompress(KEPT.read_bytes()))
    return tmp_path / "runs.sqlite"


def test_each_kind_of_result_is_read_with_its_values(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lone, counted, profile, ranks = load(path)

    assert isinstance(lone, Comparison)
    assert lone.frame["median"][0] == pytest.approx(1e-3, rel=1e-3)
    assert (lone.frame["n"][0], lone.frame["f"][0]) == (16, "<built-in function len>")
    assert lone.options == {"margin": math.inf}
    assert lone.samples.dtypes.astype(str).to_dict() == {
        "round": "int64", "measurement": "int64", "wall": "float64", "cpu": "float64", "number": "int64",
        "position": "int64",
    }  # fmt: skip
    assert lone.samples["round"].tolist() == list(range(20))
    assert lone.environment.cpu == "A"

    assert isinstance(counted, Comparison)
    assert counted.frame["instructions"].tolist() == [105, 155]
    (key, _), layouts = counted.counts.counted, counted.counts.counted["mul", None, 1]
    assert (key, len(layouts.shifted)) == (("mul", None, 1), 2)
    assert layouts.calls is not None
    assert [arc[2:] for arc in layouts.calls.statement] == [(10, 1000)]
    assert counted.diff().frame["delta"].sum() == 50

    assert isinstance(profile, Profile)
    assert profile.lines["source"].tolist() == ["y = x @ x", "z = y.relu()", "torch.cuda.synchronize()"]
    assert profile.lines["cell"].tolist() == [3, 3, 3]
    assert profile.lines["efficiency_class"].tolist() == [None, None, None]
    assert profile.lines["peak"].dtype == "Int64"
    assert profile.threads == ("MainThread", "worker \udc80")
    assert [cycle.wall_time for cycle in profile.cycles] == [0.004]
    assert profile.efficiency is not None
    assert profile.efficiency.rows[0].op == "aten::mm"
    assert profile.trace is not None
    assert profile.trace.events["start"].tolist() == [1_000_000, 5_000_000, 2_000_000, 5_500_000, 4_000_000, 9_000_000]
    assert profile.trace.names[0] == "aten::mm"

    assert isinstance(ranks, RankProfile)
    assert ranks.ranks["rank"].tolist() == [0, 1]
    assert ranks.ranks["transfer"].tolist() == pytest.approx([0.02382, 0.02382], rel=1e-3)
    assert ranks.timeline["what"].tolist()[:3] == ["compute", "transfer", "other"]
    assert ranks.files == ("rank0.json", "rank1.json")


def test_what_is_read_can_be_written_again_and_is_the_same(path: Path, tmp_path: Path) -> None:
    before = load(path)
    for result in before:
        save(result, tmp_path / "again.sqlite")
    after = load(tmp_path / "again.sqlite")
    assert [type(result) for result in after] == [type(result) for result in before]
    for one, other in zip(before, after, strict=True):
        for item in fields(one):
            table = getattr(one, item.name)
            if isinstance(table, pd.DataFrame):
                pd.testing.assert_frame_equal(table, getattr(other, item.name))


def test_a_run_that_is_there_is_not_stored_again(path: Path) -> None:
    for result in load(path):
        save(result, path)
    assert len(load(path)) == 4
