"""Call trees as tables: kept in a store, sampled, and folded to stacks."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from torchbench_magic import load
from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.profiling.call_tree_tables import (
    folded,
    is_tree,
    modules_of,
    sum_of_trees,
    write_stacks,
)
from torchbench_magic.profiling.schema import FRAME_COLUMNS, MODULE_COLUMNS, PYTHON_COLUMNS, frame_of
from torchbench_magic.storage.records import Record

from .profiles import profile_of_two_kernels

# ==== call trees ======================================================================================================
# Call trees as tables: kept in a store, checked as they are read, and modules as a tree of their own.


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


# ==== sampled trees ===================================================================================================
# Sampled trees: which table is one, and several as one.


def tree(*rows: tuple[int, str, int | None, float]) -> pd.DataFrame:
    """(caller, function, calls, seconds of its own) of each."""
    parent, function, calls, own = zip(*rows, strict=True)
    return frame_of(
        PYTHON_COLUMNS,
        {
            "parent": parent,
            "function": function,
            "module": ["m"] * len(rows),
            "library": ["m"] * len(rows),
            "calls": [pd.NA if each is None else each for each in calls],
            "samples": [3] * len(rows),
            **{name: own for name, dtype in PYTHON_COLUMNS.items() if dtype == "float64"},
        },
    )


def test_a_tree_has_one_root_and_callers_come_first() -> None:
    assert is_tree(tree((-1, "a", 1, 1.0), (0, "b", 1, 1.0)))
    assert is_tree(frame_of(PYTHON_COLUMNS, {}))
    assert not is_tree(tree((-1, "a", 1, 1.0), (1, "b", 1, 1.0)))
    assert not is_tree(tree((-1, "a", 1, 1.0), (-1, "b", 1, 1.0)))
    with pytest.raises(ValueError, match="before its caller"):
        profile_of_two_kernels(python=tree((-1, "a", 1, 1.0), (1, "b", 1, 1.0)))


def test_what_is_in_the_same_place_adds_up() -> None:
    first = tree((-1, "In[1]", None, 0.5), (0, "f", 2, 1.0), (1, "g", 1, 4.0))
    second = tree((-1, "In[1]", None, 0.25), (0, "h", 7, 8.0), (0, "f", 3, 2.0), (2, "g", None, 16.0))
    made = sum_of_trees([first, second], PYTHON_COLUMNS)
    assert is_tree(made)
    found = made.astype(object).where(made.notna(), None)
    assert found[["parent", "function", "calls", "self_time"]].to_numpy().tolist() == [
        [-1, "In[1]", None, 0.75],
        [0, "f", 5, 3.0],
        [1, "g", None, 20.0],
        [0, "h", 7, 8.0],
    ]
    assert made["samples"].tolist() == [6, 6, 6, 3]
    assert {name: str(dtype) for name, dtype in made.dtypes.items()} == PYTHON_COLUMNS


def test_a_tree_that_begins_another_is_no_part_of_it() -> None:
    empty = frame_of(PYTHON_COLUMNS, {})
    one = tree((-1, "a", 1, 1.0))
    made = sum_of_trees([empty, one], PYTHON_COLUMNS)
    pd.testing.assert_frame_equal(made, one)
    assert sum_of_trees([empty], PYTHON_COLUMNS).empty


@pytest.mark.parametrize("python", [None, tree((-1, "In[3]", None, 0.5), (0, "f", 2, 1.0))])
def test_it_is_stored_and_read_back_in_its_types(tmp_path: Path, python: pd.DataFrame | None) -> None:
    profile_of_two_kernels(python=python).save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    if python is None:
        assert read.python is None
        return
    pd.testing.assert_frame_equal(read.python, python)
    assert '"function":{"0":"In[3]","1":"f"}' in read.python.to_json()


def test_a_record_from_before_there_was_one_is_read() -> None:
    from torchbench_magic.storage.records import profile_of, profile_record

    record = profile_record(profile_of_two_kernels())
    older = {name: value for name, value in record.header.items() if name != "python"}
    asked = older["options"]["ProfileOptions"]
    older["options"] = {"ProfileOptions": {name: value for name, value in asked.items() if name != "python"}}
    assert profile_of(Record("Profile", 1, older, record.tables)).python is None


# ==== stacks ==========================================================================================================
# Folded stacks: never empty, one stack a line whatever is in the names, and they add up.


HOSTILE = ('a;b"c', "two\nlines", "\u2028", 'x" 12', "", "</script>")

# thread > line > op > op, and a range with a hostile name
TO_FOLD = frame_of(
    FRAME_COLUMNS,
    {
        "parent": [-1, 0, 1, 2, 1],
        "kind": ["thread", "line", "op", "op", "python"],
        "name": ["MainThread", "In[3]:4", "aten::linear", "aten::addmm", 'r;"\n'],
        "source": [None, "y = f(x)", None, None, None],
        "self_time": [0.001, 0.002, 0.003, 4e-7, 0.005],
        "self_cpu_time": [0.0, 0.0, 0.003, 4e-7, 0.0],
        "allocated": [0, 0, 0, 400, 0],
    },
)


def test_each_line_is_a_stack_and_its_own_cost_in_nanoseconds() -> None:
    assert folded(TO_FOLD, "time") == (
        "MainThread 1000000\n"
        "MainThread;In[3]:4 y = f(x) 2000000\n"
        "MainThread;In[3]:4 y = f(x);aten::linear 3000000\n"
        "MainThread;In[3]:4 y = f(x);aten::linear;aten::addmm 400\n"
        "MainThread;In[3]:4 y = f(x);r\\x3b'\\n 5000000\n"
    )


def test_torchs_own_metric_is_the_time_in_ops() -> None:
    lines = folded(TO_FOLD).splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["3000000", "400"]
    assert folded(TO_FOLD, "bytes") == "MainThread;In[3]:4 y = f(x);aten::linear;aten::addmm 400\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_can_neither_end_a_frame_nor_a_line(name: str) -> None:
    (line,) = folded(TO_FOLD.iloc[:4].assign(name=name, source=None), "bytes").splitlines()
    found = re.fullmatch(r"([^;]+;){3}[^;]+ (\d+)", line)
    assert found is not None
    assert found[2] == "400"


def test_what_was_not_recorded_is_an_error_that_names_what_was(tmp_path: Path) -> None:
    file = tmp_path / "stacks.txt"
    with pytest.raises(InputError, match=r"no device time was recorded.*self_cpu_time_total.*bytes") as raised:
        write_stacks(TO_FOLD, file, "self_cuda_time_total")
    assert "\n" not in str(raised.value)
    assert not file.exists(), "never 0 bytes"


def test_an_unknown_metric_lists_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"'tiem' is unknown; use one of self_cpu_time_total, .*self_cuda_time_total"):
        folded(TO_FOLD, "tiem")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        write_stacks(TO_FOLD, tmp_path / "no such folder" / "stacks.txt")
