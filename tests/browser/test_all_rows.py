"""All rows of a profile's operations in the live table: sorted, ranked and filtered, by numbers with units too."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.show.builders import ops_of, profile_of
from torchbench_magic import units
from torchbench_magic.notebook.widgets import TableWidget
from torchbench_magic.profiling.ops_view import operations
from torchbench_magic.show import html, page_data
from torchbench_magic.show.document import Document, Phrase
from torchbench_magic.show.table import Table

from .test_bad_input import as_widget

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
NARROW = "\u202f"


def document_of(table: Table) -> Document:
    return Document("profile", (Phrase("many operations"),), (table,), where="_tprofile.ops")


@pytest.fixture
def show(opened: Open) -> Open:
    return functools.partial(opened, until=".tb")


@pytest.fixture
def many(show: Open) -> Page:
    return show(html.page(document_of(operations(ops_of(1200)))))


def column(page: Page, label: str) -> list[str]:
    texts = page.locator(".tb thead th:visible, .tb thead td:visible").all_inner_texts()
    heads = [text.split("\n")[0].strip() for text in texts]
    at = heads.index(label) + 1
    cells = page.locator(f".tb tbody tr.row:visible > td:nth-child({at})")
    return [text.strip() for text in cells.evaluate_all("all => all.map(td => td.firstChild?.textContent ?? '')")]


def sort(page: Page, label: str) -> None:
    page.locator(".tb thead:visible").get_by_role("button", name=label, exact=True).first.click()


def status(page: Page) -> Locator:
    return page.locator(".tb [role=status]:visible")


def test_a_part_says_which_it_is_and_sorting_ranks_all_rows(many: Page) -> None:
    ops = ops_of(1200).ops
    largest = ops.sort_values("self_cpu_time", ascending=False)["op"].head(12).tolist()
    said = f"the 12 largest by self time of 1{NARROW}200 operations; the other 1{NARROW}188 take"
    expect(status(many)).to_contain_text(said)
    assert column(many, "operation") == largest
    sort(many, "calls")
    assert column(many, "calls") == [units.count(calls) for calls in range(1200, 1180, -1)]
    expect(status(many)).to_have_text(f"the 20 largest by calls of 1{NARROW}200 rows")
    sort(many, "calls")
    assert column(many, "calls") == [str(calls) for calls in range(1, 21)]
    expect(status(many)).to_have_text(f"the 20 smallest by calls of 1{NARROW}200 rows")
    many.get_by_role("button", name=f"all 1{NARROW}200 rows").click()
    expect(many.locator(".tb table").first).to_have_attribute("aria-rowcount", "1201")
    many.get_by_role("button", name="fewer rows").click()
    assert len(column(many, "calls")) == 20


def test_every_number_reads_as_python_writes_it(show: Open) -> None:
    profile = ops_of(800, seed=3)
    page = show(html.page(document_of(operations(profile))))
    page.get_by_role("button", name="all 800 rows").click()
    whole = operations(profile, row_limit=800)
    expected = {row.cells[0].text: [cell.text for cell in row.cells] for row in whole.rows()}
    seen = 0
    for _ in range(40):
        rows = page.locator(".tb tbody tr.row").evaluate_all(
            "all => all.map(tr => [...tr.children].map(td => td.querySelector('.pad') ? td.firstChild.textContent"
            " : td.textContent))"
        )
        for cells in rows:
            assert cells == expected[cells[0]], cells[0]
        seen = max(seen, int(page.locator(".tb tbody tr.row").last.get_attribute("aria-rowindex") or 0))
        page.locator(".tb .pane").evaluate("pane => { pane.scrollTop += 450; }")
        page.wait_for_timeout(30)
    assert seen == 801


def test_numbers_are_compared_in_any_unit_and_joined_with_and(many: Page) -> None:
    field = many.get_by_role("searchbox")
    for text, found in (
        ("calls >= 1190", 11),
        ("calls >= 1,190".replace(",", "_"), 11),
        ("self > 1.1955 ms", 4),
        ("self > 1195.5 us", 4),
        ("allocated < 10 KiB", 10),
        ("bytes < 0.01 MiB and calls > 600", None),
        ("name ~ conv$", 24),
        ("name ~ conv and calls <= 1200", 24),
        ("name !~ conv", 1176),
        ("calls = 7", 1),
        ("op_1_conv|op_7$", 1),
        ("^aten::op_99", 11),
    ):
        field.fill(text)
        if found is None:
            frame = ops_of(1200).ops
            found = int(((frame["allocated"] < 0.01 * 2**20) & (frame["calls"] > 600)).sum())
        shown = f"the 20 largest by self of {units.count(found)}" if found > 20 else str(found)
        expect(status(many)).to_contain_text(f"{shown} of 1{NARROW}200 rows")
        assert field.get_attribute("aria-invalid") == "false", text


def test_a_filter_that_cannot_be_says_what_there_is_and_keeps_the_last_view(many: Page) -> None:
    field = many.get_by_role("searchbox")
    field.fill("calls > 1190")
    kept = column(many, "operation")
    for text, said in (
        ("cals > 10", "no column “cals”; numbers: calls, self, total, allocated"),
        ("calls > 10 and cost < 3", "no column “cost”"),
        ("self > 3 MiB", "self is in µs or %, not in MiB; units: ns, us, µs, ms, s, min"),
        ("self > much", "“much” is not a number"),
        ("name > 3", "name is text: name ~ pattern"),
        ("name ~ (", "not a usable pattern"),
    ):
        field.fill(text)
        expect(status(many)).to_contain_text(said)
        assert field.get_attribute("aria-invalid") == "true"
        assert column(many, "operation") == kept
    field.fill("")
    assert len(column(many, "operation")) == 12


def test_where_nothing_matches_a_hint_says_what_would(many: Page) -> None:
    field = many.get_by_role("searchbox")
    field.fill("calls > 5000")
    expect(status(many)).to_have_text(f"0 of 1{NARROW}200 rows: the largest calls is 1{NARROW}200")
    field.fill("calls < 1")
    expect(status(many)).to_contain_text("the smallest calls is 1")
    field.fill("calls > 1199 and calls < 2")
    expect(status(many)).to_contain_text("1 have calls > 1199, 1 have calls < 2, none has both")
    field.fill("relu")
    expect(status(many)).to_contain_text("nothing matches relu; names begin with aten::op_")


def test_source_code_with_signs_is_still_a_pattern(show: Open) -> None:
    page = show(profile_of().to_html())
    field = page.get_by_role("searchbox").first
    field.fill("mask = torch")
    expect(page.locator(".tb tbody tr.row:visible")).to_have_count(1)
    field.fill("torch > 500 ms")
    assert len(column(page, "torch")) == 2


def test_of_more_rows_than_an_output_holds_each_column_has_its_largest(show: Open) -> None:
    profile = ops_of(3000)
    table = operations(profile, most_rest=400)
    assert table.rest is not None
    assert len(table.rest) < 400
    page = show(html.page(document_of(table)))
    sort(page, "calls")
    assert column(page, "calls") == [units.count(calls) for calls in range(3000, 2980, -1)]
    expect(status(page)).to_have_text(f"the 20 largest by calls of 3{NARROW}000 rows")
    page.get_by_role("button", name=f"all {len(table) + len(table.rest)} rows").click()
    expect(status(page)).to_have_text(f"the {table.rest.top} largest by calls of 3{NARROW}000 rows")
    sort(page, "calls")
    expect(status(page)).to_contain_text(f"rows; 3{NARROW}000 in all: .explore() has them")


@pytest.mark.slow
def test_the_widget_holds_all_rows_of_fifty_thousand(show: Open) -> None:
    table = operations(ops_of(50_000), row_limit=-1, most_rest=None)
    assert len(table) + len(table.rest or ()) == 50_000
    given = page_data.script_data(page_data.as_dict(document_of(table), 5000))
    page = show(html.around(as_widget(str(TableWidget._esm), given), "widget"))
    expect(page.locator("#w .tb table").first).to_have_attribute("aria-rowcount", "50001")
    field = page.get_by_role("searchbox").first
    field.fill("calls > 49990")
    expect(status(page)).to_have_text(f"10 of 50{NARROW}000 rows")
    field.fill("")
    sort(page, "allocated")
    first = pd.Series(ops_of(50_000).ops["allocated"]).idxmax()
    assert column(page, "operation")[0] == ops_of(50_000).ops["op"][first]


SENT_LATER = """async ([esm, spec]) => {
    let redraw;
    const data = { spec: {}, state: {} };
    const on = (name, act) => { if (name === "change:spec") redraw = act; };
    const model = { on, off() {}, get: (name) => data[name] };
    const made = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
    made.default.render({ model, el: document.getElementById("host") });
    data.spec = spec;
    redraw();
}"""


@pytest.mark.slow
def test_a_widget_that_is_drawn_before_its_rows_have_come_shows_them_then(opened: Open) -> None:
    """A busy page reads what Python sends bit by bit."""
    page = opened('<div id="host"></div>')
    spec = page_data.as_dict(document_of(operations(ops_of(3))))
    page.evaluate(SENT_LATER, [str(TableWidget._esm), spec])
    expect(page.locator("#host .tb tbody tr.row")).to_have_count(3)
