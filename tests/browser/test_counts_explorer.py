"""The live difference of counts in JupyterLab: regular expressions, chips, callers and callees in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from torchbench_magic.counting.counts import Counted, stats_of
from torchbench_magic.counting.diff import difference
from torchbench_magic.show.renderers import to_html

from .results import rows, write_notebook
from .test_quickstart import code_cells, open_notebook
from .test_widgets import run_cell

pytestmark = [pytest.mark.browser, pytest.mark.kernel]

MADE = """\
from torchbench_magic.counting.counts import CallEdge, CallGraph
from torchbench_magic.counting.counts import Counted, CountKey, Counts, stats_of
from torchbench_magic.counting.diff import difference

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


LIB = "[/lib/libtorch_cpu.so]"


def test_on_a_narrow_page_names_are_read_and_no_number_is_covered(visit: Any, tmp_path: Path) -> None:
    """What is drawn beside its figures gives way before names are cut to a few letters."""
    nothing: dict[str, Any] = {"exclusive": {}, "inclusive": {}}
    counted = []
    for times in (1, 2):
        made = {f"/w/aten/a.cpp:at::native::vectorized_loop_{n}() {LIB}": times * n * 1000 for n in range(1, 9)}
        counted.append({**made, "malloc.c:malloc [/lib/libc.so.6]": 40_000 * times})
    first, second = (
        Counted(stats_of({"exclusive": own, "inclusive": own}, nothing, 1, stmt="f", setup="pass"), (), None)
        for own in counted
    )
    path = tmp_path / "counts.html"
    to_html(difference(first, second, ("ten", "a much longer name of an alternative")), path)
    page = visit.open(path.as_uri())
    page.set_viewport_size({"width": 700, "height": 900})
    table = page.locator(".tb table")
    expect(table).to_be_visible()
    expect(table.locator("td.change").first).to_be_hidden()
    widths = table.evaluate(
        """table => [...table.rows].filter(row => row.cells.length > 3)
            .flatMap(row => [...row.cells].map((cell, at) => [at, cell.innerText, cell.clientWidth, cell.scrollWidth]))
            .filter(([, , wide]) => wide)"""
    )
    assert min(wide for at, text, wide, _ in widths if not at and "vectorized" in text) > 170
    assert not [each for each in widths if each[0] and each[3] > each[2] + 1]
    labels = [each for each in widths if each[1].startswith("total")]
    assert labels
    assert all(needs <= wide + 1 for _, _, wide, needs in labels)
    page.close()


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
