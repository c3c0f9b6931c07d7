"""text/html: escaped everywhere, readable without script, never too large."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from torchbench_magic.profiling import view as profiling_view
from torchbench_magic.show import document_json, html
from torchbench_magic.show.document import Document, Phrase
from torchbench_magic.show.renderers import bundle, mimebundle
from torchbench_magic.show.table import Cell, Column, Group, Row, Table
from torchbench_magic.timing import view as timing_view

from ..builders import HOSTILE, LINES, comparison_of, profile_of
from ..sent import sent, unpacked


class Elements(HTMLParser):
    """The elements of a page, and the text outside scripts, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def long_document(rows: int, text: str = "aten::op") -> Document:
    columns = (Column("op", "operation", kind="code"), Column("ms", "self", "ms", "number"))
    made = tuple(Row((Cell(f"{text}{at}"), Cell(str(at), float(at)))) for at in range(rows))
    return Document("k", (Phrase("s"),), (Table("t", columns, (Group(made),)),), where="_tprofile.ops")


def test_the_static_part_carries_every_number_of_a_comparison() -> None:
    document = timing_view.document(comparison_of())
    text = Elements(html.static(document)).text
    for cell in (cell for row in document.tables[0].rows() for cell in row.cells):
        assert cell.text in text
    assert "mul_sum" in text
    assert "4 measurements in 11.6 s" in text


def test_the_static_part_holds_both_views_of_a_profile() -> None:
    elements = Elements(html.static(profiling_view.document(profile_of())))
    assert elements.tags.count("table") == 2
    assert "np.argwhere" in elements.text
    assert "aten::addmm" in elements.text
    assert "script" not in elements.tags


def test_a_lone_statement_unfolds_without_script() -> None:
    lone = timing_view.document(comparison_of([(None, 1, (1e-3,))], [None]))
    assert {"details", "summary"} <= set(Elements(html.static(lone)).tags)


@functools.cache
def usual_comparison() -> Elements:
    return Elements(mimebundle(comparison_of())["text/html"])


@functools.cache
def usual_tags_of_a_profile() -> frozenset[str]:
    usual = profile_of(ops=[("aten::mm", "cell", 2, 1, 5.0, 5.0, 1.0, "[]")], lines=LINES[:1])
    return frozenset(Elements(usual._repr_mimebundle_()["text/html"]).tags)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_in_every_part_of_the_output(name: str) -> None:
    usual, markup = usual_comparison(), mimebundle(comparison_of(names=(name, name + "2")))["text/html"]
    hostile = Elements(markup)
    assert hostile.tags == usual.tags
    assert {key for key, _ in hostile.attributes} - {"title"} == {key for key, _ in usual.attributes}
    (spec,) = sent(markup)
    texts = [cell if isinstance(cell, str) else cell[0] for cell in spec["tables"][0]["groups"][0]["rows"][0]["cells"]]
    shown = document_json.as_dict(timing_view.document(comparison_of(names=(name, "b"))))
    assert shown["tables"][0]["groups"][0]["rows"][0]["cells"][2] in texts


@pytest.mark.parametrize("name", HOSTILE[:6])
def test_hostile_source_text_and_operations_are_text(name: str) -> None:
    ops = [(name, "cell", 2, 1, 5.0, 5.0, 1.0, name)]
    hostile = profile_of(ops=ops, lines=LINES[:1], cell_text=f"%%tprofile\nx = 1  # {name!r}")
    hostile_tags = Elements(hostile._repr_mimebundle_()["text/html"]).tags
    assert set(hostile_tags) == usual_tags_of_a_profile()
    assert hostile_tags.count("script") == 2


def test_no_less_than_sign_and_no_line_separator_is_in_the_data() -> None:
    made = document_json.as_json(long_document(3, "</script><!--\u2028"), 10**6)
    assert "<" not in made
    assert "\u2028" not in made
    assert json.loads(made)["tables"][0]["groups"][0]["rows"][0][0].startswith("</script><!--")


