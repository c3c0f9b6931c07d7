"""One notebook in every state a reader may meet it in: live, come back to, untrusted, exported.

Its numbers are visible in each, and sort and filter work wherever scripts run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from .conftest import write_setting
from .results import filters, rows, sorts_by_click_and_by_key, write_notebook
from .test_quickstart import RUN, code_cells, open_notebook

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.slow]

TIMED = "%%timer -n 20 -r 12\n# --- one\nx + 1\n# --- two\nx * 2\n# --- three\nx.exp()"
PROFILED = "%%tprofile\ny = (x + 1).exp()\nfor _ in range(3):\n    z = y.cos()"
CELLS = (
    "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)",
    TIMED,
    PROFILED,
    "_timer.explore()",
    "print('the end')",
)
TIMED_AT, PROFILED_AT, WIDGET_AT = 1, 2, 3
INLINE = ".jp-OutputArea-output .tb"
NBCONVERTS_OWN = ("https://cdnjs.cloudflare.com/ajax/libs/", "https://unpkg.com/@jupyter-widgets/")  # of its template


def output(page: Page, at: int) -> Locator:
    return code_cells(page).nth(at).locator(".jp-OutputArea")


def inline(page: Page, at: int) -> Locator:
    return code_cells(page).nth(at).locator(INLINE).first


def is_alive(page: Page, compared: Locator, profiled: Locator) -> None:
    """Both results show their rows, and the first sorts and filters."""
    expect(rows(compared)).to_have_count(3, timeout=30_000)
    expect(compared.locator("table").first.locator("thead th button").first).to_be_visible(timeout=30_000)
    shows_its_numbers(compared, profiled)
    sorts_by_click_and_by_key(compared, "median")
    filters(page, compared, "three")


def shows_its_numbers(compared: Locator, profiled: Locator) -> None:
    for name in ("one", "two", "three"):
        expect(compared).to_contain_text(name)
    expect(compared).to_contain_text("median")
    expect(profiled).to_contain_text("z = y.cos()")


def saved(file: Path, page: Page, *, with_state: bool) -> dict[str, Any]:
    """Save, and wait until the file holds the last cell's output, and the state of the widgets where it is kept."""
    page.evaluate(RUN, "docmanager:save")
    for _ in range(200):
        notebook: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        done = bool(notebook["cells"][-1].get("outputs"))
        if done and (not with_state or "widgets" in notebook["metadata"]):
            assert ("widgets" in notebook["metadata"]) == with_state
            return notebook
        page.wait_for_timeout(100)
    raise AssertionError("the notebook was not saved")


def converting(file: Path, to: str, folder: Path) -> subprocess.Popen[str]:
    """nbconvert, at work on it for a folder."""
    command = [sys.executable, "-m", "nbconvert", "--to", to, "--output-dir", str(folder), str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(work: subprocess.Popen[str], file: Path) -> Path:
    said, _ = work.communicate(timeout=120)
    assert work.returncode == 0, said
    return file


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("front_end", "with_state"), [("lab", False), ("notebook", True)], ids=["no widget state", "widget state saved"]
)
def test_numbers_are_visible_everywhere_and_alive_wherever_scripts_run(
    visit: Any, server: Any, shots: Path, tmp_path: Path, front_end: str, with_state: bool
) -> None:
    write_setting(server.settings, "@jupyter-widgets/jupyterlab-manager", "plugin", {"saveState": with_state})
    name = f"matrix {front_end} {with_state}.ipynb"
    file = server.root / name
    write_notebook(file, CELLS)

    page = open_notebook(visit, server, front_end, name)
    page.evaluate(RUN, "notebook:run-all-cells")
    expect(code_cells(page).last).to_contain_text("the end", timeout=120_000)
    expect(code_cells(page).last.locator(".jp-OutputArea-output")).to_be_visible(timeout=120_000)
    is_alive(page, inline(page, TIMED_AT), inline(page, PROFILED_AT))
    assert code_cells(page).count() == len(CELLS), "a key typed in the filter was taken for a notebook command"
    expect(rows(output(page, WIDGET_AT).locator(".widget-vbox"))).to_have_count(3, timeout=30_000)
    expect(inline(page, WIDGET_AT)).to_be_hidden()
    notebook = saved(file, page, with_state=with_state)
    page.close()
    works = {to: converting(file, to, tmp_path) for to in ("html", "markdown")}  # while the browser goes on

    server.stop_kernels()
    page = open_notebook(visit, server, front_end, name)
    is_alive(page, inline(page, TIMED_AT), inline(page, PROFILED_AT))
    if with_state:
        expect(rows(output(page, WIDGET_AT).locator(".widget-vbox"))).to_have_count(3, timeout=30_000)
        expect(inline(page, WIDGET_AT)).to_be_hidden()
    else:  # the widget cannot be drawn any more; the table that it showed is there
        expect(output(page, WIDGET_AT)).to_contain_text("model not found", timeout=30_000)
        expect(inline(page, WIDGET_AT)).to_be_visible()
        expect(rows(inline(page, WIDGET_AT))).to_have_count(3)
        sorts_by_click_and_by_key(inline(page, WIDGET_AT), "median")
    page.screenshot(path=shots / f"{front_end}-back-{'with' if with_state else 'no'}-state.png")
    page.close()

    # Whoever did not run a notebook does not trust it: its html comes without scripts.
    notebook["cells"][0]["source"] = ["# changed by another\n", *notebook["cells"][0]["source"]]
    untrusted = server.root / f"untrusted {name}"
    untrusted.write_text(json.dumps(notebook), encoding="utf-8")
    page = open_notebook(visit, server, front_end, untrusted.name)
    for at in (TIMED_AT, PROFILED_AT, WIDGET_AT):
        expect(output(page, at).locator("table").first).to_be_visible(timeout=30_000)
    assert page.locator(".jp-OutputArea-output script").count() == 0
    shows_its_numbers(output(page, TIMED_AT), output(page, PROFILED_AT))
    expect(output(page, WIDGET_AT)).to_contain_text("three")
    page.screenshot(path=shots / f"{front_end}-untrusted.png")
    page.close()

    exported = visit.open(finished(works["html"], tmp_path / f"{file.stem}.html").as_uri())
    cells = exported.locator(".jp-CodeCell")
    is_alive(exported, *(cells.nth(at).locator(INLINE).first for at in (TIMED_AT, PROFILED_AT)))
    expect(rows(cells.nth(WIDGET_AT).locator(INLINE).first)).to_have_count(3, timeout=30_000)
    exported.close()
    asked = {url for url in visit.left_the_machine if not url.startswith(NBCONVERTS_OWN)}
    assert asked == set()
    visit.left_the_machine.clear()

    text = finished(works["markdown"], tmp_path / f"{file.stem}.md").read_text(encoding="utf-8")
    for shown in ("median", "three", "z = y.cos()", "95 % interval"):
        assert shown in text, shown
