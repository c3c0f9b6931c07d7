"""What people call things, and numbers that are none, in a real browser: shown as they stand; no text of it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.counting.test_view import compared, counted
from tests.profiling.memory.test_view import made as memory_profile
from tests.show.builders import HOSTILE, comparison_of, flame_graph, profile_of, two_shapes
from torchbench_magic.notebook.widgets import TableWidget
from torchbench_magic.show import flame, html, page_data
from torchbench_magic.show.document import Document, Phrase
from torchbench_magic.show.table import Cell, Column, Group, Row, Table

from .results import ALL_DRAWN

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RAN = "window.__ran"
TRIES = (
    "<script>window.__ran = 1</script>",
    "</script><script>window.__ran = 2</script>",
    "<img src=x onerror='window.__ran = 3'>",
    "\"'><svg onload=window.__ran=4>",
    "`${window.__ran = 5}`",
    "javascript:window.__ran=6",
    "<!--<script>",
    *HOSTILE,
)
Open = Callable[[str], Page]

# As anywidget does it: the module's default export renders a model.
WIDGET = """<div id=w></div><script type="module">
%s
const data = { spec: %s, state: {} };
const model = { on() {}, off() {}, get: (name) => data[name], set() {}, save_changes() {} };
let end = chosen.render({ model, el: document.getElementById("w") });
window.remount = (more) => { // as when Python sends other data
    end();
    document.getElementById("w").replaceChildren();
    data.shown ??= data.spec;
    data.spec = { ...data.shown, ...more };
    end = chosen.render({ model, el: document.getElementById("w") });
};
</script>"""


@pytest.fixture
def show(visit: Any, tmp_path: Path) -> Open:
    def open_page(body: str) -> Page:
        file = tmp_path / "page.html"
        page = body if body.startswith("<!doctype") else html.around(body, "</title><script>window.__ran = 0</script>")
        file.write_text(page, encoding="utf-8", errors="replace")
        return visit.open(file.as_uri())

    return open_page


def as_widget(module: str, encoded: str) -> str:
    return WIDGET % (module.replace("export default", "const chosen ="), encoded)


def every_result(name: str) -> list[Any]:
    """A result of each kind in which a person's text is ``name`` wherever there is one."""
    tree = pd.DataFrame(
        {"parent": [-1, 0], "name": [name, name], "kind": "op", "self": [1.0, 1.0], "total": [2.0, 1.0]}
    )
    lines = tuple(f"x = 1  # {name}".replace("\n", " ") for _ in range(12))
    return [
        two_shapes(names=(name, name + "2"), stmt=name),
        comparison_of([(name, 1, (1e-6, 2e-6))]),
        compared(A=counted(mul=100, hostile=3), B=counted(mul=150, hostile=5), **{name[:50]: counted(mul=1)}),
        profile_of(cell_text="\n".join(lines)),
        flame_graph(tree, name),
    ]


def test_no_text_runs_in_a_page_of_any_result(show: Open) -> None:
    results = [memory_profile(), *(made for name in TRIES for made in every_result(name))]
    body = "".join(made._repr_mimebundle_()["text/html"] for made in results)
    page = show(body)
    page.wait_for_function(ALL_DRAWN)
    for search in page.get_by_role("searchbox").element_handles():  # locators would look through the page for each
        if search.is_visible():
            search.fill("script|x")
    assert page.evaluate(RAN) is None
    assert page.locator("img, iframe, object, embed").count() == 0
    assert (
        page.evaluate("[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => /^on/.test(a.name)))")
        is False
    )


def test_no_text_runs_in_the_widgets(show: Open) -> None:
    from torchbench_magic.timing import view

    widgets = ""
    for at, name in enumerate(TRIES):
        document = view.document(two_shapes(names=(name, name + "2"), stmt=name))
        widget = as_widget(str(TableWidget._esm), page_data.as_json(document, 10**6))
        widgets += widget.replace("<div id=w>", f"<div id=w{at}>").replace('ById("w")', f'ById("w{at}")')
    page = show(widgets)
    for at in range(len(TRIES)):
        expect(page.locator(f"#w{at} .tb")).to_be_visible()
        page.locator(f"#w{at} tbody tr.row").first.click()
        assert page.evaluate(RAN) is None


def test_text_is_shown_as_it_stands_and_long_text_is_cut(show: Open) -> None:
    page = show(two_shapes(names=("<b>bold</b>", "z" * 10_000)).to_html())
    cells = page.locator(".tb td.code, .tb td.text")
    expect(cells.filter(has_text="<b>bold</b>").first).to_be_visible()
    longest = max(map(len, cells.all_inner_texts()))
    assert 100 < longest < 500
    box = page.locator(".tb table").first.bounding_box()
    assert box is not None
    assert box["width"] < 1200