def test_nan_and_infinity_are_valid_json() -> None:
    columns = (Column("a", "a", kind="number"), Column("b", "", kind="bar"))
    rows = [Row((Cell("x", value), Cell(picture=((("torch", value),), ())))) for value in (float("nan"), float("inf"))]
    made = json.loads(document_json.as_json(Document("k", (), (Table("t", columns, (Group(tuple(rows)),)),)), 10**6))
    first, second = made["tables"][0]["groups"][0]["rows"]
    assert first[0] == "x"
    assert second[0][1] > 1e300
    assert first[1][5] == [[["torch", None]], []]


def test_a_lone_surrogate_can_be_sent() -> None:
    html.render(long_document(1, "\ud800")).encode("utf-8")


def stored(bundle: dict[str, str]) -> int:
    """Bytes of an output in a notebook file."""
    return len(json.dumps(bundle, ensure_ascii=False).encode("utf-8"))


@pytest.mark.parametrize(
    ("rows", "text"), [(5_000, "aten::op"), (100_000, "aten::op"), (20_000, '"' * 390), (9_000, "µ" * 390)]
)
@pytest.mark.slow
def test_an_output_is_at_most_one_megabyte_and_says_what_is_not_in_it(rows: int, text: str) -> None:
    document = long_document(rows, text)
    made = bundle(document)
    assert stored(made) <= 1_000_000
    table = sent(made["text/html"])[0]["tables"][0]
    shown = len(table["groups"][0]["rows"])
    assert shown == rows or re.search(
        rf"of {rows:,} rows shown. All rows: _tprofile.ops".replace(",", "\u202f"), table["hidden"]
    )
    assert shown >= min(rows, 150)


def test_five_thousand_short_rows_all_fit() -> None:
    (spec,) = sent(html.render(long_document(5_000)))
    assert len(spec["tables"][0]["groups"][0]["rows"]) == 5_000
    assert spec["tables"][0]["hidden"] == ""


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_row_or_one_row_can_be_shown(rows: int) -> None:
    made = bundle(long_document(rows))
    assert Elements(made["text/html"]).tags.count("tr") == rows + 1
    assert made["text/plain"]


def test_an_ordinary_output_is_small() -> None:
    assert stored(mimebundle(comparison_of())) < 100_000
    assert stored(mimebundle(profile_of())) < 100_000


def test_two_outputs_of_the_same_result_do_not_share_a_name() -> None:
    first, second = (Elements(html.render(long_document(1))) for _ in range(2))
    assert not {v for k, v in first.attributes if k == "id"} & {v for k, v in second.attributes if k == "id"}


def test_plain_lines_below_the_tables_are_sent_once() -> None:
    drawn = timing_view.document(comparison_of())
    plain, styled = (Phrase("torch",),), (Phrase("a"), Phrase("b", "code"))
    for footer, doubts, is_once in (((plain,), (plain,) * 5, True), ((styled,), (styled,), False)):
        made = html.render(replace(drawn, footer=footer, doubts=doubts))
        (spec,) = sent(made)
        assert (made.count("slot=foot"), made.count("slot=doubt")) == ((1, 2) if is_once else (0, 0))
        assert (spec["footer"], spec["doubts"]) == (([], []) if is_once else ([["a", ["b", "code"]]],) * 2)
        assert len(spec.get("moreDoubts", ())) == (3 if is_once else 0)
    for other in ({"folded": True}, {"footer": ((Phrase("$x$"),),)}, {"rest": "3 more", "tables": drawn.tables * 2}):
        assert "slot=foot" not in html.render(replace(drawn, **other))


def test_nothing_is_fetched() -> None:
    page = html.page(timing_view.document(comparison_of()))
    page += "".join(map(unpacked, re.findall(r"await \w+\('(.*?)'\)", page)))
    page = re.sub(r"'[^' ]{400,}'", "''", page)  # what is packed reads like anything
    assert "not a usable pattern" in page
    assert not re.search(r"(src|href)\s*=|@import|url\(|fetch\(|import\(|XMLHttp", page)
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}  # the name of a namespace


def test_numbers_in_the_static_table_are_padded_with_spaces_of_their_own_width() -> None:
    rows = tuple(Row((Cell("op"), Cell(value))) for value in ("121", "14.2"))
    columns = (Column("op", "operation"), Column("ms", "self", "ms", "number"))
    shown = html.static(Document("k", (), (Table("t", columns, (Group(rows),)),)))
    assert "121\u2008\u2060\u2007<" in shown  # and no line breaks there
    assert "14.2<" in shown
