"""What the flame graph and the timeline can do by themselves: from match to match, callers and callees, two frames side
by side, the table of a span, a page of their own."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.profiling.pictures.test_timeline import busy, crowded
from tests.profiling.profiles import profile_of_two_kernels
from tests.show.builders import flame_graph
from torchbench_magic.profiling.pictures.timeline import markup, spec_of, timeline
from torchbench_magic.show import flame, html
from torchbench_magic.show.javascript import self_unpacking
from torchbench_magic.show.page_data import script_data

pytestmark = pytest.mark.browser

Open = Callable[..., Page]

# main > f > g > f > g > leaf, and main > h > f, main > g: f and g call each other
CALLS = (
    # parent, name, self ms
    (-1, "main", 10.0),
    (0, "f", 1.0),
    (1, "g", 2.0),
    (2, "f", 3.0),
    (3, "g", 4.0),
    (4, "leaf", 5.0),
    (0, "h", 6.0),
    (6, "f", 7.0),
    (7, "leaf", 8.0),
    (0, "g", 9.0),
)


def calls() -> flame.FlameGraph:
    own = np.array([row[2] / 1e3 for row in CALLS])
    total = own.copy()
    for at in range(len(CALLS) - 1, 0, -1):
        total[CALLS[at][0]] += total[at]
    names = [row[1] for row in CALLS]
    parents = [row[0] for row in CALLS]
    tree = pd.DataFrame({"parent": parents, "name": names, "kind": "function", "self": own, "total": total})
    return flame_graph(tree, "who calls whom")


@pytest.fixture
def show(opened: Open) -> Open:
    return functools.partial(opened, until="canvas")


def alone(graph: flame.FlameGraph) -> str:
    return html.around("".join(flame.markup(graph)), "flame")


def data(page: Page, name: str) -> str:
    return str(page.locator("canvas").get_attribute(f"data-{name}"))


def cells(table: Locator) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def test_enter_goes_from_match_to_match_and_round_and_shift_enter_back(show: Open) -> None:
    page = show(alone(calls()))
    field, said = page.get_by_role("searchbox"), page.get_by_role("status").first
    field.fill("^g$")
    expect(said).to_have_text("3 of 10 frames match, 41.8 %")
    seen = []
    for key in ("Enter", "Enter", "Enter", "Enter", "Shift+Enter", "Shift+Enter"):
        field.press(key)
        seen.append((int(data(page, "zoom")), said.inner_text().split(":")[0]))
    first, second, third = (2, "match 1 of 3"), (4, "match 2 of 3"), (9, "match 3 of 3")
    assert seen == [first, second, third, first, third, second]
    page.get_by_role("button", name="next match").click()
    assert int(data(page, "zoom")) == 9


def test_where_nothing_matches_a_hint_says_what_would(show: Open) -> None:
    page = show(alone(calls()))
    page.get_by_role("searchbox").fill("conv")
    expect(page.get_by_role("status").first).to_have_text(
        "none of 10 frames matches: a part of a name is enough, such as h"
    )
    expect(page.get_by_role("button", name="next match")).to_be_disabled()


def test_callers_and_callees_are_over_all_calls_and_recursion_is_counted_once(show: Open) -> None:
    page = show(alone(calls()))
    canvas = page.locator("canvas")
    canvas.press("ArrowDown")  # f
    canvas.press("c")
    panel = page.get_by_role("region", name="callers and callees")
    expect(panel).to_contain_text("f over all its calls, at 2 places: 30.0 ms")
    expect(panel).to_contain_text("self 11.0 ms")  # 1 + 3 + 7
    callers, callees = panel.locator("table").all()
    assert [row[:3] for row in cells(callers)] == [["main", "15.0", "50.0"], ["h", "15.0", "50.0"]]
    # g: its outermost call below f, 2 + 3 + 4 + 5; leaf is called by f once, the other one by g
    assert [row[:2] for row in cells(callees)] == [["g", "14.0"], ["leaf", "8.00"]]
    callees.get_by_role("button", name="g", exact=True).click()
    expect(panel).to_contain_text("g over all its calls, at 2 places: 23.0 ms")
    assert [row[:2] for row in cells(panel.locator("table").first)] == [["f", "14.0"], ["main", "9.00"]]
    panel.get_by_role("button", name="close").click()
    expect(panel).to_be_hidden()


def test_two_frames_are_pinned_and_compared(show: Open) -> None:
    page = show(alone(calls()))
    canvas = page.locator("canvas")
    canvas.press("ArrowDown")
    canvas.press("p")  # main > f, 15 ms
    panel = page.get_by_role("region", name="pinned frames")
    expect(panel).to_contain_text("pin another to compare them")
    canvas.press("ArrowDown")
    canvas.press("ArrowDown")
    page.get_by_role("button", name="pin", exact=True).click()  # f > g > f, 12 ms
    rows = {name: values for name, *values in cells(panel.locator("table"))}
    assert rows["total, ms"] == ["15.0", "12.0", "0.80"]
    assert rows["self, ms"] == ["1.00", "3.00", "3.00"]
    assert rows["share, %"][0] == "27.3"
    expect(panel).to_contain_text("A: main › f")
    expect(panel).to_contain_text("B: main › f › g › f")
    panel.get_by_role("button", name="unpin").click()
    expect(panel).to_be_hidden()


def test_a_page_of_its_own_stands_alone_and_does_the_same(show: Open) -> None:
    page = show(alone(calls()))
    with page.expect_popup() as opened:
        page.get_by_role("button", name="open in a new page").click()
    own = opened.value
    own.locator("canvas").wait_for()
    assert own.title() == "who calls whom"
    own.get_by_role("searchbox").fill("leaf")
    expect(own.get_by_role("status").first).to_contain_text("2 of 10 frames match")
    assert own.locator("table td").filter(has_text="leaf").count() > 0
    assert own.evaluate("performance.getEntriesByType('resource').filter(e => !e.name.startsWith('blob:')).length") == 0


RENDER = """async (esm) => {
    const nothing = () => {}, given = { spec: globalThis.given, state: {}, _esm: esm };
    const model = { get: (name) => given[name], set: nothing, save_changes: nothing, on: nothing, off: nothing };
    const made = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
    made.default.render({ model, el: document.getElementById("host") });
}"""


def test_a_widget_opens_a_page_of_its_own_too(show: Open) -> None:
    spec = flame.spec_of(calls())
    script = "globalThis.given = JSON.parse(document.getElementById('given').textContent);"
    given = f'<script type="application/json" id="given">{script_data(spec)}</script><canvas></canvas>'
    page = show(f'<!doctype html><div id="host"></div>{given}<script>{script}</script>')
    page.evaluate("document.querySelector('body > canvas').remove()")
    page.evaluate(RENDER, self_unpacking(flame.module()))
    with page.expect_popup() as opened:
        page.get_by_role("button", name="open in a new page").click()
    own = opened.value
    own.locator("canvas").wait_for()
    own.get_by_role("searchbox").fill("leaf")
    expect(own.get_by_role("status").first).to_contain_text("2 of 10 frames match")


# ---- the timeline -----------------------------------------------------------------------------------------------


def test_bars_are_found_one_after_the_other_each_zoomed_to(show: Open) -> None:
    page = show(timeline(profile_of_two_kernels()).to_html() or "")
    field, said = page.get_by_role("searchbox"), page.get_by_role("status").first
    field.fill("relu")
    expect(said).to_have_text("“relu”: 3 calls")  # its line, the op, the kernel
    found = []
    for key in ("Enter", "Enter", "Enter", "Enter", "Shift+Enter"):
        field.press(key)
        found.append(said.inner_text().split(" · ")[0])
        begin, end = float(data(page, "from")), float(data(page, "to"))
        brush = [float(moment) for moment in data(page, "brush").split()]
        assert begin <= brush[0] < brush[1] <= end
    names = ("In[3]:3 z = y.relu()", "aten::relu", "relu_kernel")
    one, two, three = (f"match {n} of 3: {name}" for n, name in enumerate(names, 1))
    assert found == [one, two, three, one, three]
    field.fill("conv2d")
    expect(said).to_contain_text("no name or line matches “conv2d”: a part of a name is enough")
    field.fill("(")
    expect(field).to_have_attribute("aria-invalid", "true")


def test_the_table_of_a_span_is_sorted_over_all_its_rows(show: Open) -> None:
    made = timeline(busy(3000))
    page = show(made.to_html() or "")
    whole = made.between(0, 1)
    for name, column, ascending in (("calls", "calls", False), ("calls", "calls", True), ("name", "name", True)):
        page.get_by_role("columnheader", name=name).get_by_role("button").click()
        way = "ascending" if ascending else "descending"
        expect(page.get_by_role("columnheader", name=name)).to_have_attribute("aria-sort", way)
        ordered = whole.sort_values([column, "time"], ascending=[ascending, False])[column].head(12)
        at = {"calls": 3, "name": 1}[name]
        shown = [row[at].replace("\u202f", "") for row in cells(page.locator(".tl table").last)]
        assert shown == [str(value) for value in ordered]
    expect(page.locator(".tl caption").last).to_contain_text(f"the first 12 by name of {len(whole)} rows")
    page.get_by_role("button", name=re.compile(r"show all \d")).click()
    assert page.locator(".tl table").last.locator("tbody tr").count() == len(whole)


def test_a_page_of_its_own_has_every_bar_and_an_output_says_how_many_are_drawn_together(show: Open) -> None:
    made = timeline(busy(30_000))
    page = show(made.to_html() or "")
    label = page.locator("canvas").get_attribute("aria-label") or ""
    assert f"timeline of {len(made.bars)} bars" in label
    page.locator("canvas").focus()
    for _ in range(9):
        page.keyboard.press("+")
    begin, end = float(data(page, "from")), float(data(page, "to"))
    every = made.bars
    seen = ((every.start / 1e9 < end) & ((every.start + every.duration) / 1e9 >= begin)).sum()
    assert int(data(page, "drawn")) <= seen
    listed = page.locator(".tl caption").last.inner_text()
    assert f"of {len(made.between(begin + 1e-12, end))} rows" in listed
    assert "are short and drawn together" in spec_of(made)["note"]


def test_what_is_drawn_together_is_said_where_it_is_searched_for(show: Open) -> None:
    page = show(html.around("".join(markup(timeline(crowded(60_000)), most_bytes=6_000)), "timeline"))
    page.get_by_role("searchbox").fill("aten::mm")
    expect(page.get_by_role("status").first).to_have_text("“aten::mm”: 1 call; short ones are drawn together")
    page = show(html.around("".join(markup(timeline(busy(60_000)))), "timeline"))
    page.get_by_role("searchbox").fill("op_7")
    said = page.get_by_role("status").first
    told = re.fullmatch(r"“op_7”: ([\d\u202f]+) calls; short ones are drawn together", said.inner_text())
    assert told is not None
    page.get_by_role("button", name="next match").click()
    expect(said).to_contain_text(f"match 1 of {told[1]}; short ones are drawn together: ")
