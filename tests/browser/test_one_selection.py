"""What is chosen in one view of a profile is shown by all others: its operations, lines, modules, frames, place."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from torchbench_magic import profile
from torchbench_magic.profiling.ops_view import links
from torchbench_magic.profiling.profile import Profile

pytestmark = pytest.mark.browser

CODE = """hidden = model[0](x)
out = model[1](hidden.relu())
loss = out.square().mean()
loss.backward()
again = x.exp().exp()"""

# What each view is told, and what is said of a choice: window.shown has (class of the view, keys, label).
LISTEN = """() => {
    window.shown = [];
    const hear = (view) => view.addEventListener(
        "torchbench:show", ({ detail }) => window.shown.push([view.className, detail.keys, detail.label]));
    document.querySelectorAll("[data-lm-suppress-shortcuts]").forEach(hear);
}"""
CHOOSE = """(view, [keys, label]) => view.dispatchEvent(
    new CustomEvent("torchbench:chosen", { bubbles: true, composed: true, detail: { keys, label } }))"""

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def profiled() -> Profile:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    return profile(CODE, globals={"model": model, "x": torch.rand(512, 64), "torch": torch}, memory=True)


@pytest.fixture
def show(opened: Open) -> Open:
    def open_page(text: str) -> Page:
        page = opened(text)
        page.locator("[data-lm-suppress-shortcuts]").first.wait_for(state="attached")
        page.wait_for_function("document.querySelectorAll('[data-lm-suppress-shortcuts]').length >= 4")
        page.evaluate(LISTEN)
        return page

    return open_page


def label_of(profiled: Profile) -> str:
    return profiled.sources[profiled.source_id or ""].label


def choose(page: Page, *keys: str) -> None:
    page.locator(".torchbench").first.evaluate(CHOOSE, [list(keys), "this"])


def told(page: Page, view: str) -> list[str]:
    """The keys that a view was told last, in their order of names."""
    shown = [keys for name, keys, _ in page.evaluate("window.shown") if name == view]
    return sorted(shown[-1])


def picture(page: Page, name: str) -> Locator:
    """The picture of that name, in sight."""
    page.locator(".torchbench").first.get_by_role("button", name=name).click()
    return page.locator(f".torchbench-{name.split()[0]}")


def status(drawn: Locator) -> str:
    return str(drawn.get_by_role("status").first.inner_text())


def test_what_runs_where_is_that_of_the_profile(profiled: Profile) -> None:
    made, ops = links(profiled), profiled.ops
    assert made is not None
    of = {kind: [([*made[kind]["names"], None])[at] for at in made[kind]["at"]] for kind in ("op", "line", "module")}
    label = label_of(profiled)
    wanted = {
        (row.op, f"{label}:{row.line}" if row.line == row.line else None, row.module)
        for row in ops.astype(object).where(ops.notna(), None).itertuples()
    }
    assert set(zip(of["op"], of["line"], of["module"], strict=True)) == {
        (op, None if line == f"{label}:None" else line, module) for op, line, module in wanted
    }
    assert "left_out" not in made


def test_a_line_shows_its_operations_frames_and_place_and_escape_clears(show: Open, profiled: Profile) -> None:
    page, line = show(profiled.to_html()), f"line:{label_of(profiled)}:5"
    choose(page, line)
    ops = profiled.ops[profiled.ops["line"] == 5]["op"]
    assert [key for key in told(page, "torchbench") if key.startswith("op:")] == sorted({f"op:{op}" for op in ops})
    flame = picture(page, "flame graph")
    assert re.match(r"this: 1 frame, [\d.<]+ %", status(flame))
    timeline = picture(page, "timeline")
    calls = profiled.timeline().between(0, 1e9)
    mine = calls[calls["place"] == line.removeprefix("line:")]
    assert status(timeline) == f"this: {int(mine['calls'].sum())} calls"
    page.keyboard.press("Escape")
    assert status(timeline) == ""
    assert told(page, "torchbench") == []


def test_an_operation_shows_its_lines_and_modules_and_only_its_own_frames(show: Open, profiled: Profile) -> None:
    page = show(profiled.to_html())
    choose(page, "op:aten::addmm")
    ops = profiled.ops[profiled.ops["op"] == "aten::addmm"]
    keys = told(page, "torchbench")
    lines = {f"line:{label_of(profiled)}:{line}" for line in ops["line"]}
    assert keys == sorted({"op:aten::addmm", *lines, *(f"module:{name}" for name in ops["module"])})
    frames = profiled.frames
    assert status(picture(page, "flame graph")).startswith(f"this: {(frames['name'] == 'aten::addmm').sum()} frames")
    assert status(picture(page, "timeline")) == f"this: {int(ops['calls'].sum())} calls"


def test_an_operation_on_a_line_is_told_from_the_same_one_elsewhere(show: Open, profiled: Profile) -> None:
    page = show(profiled.to_html())
    choose(page, "op:aten::addmm", f"line:{label_of(profiled)}:1")
    assert status(picture(page, "flame graph")).startswith("this: 1 frame,")
    assert status(picture(page, "timeline")) == "this: 1 call"
    assert "module:model.1" not in told(page, "torchbench")


def test_a_module_shows_its_operations_and_the_timeline_says_that_it_knows_none(show: Open, profiled: Profile) -> None:
    page = show(profiled.to_html())
    module = next(name for name in profiled.ops["module"].dropna() if name.endswith("0"))
    choose(page, f"module:{module}")
    ops = profiled.ops[profiled.ops["module"] == module]["op"]
    assert {key for key in told(page, "torchbench") if key.startswith("op:")} == {f"op:{op}" for op in ops}
    assert status(picture(page, "flame graph")).startswith("this: 1 frame,")
    assert status(picture(page, "timeline")) == "this: not in the timeline"


def test_a_frame_that_is_clicked_is_shown_by_the_others(show: Open, profiled: Profile) -> None:
    page = show(profiled.to_html())
    flame = picture(page, "flame graph")
    flame.get_by_role("searchbox").fill("^aten::exp$")
    flame.get_by_role("button", name="next match").click()
    flame.locator("canvas").press(" ")
    line = f"line:{label_of(profiled)}:5"
    assert told(page, "torchbench") == sorted(["op:aten::exp", line])
    assert status(picture(page, "timeline")) == "aten::exp: 2 calls"


def test_a_span_of_the_timeline_shows_what_ran_in_it(show: Open, profiled: Profile) -> None:
    page = show(profiled.to_html())
    timeline = picture(page, "timeline")
    timeline.get_by_role("searchbox").fill("^aten::square$")
    timeline.get_by_role("button", name="next match").click()
    page.wait_for_function("window.shown.length > 0")
    line = f"line:{label_of(profiled)}:3"
    assert told(page, "torchbench") == sorted(["op:aten::square", line])
    canvas = timeline.locator("canvas")
    canvas.press("Escape")
    page.wait_for_function("window.shown.at(-1)[1].length === 0")
    canvas.press("Shift+ArrowRight")
    page.wait_for_function("window.shown.at(-1)[1].length > 0")
    begin, end = map(float, str(canvas.get_attribute("data-brush")).split())
    ran = profiled.timeline().between(begin + 1e-12, end)
    known = {f"op:{name}" for name in ran["name"] if name.startswith("aten::")}
    assert known <= set(told(page, "torchbench"))


def test_views_of_two_results_do_not_mix(show: Open, profiled: Profile) -> None:
    other = profile("y = x.exp()", globals={"x": torch.rand(8)})
    page = show(profiled.to_html().replace("</body>", other._repr_mimebundle_()["text/html"] + "</body>"))
    page.wait_for_function("document.querySelectorAll('.torchbench-flame[data-lm-suppress-shortcuts]').length === 2")
    first, second = page.locator(".torchbench-flame").all()
    choose(page, "op:aten::exp")
    expect(first.locator("[role=status]").first).to_contain_text("this: ")
    expect(second.locator("[role=status]").first).to_be_empty()


def test_where_an_output_has_room_for_a_part_of_what_runs_where_the_choice_says_so(profiled: Profile) -> None:
    whole, part = links(profiled), links(profiled, 3)
    assert whole is not None
    assert part is not None
    count = len(whole["op"]["at"])
    assert (len(part["op"]["at"]), part["left_out"]) == (3, count - 3)
    largest, every = ([each["op"]["names"][at] for at in each["op"]["at"]] for each in (part, whole))
    assert largest == every[:3]
