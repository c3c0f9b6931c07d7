"""Every op stands on the line that called it, and the rows add up, in every truth case."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from .cases import CASES, Case  # noqa: E402
from .running import Ran, placed, run_case  # noqa: E402


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def ran(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_case(case, tmp_path_factory.mktemp("notebook"))


def test_each_op_is_on_its_line_as_often_as_it_ran(case: Case, ran: Ran) -> None:
    named = {op for op, _, _ in case.ops}
    found = Counter({key: calls for key, calls in placed(ran).items() if key[0] in named})
    assert found == case.ops


def test_each_op_is_called_as_often_as_torch_says(ran: Ran) -> None:
    calls = ran.outcome.profile.ops.groupby("op")["calls"].sum().to_dict()
    assert calls == dict(ran.plain)


def test_each_line_is_said_to_run_as_often_as_it_did(case: Case, ran: Ran) -> None:
    lines = ran.outcome.profile.lines.dropna(subset="line")
    totals = lines.groupby(["file", "line"])["calls"].sum()
    found = {(ran.place[file], int(line)): int(calls) for (file, line), calls in totals.items()}
    assert {key: found.get(key, 0) for key in case.calls} == case.calls


def test_the_times_of_the_cells_thread_add_up_to_the_wall_time(ran: Ran) -> None:
    profile = ran.outcome.profile
    own = profile.lines[profile.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(profile.wall_time, rel=0.01)
    rest = own[own["line"].isna()]
    assert len(rest) == 1
    assert rest["source"].item() == "not attributed"
    assert 0 <= profile.not_attributed <= 0.03 * profile.wall_time + 0.005


def test_no_time_is_negative_and_no_part_exceeds_its_whole(ran: Ran) -> None:
    profile = ran.outcome.profile
    lines = profile.lines
    times = lines[["wall_time", "self_cpu_time", "cpu_time", "python_time", "backward_cpu_time"]]
    assert (times >= 0).all(axis=None)
    tick = 1e-9  # the columns are seconds, the sums were ns
    assert (lines["self_cpu_time"] <= lines["cpu_time"] + tick).all()
    assert (lines["cpu_time"] <= lines["wall_time"] + tick).all()
    assert (lines["wall_time"] <= profile.wall_time + tick).all()
    assert (profile.ops["self_cpu_time"] <= profile.ops["cpu_time"] + tick).all()


def test_ops_and_lines_hold_the_same_torch_time(ran: Ran) -> None:
    profile = ran.outcome.profile
    ops = profile.ops[~profile.ops["op"].isin(profile.ranges) & profile.ops["line"].notna()]
    on_lines = profile.lines[profile.lines["line"].notna()]
    by_op = ops.groupby("thread")["self_cpu_time"].sum()
    by_line = on_lines.groupby("thread")["self_cpu_time"].sum()
    for thread, seconds in by_op.items():
        assert seconds == pytest.approx(by_line[thread], abs=1e-8)


def test_the_body_ends_as_the_case_says(case: Case, ran: Ran) -> None:
    error = ran.outcome.error
    assert (type(error).__name__ if error is not None else "") == case.error
    assert ran.outcome.profile.partial is bool(case.error)
