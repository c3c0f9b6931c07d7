"""A kernel that has ended behind live widgets: what is drawn stays, controls are off, and a line says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from .results import rows, sorts_by_click_and_by_key, write_notebook
from .test_live import START_CELL
from .test_quickstart import RUN, code_cells, open_notebook
from .test_widgets import SELECT_CELL, run_cell

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

TIMED = "%%timer -n 20 -r 12 -q\n# --- one\nx + 1\n# --- two\nx * 2\n# --- three\nx.exp()"
COMPARED = ("%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)", TIMED, "_timer.explore()")
LONG = "%%timer --min-run-time 60\n# --- one\nx + 1\n# --- two\nx.exp().sum()"
ROOT = Path(__file__).parents[2]
COUNTED = f"""\
import sys; sys.path.insert(0, {str(ROOT)!r})
from tests.show.test_outputs_stay import RESULTS
RESULTS['counts_diff']().explore()"""
EVERY = (
    "%load_ext torchbench_magic\nimport torch, torchbench_magic\nx = torch.ones(64)",
    TIMED,
    "%%tprofile -q --memory -o first\ny = (x + 1).exp()\nfor _ in range(3):\n    z = y.cos()",
    "%%tprofile -q\ny = (x + 1).exp()",
    "_timer.explore()",
    "first.explore()",
    "first.timeline().explore()",
    "torchbench_magic.profiling.diff.ProfileDiff(first, _tprofile, ('before', 'now')).explore()",
    "torchbench_magic.doctor().explore()",
    f"torchbench_magic.load_ranks({str(ROOT / 'tests' / 'cluster' / 'traces' / 'sleep_1_of_3')!r}).explore()",
    COUNTED,
)
FIRST = EVERY.index("_timer.explore()")  # the cells from here on are widgets
RESTART = "async () => { await window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel(); }"
SAID = "The session does not answer"
# Marks that ipywidgets draws before the parts of a widget without a kernel and that are seen.
CHAINS = """e => [e, ...e.querySelectorAll("*")].filter((part) => {
    const mark = getComputedStyle(part, "::before");
    return mark.content.includes("\\uf127") && mark.display !== "none";
}).length"""
OFF = "e => [...e.querySelectorAll('input,select,button')].every((part) => part.closest('[inert]'))"


def opened(visit: Any, server: Any, name: str, cells: tuple[str, ...], *, runs: int | None = None) -> Page:
    """A notebook whose cells have run, or the first ``runs`` of them."""
    write_notebook(server.root / name, cells)
    page = open_notebook(visit, server, "lab", name)
    for at in range(len(cells) if runs is None else runs):
        run_cell(page, at)
    return page


def widget(page: Page, at: int) -> Locator:
    return code_cells(page).nth(at).locator(".jp-OutputArea .torchbench-live").first


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_drawn_stays_and_a_line_says_that_the_kernel_does_not_answer(
    visit: Any, server: Any, shots: Any
) -> None:
    page = opened(visit, server, "ended.ipynb", COMPARED, runs=0)
    table = widget(page, 2)
    said, controls = table.get_by_text(SAID), table.locator(".torchbench-controls")
    for end in ("restarted", "ended"):
        for at in range(len(COMPARED)):
            run_cell(page, at)
        expect(said).to_be_hidden()
        expect(rows(table)).to_have_count(3, timeout=30_000)
        table.get_by_placeholder("filter, ").first.fill("three")
        expect(rows(table)).to_have_count(1)
        table.get_by_placeholder("filter, ").first.fill("")
        expect(rows(table)).to_have_count(3)
        page.wait_for_timeout(2500)
        expect(said).to_be_hidden()

        if end == "ended":
            server.stop_kernels()
            page.wait_for_timeout(1000)
            table.get_by_placeholder("filter, ").first.fill("three")
        else:
            page.evaluate(RESTART)
        expect(said).to_be_visible(timeout=10_000)
        table.get_by_placeholder("filter, ").first.fill("")  # the table's own
        assert controls.evaluate(OFF)
        assert table.evaluate(CHAINS) == 0
        assert rows(table).count() == 3
        sorts_by_click_and_by_key(table, "median")
        rows(table).nth(1).click()
        expect(rows(table).nth(1)).to_have_attribute("aria-selected", "true")
        page.screenshot(path=shots / f"lab-kernel-{end}.png")
    for front_ends_own in page.get_by_role("dialog").get_by_role("button").all():
        front_ends_own.click()
    page.evaluate(RUN, "docmanager:save")
    page.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_widget_outlives_its_kernel_with_its_controls_off_and_no_red_mark(
    visit: Any, server: Any, shots: Any
) -> None:
    page = opened(visit, server, "every widget.ipynb", EVERY)
    drawn = [widget(page, at) for at in range(FIRST, len(EVERY))]
    for each in drawn:
        expect(each).to_be_visible(timeout=60_000)
    page.evaluate(RESTART)
    page.wait_for_timeout(3000)
    for at, each in enumerate(drawn):
        each.scroll_into_view_if_needed()
        assert each.evaluate(CHAINS) == 0, EVERY[FIRST + at]
        controls = each.locator(".torchbench-controls")
        for part in controls.all():
            assert part.evaluate(OFF), EVERY[FIRST + at]
        if controls.count():
            expect(each.get_by_text(SAID)).to_be_visible(timeout=10_000)
            assert rows(each).count() > 0
        else:
            expect(each.locator("canvas")).to_be_visible()
        page.screenshot(path=shots / f"lab-kernel-gone-{at}.png")
    page.evaluate(RUN, "docmanager:save")
    page.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_measurement_whose_kernel_ends_says_so(visit: Any, server: Any, shots: Any) -> None:
    page = opened(visit, server, "killed.ipynb", (COMPARED[0], LONG), runs=1)
    page.evaluate(SELECT_CELL, 1)
    page.evaluate(START_CELL)
    live = code_cells(page).nth(1).locator(".jp-OutputArea .torchbench-live")
    expect(rows(live)).to_have_count(2, timeout=90_000)
    page.evaluate(RESTART)
    expect(live).to_contain_text("The session ended before this measurement did", timeout=20_000)
    expect(live.get_by_role("button", name="Stop")).to_be_hidden()
    assert live.evaluate(CHAINS) == 0
    page.screenshot(path=shots / "lab-killed.png")
    page.close()
