"""The flame graph in a real browser: keys, clicks, search, switches, both themes; no text runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.show.builders import flame_graph
from torchbench_magic.show import flame
from torchbench_magic.show.javascript import with_modules

pytestmark = pytest.mark.browser

Open = Callable[..., Page]

# a root with two children; the first has two more
TREE = pd.DataFrame(
    {
        "parent": [-1, 0, 1, 1, 0],
        "name": ["root", "first", "<img src=x onerror='window.INJECTED=1'>", "leaf", "second"],
        "kind": ["line", "python", "op", "backward", "other"],
        "self": [0.1, 0.1, 0.2, 0.3, 0.3],
        "total": [1.0, 0.6, 0.2, 0.3, 0.3],
    }
)


def drawn(tree: pd.DataFrame, title: str) -> str:
    return "".join(flame.markup(flame_graph(tree, title)))


@pytest.fixture
def show(visit, tmp_path: Path) -> Open:
    def open_page(body: str) -> Page:
        file = tmp_path / "flame.html"
        head = '<!doctype html><meta charset="utf-8"><style>:root{color-scheme:light dark}</style>'
        file.write_text(f"{head}<body>{with_modules(body)}</body>", encoding="utf-8")
        return visit.open(file.as_uri())

    return open_page


def canvas(page: Page) -> Locator:
    return page.locator(".torchbench-flame canvas")


def state(page: Page) -> tuple[int, int]:
    """(zoomed frame, -1 for everything; selected frame)."""
    data = canvas(page).evaluate("c => ({...c.dataset})")
    return int(data["zoom"]), int(data["selected"])


def press(page: Page, *keys: str) -> tuple[int, int]:
    for key in keys:
        canvas(page).press(key)
    return state(page)


def test_arrows_walk_enter_zooms_and_escape_goes_back(show: Open) -> None:
    page = show(drawn(TREE, "five frames"))
    assert state(page) == (-1, 0)
    assert press(page, "ArrowDown") == (-1, 1)
    assert press(page, "ArrowRight") == (-1, 4)
    assert press(page, "ArrowLeft") == (-1, 1)
    assert press(page, "Enter") == (1, 1)
    assert press(page, "ArrowDown", "ArrowRight", "Enter") == (3, 3)
    assert press(page, "Escape") == (1, 3)
    assert press(page, "Escape") == (-1, 3)
    assert press(page, "ArrowUp", "ArrowUp", "ArrowUp") == (-1, 0)


def test_what_is_selected_is_told_with_its_numbers_and_path(show: Open) -> None:
    page = show(drawn(TREE, "five frames"))
    press(page, "ArrowDown", "ArrowDown", "ArrowRight")
    facts = page.locator(".torchbench-flame aside")
    expect(facts).to_contain_text("root › first")
    expect(facts.locator(".name")).to_have_text("leaf")
    expect(facts.locator("tr").first).to_contain_text("300 ms")
    expect(facts.locator("tr").first).to_contain_text("30.0 %")
    expect(page.locator(".torchbench-flame [role=status]")).to_contain_text("leaf: 300 ms, 30.0 %")


def test_a_click_zooms_and_the_button_resets(show: Open) -> None:
    page = show(drawn(TREE, "five frames"))
    width = canvas(page).bounding_box()["width"]
    canvas(page).click(position={"x": width * 0.5, "y": 28})
    assert state(page) == (1, 1)
    assert canvas(page).evaluate("c => Number(c.dataset.drawn)") == 4, "root, first and what is in it"
    page.get_by_role("button", name="reset zoom").click()
    assert state(page)[0] == -1


def test_the_search_counts_and_an_unusable_pattern_keeps_the_last_view(show: Open) -> None:
    page = show(drawn(TREE, "five frames"))
    field, said = page.get_by_role("searchbox"), page.locator(".torchbench-flame [role=status]")
    field.fill("^(first|leaf)$")
    expect(said).to_have_text("2 of 5 frames match, 60.0 %")
    field.fill("(")
    expect(said).to_contain_text("not a usable pattern")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("")
    expect(said).to_have_text("")


def test_the_largest_come_first_on_demand(show: Open) -> None:
    page = show(drawn(TREE.assign(total=[1.0, 0.3, 0.1, 0.2, 0.6]), "five frames"))
    assert press(page, "ArrowDown") == (-1, 1)
    page.get_by_role("button", name="largest first").click()
    press(page, "ArrowUp")
    assert press(page, "ArrowDown") == (-1, 4)


def test_no_text_becomes_markup(show: Open) -> None:
    page = show(drawn(TREE, "<b onclick=1>"))
    press(page, "ArrowDown", "ArrowDown")
    assert page.evaluate("window.INJECTED") is None
    assert page.locator(".torchbench-flame img").count() == 0


def test_the_numbers_stand_in_a_table_beneath(show: Open) -> None:
    page = show(drawn(TREE, "five frames"))
    table = page.locator(".torchbench-flame > table")
    expect(table).to_be_hidden()
    page.get_by_text("as a table").click()
    expect(table).to_be_visible()
    expect(table).to_contain_text("leaf")


def test_without_scripts_the_table_is_read(chromium, tmp_path: Path) -> None:
    file = tmp_path / "flame.html"
    file.write_text(drawn(TREE, "five frames"), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator("table")).to_be_visible()
    expect(page.locator("table")).to_contain_text("second")
    context.close()


def pixels(page: Page) -> list[list[int]]:
    """Colours in the middle of the rows of the picture."""
    code = """c => [8, 27, 46].map(y => [...c.getContext("2d").getImageData(
        (c.width * 0.1) | 0, (y * devicePixelRatio) | 0, 1, 1).data])"""
    return canvas(page).evaluate(code)


def test_the_colours_follow_the_theme(show: Open, shots: Path) -> None:
    page = show(drawn(TREE.assign(name=["a"] * 5), "five frames"))
    light = pixels(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)  # it is drawn anew when the theme has changed
    dark = pixels(page)
    assert len({tuple(colour) for colour in light}) == 3, "a hue per kind"
    assert len({tuple(colour) for colour in dark}) == 3
    for one, other in zip(light, dark, strict=True):
        assert sum(one[:3]) > sum(other[:3]) + 100
    page.screenshot(path=shots / "flame-dark.png")


@pytest.mark.one_of_each
def test_the_view_switch_of_a_profile_opens_it(show: Open, shots: Path) -> None:
    torch = pytest.importorskip("torch")
    from torchbench_magic import profile

    made = profile("y = (x @ x).relu()\ny.sum()", globals={"x": torch.ones(200, 200)}, memory=True)
    page = show(made._repr_mimebundle_()["text/html"])
    expect(canvas(page)).to_be_hidden()
    page.get_by_role("button", name="flame graph", exact=True).click()
    expect(canvas(page)).to_be_visible()
    assert canvas(page).evaluate("c => Number(c.dataset.drawn)") >= 3
    expect(page.locator(".torchbench-flame aside .name")).to_have_text(re.compile("profile-"))
    page.screenshot(path=shots / "flame-in-profile.png")
