"""In every truth case each op stands on the line that called it, and rows and call tree add up to the same times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from .cases import CASES, Case  # noqa: E402
from .running import Ran, placed, run_case  # noqa: E402

TICK = 1e-9  # the columns are seconds, the sums were ns
TIMES = ["wall_time", "self_cpu_time", "cpu_time", "python_time", "backward_cpu_time"]


# ---- the rows of lines and ops ----------------------------------------------------------------------------------


def each_op_is_on_its_line_as_often_as_it_ran(case: Case, ran: Ran) -> None:
    if ran.outcome.profile.options.memory:
        return  # ops of other threads are not recorded then
    named = {op for op, _, _ in case.ops}
    found = Counter({key: calls for key, calls in placed(ran).items() if key[0] in named})
    assert_same_counts(found, case.ops)


def each_op_is_called_as_often_as_torch_says(case: Case, ran: Ran) -> None:
    calls = ran.outcome.profile.ops.groupby("op")["calls"].sum().to_dict()
    assert_same_counts(Counter(calls), ran.plain)


def each_line_is_said_to_run_as_often_as_it_did(case: Case, ran: Ran) -> None:
    lines = ran.outcome.profile.lines.dropna(subset="line")
    totals = lines.groupby(["file", "line"])["calls"].sum()
    found = {(ran.place[file], int(line)): int(calls) for (file, line), calls in totals.items()}
    assert_same_counts(Counter({key: found.get(key, 0) for key in case.calls}), Counter(case.calls))


def the_times_of_the_cells_thread_add_up_to_the_wall_time(case: Case, ran: Ran) -> None:
    profile = ran.outcome.profile
    own = profile.lines[profile.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(profile.wall_time, abs=1e-8)
    rest = own[own["line"].isna()]
    assert rest["source"].tolist() == ["not attributed"]
    assert 0 <= profile.not_attributed <= profile.wall_time


def every_moment_of_the_cell_is_on_a_line_but_round_a_trailing_expression(case: Case, ran: Ran) -> None:
    """Which is code of its own: its body is entered when that of the statements was left."""
    trace = ran.outcome.profile.trace
    assert trace is not None
    segments = trace.segments[trace.segments["thread"] == 0]
    on_none = np.flatnonzero(trace.nodes["line"].fillna(0).to_numpy()[segments["node"]] <= 0).tolist()
    assert len(on_none) <= 2, f"stretches {on_none} of {len(segments)} are on no line"
    assert len(segments) - 1 in on_none, "the end"


def no_time_is_negative_and_no_part_exceeds_its_whole(case: Case, ran: Ran) -> None:
    profile = ran.outcome.profile
    lines = profile.lines
    assert (lines[TIMES] >= 0).all(axis=None)
    assert (lines["self_cpu_time"] <= lines["cpu_time"] + TICK).all()
    assert (lines["cpu_time"] <= lines["wall_time"] + TICK).all()
    assert (lines["wall_time"] <= profile.wall_time + TICK).all()
    assert (profile.ops["self_cpu_time"] <= profile.ops["cpu_time"] + TICK).all()


def ops_and_lines_hold_the_same_torch_time(case: Case, ran: Ran) -> None:
    profile = ran.outcome.profile
    ops = profile.ops[~profile.ops["op"].isin(profile.ranges) & profile.ops["line"].notna()]
    on_lines = profile.lines[profile.lines["line"].notna()]
    assert_same(ops.groupby("thread")["self_cpu_time"].sum(), on_lines.groupby("thread")["self_cpu_time"].sum())


def the_body_ends_as_the_case_says(case: Case, ran: Ran) -> None:
    error = ran.outcome.error
    assert (type(error).__name__ if error is not None else "") == case.error
    assert ran.outcome.profile.partial is bool(case.error)


# ---- the call tree: every moment and byte stands in it once ------------------------------------------------------


def each_frame_comes_after_its_caller_and_holds_what_it_calls(case: Case, ran: Ran) -> None:
    frames = ran.outcome.profile.frames
    parent = frames["parent"].to_numpy()
    assert (parent < np.arange(len(frames))).all()
    assert (frames["kind"][parent < 0] == "thread").all()
    assert (frames["kind"][parent >= 0] != "thread").all()
    inside = frames[parent >= 0].groupby("parent")["wall_time"].sum()
    assert_same(frames["wall_time"] - frames["self_time"], inside)
    assert (frames[["wall_time", "self_time", "self_cpu_time", "backward_cpu_time", "calls"]] >= 0).all(axis=None)


def the_tree_of_the_cells_thread_adds_up_to_the_wall_time(case: Case, ran: Ran) -> None:
    profile = ran.outcome.profile
    frames = profile.frames
    (root,) = frames.index[(frames["parent"] < 0) & (frames["thread"] == 0)]
    assert frames.loc[root, "wall_time"] == pytest.approx(profile.wall_time, abs=1e-8)
    off_lines = frames[(frames["thread"] == 0) & frames["line"].isna()]["self_time"].sum()
    assert off_lines == pytest.approx(profile.not_attributed, abs=1e-8)


def each_line_of_the_tree_adds_up_to_its_row(case: Case, ran: Ran) -> None:
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


def each_op_is_in_the_tree_as_often_as_it_ran_and_takes_its_time(case: Case, ran: Ran) -> None:
    profile = ran.outcome.profile
    things = profile.frames[profile.frames["kind"].isin(["op", "python"])]
    assert_same_counts(counted(things, "name"), counted(profile.ops, "op"))
    own = profile.frames[profile.frames["kind"] == "op"]["self_cpu_time"].sum()
    ops = profile.ops[~profile.ops["op"].isin(profile.ranges)]["self_cpu_time"].sum()
    assert own <= ops + 1e-8


CHECKS: tuple[Callable[[Case, Ran], None], ...] = (
    each_op_is_on_its_line_as_often_as_it_ran,
    each_op_is_called_as_often_as_torch_says,
    each_line_is_said_to_run_as_often_as_it_did,
    the_times_of_the_cells_thread_add_up_to_the_wall_time,
    every_moment_of_the_cell_is_on_a_line_but_round_a_trailing_expression,
    no_time_is_negative_and_no_part_exceeds_its_whole,
    ops_and_lines_hold_the_same_torch_time,
    the_body_ends_as_the_case_says,
    each_frame_comes_after_its_caller_and_holds_what_it_calls,
    the_tree_of_the_cells_thread_adds_up_to_the_wall_time,
    each_line_of_the_tree_adds_up_to_its_row,
    each_op_is_in_the_tree_as_often_as_it_ran_and_takes_its_time,
)


WITH_MEMORY = {
    "operators",
    "method of an nn.Module",
    "backward",
    "generators",
    "threads started in the cell",
    "await at the top level",
    "exception",
    "hooks",
    "torch.jit._fork and a DataLoader",
}
"""Of `make test`, one of each way that an op comes to a line: bytes are laid on the same tree as times."""


def modes(case: Case) -> list[Any]:
    marks = [] if case.name in WITH_MEMORY else [pytest.mark.slow]
    return [
        pytest.param(case, False, id=f"{case.name}-time"),
        pytest.param(case, True, id=f"{case.name}-memory", marks=marks),
    ]


@pytest.mark.parametrize(("case", "memory"), [each for case in CASES for each in modes(case)])
def test_ops_stand_on_their_lines_and_rows_and_tree_add_up(case: Case, memory: bool, tmp_path: Path) -> None:
    ran = run_case(case, tmp_path, memory=memory, shapes=memory)
    failed = []
    for check in CHECKS:
        try:
            check(case, ran)
        except Exception as error:  # the others may say why
            failed.append(f"{check.__name__.replace('_', ' ')}: {type(error).__name__} {str(error)[:600]}")
    assert not failed, "\n".join(failed)


# ---- how they compare -------------------------------------------------------------------------------------------


def by_line(frames: pd.DataFrame, column: str) -> pd.Series:
    """Sums per (source_id, line, thread) of what stands on a line."""
    on_lines = frames[frames["line"].notna()]
    return on_lines.groupby(["source_id", "line", "thread"])[column].sum().astype(float)


def counted(rows: pd.DataFrame, name: str) -> Counter[tuple[str, int]]:
    """(name, line) -> calls; line 0 for none."""
    found: Counter[tuple[str, int]] = Counter()
    for key, line, calls in zip(rows[name], rows["line"].fillna(0), rows["calls"], strict=True):
        found[key, line] += calls
    return found


def assert_same(one: pd.Series, other: pd.Series) -> None:
    """To some ns; what one of them does not have is 0 there."""
    one, other = one.astype(float).align(other.astype(float), fill_value=0.0)
    apart = (one - other).abs() > 5e-9
    assert not apart.any(), f"{one[apart].to_dict()} and {other[apart].to_dict()}"


def assert_same_counts(found: Counter[object], expected: Counter[object]) -> None:
    """A count of 0 is none."""
    differ = [key for key in found.keys() | expected.keys() if found[key] != expected[key]]
    assert not differ, "; ".join(f"{key}: {found[key]} calls, not {expected[key]}" for key in differ)
