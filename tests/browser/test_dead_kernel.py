"""A kernel that has ended behind an ``.explore()``: what is drawn stays, and a line says that nothing answers."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from .results import rows, sorts_by_click_and_by_key
from .test_quickstart import RUN, open_notebook
from .test_widgets import run_cell

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

CELLS = (
    "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)",
    "%%timer -n 20 -r 12 -q\n# --- one\nx + 1\n# --- two\nx * 2\n# --- three\nx.exp()",
    "_timer.explore()",
)
RESTART = "async () => { await window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel(); }"


def opened(visit: Any, server: Any, name: str) -> tuple[Page, Locator]:
    """A notebook with a live table in its third cell."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(made, server.root / name)
    page = open_notebook(visit, server, "lab", name)
    for at in range(len(CELLS)):
        shown = run_cell(page, at)
    return page, shown.locator(".widget-vbox").first


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["ended", "restarted"])
def test_what_is_drawn_stays_and_a_line_says_that_the_kernel_does_not_answer(
    visit: Any, server: Any, shots: Any, end: str
) -> None:
    page, table = opened(visit, server, f"{end}.ipynb")
    expect(rows(table)).to_have_count(3, timeout=30_000)
    said = table.get_by_text("The kernel does not answer")
    table.get_by_placeholder("filter, regex").fill("three")
    expect(rows(table)).to_have_count(1)
    table.get_by_placeholder("filter, regex").fill("")
    expect(rows(table)).to_have_count(3)
    page.wait_for_timeout(2500)
    expect(said).to_be_hidden()

    if end == "ended":
        server.stop_kernels()
    else:
        page.evaluate(RESTART)
    page.wait_for_timeout(1000)
    assert rows(table).count() == 3
    table.get_by_placeholder("filter, regex").fill("three")
    expect(said).to_be_visible(timeout=10_000)
    assert rows(table).count() == 3
    sorts_by_click_and_by_key(table, "median")
    rows(table).nth(1).click()
    expect(rows(table).nth(1)).to_have_attribute("aria-selected", "true")
    page.screenshot(path=shots / f"lab-kernel-{end}.png")
    for front_ends_own in page.get_by_role("dialog").get_by_role("button").all():
        front_ends_own.click()
    page.evaluate(RUN, "docmanager:save")
    page.close()
