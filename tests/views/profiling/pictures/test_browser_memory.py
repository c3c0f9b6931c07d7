"""``static/memory.js`` in a real browser: the picture is read off with the keyboard and the pointer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from torchbench_magic.profiling.memory import view

from ...carriers.test_browser_table import Show, chromium, page, show  # noqa: F401  # fixtures
from ..test_memory import made

pytestmark = pytest.mark.browser


def test_the_picture_is_read_off_with_keys_and_pointer(show: Show, page: Page) -> None:  # noqa: F811
    cpu, _ = view.documents(made())
    show(cpu)
    drawing, status = page.locator(".tb-memory svg"), page.locator(".tb-memory p")
    expect(drawing).to_be_visible()
    expect(status).to_have_text("")
    drawing.focus()
    page.keyboard.press("Home")
    expect(status).to_contain_text("at ")
    page.keyboard.press("End")
    expect(status).to_contain_text("24 MiB")
    page.keyboard.press("Escape")
    expect(status).to_have_text("")
    box = drawing.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 56 + 690 * 0.715, box["y"] + 60)
    expect(status).not_to_have_text("")
    page.mouse.move(box["x"] + 5, box["y"] + 60)
    expect(status).to_have_text("")


def test_the_picture_stands_above_its_table_in_both_themes(show: Show, page: Page) -> None:  # noqa: F811
    cpu, _ = view.documents(made())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        drawn = show(cpu)
        picture, table = page.locator(".tb-memory svg").bounding_box(), drawn.locator("table").first.bounding_box()
        assert picture is not None
        assert table is not None
        assert picture["y"] + picture["height"] <= table["y"]
        fill = page.locator(".tb-memory path.ly").first.evaluate("e => getComputedStyle(e).fill")
        assert fill not in ("none", "rgb(0, 0, 0)")


def test_a_click_lists_what_is_alive_then_to_the_byte(show: Show, page: Page) -> None:  # noqa: F811
    cpu, _ = view.documents(made())
    show(cpu)
    picture = page.locator(".tb-memory")
    drawing = picture.locator("svg")
    box = drawing.bounding_box()
    assert box is not None
    at = box["x"] + 48 + 690 * 2.2 / max(made().wall_time, 3.4)
    page.mouse.move(at, box["y"] + 60)
    page.mouse.click(at, box["y"] + 60)
    texts = [row.locator("td").all_inner_texts() for row in picture.locator("tbody tr").all()]
    rows = [[text.replace("\u202f", "") for text in cells] for cells in texts]
    assert [row[1:] for row in rows] == [["1", "104857600", "100"], ["1", "20971520", "20.0"], ["1", "8388608", "8.00"]]
    assert rows[0][0].endswith("In[3]:3")
    expect(picture).to_have_attribute("data-alive-bytes", str(128 * 2**20))
    expect(picture).to_have_attribute("data-older", str(4 * 2**20))
    expect(picture).to_contain_text("4 194 304 bytes of blocks from before the cell".replace(" ", "\u202f", 2))
    expect(picture).to_contain_text("Not included: what NumPy, Python and libraries hold")
    drawing.focus()
    page.keyboard.press("Escape")
    expect(picture.locator("table")).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(picture).to_have_attribute("data-alive-bytes", "0")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(picture).to_contain_text("alive at 3.00 s, the peak of this column")
