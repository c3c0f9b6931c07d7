"""An output away from those that it was made with: reopened, exported, its siblings cleared, alone on a page."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, Page, expect

from tests.kernel.conftest import by_files
from tests.show.sent import brought, left_out

from .results import filters, rows, sorts_by_click_and_by_key
from .test_quickstart import RUN, code_cells, open_notebook

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

TIMED = "%%timer -n 20 -r 12\n# --- one\nx + {}\n# --- two\nx * 2\n# --- three\nx.exp()"
CELLS = (
    "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)",
    TIMED.format(1),
    TIMED.format(2),
    TIMED.format(3),
    "%%tprofile\ny = (x + 1).exp()\nfor _ in range(3):\n    z = y.cos()",
    "%%tprofile\ny = (x + 2).exp()\nfor _ in range(3):\n    z = y.cos()",
    "%%tprofile\ny = (x + 3).exp()\nfor _ in range(3):\n    z = y.cos()",
)
LAST_TIMED, LAST_PROFILED = 3, 6  # what they need, two cells each hold
INLINE = ".jp-OutputArea-output .tb"
GONE = "table is missing: the output that held it was deleted"


def book(cells: tuple[str, ...] = CELLS) -> Any:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


@pytest.fixture(scope="module")
def executed() -> Any:
    """The notebook as a program runs it."""
    made = book()
    NotebookClient(made, timeout=120, kernel_name="python3", config=by_files()).execute()
    return made


def html_of(notebook: Any, at: int) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in notebook["cells"][at]["outputs"])


def copied(notebook: Any) -> Any:
    return nbformat.from_dict(json.loads(json.dumps(notebook)))


def exported(notebook: Any, folder: Path) -> Path:
    """As ``nbconvert --to html`` does it, which test_matrix.py calls."""
    text, _ = HTMLExporter().from_notebook_node(notebook)
    page = folder / "book.html"  # nbconvert's own template asks for these, which is none of ours
    page.write_text(re.sub(r'<script src="https:[^>]*></script>', "", text), encoding="utf-8")
    return page


def shown(page: Page, at: int) -> Locator:
    return page.locator(".jp-CodeCell").nth(at).locator(INLINE).first


def is_alive(page: Page, compared: Locator, profiled: Locator) -> None:
    expect(rows(compared)).to_have_count(3, timeout=30_000)
    sorts_by_click_and_by_key(compared, "median")
    filters(page, compared, "three")
    profiled.get_by_role("button", name="flame graph").click()
    canvas = profiled.page.locator(".torchbench-flame canvas:visible")
    expect(canvas).to_have_attribute("data-drawn", re.compile(r"[4-9]|\d\d"))  # a slow page shows it before it draws
    profiled.get_by_role("button", name="timeline").click()
    expect(profiled.page.locator(".torchbench-timeline canvas:visible")).to_be_visible()
    profiled.get_by_role("button", name="lines", exact=True).click()


@pytest.mark.slow
def test_two_cells_hold_the_modules_and_all_outputs_are_alive_in_the_exported_page(
    visit: Any, executed: Any, tmp_path: Path
) -> None:
    assert [brought(html_of(executed, at)) for at in (1, 2, 3)] == [["table_explorer"], ["table_explorer"], []]
    assert left_out(html_of(executed, LAST_PROFILED)) == {"table", "flame", "timeline"}
    page = visit.open(exported(executed, tmp_path).as_uri())
    is_alive(page, shown(page, LAST_TIMED), shown(page, LAST_PROFILED))
    assert page.get_by_text(GONE).count() == 0
    visit.left_the_machine.clear()  # nbconvert's template


@pytest.mark.slow
def test_the_first_of_two_holders_is_cleared_and_nothing_is_lost(visit: Any, executed: Any, tmp_path: Path) -> None:
    made = copied(executed)
    made.cells[1].outputs = made.cells[4].outputs = []
    page = visit.open(exported(made, tmp_path).as_uri())
    is_alive(page, shown(page, LAST_TIMED), shown(page, LAST_PROFILED))
    visit.left_the_machine.clear()


@pytest.mark.slow
def test_where_all_that_hold_them_are_cleared_the_numbers_stay_and_a_line_says_what_is_missing(
    visit: Any, executed: Any, tmp_path: Path, shots: Path
) -> None:
    made = copied(executed)
    for cell in made.cells[:LAST_TIMED] + made.cells[LAST_TIMED + 1 : LAST_PROFILED]:
        cell.outputs = []
    page = visit.open(exported(made, tmp_path).as_uri())
    timed, profiled = (page.locator(".jp-CodeCell").nth(at) for at in (LAST_TIMED, LAST_PROFILED))
    for cell in (timed, profiled):
        expect(cell.get_by_role("note").first).to_contain_text(GONE, timeout=20_000)
    expect(timed.locator("table")).to_contain_text("three")
    expect(timed.locator("table")).to_contain_text("baseline")
    expect(profiled.locator("table").first).to_contain_text("z = y.cos()")
    assert page.locator(INLINE).count() == 0
    page.screenshot(path=shots / "modules-gone.png", full_page=True)
    visit.left_the_machine.clear()


@pytest.mark.parametrize("at", [1, LAST_TIMED])
@pytest.mark.slow
def test_one_output_on_a_page_of_its_own(visit: Any, executed: Any, tmp_path: Path, at: int) -> None:
    file = tmp_path / "one.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{html_of(executed, at)}", encoding="utf-8")
    page = visit.open(file.as_uri())
    if brought(html_of(executed, at)):
        expect(rows(page.locator(".tb"))).to_have_count(3)
        sorts_by_click_and_by_key(page.locator(".tb"), "median")
    else:
        expect(page.get_by_role("note")).to_contain_text(GONE, timeout=20_000)
        expect(page.locator("table")).to_contain_text("three")


def test_each_output_in_a_frame_of_its_own_stands_alone_where_the_page_is_not_known(visit: Any, tmp_path: Path) -> None:
    """As VS Code and Colab show them: sandboxed, without the page's origin."""
    from tests.show.builders import comparison_of, profile_of

    outputs = [made._repr_mimebundle_()["text/html"] for made in (comparison_of(), profile_of())]
    frames = "".join(
        f'<iframe sandbox="allow-scripts" width=900 height=500 srcdoc="{escape(html)}"></iframe>' for html in outputs
    )
    (tmp_path / "frames.html").write_text(f"<!doctype html><meta charset=utf-8><body>{frames}", encoding="utf-8")
    page = visit.open((tmp_path / "frames.html").as_uri())
    for at in range(2):
        drawn = page.frame_locator("iframe").nth(at).locator(".tb")
        expect(drawn).to_be_visible()
        drawn.get_by_role("button").first.click()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_a_notebook_that_was_run_saved_and_reopened_without_its_kernel(
    visit: Any, server: Any, shots: Path, front_end: str
) -> None:
    name = f"alone in {front_end}.ipynb"
    file = server.root / name
    nbformat.write(book(), file)
    page = open_notebook(visit, server, front_end, name)
    page.evaluate(RUN, "notebook:run-all-cells")
    prompt = code_cells(page).last.locator(".jp-InputArea-prompt")
    expect(prompt).to_have_text(re.compile(r"\[\d+\]:"), timeout=120_000)
    expect(shown(page, LAST_PROFILED)).to_be_visible()
    code_cells(page).nth(1).click()
    page.evaluate(RUN, "notebook:run-cell")  # a cell that holds the table's module is run again
    page.wait_for_timeout(500)
    expect(prompt).to_have_text(re.compile(r"\[\d+\]:"), timeout=60_000)
    expect(code_cells(page).nth(1).locator(".jp-InputArea-prompt")).to_have_text("[8]:", timeout=60_000)
    expect(shown(page, 1)).to_be_visible()
    page.evaluate(RUN, "docmanager:save")
    for _ in range(100):
        saved = json.loads(file.read_text(encoding="utf-8"))
        if saved["cells"][1].get("execution_count") == 8 and saved["cells"][1]["outputs"]:
            break
        page.wait_for_timeout(100)
    made = [brought("".join("".join(o["data"]["text/html"]) for o in cell["outputs"])) for cell in saved["cells"][1:]]
    of_profile = ["table", "flame", "timeline"]
    assert made == [["table_explorer"], ["table_explorer"], [], of_profile, of_profile, []]
    page.close()
    server.stop_kernels()

    page = open_notebook(visit, server, front_end, name)
    is_alive(page, shown(page, LAST_TIMED), shown(page, LAST_PROFILED))
    page.screenshot(path=shots / f"{front_end}-alone.png")
    page.close()
