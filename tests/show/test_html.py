"""text/html: escaped everywhere, readable without script, with what draws it; as a page of its own, too."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from tests.counting.test_view import compared, counted
from tests.profiling.memory.test_view import made as memory_profile
from torchbench_magic.errors import InputError, MissingTool, OptionError
from torchbench_magic.profiling import view as profiling_view
from torchbench_magic.show import html, javascript, page_data
from torchbench_magic.show.document import Document, Phrase
from torchbench_magic.show.javascript import packed_text, self_unpacking, shown_on, versioned, with_modules
from torchbench_magic.show.renderers import bundle, mimebundle
from torchbench_magic.show.table import Cell, Column, Group, Row, Table
from torchbench_magic.timing import view as timing_view

from .builders import HOSTILE, LINES, comparison_of, flame_graph, profile_of, two_shapes
from .sent import brought, left_out, sent, unpacked
from .test_flame import profiled
from .test_outputs_stay import RESULTS

# ==== html ============================================================================================================
# text/html: escaped everywhere, readable without script, never too large.


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
    shown = page_data.as_dict(timing_view.document(comparison_of(names=(name, "b"))))
    assert shown["tables"][0]["groups"][0]["rows"][0]["cells"][2] in texts


@pytest.mark.parametrize("name", HOSTILE[:6])
def test_hostile_source_text_and_operations_are_text(name: str) -> None:
    ops = [(name, "cell", 2, 1, 5.0, 5.0, 1.0, name)]
    hostile = profile_of(ops=ops, lines=LINES[:1], cell_text=f"%%tprofile\nx = 1  # {name!r}")
    hostile_tags = Elements(hostile._repr_mimebundle_()["text/html"]).tags
    assert set(hostile_tags) == usual_tags_of_a_profile()
    assert hostile_tags.count("script") == 2


def test_no_less_than_sign_and_no_line_separator_is_in_the_data() -> None:
    made = page_data.as_json(long_document(3, "</script><!--\u2028"), 10**6)
    assert "<" not in made
    assert "\u2028" not in made
    assert json.loads(made)["tables"][0]["groups"][0]["rows"][0][0].startswith("</script><!--")


def test_nan_and_infinity_are_valid_json() -> None:
    columns = (Column("a", "a", kind="number"), Column("b", "", kind="bar"))
    rows = [Row((Cell("x", value), Cell(picture=((("torch", value),), ())))) for value in (float("nan"), float("inf"))]
    made = json.loads(page_data.as_json(Document("k", (), (Table("t", columns, (Group(tuple(rows)),)),)), 10**6))
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


# ==== page modules ====================================================================================================
# What an output brings to its page: the modules that draw it, where nobody else has brought them.


FORGED = (*HOSTILE, f"<script data-needs={versioned('flame')}>", f"<script data-brings={versioned('table')}>")


class Held:
    """A page on which these modules are."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name.rpartition("-")[0] not in self.names]


def test_an_output_of_which_nothing_is_known_brings_all_that_draws_it_once() -> None:
    assert brought(mimebundle(comparison_of())["text/html"]) == ["table_explorer"]
    assert brought(mimebundle(profiled())["text/html"]) == ["table", "flame"]
    assert brought(mimebundle(memory_profile())["text/html"]) == ["table_explorer", "memory"]
    assert brought(comparison_of().to_html() or "") == ["table_explorer"]


def test_what_is_on_the_page_is_left_out_and_the_output_says_so_where_it_is_gone() -> None:
    with shown_on(Held("table_explorer", "table")):
        short, profile = (mimebundle(made)["text/html"] for made in (comparison_of(), profiled()))
    assert (brought(short), left_out(short)) == ([], {"table_explorer"})
    assert (brought(profile), left_out(profile)) == (["flame"], {"table"})
    assert "was deleted. Run the cell again" in short
    assert "was deleted" not in mimebundle(comparison_of())["text/html"]
    assert len(sent(short)) == 1
    assert len(short) < len(mimebundle(comparison_of())["text/html"]) - 14_000


def test_a_file_holds_everything_whatever_is_on_the_page() -> None:
    result = comparison_of()
    with shown_on(Held("table_explorer")):
        fragment = mimebundle(result)["text/html"]
    assert brought(html.around(fragment, "a file")) == ["table_explorer"]


def test_what_brings_its_modules_is_not_given_them_again() -> None:
    fragment = with_modules(html.render(timing_view.document(comparison_of())))
    assert with_modules(fragment) == fragment


@pytest.mark.parametrize("name", FORGED)
def test_a_name_brings_nothing_and_keeps_nothing_away(name: str) -> None:
    assert brought(mimebundle(comparison_of(names=(name, "b")))["text/html"]) == ["table_explorer"]


def test_packed_text_has_no_sign_that_means_something_elsewhere() -> None:
    text = "".join(chr(32 + n * n % 9000) for n in range(20_000))
    assert unpacked(packed_text(text)) == text
    assert not set(packed_text(text)) & set("\"'\\<&$`{} \n")


