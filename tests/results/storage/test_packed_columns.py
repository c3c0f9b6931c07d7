from __future__ import annotations

import zlib

import numpy as np
import pandas as pd
import pytest

from torchbench_magic.errors import StoreError
from torchbench_magic.storage.records import PackedColumn, pack_columns, unpack_columns


def test_every_kind_of_column_comes_back_as_it_was() -> None:
    frame = pd.DataFrame(
        {
            "wall": [1e-6, float("nan"), float("inf"), -0.0],
            "number": np.array([1, -(2**62), 2**62, 0], dtype="int64"),
            "small": np.array([1, 2, 3, 255], dtype="uint8"),
            "flag": [True, False, True, True],
            "cell": pd.array([1, None, 3, -4], dtype="Int64"),
            "file": pd.Series(["a", None, "\u00e4\n\udc80", "a"], dtype=object),
        }
    )
    pd.testing.assert_frame_equal(unpack_columns(pack_columns(frame)), frame)


def test_an_empty_table_keeps_its_columns_and_types() -> None:
    frame = pd.DataFrame(
        {"wall": np.zeros(0), "cell": pd.array([], dtype="Int64"), "file": pd.Series([], dtype=object)}
    )
    pd.testing.assert_frame_equal(unpack_columns(pack_columns(frame)), frame)


def test_counters_take_a_fraction_of_their_size() -> None:
    (column,) = pack_columns(pd.DataFrame({"round": np.arange(10_000)}))
    assert len(column.data) < 10_000 * 8 / 50


def test_a_column_of_objects_is_not_stored() -> None:
    with pytest.raises(TypeError, match="column x holds list"):
        pack_columns(pd.DataFrame({"x": [[1], [2]]}))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 5},
        {"rows": 3},
        {"rows": -1},
        {"rows": 10**15},
        {"dtype": "float32"},
        {"dtype": "object"},
        {"codec": "pickle"},
        {"data": b"no zlib"},
        {"data": zlib.compress(b"\0" * 31)},
        {"data": zlib.compress(b"\0" * 32)[:-3]},
        {"codec": "words-zlib", "dtype": "text", "data": zlib.compress(b'["a"]\n' + b"\x05\0\0\0" * 4)},
        {"codec": "words-zlib", "dtype": "text", "data": zlib.compress(b'["a"\n' + b"\0" * 16)},
        {"codec": "words-zlib", "dtype": "text", "data": zlib.compress(b'[["a"]]\n' + b"\0" * 16)},
        {"codec": "mask-shuffle-zlib", "dtype": "Int64"},
    ],
    ids=str,
)
def test_a_column_that_is_not_what_it_says_is_refused(change: dict[str, object]) -> None:
    (column,) = pack_columns(pd.DataFrame({"wall": [1.0, 2.0, 3.0, 4.0]}))
    with pytest.raises(StoreError, match="the record is damaged"):
        unpack_columns([column._replace(**change)])  # type: ignore[arg-type]


def test_a_bomb_is_not_inflated() -> None:
    bomb = PackedColumn("wall", "float64", 4, "shuffle-zlib", zlib.compress(b"\0" * 200_000_000))
    with pytest.raises(StoreError, match="does not hold 4 rows"):
        unpack_columns([bomb])


def test_columns_of_different_lengths_are_refused() -> None:
    columns = pack_columns(pd.DataFrame({"a": [1.0, 2.0]})) + pack_columns(pd.DataFrame({"b": [1.0]}))
    with pytest.raises(StoreError, match="different lengths"):
        unpack_columns(columns)
