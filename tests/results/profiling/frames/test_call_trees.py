"""Call trees as tables: kept in a store, checked as they are read, and modules as a tree of their own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from torchbench_magic.profiling.call_tree_tables import is_tree, modules_of
from torchbench_magic.profiling.schema import FRAME_COLUMNS, MODULE_COLUMNS, frame_of
from torchbench_magic.storage.store import load

from ...profiles import profile_of_two_kernels

# thread > line > net > net.0 > op, and net.0 again from a second line, by itself
FRAMES = frame_of(
    FRAME_COLUMNS,
    {
        "parent": [-1, 0, 1, 2, 3, 0, 5, 6],
        "kind": ["thread", "line", "module", "module", "op", "line", "module", "op"],
        "name": ["MainThread", "In[1]:1", "net", "net.0", "aten::mm", "In[1]:2", "net.0", "aten::mm"],
        "calls": [0, 1, 3, 6, 6, 1, 1, 1],
        "self_time": [0.0, 0.5, 1.0, 2.0, 4.0, 0.25, 8.0, 16.0],
        "wall_time": [31.75, 7.5, 7.0, 6.0, 4.0, 24.25, 24.0, 16.0],
        "backward_cpu_time": [0.0, 0.0, 0.0, 0.0, 32.0, 0.0, 0.0, 64.0],
        "allocated": [0, 0, 1, 2, 4, 0, 8, 16],
        "freed": [0] * 8,
        "source": ["", "net(x)", None, None, None, "net[0](x)", None, None],
        "line": [pd.NA, 1, 1, 1, 1, 2, 2, 2],
        "input_shapes": [None, None, None, None, "[[2, 2]]", None, None, "[[2, 2]]"],
    },
)


def test_modules_are_a_tree_by_who_called_them_with_what_is_inside() -> None:
    made = modules_of(FRAMES)
    assert list(made.columns) == list(MODULE_COLUMNS)
    assert made["name"].tolist() == ["net", "net.0", "net.0"]
    assert made["parent"].tolist() == [-1, 0, -1]
    assert made["calls"].tolist() == [3, 6, 1]
    assert made["forward_time"].tolist() == [7.0, 6.0, 24.0]
    assert made["self_time"].tolist() == [1.0, 6.0, 24.0]
    assert made["backward_cpu_time"].tolist() == [32.0, 32.0, 64.0]
    assert made["allocated"].tolist() == [7, 6, 24]


def test_without_modules_there_are_no_rows() -> None:
    assert modules_of(FRAMES[FRAMES["kind"] == "thread"]).empty
    assert modules_of(frame_of(FRAME_COLUMNS, {})).empty


def test_the_tree_of_a_stored_profile_is_what_it_was(tmp_path: Path) -> None:
    profile_of_two_kernels(frames=FRAMES).save(tmp_path / "runs.sqlite")
    (kept,) = load(tmp_path / "runs.sqlite")
    pd.testing.assert_frame_equal(kept.frames, FRAMES)
    pd.testing.assert_frame_equal(kept.modules, modules_of(FRAMES))


@pytest.mark.parametrize("parents", [[-1, 0, 1, 2, 3, 0, 7, 6], [-2, 0, 1, 2, 3, 0, 5, 6], [-1, -1, 1, 2, 3, 0, 5, 6]])
def test_a_table_that_is_no_tree_is_refused(parents: list[int]) -> None:
    broken = FRAMES.assign(parent=parents)
    assert not is_tree(broken)
    with pytest.raises(ValueError, match="before its caller"):
        profile_of_two_kernels(frames=broken)