def test_an_older_version_of_a_module_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = javascript.versioned("table")
    assert re.fullmatch(r"table-[0-9a-f]{8}", before)
    assert before == javascript.versioned("table")
    assert javascript.versioned("flame")[-8:] != before[-8:]
    older = javascript._Module(javascript._module("makers").text + "// older\n", (), ())
    real = javascript._module
    monkeypatch.setattr(javascript, "_module", lambda name: older if name == "makers" else real(name))
    javascript.versioned.cache_clear()
    assert javascript.versioned("table") != before
    javascript.versioned.cache_clear()


def test_modules_are_sent_as_they_are_written_but_for_what_only_people_read() -> None:
    sent_lines = javascript._text_to_bring(javascript._KINDS).splitlines()
    code = set(sent_lines)
    for name in javascript._ordered(("page", *javascript._KINDS)):
        text = javascript._EXPORT.sub("", javascript._module(name).text)
        lines = [line.strip() for line in text.splitlines()]
        assert [line for line in lines if line and not line.startswith("//") and line not in code] == [], name
    assert not [line for line in sent_lines if not line or line[0] in " /"]


def test_a_saved_widget_holds_half_of_its_module() -> None:
    text = javascript.es_module("widget")
    assert len(self_unpacking(text)) < 0.5 * len(text)


def test_pictures_and_tables_are_packed() -> None:
    made = mimebundle(profile_of())["text/html"]
    (spec,) = sent(made)
    assert spec["kind"] == "profile"
    assert "np.argwhere" in "".join(str(table) for table in spec["tables"])


@pytest.mark.parametrize("kind", ["widget", *javascript._KINDS])
def test_no_two_modules_that_stand_in_one_text_have_a_name_in_common(kind: str) -> None:
    """Modules that only one imports are parts of it (`_text_to_bring`), and a widget's are all one text."""
    declared = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) ([^;]*)", re.MULTILINE)
    names: list[str] = []
    for module in javascript._ordered((kind,)):
        for found in declared.findall(javascript._module(module).text):
            first = re.match(r"[\w$]+", found)
            names += [first[0]] if first else []
            names += re.findall(r"(?<=, )([A-Z_]{3,})(?= = )", found.partition("(")[0])
    assert len(names) > 3
    assert sorted(set(names)) == sorted(names)


def test_each_view_of_an_output_has_its_data_in_a_script_of_its_own() -> None:
    result = profiled()
    fragment, apart = mimebundle(result)["text/html"], result.to_html() or ""
    assert fragment.count("<script data-needs=") == apart.count("<script data-needs=") == 2
    assert [next(iter(each)) for each in sent(fragment)] == ["kind", "title"]
    assert brought(fragment) == ["table", "flame"]


# ==== page ============================================================================================================
# Results as files: pages that need no kernel and no network, and plots as SVG and PNG.


