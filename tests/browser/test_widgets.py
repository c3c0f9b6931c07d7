"""The live widgets in JupyterLab: the controls ask Python, and Python knows what is selected."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from .results import rows, write_notebook
from .test_quickstart import code_cells, open_notebook

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

SELECT_CELL = """at => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = at;
}"""
RUN_CELL = "async () => { await window.jupyterapp.commands.execute('notebook:run-cell'); }"
TIMED = "%%timer --min-run-time 0.6 {}\n# --- one\nx + 1\n# --- two\nx * 2\n# --- three\nx.exp()"
CELLS = (
    "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)",
    TIMED.format("-w"),  # long enough for the live view of a measurement, in whose place the widget is drawn
    "c = _timer.explore()\nc",
    "print(c.selection, list(c.rows['description']), c.result.baseline)",
    "%config TorchBench.display = 'widget'",
    "%%tprofile\ny = (x + 1).exp()\nfor _ in range(3):\n    z = y.cos()",
    "p = _tprofile.explore()\np",
    "print(p.selection, sorted(set(p.rows['op'])), p.metric.value)",
)
TRAINING = """\
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(60)])
opt = torch.optim.Adam(model.parameters(), foreach=False)
batch = torch.randn(4, 8)"""
LOOP = "%%tprofile -q\nfor _ in range(5):\n    opt.zero_grad(); model(batch).square().mean().backward(); opt.step()"
PLANTED = f"""\
from torchbench_magic.result_base import Cure, Insight
from torchbench_magic.profiling.profile import Profile
cure = Cure("Update all parameters at once.", lever="fused-optimizer")
Profile.insights = property(lambda self: (Insight("optimizer-loop", 0.01, 0.5, "", cures=(cure,), body={LOOP!r}),))
p = _tprofile.explore()
p"""  # a profile made on a busy machine has no insights
TRIED = (
    TRAINING,
    LOOP,
    PLANTED,
    "print(p.trials.comparison.frame['description'].tolist())",
)


def run_cell(page: Page, at: int) -> Locator:
    """Run one cell; its output."""
    page.evaluate(SELECT_CELL, at)
    page.evaluate(RUN_CELL)
    return code_cells(page).nth(at).locator(".jp-OutputArea")


def filters_and_limits(explorer: Locator, pattern: str) -> None:
    """The table filters, Python cuts; a pattern that is none is said and changes nothing."""
    found = rows(explorer)
    every = found.count()
    field = explorer.get_by_placeholder("filter, ").first
    field.fill(pattern)
    expect(found).to_have_count(1)
    field.fill("(")
    expect(explorer).to_contain_text("not a usable pattern")
    field.fill("")
    expect(found).to_have_count(every)
    limit = explorer.get_by_label("rows")
    limit.fill("1")
    limit.press("Enter")
    expect(found).to_have_count(1)
    limit.fill("0")
    limit.press("Enter")
    expect(found).to_have_count(every)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_controls_ask_python_which_knows_what_is_selected_and_tries_a_cure(
    visit: Any, server: Any, shots: Any
) -> None:
    write_notebook(server.root / "widgets.ipynb", (*CELLS, *TRIED))
    page = open_notebook(visit, server, "lab", "widgets.ipynb")
    run_cell(page, 0)

    shown = run_cell(page, 1)
    expect(shown.locator(".widget-vbox table").first).to_be_visible(timeout=60_000)

    compared = run_cell(page, 2).locator(".widget-vbox").first
    expect(rows(compared)).to_have_count(3)
    filters_and_limits(compared, "^three")
    compared.get_by_label("baseline").select_option("two")
    expect(rows(compared).filter(has_text="baseline")).to_contain_text("two")
    compared.get_by_label("metric").select_option(label="mean")
    expect(compared.locator("table").last).to_contain_text("mean")  # Python has drawn the table again
    three = rows(compared).filter(has_text="three")
    three.click()
    expect(three).to_have_attribute("aria-selected", "true")
    page.screenshot(path=shots / "lab-widget-timer.png")
    expect(run_cell(page, 3)).to_contain_text("(2,) ['three'] two")

    run_cell(page, 4)
    shown = run_cell(page, 5)
    expect(shown.locator(".widget-vbox table").first).to_be_visible(timeout=60_000)
    profiled = run_cell(page, 6).locator(".widget-vbox").first
    profiled.get_by_role("button", name="operations", exact=True).click()
    operations = profiled.get_by_role("table", name="operations", exact=True)
    expect(operations).to_be_visible()
    profiled.get_by_label("metric").select_option(label="calls")
    expect(operations.locator("th[aria-sort=descending]")).to_contain_text("calls")
    expect(operations.locator("tbody tr.row").first).to_contain_text("aten::cos")
    operations.locator("tbody tr.row").first.click()
    expect(operations.locator("tbody tr.row").first).to_have_attribute("aria-selected", "true")
    page.screenshot(path=shots / "lab-widget-tprofile.png")
    expect(run_cell(page, 7)).to_contain_text("('aten::cos',) ['aten::cos'] calls")

    first = len(CELLS)
    for at in range(first, first + 2):
        run_cell(page, at)
    profiled = run_cell(page, first + 2).locator(".widget-vbox").first
    button = profiled.get_by_role("button", name="fused-optimizer")
    button.click()
    expect(profiled.get_by_text("as it is").first).to_be_visible(timeout=120_000)
    expect(button).to_be_enabled()
    page.screenshot(path=shots / "lab-widget-trial.png")
    expect(run_cell(page, first + 3)).to_contain_text("['as it is', 'fused-optimizer']")
    page.close()
