"""The live difference of counts in JupyterLab: regular expressions, chips, callers and callees in place."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from .results import rows, write_notebook
from .test_quickstart import code_cells, open_notebook
from .test_widgets import run_cell

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

MADE = """\
from torchbench_magic.results.counting.call_graph import CallEdge, CallGraph
from torchbench_magic.results.counting.counts import Counted, CountKey, Counts, stats_of
from torchbench_magic.results.counting.differences import difference

LIB = "[/lib/libtorch_cpu.so]"

def counted(**costs):
    own = {f"/w/build/aten/{name}.cpp:at::{name}() {LIB}": cost for name, cost in costs.items()}
    nothing = {"exclusive": {}, "inclusive": {}}
    arcs = tuple(CallEdge("m.c:main", name, 1, cost) for name, cost in own.items())
    stats = stats_of({"exclusive": own, "inclusive": own}, nothing, 1, stmt="f", setup="pass")
    return Counted(stats, (), CallGraph(arcs, (), 1))

w = difference(counted(mul=100, add=20), counted(mul=150, add=21, strides=30), ("A", "B")).explore()
w"""
CELLS = (MADE, "print(w.selection, [step.words for step in w.steps], w.total.delta, w.message.value)")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_difference_is_explored(visit: Any, server: Any, shots: Any) -> None:
    write_notebook(server.root / "counts.ipynb", CELLS)
    page = open_notebook(visit, server, "lab", "counts.ipynb")
    explorer = run_cell(page, 0).locator(".widget-vbox").first
    found = rows(explorer)
    expect(found).to_have_count(3, timeout=60_000)
    expect(explorer).to_contain_text("3 functions, 3 differ; their sum differs by +81")

    field = explorer.get_by_placeholder("filter, regex")
    field.fill("STRIDES")
    expect(found).to_have_count(1)
    field.fill("(")
    expect(explorer).to_contain_text("not a usable pattern")
    expect(found).to_have_count(1)
    field.fill("")
    expect(found).to_have_count(3)

    explorer.get_by_placeholder("transform, regex").fill("at::(mul|add)")
    expect(explorer).to_contain_text("changes 2 of 3 names")
    explorer.get_by_placeholder("replacement (empty: delete)").fill("ours")
    explorer.get_by_role("button", name="add", exact=True).click()
    expect(explorer.get_by_role("button", name="at::(mul|add) to ours")).to_be_visible()
    expect(found.filter(has_text="ours")).to_have_count(2)
    explorer.get_by_role("button", name="standardize").click()
    expect(explorer.get_by_label("standardize")).not_to_be_checked()
    explorer.get_by_role("button", name="at::(mul|add) to ours").click()
    expect(found.filter(has_text="ours")).to_have_count(0)

    row = found.filter(has_text="at::strides()")
    row.click()
    expect(explorer.locator("tr.opened")).to_contain_text("called by")
    expect(explorer.locator("tr.opened")).to_contain_text("main")
    expect(row).to_have_attribute("aria-selected", "true")
    page.screenshot(path=shots / "lab-widget-counts.png")
    expect(run_cell(page, 1)).to_contain_text(
        "('/w/build/aten/strides.cpp:at::strides() [/lib/libtorch_cpu.so]',) [] 81.0"
    )
    row.click()
    expect(explorer.locator("tr.opened")).to_have_count(0)
    assert code_cells(page).count() == 2
    page.close()
