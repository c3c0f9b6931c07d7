"""Every picture without a mouse, with large letters and without motion; what is drawn is also written."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from tests.show.builders import flame_graph, profile_of, two_shapes
from torchbench_magic.show import flame, html
from torchbench_magic.timing import view

from .test_bad_input import rows_of

pytestmark = pytest.mark.browser

Open = Callable[[str], Page]
TREE = pd.DataFrame(
    {"parent": [-1, 0, 0], "name": ["r", "a", "b"], "kind": "op", "self": [0.0, 1.0, 1.0], "total": [2.0, 1.0, 1.0]}
)


# [number of the focused element, its tag, its name]
FOCUSED = """() => {
    let e = document.activeElement;
    while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
    window.order ??= new Map();
    if (!window.order.has(e)) window.order.set(e, window.order.size);
    const name = e.getAttribute("aria-label") || e.innerText || e.placeholder || "";
    return [window.order.get(e), e.tagName, name.trim()];
}"""


def test_tables_tell_their_rows_columns_and_order(opened: Open) -> None:
    page = opened(html.page(view.document(two_shapes())))
    table = page.locator(".tb table").first
    expect(table).to_have_attribute("aria-rowcount", "5")
    columns = int(table.get_attribute("aria-colcount") or 0)
    assert columns == table.locator("thead th").count()
    assert table.locator("th[aria-sort]").count() >= 4
    assert page.locator(".tb [role=status]").count() >= 1
    expect(table.locator("tbody tr").first).to_have_attribute("aria-rowindex", "2")


def test_every_control_is_reached_by_tab_and_has_a_name(opened: Open) -> None:
    page = opened(profile_of().to_html())
    page.locator(".tb").wait_for()
    controls = page.locator(".tb button:visible, .tb input:visible, .tb select:visible").count()
    reached = set()
    for _ in range(controls + 12):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found[1] in ("BUTTON", "INPUT", "SELECT"):
            assert found[2], "a control without a name"
            reached.add(found[0])
    assert len(reached) == controls


def test_a_long_table_is_scrolled_by_keyboard(opened: Open) -> None:
    page = opened(html.page(rows_of(3000)))
    pane = page.locator(".tb .pane.many")
    pane.focus()
    page.keyboard.press("End")
    expect(page.locator(".tb tbody")).to_contain_text("op[2999]")


def test_every_canvas_has_a_name_and_a_table(opened: Open) -> None:
    page = opened(html.around("".join(flame.markup(flame_graph(TREE, "three frames"))), "flame"))
    for canvas in page.locator("canvas").all():
        assert canvas.get_attribute("aria-label")
        assert canvas.get_attribute("tabindex") == "0"
    page.get_by_text("as a table").click()
    expect(page.locator(".torchbench-flame > table")).to_be_visible()


def test_nothing_moves_by_itself(opened: Open) -> None:
    for file in files("torchbench_magic.show").joinpath("static").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\btransition\b|\banimation\b|@keyframes|scroll-behavior|setInterval", text), file.name
    page = opened(two_shapes().to_html())
    page.get_by_role("columnheader", name="median").get_by_role("button").click()
    assert page.evaluate("document.getAnimations().length") == 0


def test_all_grows_with_the_readers_letters(opened: Open) -> None:
    small = opened(two_shapes().to_html())
    small.locator(".tb table[aria-rowcount]").first.wait_for()  # live: the static row would be taken away meanwhile
    before = small.locator(".tb tbody tr.row").first.bounding_box()
    large = opened(two_shapes().to_html().replace("<style>:root{", "<style>html{font-size:200%}:root{", 1))
    large.locator(".tb table[aria-rowcount]").first.wait_for()
    after = large.locator(".tb tbody tr.row").first.bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] == pytest.approx(2 * before["height"], rel=0.02)
    clipped = large.locator(".tb td.number, .tb td.verdict").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    )
    assert clipped == []


def test_a_click_finds_its_frame_with_large_letters(opened: Open) -> None:
    page = opened(
        html.around("".join(flame.markup(flame_graph(TREE, "three frames"))), "f").replace(
            "<style>:root{", "<style>html{font-size:150%}:root{", 1
        )
    )
    canvas = page.locator(".torchbench-flame canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] * 0.75, "y": 19 * 1.5 * 1.4})
    assert canvas.evaluate("c => c.dataset.zoom") == "2"
