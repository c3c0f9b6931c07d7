"""A measurement while it runs, in a browser: the table fills, and Stop keeps what is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from .results import rows, write_notebook
from .test_quickstart import KERNEL_IDLE, RUN, code_cells, open_notebook
from .test_widgets import SELECT_CELL, run_cell

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

# Notes at every frame where the third cell begins, and whether a live view is in the page, until window.ended.
WATCH_PLACE = """() => {
    window.places = [];
    const note = () => {
        const cells = document.querySelectorAll(".jp-Notebook .jp-CodeCell");
        const live = cells[1].querySelector(".torchbench-live");
        window.places.push([Boolean(live && live.offsetHeight), cells[2].getBoundingClientRect().top]);
        if (!window.ended) requestAnimationFrame(note);
    };
    note();
}"""
START_CELL = "() => { window.jupyterapp.commands.execute('notebook:run-cell'); }"  # and do not wait for its end
CELLS = (
    "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)",
    "%%timer --min-run-time 60\n# --- one\nx + 1\n# --- two\nx.exp().sum()",
    "print(_timer.partial, set(_timer.frame['verdict']), _timer.frame['samples'].min() > 100, _timer.elapsed < 60)",
)


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_the_table_fills_while_the_cell_runs_and_stop_keeps_what_is_there(
    visit: Any, server: Any, shots: Any, front_end: str
) -> None:
    name = f"live in {front_end}.ipynb"
    write_notebook(server.root / name, CELLS)
    page = open_notebook(visit, server, front_end, name)
    run_cell(page, 0)

    page.evaluate(SELECT_CELL, 1)
    page.evaluate(WATCH_PLACE)
    page.evaluate(START_CELL)
    shown = code_cells(page).nth(1).locator(".jp-OutputArea")
    live = shown.locator(".widget-vbox")
    expect(live.get_by_role("progressbar")).to_be_visible(timeout=90_000)
    expect(live).to_contain_text("of 120.")
    expect(rows(live)).to_have_count(2, timeout=30_000)
    interval = rows(live).nth(1).locator("td").nth(6)
    first = interval.inner_text()
    stop = live.get_by_role("button", name="Stop")
    expect(stop).to_be_visible(timeout=30_000)  # the front end's messages are heard while the cell runs
    expect(interval).not_to_have_text(first, timeout=30_000)
    page.screenshot(path=shots / f"{front_end}-live.png")
    stop.click()

    expect(shown).to_contain_text("Partial: interrupted", timeout=30_000)
    expect(shown.locator(".widget-vbox")).to_have_count(0)
    page.evaluate("window.ended = true")
    places = page.evaluate("window.places")
    live_places = {top for is_live, top in places if is_live}
    assert len(live_places) == 1, "what stands below does not move as long as the live view is there"
    expect(shown).to_contain_text("KeyboardInterrupt")
    page.wait_for_function(KERNEL_IDLE)
    page.wait_for_timeout(1000)  # what is sent right after an interrupt is refused with it
    expect(run_cell(page, 2)).to_contain_text("True", timeout=20_000)
    page.screenshot(path=shots / f"{front_end}-stopped.png")
    page.evaluate(RUN, "docmanager:save")
    page.wait_for_timeout(1000)
    saved = json.loads((server.root / name).read_text(encoding="utf-8"))
    kinds = {kind for cell in saved["cells"] for output in cell["outputs"] for kind in output.get("data", ())}
    assert "application/vnd.jupyter.widget-view+json" not in kinds
    assert "text/html" in kinds
    page.close()
    server.stop_kernels()
