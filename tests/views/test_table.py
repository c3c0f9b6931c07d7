"""The specification that every carrier draws from."""

from __future__ import annotations

import re

import pytest

from torchbench_magic.show.table import Cell, Column, Group, Row, Table

COLUMNS = (Column("op", "operation", kind="code"), Column("ms", "self", "ms", "number"))


def table(*sizes: int, title: str = "") -> Table:
    groups = tuple(
        Group(tuple(Row((Cell(f"op{nth}.{at}"), Cell("1"))) for at in range(size)), title and f"{title} {nth}")
        for nth, size in enumerate(sizes)
    )
    return Table("t", COLUMNS, groups)


def test_a_row_that_does_not_fit_its_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="table 't': 1 cells for 2 columns"):
        Table("t", COLUMNS, (Group((Row((Cell("x"),)),)),))


def test_the_first_rows_keep_their_groups_and_the_rest_is_counted() -> None:
    head = table(3, 3, 3).head(4, "_timer.frame")
    assert [len(group.rows) for group in head.groups] == [3, 1]
    assert head.hidden == "4 of 9 rows shown. All rows: _timer.frame"
    assert head.head(2, "").hidden == "4 of 9 rows shown. All rows: _timer.frame; 2 of 4 rows shown"


def test_a_table_that_is_short_enough_is_left_as_it_is() -> None:
    whole = table(2)
    assert whole.head(2, "x") is whole


def test_a_filter_looks_at_texts_and_group_titles_and_counts() -> None:
    made = table(2, 2, title="In[3]")
    assert [len(group.rows) for group in made.filtered(re.compile(r"op1\.0")).groups] == [1]
    assert [group.title for group in made.filtered(re.compile(r"\] 1$")).groups] == ["In[3] 1"]
    assert made.filtered(re.compile("nothing")).hidden == "none of 4 rows match"


def test_the_places_of_a_column_are_those_of_its_longest_decimals() -> None:
    rows = tuple(Row((Cell("a"), Cell(text))) for text in ("121", "14.25", "·", "–", ""))
    assert Table("t", COLUMNS, (Group(rows),)).places(1) == 2