def test_numbers_that_are_none_are_dashes_and_sort_last(show: Open) -> None:
    tree = pd.DataFrame(
        {"parent": [-1, 0, 0], "name": ["r", "a", "b"], "kind": "op", "self": [0.0, 1.0, 1.0], "total": [2.0, 1.0, 1.0]}
    )
    odd = two_shapes()
    samples = odd.samples.copy()
    samples.loc[samples["measurement"] == 1, "wall"] = math.nan
    samples.loc[samples["measurement"] == 3, "wall"] = math.inf
    page = show(replace(odd, samples=samples).to_html())
    table = page.locator(".tb table").first
    expect(table).to_be_visible()
    assert not [text for text in table.locator("td").all_inner_texts() if text.strip().lower() in ("nan", "inf")]
    table.get_by_role("button", name="median").click()
    expect(table.locator("tbody tr.row")).to_have_count(4)
    assert len(flame_graph(tree, "t")) == 3


def rows_of(count: int) -> Document:
    columns = (Column("op", "operation", kind="code"), Column("n", "self", "ms", "number"))
    made = tuple(Row((Cell(f"op[{at}]"), Cell(str(at), float(at)))) for at in range(count))
    return Document(
        "many", (Phrase("many rows"),), (Table("rows", columns, (Group(made),) if made else ()),), where="_t.frame"
    )


def test_half_a_million_rows_say_how_many_are_shown_and_where_the_rest_is(show: Open) -> None:
    written = html.page(rows_of(500_000))
    assert len(written) < 1_100_000
    page = show(written)
    status = page.locator(".tb [role=status]").first
    expect(status).to_contain_text("of 500\u202f000 rows")
    expect(status).to_contain_text("_t.frame")
    page.get_by_role("columnheader", name="self").get_by_role("button").click()
    expect(page.locator(".tb tbody tr.row").first).to_be_visible()


EXPLODING = (
    *("(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*x", "((a{1,}){1,})$", "(?:a*)*b", "a*a*a*a*a*a*b", "(\\w+\\s?)*!"),
    *("(\\w\\w?)+$", "(aa?)*$", "(a?){30}a{30}", "(a+){9}$", "((a|a){9}){9}$", "(a{1,2})+$"),
)


@pytest.mark.parametrize("carrier", ["table", "flame"])
def test_a_pattern_that_explodes_neither_hangs_the_page_nor_loses_the_rows(show: Open, carrier: str) -> None:
    name = "a" * 300
    if carrier == "table":
        page = show(two_shapes(names=(name, name + "!")).to_html())
    else:
        tree = pd.DataFrame(
            {"parent": [-1, 0], "name": [name, "b"], "kind": "op", "self": [1.0, 1.0], "total": [2.0, 1.0]}
        )
        page = show("".join(flame.markup(flame_graph(tree, "two frames"))))
    field, status = page.get_by_role("searchbox").first, page.get_by_role("status").first
    for pattern in EXPLODING:
        field.fill(pattern)
        expect(status).to_have_text("not a usable pattern: this pattern takes too long")
        field.fill("")
    field.fill("^a+!?$")
    expect(status).not_to_contain_text("not a usable")


EVERYDAY = (
    *("(mul|sum)_", "a.*b", r"\(a+\)+", "[(a+)+]", "at::(add|mul)_?$", "(a{2}){3}", "^.*x.*y"),
    *(r"conv\dd?_?", "(?:add|mul)?_", "(a|b){2}"),
)


def test_everyday_patterns_are_taken(show: Open) -> None:
    page = show(two_shapes().to_html())
    field, status = page.get_by_role("searchbox").first, page.locator(".tb [role=status]").first
    for pattern in EVERYDAY:
        field.fill("(")
        expect(status).to_contain_text("not a usable pattern")
        field.fill(pattern)
        expect(status).to_contain_text("of 4 rows")
        expect(status).not_to_contain_text("not a usable pattern")


def table_of(page: Page) -> Locator:
    return page.locator(".tb table").first


def test_one_row_and_none_are_drawn(show: Open) -> None:
    for count in (0, 1):
        page = show(html.page(rows_of(count)))
        expect(table_of(page)).to_be_visible()
        expect(table_of(page).locator("tbody tr.row")).to_have_count(count)
        page.close()
    page = show(comparison_of([("n", 1, (1e-3,))], ["a"], samples=1).to_html())
    expect(page.locator(".tb")).to_be_visible()
