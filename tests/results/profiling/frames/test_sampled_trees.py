"""Sampled trees: which table is one, and several as one."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from torchbench_magic import load
from torchbench_magic.profiling.call_tree_tables import is_sampled_tree, sum_of_sampled
from torchbench_magic.profiling.schema import PYTHON_COLUMNS, frame_of
from torchbench_magic.storage.records import Record

from ...profiles import profile_of_two_kernels


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
    assert is_sampled_tree(tree((-1, "a", 1, 1.0), (0, "b", 1, 1.0)))
    assert is_sampled_tree(frame_of(PYTHON_COLUMNS, {}))
    assert not is_sampled_tree(tree((-1, "a", 1, 1.0), (1, "b", 1, 1.0)))
    assert not is_sampled_tree(tree((-1, "a", 1, 1.0), (-1, "b", 1, 1.0)))
    with pytest.raises(ValueError, match="before its caller"):
        profile_of_two_kernels(python=tree((-1, "a", 1, 1.0), (1, "b", 1, 1.0)))


def test_what_is_in_the_same_place_adds_up() -> None:
    first = tree((-1, "In[1]", None, 0.5), (0, "f", 2, 1.0), (1, "g", 1, 4.0))
    second = tree((-1, "In[1]", None, 0.25), (0, "h", 7, 8.0), (0, "f", 3, 2.0), (2, "g", None, 16.0))
    made = sum_of_sampled([first, second])
    assert made is not None
    assert is_sampled_tree(made)
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
    assert sum_of_sampled([]) is None
    empty = frame_of(PYTHON_COLUMNS, {})
    one = tree((-1, "a", 1, 1.0))
    made = sum_of_sampled([empty, one])
    assert made is not None
    pd.testing.assert_frame_equal(made, one)
    alone = sum_of_sampled([empty])
    assert alone is not None
    assert alone.empty


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
