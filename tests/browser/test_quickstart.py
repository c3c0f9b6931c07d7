"""The quickstart in JupyterLab, as a person uses it: run, sort, filter, save, come back.

In Notebook ``test_matrix.py`` does the same with cells that take less time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from .results import filters, sorts_by_click_and_by_key

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

QUICKSTART = Path(__file__).parents[2] / "examples" / "01_quickstart.ipynb"
SECONDS = 240  # for all cells, on a busy machine

KERNEL_IDLE = """() => {
    const widget = window.jupyterapp?.shell?.currentWidget;
    const session = widget?.context?.sessionContext ?? widget?.sessionContext;
    return session?.session?.kernel?.status === 'idle';
}"""
RUN = "async command => { await window.jupyterapp.commands.execute(command); }"
DARK = "JupyterLab Dark"
THEME = "async theme => { await window.jupyterapp.commands.execute('apputils:change-theme', {theme}); }"


def open_notebook(visit, server, front_end: str, notebook: str) -> Page:
    # "reset": JupyterLab opens what was open before as well, behind it, and its cells would be counted with ours.
    page = visit.open(server.page_of(front_end, notebook) + ("&reset" if front_end == "lab" else ""))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_function(KERNEL_IDLE, timeout=60_000)
    return page


def code_cells(page: Page) -> Locator:
    return page.locator(".jp-Notebook .jp-CodeCell")


def result_of(page: Page, first_line: str, at: int = 0) -> Locator:
    """The result drawn under the cell that begins with these words."""
    cell = code_cells(page).filter(has_text=first_line).nth(at)
    return cell.locator(".jp-OutputArea-output .tb").first


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_the_quickstart_runs_sorts_filters_and_comes_back_after_a_reload(visit, server, shots) -> None:
    notebook = "quickstart.ipynb"
    book = nbformat.read(QUICKSTART, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None  # what is seen is of this run
    nbformat.write(book, server.root / notebook)
    page = open_notebook(visit, server, "lab", notebook)
    cells = code_cells(page).count()

    page.evaluate(RUN, "notebook:run-all-cells")
    last = code_cells(page).last.locator(".jp-InputArea-prompt")
    expect(last).to_have_text(re.compile(r"\[\d+\]:"), timeout=SECONDS * 1000)
    errors = page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']")
    assert errors.all_inner_texts() == []

    compared, profiled = result_of(page, "%%timer"), result_of(page, "%%tprofile")
    expect(compared).to_be_visible()
    expect(profiled).to_be_visible()
    expect(profiled).to_contain_text("np.argwhere")
    sorts_by_click_and_by_key(compared, "median")
    filters(page, compared, "mul_sum")
    assert code_cells(page).count() == cells, "a key typed in the filter was taken for a notebook command"

    compared.scroll_into_view_if_needed()
    page.screenshot(path=shots / "lab-timer.png")
    profiled.scroll_into_view_if_needed()
    page.screenshot(path=shots / "lab-tprofile.png")
    page.evaluate(THEME, DARK)
    expect(page.locator(f"body[data-jp-theme-name='{DARK}']")).to_be_attached()
    page.screenshot(path=shots / "lab-tprofile-dark.png")

    page.evaluate(RUN, "docmanager:save")
    expect_saved(server.root / notebook, page)
    page.close()
    server.stop_kernels()
    again = open_notebook(visit, server, "lab", notebook)
    returned = result_of(again, "%%timer")
    expect(returned).to_be_visible(timeout=30_000)
    sorts_by_click_and_by_key(returned, "median")
    again.close()


def expect_saved(file: Path, page: Page) -> None:
    """Wait until the notebook on disk holds the outputs; it holds no widget."""
    for _ in range(100):
        saved = json.loads(file.read_text(encoding="utf-8"))
        if any(cell.get("outputs") for cell in saved["cells"]):
            break
        page.wait_for_timeout(100)
    outputs = [output for cell in saved["cells"] for output in cell.get("outputs", ())]
    kinds = {kind for output in outputs for kind in output.get("data", ())}
    assert {"text/plain", "text/html"} <= kinds
    assert "application/vnd.jupyter.widget-view+json" not in kinds