TREE = pd.DataFrame(
    {
        "parent": [-1, 0, 1, 0],
        "name": ["root", "first", "inner", "second"],
        "kind": ["line", "python", "op", "other"],
        "self": [0.1, 0.2, 0.3, 0.4],
        "total": [1.0, 0.5, 0.3, 0.4],
    }
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def closed_figures() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def saved(ax: Any, folder: Path) -> list[str]:
    """Saved as SVG and as PNG; the texts of the SVG."""
    ax.figure.savefig(folder / "plot.png")
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    ax.figure.savefig(folder / "plot.svg")
    return ["".join(each.itertext()) for each in ElementTree.parse(folder / "plot.svg").iter(f"{SVG}text")]


@pytest.mark.usefixtures("closed_figures")
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (two_shapes(), "mul_sum"),
        (compared(A=counted(mul=100, add=20), B=counted(mul=150, add=21)).diff("B"), "at::"),
        (profile_of(), "addmm"),
        (memory_profile(), "at the peak"),
        (flame_graph(TREE, "four frames"), "second"),
    ],
    ids=["comparison", "counts", "profile", "memory", "flame"],
)
def test_every_result_becomes_a_page_that_asks_for_nothing(result: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "a page.html"
    assert result.to_html(file) is None
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert said in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|\burl\(|\bimport\(""", page)
    returned = result.to_html()
    assert said in returned
    assert returned.startswith("<!doctype html>")


@pytest.mark.usefixtures("closed_figures")
def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist") as said:
        two_shapes().to_html(tmp_path / "missing" / "page.html")
    assert "\n" not in str(said.value)


@pytest.mark.usefixtures("closed_figures")
def test_samples_are_drawn_with_a_row_per_measurement_and_its_median(tmp_path: Path) -> None:
    made = comparison_of([("64", 1, (4e-6, 8e-6)), ("64", 2, (3e-6, 6e-6))])
    ax = made.plot(kind="distribution")
    medians = [float(line.get_xdata()[0]) for line in ax.get_lines()]
    np.testing.assert_allclose(medians, [1e6 * np.median(made.call_times(row)) for row in range(4)])
    heights = [float(np.max(np.abs(patch.get_data().values - patch.get_data().baseline))) for patch in ax.patches]
    np.testing.assert_allclose(heights, 0.85)
    said = saved(ax, tmp_path)
    assert "time of one call (µs)" in said
    assert sum("1 thread" in text for text in said) == 2


@pytest.mark.usefixtures("closed_figures")
def test_a_name_is_drawn_as_it_stands(tmp_path: Path) -> None:
    names = [*(f"$x_{{{name}" for name in HOSTILE), "b$"]
    ax = comparison_of([("64 × 64", 1, [1e-6] * len(names))], names).plot(kind="distribution")
    assert any("b$" in text for text in saved(ax, tmp_path))
    assert len(ax.patches) == len(names)


@pytest.mark.usefixtures("closed_figures")
def test_one_sample_and_many_measurements_are_drawn() -> None:
    assert len(comparison_of([("n", 1, (1e-3,))], ["a"], samples=1).plot(kind="distribution").patches) == 1
    many = comparison_of([(f"n={n}", 1, (1e-6, 2e-3)) for n in range(25)], samples=3).plot(kind="distribution")
    assert len(many.patches) == 40
    assert "10 more measurements are not drawn" in many.get_xlabel()
    assert many.get_xscale() == "log"


@pytest.mark.usefixtures("closed_figures")
def test_memory_is_drawn_as_layers_that_reach_the_peak(tmp_path: Path) -> None:
    profile = memory_profile()
    ax = profile.plot("memory")
    assert profile.memory is not None
    tops = [float(np.max(patch.get_data().values)) for patch in ax.patches]
    device = ax.get_ylabel().split()[2]
    mine = profile.memory[profile.memory["device"] == device]
    assert max(tops) == pytest.approx(float(mine["bytes"].max()) / 2**20)
    assert any(text.startswith("peak ") for text in saved(ax, tmp_path))


@pytest.mark.usefixtures("closed_figures")
def test_a_flame_graph_has_a_bar_per_frame_in_its_place(tmp_path: Path) -> None:
    graph = flame_graph(TREE, "four frames")
    ax = graph.plot()
    bars = {
        (round(bar.get_x(), 6), round(bar.get_width(), 6), round(bar.get_y() + bar.get_height() / 2))
        for bar in ax.patches
    }
    size = graph.measures[0].scale.size
    wanted = {(0, 1.0, 0), (0, 0.5, 1), (0, 0.3, 2), (0.5, 0.4, 1)}
    assert bars == {(round(left / size, 6), round(wide / size, 6), level) for left, wide, level in wanted}
    assert {"root", "second"} <= {text.strip() for text in saved(ax, tmp_path)}


@pytest.mark.usefixtures("closed_figures")
def test_frames_too_narrow_to_be_seen_are_counted() -> None:
    narrow = pd.DataFrame(
        {
            "parent": [-1, 0, 0],
            "name": ["r", "a", "b"],
            "kind": "op",
            "self": [0.0, 1.0, 1e-5],
            "total": [1.00001, 1, 1e-5],
        }
    )
    assert "1 narrow frame" in flame_graph(narrow, "three").plot().get_xlabel()


@pytest.mark.usefixtures("closed_figures")
def test_what_was_not_recorded_or_is_no_kind_is_said() -> None:
    with pytest.raises(InputError, match="--memory"):
        profile_of().plot("memory")
    with pytest.raises(OptionError, match="use flame or memory"):
        profile_of().plot("pie")
    with pytest.raises(OptionError, match="use scaling or distribution"):
        two_shapes().plot(kind="pie")
    with pytest.raises(InputError, match="kind='distribution'"):
        comparison_of([("n", 1, (1e-6, 2e-6))]).plot()


@pytest.mark.usefixtures("closed_figures")
def test_without_matplotlib_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: two_shapes().plot(kind="distribution"),
        lambda: memory_profile().plot("memory"),
        lambda: flame_graph(TREE, "four").plot(),
    ):
        with pytest.raises(MissingTool, match="pip install") as said:
            draw()
        assert "\n" not in str(said.value)


# ==== colours of pictures =============================================================================================
# Pictures where no style is let through: each mark has its colour as an attribute.


PICTURED = ("profile_with_memory", "sweep", "ranks", "profile_with_efficiency")
FILLED, STROKED = {"path", "rect", "circle", "polygon", "polyline"}, {"polyline"}


def marks(element: ElementTree.Element, inherited: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(tag, its colours, those of the groups round it included)."""
    own = inherited | {name: element.attrib[name] for name in ("fill", "stroke") if name in element.attrib}
    yield element.tag, own
    for child in element:
        yield from marks(child, own)


@pytest.mark.parametrize("name", PICTURED)
def test_every_mark_has_a_colour_of_its_own_without_style(name: str) -> None:
    html = RESULTS[name]()._repr_mimebundle_()["text/html"]
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert drawings
    for drawing in drawings:
        root = ElementTree.fromstring(re.sub(r'=([^\s"<>]+)(?=[ >])', r'="\1"', drawing))
        assert root.attrib["fill"] == "currentColor", "words follow the colour of the text around"
        for tag, colours in marks(root, {}):
            if tag in FILLED and "fill" in colours:
                assert colours["fill"] != "currentColor", tag
            if tag in STROKED:
                assert "stroke" in colours, "a line without a colour is not seen"
