"""The live widget of a profile in JupyterLab: table, flame graph and timeline show what is chosen in one of them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from .results import write_notebook
from .test_quickstart import open_notebook
from .test_widgets import run_cell

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

CELLS = (
    "%load_ext torchbench_magic\nimport torch\nx = torch.ones(64)",
    "%%tprofile\ny = (x + 1).exp()\nfor _ in range(15000):\n    z = y.cos().add_(1).mul_(2)",
    "_tprofile.explore()",
    "t = _tprofile.timeline().explore()\nt",
    "print(t.rows['name'].nunique())",
)
CHOOSE = """(view, keys) => view.dispatchEvent(
    new CustomEvent("torchbench:chosen", { bubbles: true, composed: true, detail: { keys, label: "this" } }))"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_views_of_a_widget_show_what_is_chosen_and_the_timeline_too(visit: Any, server: Any, shots: Any) -> None:
    write_notebook(server.root / "linked.ipynb", CELLS)
    page = open_notebook(visit, server, "lab", "linked.ipynb")
    run_cell(page, 0)
    run_cell(page, 1)
    explored = run_cell(page, 2).locator(".widget-vbox").first
    explored.get_by_text("flame graph", exact=True).click(timeout=90_000)
    flame = explored.locator("canvas:visible")
    expect(flame).to_be_visible(timeout=30_000)
    explored.locator("[data-lm-suppress-shortcuts]").first.evaluate(CHOOSE, ["op:aten::cos"])
    said = explored.get_by_role("status").filter(has_text="this: 1 frame")
    expect(said).to_be_visible()
    page.screenshot(path=shots / "lab-linked-widgets.png")

    output = run_cell(page, 3)
    alone = output.locator("canvas:visible")
    expect(alone).to_be_visible(timeout=90_000)
    # another output of the same profile: what is chosen in the widget above is shown by it too
    explored.locator("[data-lm-suppress-shortcuts]").first.evaluate(CHOOSE, ["op:aten::exp"])
    expect(output.get_by_role("status").filter(has_text="this: 1 call")).to_be_visible()
    expect(output).to_contain_text("drawn together")
    page.close()
