"""Rows that are chosen are said to the page, and rows that another view of the result shows are marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.show.builders import profile_of
from torchbench_magic.show import html
from torchbench_magic.show.document import Document

from .test_bad_input import rows_of

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
LISTEN = """() => {
    window.heard = [];
    document.addEventListener("torchbench:chosen", ({ detail, target }) =>
        window.heard.push([target.className, detail.keys, detail.label]));
}"""
SHOW = """(el, [keys, label]) => el.dispatchEvent(new CustomEvent("torchbench:show", { detail: { keys, label } }))"""


@pytest.fixture
def show(opened: Open) -> Open:
    def open_page(text: str) -> Page:
        page = opened(text, until=".tb")
        page.evaluate(LISTEN)
        return page

    return open_page


def row(page: Page, text: str) -> Locator:
    return page.locator(".tb tbody tr.row:visible").filter(has_text=text).first


def heard(page: Page) -> list[Any]:
    return list(page.evaluate("window.heard"))


def test_a_row_that_is_chosen_is_said_with_its_key_and_a_second_click_takes_it_back(show: Open) -> None:
    page = show(profile_of().to_html())
    line = row(page, "mask = torch.rand")
    expect(line).to_have_attribute("data-key", "line:In[3]:3")
    line.locator("td.source").click()
    expect(line).to_have_attribute("aria-selected", "true")
    line.locator("td.source").click()
    expect(line).to_have_attribute("aria-selected", "false")
    page.get_by_role("button", name="operations", exact=True).click()
    row(page, "engine: AddmmBackward0").locator("td.number").first.click()
    assert heard(page) == [
        ["torchbench", ["line:In[3]:3"], "In[3]:3"],
        ["torchbench", [], ""],
        ["torchbench", ["op:autograd::engine::evaluate_function: AddmmBackward0"], "engine: AddmmBackward0"],
    ]


def test_rows_are_walked_and_chosen_by_keys_and_one_of_them_is_reached_by_tab(show: Open) -> None:
    page = show(profile_of().to_html())
    rows = page.locator(".tb tbody tr.row:visible")
    assert page.locator(".tb tbody:visible tr.row[tabindex='0']").count() == 1
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert [keys for _, keys, _ in heard(page)] == [["line:In[3]:3"]]
    assert page.locator(".tb tbody:visible tr.row[tabindex='0']").get_attribute("data-key") == "line:In[3]:3"
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tb td.detail:visible")).to_contain_text("operation of In[3]:3")
    page.keyboard.press("Escape")
    assert page.locator(".tb td.detail:visible").count() == 0
    page.keyboard.press(" ")
    assert heard(page)[-1][1] == []


def test_what_another_view_chose_is_marked_and_counted_and_cleared(show: Open) -> None:
    page = show(profile_of().to_html())
    host = page.locator(".torchbench").first
    host.evaluate(SHOW, [["line:In[3]:3", "op:aten::empty", "op:nowhere"], "the allocation"])
    marked = page.locator(".tb tr[aria-selected=true]:visible")
    expect(marked).to_have_attribute("data-key", "line:In[3]:3")
    expect(page.locator(".tb [role=status]:visible")).to_contain_text("the allocation: 1 of ")
    page.get_by_role("button", name="operations", exact=True).click()
    expect(marked).to_have_attribute("data-key", "op:aten::empty")
    host.evaluate(SHOW, [[], ""])
    expect(marked).to_have_count(0)
    expect(page.locator(".tb [role=status]:visible")).not_to_contain_text("the allocation")
    assert heard(page) == [], "what is shown is not said again"


def test_a_marked_row_of_many_comes_into_sight_within_its_pane_and_the_page_stays(show: Open) -> None:
    document = rows_of(3000)
    table = document.tables[0]
    rows = tuple(replace(each, key=f"o{at}") for at, each in enumerate(table.groups[0].rows))
    keyed = replace(table, groups=(replace(table.groups[0], rows=rows),), keyed="op")
    page = show(html.page(replace(document, tables=(keyed,))).replace("<body>", "<body><div style=height:900px></div>"))
    before = page.evaluate("scrollY")
    page.locator(".torchbench").evaluate(SHOW, [["op:o2500"], "one"])
    found = page.locator(".tb tr[aria-selected=true]")
    expect(found).to_have_attribute("data-key", "op:o2500")
    pane, box = page.locator(".tb .pane").bounding_box(), found.bounding_box()
    assert pane is not None
    assert box is not None
    assert pane["y"] <= box["y"] <= pane["y"] + pane["height"] - box["height"]
    assert page.evaluate("scrollY") == before


def test_rows_that_no_other_view_knows_are_chosen_here_and_not_said(show: Open) -> None:
    document: Document = rows_of(5)
    page = show(html.page(document))
    row(page, "op[3]").click()
    expect(row(page, "op[3]")).to_have_attribute("aria-selected", "true")
    assert heard(page) == []
