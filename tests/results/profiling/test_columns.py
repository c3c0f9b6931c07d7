"""Tables of a profile hold what they are given, whatever kind of text pandas would choose."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, LINE_COLUMNS, PROFILE_TABLES, frame_of


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
