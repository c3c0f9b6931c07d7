"""Documents and tables, from which every carrier draws."""

from __future__ import annotations

import pytest

from torchbench_magic.show.document import Region, coloured, regions, shown_lines
from torchbench_magic.show.table import Cell, Column, Group, Row, Table

# ==== annotated source ================================================================================================
# Which stretches of a source are shown, and what in a line is coloured.


TEXT = """import torch

@decorated
def outer(x):
    def inner():
        return 1
    return inner()

class A:
    class B:
        async def method(self):
            pass

y = outer(1)
z = 2"""


@pytest.mark.parametrize(
    ("text", "ran", "shown"),
    [
        (TEXT, {6}, [Region("outer", 3, 7)]),  # with its decorator and what is nested in it
        (TEXT, {12}, [Region("A.B.method", 11, 12)]),
        (TEXT, {6, 14, 15}, [Region("outer", 3, 7), Region("", 14, 15)]),
        (TEXT, {1, 3, 6, 14, 15}, [Region("", 1, 1), Region("outer", 3, 7), Region("", 14, 15)]),
        ("%matplotlib inline\n!ls\ndef f():\n    return 1", {4}, [Region("f", 3, 4)]),
        ("def f(:\n  x\n  y\n  z", {2, 3}, [Region("", 2, 3)]),  # it does not parse
    ],
)
def test_what_ran_is_shown_by_function_and_in_the_stretches_between(
    text: str, ran: set[int], shown: list[Region]
) -> None:
    assert regions(text, ran, whole=False) == shown


def test_the_whole_source_is_one_region() -> None:
    assert regions(TEXT, {6}, whole=True) == [Region("", 1, 15)]


def test_a_long_region_leaves_out_what_did_not_run_and_counts_it_and_a_short_one_is_shown_whole() -> None:
    shown = list(shown_lines(Region("f", 1, 100), {50}))
    assert shown == [1, (46, 2), 48, 49, 50, 51, 52, (48, 53)]
    assert list(shown_lines(Region("f", 3, 6), {4})) == [3, 4, 5, 6]


def test_keywords_strings_and_comments_are_marked() -> None:
    line = 'for x in ["a"]:  # all'
    (spans,) = coloured([line])
    assert [(line[start:end], meaning) for start, end, meaning in spans] == [
        ("for", "k"), ("in", "k"), ('"a"', "s"), ("# all", "c"),
    ]  # fmt: skip


def test_a_string_over_several_lines_is_marked_on_each() -> None:
    spans = coloured(['x = """one', "two", 'three"""'])
    assert [[meaning for *_, meaning in line] for line in spans] == [["s"], ["s"], ["s"]]


def test_a_magic_line_and_text_that_is_no_python_stay_plain_and_the_rest_is_coloured() -> None:
    assert coloured(["%%tprofile if", "return 1"]) == [(), ((0, 6, "k"),)]
    assert coloured(["x = '''open", "still"]) == [(), ()]


# ==== table ===========================================================================================================
# The specification that every carrier draws from.


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


def test_the_places_of_a_column_are_those_of_its_longest_decimals() -> None:
    rows = tuple(Row((Cell("a"), Cell(text))) for text in ("121", "14.25", "·", "–", ""))
    assert Table("t", COLUMNS, (Group(rows),)).places(1) == 2
