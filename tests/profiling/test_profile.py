"""The record of a profiled run: its columns, its rows, from an op to its callers; it can be built by hand."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest

from tests.show.builders import profile_of, rows_of
from torchbench_magic.errors import InputError
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import (
    COMPILATION_COLUMNS,
    LINE_COLUMNS,
    MEMORY_COLUMNS,
    OP_COLUMNS,
    PROFILE_TABLES,
    frame_of,
)
from torchbench_magic.profiling.trace import Source
from torchbench_magic.result_base import Doubt

# ==== profile =========================================================================================================


LINES = (
    "cell line source file source_id thread calls wall_time self_cpu_time cpu_time python_time backward_cpu_time "
    "recording_time self_device_time device_time allocated freed net peak host_net host_peak efficiency_class "
    "fraction_of_peak"
)
OPS = (
    "op input_shapes input_dtypes input_strides calls self_cpu_time cpu_time self_device_time device_time allocated "
    "freed peak flops bytes module cell line source_id file thread efficiency_class fraction_of_peak"
)


def made(**changes: object) -> Profile:
    lines = frame_of(
        LINE_COLUMNS,
        {
            "cell": [3, 3, pd.NA],
            "line": [2, 3, pd.NA],
            "source_id": ["ab", "ab", None],
            "thread": [0, 0, 0],
            "self_cpu_time": [0.4, 0.1, 0.0],
            "python_time": [0.1, 0.0, 0.01],
        },
    )
    fields = {"lines": lines, "ops": frame_of(OP_COLUMNS, {}), "wall_time": 0.61, "num_threads": 2}
    return Profile(**(fields | changes))  # type: ignore[arg-type]


def test_the_columns_are_those_that_are_promised() -> None:
    assert sorted(LINE_COLUMNS) == sorted(LINES.split())
    assert sorted(OP_COLUMNS) == sorted(OPS.split())
    assert list(MEMORY_COLUMNS)[:3] == ["time", "bytes", "device"]
    assert set(MEMORY_COLUMNS) >= {"change", "block", "op", "line", "source_id", "thread"}


def test_cell_and_line_are_nullable_integers_and_times_are_floats() -> None:
    for frame in (made().lines, made().ops):
        assert (str(frame["cell"].dtype), str(frame["line"].dtype)) == ("Int64", "Int64")
        assert str(frame["self_cpu_time"].dtype) == "float64"


def test_a_column_that_does_not_apply_is_na() -> None:
    lines = made().lines
    assert lines[["allocated", "host_peak", "self_device_time"]].isna().all(axis=None)
    assert (lines["calls"] == 0).all()


def test_a_column_of_texts_holds_none_where_there_is_no_text_whatever_else_it_holds() -> None:
    for given in (["[[3]]", None], [None, None], [("a", 1), ("b", 2)], []):
        column = frame_of(OP_COLUMNS, {"op": ["a"] * len(given), "input_shapes": given})["input_shapes"]
        assert column.dtype == object, given
        assert column.tolist() == given


def test_a_column_that_does_not_exist_and_a_table_with_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="no such column: allocatd"):
        frame_of(LINE_COLUMNS, {"allocatd": [1]})
    with pytest.raises(ValueError, match=r"columns of \.lines"):
        made(lines=pd.DataFrame({"line": [1]}))


def test_what_stands_on_no_line_is_known_and_without_lines_nothing_is_attributed() -> None:
    assert made().not_attributed == pytest.approx(0.01)
    assert made(lines=frame_of(LINE_COLUMNS, {})).not_attributed == 0.61


def test_a_profile_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().wall_time = 3.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        made().sources["x"] = Source("x", "f", "")  # type: ignore[index]


def test_a_source_gives_its_lines_by_their_visible_number() -> None:
    source = Source("ab", "/notebook/model.py", "a\n  b\n")
    assert (source.line(2), source.line(0), source.line(3)) == ("  b", "", "")
    assert source.label == "model.py"
    assert Source("ab", "<cell>", "a", cell=4).label == "In[4]"


def test_two_profiles_do_not_share_their_warnings() -> None:
    assert made().warnings is not made().warnings
    assert made().options == ProfileOptions()


def test_the_tables_of_lines_and_ops_carry_the_doubts_as_plain_values() -> None:
    before = made()
    profile = dataclasses.replace(before, warnings=[Doubt("forks", "Forked work is on no line.", "Do so.")])
    said = {"doubts": [{"kind": "forks", "text": "Forked work is on no line."}]}
    assert profile.lines.attrs == profile.ops.attrs == said
    assert before.lines.attrs == before.ops.attrs == {"doubts": []}
    assert pd.concat([profile.lines, profile.lines.copy()]).attrs == said
    assert len(pd.concat([profile.lines, before.lines])) == 2 * len(before.lines)
    diff = ProfileDiff(before, profile)
    assert {"kind": "forks", "text": "other: Forked work is on no line."} in diff.lines.attrs["doubts"]
    assert diff.ops.attrs == diff.lines.attrs


def test_a_profile_pickles() -> None:
    sources = {"ab": Source("ab", "<cell>", "%%tprofile\nx @ x", cell=3)}
    profile = made(sources=sources, warnings=[Doubt("forks", "On none.")])
    copy = pickle.loads(pickle.dumps(profile))
    assert copy.sources == sources
    assert type(copy.sources) is type(profile.sources)
    assert repr(copy) == repr(profile)
    assert copy.lines.attrs == profile.lines.attrs


# ==== callers =========================================================================================================
# From an op to the lines, modules and shapes it is called with.


CALLED_OPS = rows_of(
    OP_COLUMNS,
    op=["aten::bmm", "aten::bmm", "aten::bmm", "mine"],
    input_shapes=["[[1]]", "[[1]]", "[[2]]", "[]"],
    calls=[1, 2, 4, 1],
    self_cpu_time=[0.1, 0.2, 0.1, 9.0],
    cpu_time=[0.2, 0.2, 0.6, 9.0],
    module=["net.a", "net.a", "net.b", None],
    cell=3,
    line=[2, 2, 3, 3],
    source_id="cell",
)


def called() -> Profile:
    sources = {"cell": Source("cell", "<cell>", "first\nsecond\nthird", cell=3)}
    return Profile(lines=profile_of().lines, ops=CALLED_OPS, wall_time=1.0, num_threads=1, sources=sources)


def test_calls_of_one_line_module_and_shape_are_one_row_the_most_time_first() -> None:
    found = called().where("bmm")
    assert found[["line", "module", "input_shapes", "calls"]].to_numpy().tolist() == [
        [3, "net.b", "[[2]]", 4],
        [2, "net.a", "[[1]]", 3],
    ]
    assert found["cpu_time"].tolist() == pytest.approx([0.6, 0.4])
    assert found["share"].tolist() == pytest.approx([0.6, 0.4])
    assert found["source"].tolist() == ["third", "second"]


def test_the_full_name_and_a_range_are_found_too() -> None:
    assert len(called().where("aten::bmm")) == 2
    assert called().where("mine")["cpu_time"].tolist() == [9.0]


def test_an_unknown_op_is_a_one_line_error_with_those_near_it() -> None:
    with pytest.raises(InputError, match=r"no op 'bm' in this profile; similar names: bmm"):
        called().where("bm")
    with pytest.raises(InputError, match=r"^no op 'zzzzzz' in this profile$"):
        called().where("zzzzzz")


# ==== columns =========================================================================================================
# Tables of a profile hold what they are given, whatever kind of text pandas would choose.


def test_a_text_that_is_missing_is_none_and_all_kinds_are_as_asked() -> None:
    for columns in PROFILE_TABLES.values():
        for rows in (0, 2):
            first = next(iter(columns))
            given = ["a", None] if columns[first] == "object" else [1, 2]
            made = frame_of(columns, {first: given[:rows]})
            assert {name: str(dtype) for name, dtype in made.dtypes.items()} == columns
            assert made[first].tolist() == given[:rows]
            assert made.index.equals(pd.RangeIndex(rows))
    changed = frame_of(LINE_COLUMNS, {})
    changed["more"] = []
    assert list(frame_of(LINE_COLUMNS, {"source": []}).columns) == list(LINE_COLUMNS), "each is a table of its own"
    texts = frame_of(LINE_COLUMNS, {"source": ["a", None], "line": [1, None]})
    assert texts["source"].tolist() == ["a", None]
    assert texts["file"].tolist() == [None, None]
    assert texts["line"].isna().tolist() == [False, True]


def test_rows_that_are_tuples_stay_tuples_and_fractions_are_no_counts() -> None:
    assert frame_of(COMPILATION_COLUMNS, {"reason": [(1, 2), (3, 4)]})["reason"].tolist() == [(1, 2), (3, 4)]
    for counts in ([0.5, 1.0], np.array([0.5, 1.0])):
        with pytest.raises((TypeError, ValueError)):
            frame_of(LINE_COLUMNS, {"thread": counts})
