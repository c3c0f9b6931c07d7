"""Outputs in a notebook that its reader does not trust: scripts and styles are taken out, numbers and pictures stay."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from playwright.sync_api import expect

from tests.show.test_outputs_stay import RESULTS

from .test_quickstart import DARK, THEME, code_cells

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

PICTURED = ("profile_with_memory", "sweep", "ranks")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_untrusted_notebook_shows_tables_and_no_rubble_of_pictures(visit: Any, server: Any, shots: Any) -> None:
    made = nbformat.v4.new_notebook()
    for name in PICTURED:
        bundle = RESULTS[name]()._repr_mimebundle_()
        made.cells.append(nbformat.v4.new_code_cell(name, outputs=[nbformat.v4.new_output("display_data", bundle)]))
    nbformat.write(made, server.root / "untrusted.ipynb")
    page = visit.open(server.page_of("lab", "untrusted.ipynb") + "&reset")
    page.get_by_role("dialog").get_by_role("button", name="No Kernel").click(timeout=60_000)
    for at in range(len(PICTURED)):
        shown = code_cells(page).nth(at).locator(".jp-OutputArea")
        expect(shown.locator("table").first).to_be_visible(timeout=60_000)
        assert shown.locator("script").count() == 0
        rubble = shown.locator('span[style*="font-size"]')
        assert rubble.count() > 0
        assert {each.bounding_box()["height"] for each in rubble.all()} == {0}, "words of a picture without the picture"
        bars = [each.bounding_box() for each in shown.locator('span[style*="background-color"]').all()]
        assert at > 0 or bars
        assert {bar["height"] for bar in bars} <= {8}, "a bar of a table is not drawn"
        shown.scroll_into_view_if_needed()
        page.screenshot(path=shots / f"lab-sanitised-{at}.png")
    page.evaluate(THEME, DARK)
    expect(page.locator(f"body[data-jp-theme-name='{DARK}']")).to_be_attached()
    page.screenshot(path=shots / "lab-sanitised-dark.png")
