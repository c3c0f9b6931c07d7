"""The call tree: every moment and byte stands in it once, and adds up to the lines and the ops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from ..cases import CASES, Case  # noqa: E402
from ..running import Ran, run_case  # noqa: E402


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["time", "memory"])
def ran(case: Case, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_case(case, tmp_path_factory.mktemp("notebook"), memory=request.param, shapes=request.param)


def by_line(frames: pd.DataFrame, column: str) -> pd.Series:
    """Sums per (source_id, line, thread) of what stands on a line."""
    on_lines = frames[frames["line"].notna()]
    return on_lines.groupby(["source_id", "line", "thread"])[column].sum().astype(float)


def counted(rows: pd.DataFrame, name: str) -> Counter[tuple[str, int]]:
    """(name, line) -> calls; line 0 for none."""
    keys = zip(rows[name], rows["line"].fillna(0), strict=True)
    return sum((Counter({key: calls}) for key, calls in zip(keys, rows["calls"], strict=True)), Counter())


def assert_same(one: pd.Series, other: pd.Series) -> None:
    one, other = one.align(other, fill_value=0.0)
    np.testing.assert_allclose(one.to_numpy(float), other.to_numpy(float), atol=5e-9, rtol=0)


def test_each_frame_comes_after_its_caller_and_holds_what_it_calls(ran: Ran) -> None:
    frames = ran.outcome.profile.frames
    parent = frames["parent"].to_numpy()
    assert (parent < np.arange(len(frames))).all()
    assert (frames["kind"][parent < 0] == "thread").all()
    assert (frames["kind"][parent >= 0] != "thread").all()
    inside = frames[parent >= 0].groupby("parent")["wall_time"].sum()
    held = frames["wall_time"] - frames["self_time"]
    np.testing.assert_allclose(held.to_numpy(), inside.reindex(frames.index, fill_value=0.0).to_numpy(), atol=1e-8)
    assert (frames[["wall_time", "self_time", "self_cpu_time", "backward_cpu_time", "calls"]] >= 0).all(axis=None)


def test_the_cells_thread_adds_up_to_the_wall_time(ran: Ran) -> None:
    profile = ran.outcome.profile
    frames = profile.frames
    (root,) = frames.index[(frames["parent"] < 0) & (frames["thread"] == 0)]
    assert frames.loc[root, "wall_time"] == pytest.approx(profile.wall_time, abs=1e-8)
    off_lines = frames[(frames["thread"] == 0) & frames["line"].isna()]["self_time"].sum()
    assert off_lines == pytest.approx(profile.not_attributed, abs=1e-8)


def test_each_line_adds_up_to_its_row(ran: Ran) -> None:
    profile = ran.outcome.profile
    rows = profile.lines[profile.lines["line"].notna()].set_index(["source_id", "line", "thread"])
    frames = profile.frames
    assert_same(by_line(frames, "self_cpu_time"), rows["self_cpu_time"])
    assert_same(by_line(frames, "self_time"), rows["self_cpu_time"] + rows["python_time"])
    assert_same(by_line(frames, "backward_cpu_time"), rows["backward_cpu_time"])
    assert_same(by_line(frames[frames["kind"] == "line"], "calls"), rows["calls"])
    if profile.options.memory:
        assert_same(by_line(frames, "allocated"), rows["allocated"])
        assert_same(by_line(frames, "freed"), rows["freed"])


def test_each_op_is_in_the_tree_as_often_as_it_ran_and_takes_its_time(ran: Ran) -> None:
    profile = ran.outcome.profile
    things = profile.frames[profile.frames["kind"].isin(["op", "python"])]
    assert counted(things, "name") == counted(profile.ops, "op")
    own = profile.frames[profile.frames["kind"] == "op"]["self_cpu_time"].sum()
    ops = profile.ops[~profile.ops["op"].isin(profile.ranges)]["self_cpu_time"].sum()
    assert own <= ops + 1e-8
