"""The scripts of `show/static` in a real browser: tables, pictures of memory, differences; no injected text runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.profiling.memory.test_view import made
from tests.profiling.profiles import profile_of_two_kernels
from torchbench_magic.notebook.widgets import TableWidget
from torchbench_magic.profiling import view as profiling_view
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.diff_view import document
from torchbench_magic.profiling.memory import view
from torchbench_magic.profiling.pictures.timeline import timeline
from torchbench_magic.show import html, page_data
from torchbench_magic.show.document import Document, Phrase, Unfolding
from torchbench_magic.show.javascript import packed_text, with_modules
from torchbench_magic.show.table import Cell, Column, Group, Row, Table
from torchbench_magic.timing import view as timing_view

from .builders import HOSTILE, LINES, OPS, comparison_of, profile_of, two_shapes
from .sent import sent

pytestmark = pytest.mark.browser


# ==== browser table ===================================================================================================
# ``static/table.js`` in a real browser: sort, filter, keyboard, detail, many rows; no injected text runs.


FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
Show = Callable[..., Locator]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "Chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS), headless=True)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page that must not fail in any script and must not ask for anything but its own file."""
    context = chromium.new_context(viewport={"width": 900, "height": 700})
    page = context.new_page()
    errors, requests = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    yield page
    context.close()
    assert errors == []
    assert all(url.startswith(("file:", "blob:")) for url in requests)  # a widget's module is unpacked into a blob


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Show:
    """Open a document from disk and give what the module drew."""

    def open_page(document: Document) -> Locator:
        file = tmp_path / "page.html"
        file.write_text(html.page(document), encoding="utf-8")
        page.goto(file.as_uri())
        drawn = page.locator(".tb")
        drawn.first.wait_for()  # the module is unpacked first
        return drawn

    return open_page


def many(rows: int, text: str = "op") -> Document:
    columns = (Column("op", "operation", kind="code"), Column("n", "self", "ms", "number"))
    made = tuple(Row((Cell(f"{text}[{at}]"), Cell(str(at * 7 % rows), float(at * 7 % rows)))) for at in range(rows))
    groups = (Group(made),) if made else ()
    return Document("many", (Phrase("many rows"),), (Table("rows", columns, groups),))


def column(result: Locator, at: int) -> list[str]:
    return [text.strip() for text in result.locator(f"tbody tr.row > td:nth-child({at}):visible").all_text_contents()]


def header(result: Locator, label: str) -> Locator:
    return result.get_by_role("columnheader", name=label, exact=False).first


def test_the_drawn_table_takes_the_place_of_the_static_one(page: Page, show: Show) -> None:
    result = show(timing_view.document(two_shapes()))
    expect(result).to_be_visible()
    expect(page.locator(".torchbench > table").first).to_be_hidden()
    assert result.locator("tbody tr.row").count() == 4
    assert column(result, 3) == ["bmm", "mul_sum", "bmm", "mul_sum"]


def test_without_script_the_static_table_is_read(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(html.page(timing_view.document(two_shapes())), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator(".torchbench > table").first).to_be_visible()
    assert "95 % interval" in page.locator(".torchbench").inner_text()
    assert "4 measurements in 11.6 s" in page.locator(".torchbench").inner_text()
    context.close()


def test_sorting_dissolves_the_groups_and_the_third_click_brings_them_back(show: Show) -> None:
    result = show(timing_view.document(comparison_of([("a", 1, (4e-6, 9e-6)), ("b", 1, (5e-6, 2e-6))])))
    natural = column(result, 1)
    assert natural == ["a", "", "b", ""]
    median = header(result, "median")
    assert median.get_attribute("aria-sort") == "none"
    median.get_by_role("button").click()
    assert median.get_attribute("aria-sort") == "descending"
    assert column(result, 1) == ["a", "b", "a", "b"], "the group's value is repeated on every row"
    assert column(result, 3) == ["mul_sum", "bmm", "bmm", "mul_sum"]
    median.get_by_role("button").click()
    assert median.get_attribute("aria-sort") == "ascending"
    assert column(result, 3) == ["mul_sum", "bmm", "bmm", "mul_sum"][::-1]
    median.get_by_role("button").click()
    assert median.get_attribute("aria-sort") == "none"
    assert column(result, 1) == natural


def test_enter_on_a_header_sorts_and_keeps_the_focus(page: Page, show: Show) -> None:
    result = show(timing_view.document(two_shapes()))
    button = header(result, "times").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    expect(header(result, "times")).to_have_attribute("aria-sort", "descending")
    page.keyboard.press("Enter")
    expect(header(result, "times")).to_have_attribute("aria-sort", "ascending")


def test_the_filter_narrows_the_rows_and_the_status_counts_them(page: Page, show: Show) -> None:
    result = show(timing_view.document(two_shapes()))
    field, status = result.get_by_role("searchbox"), result.get_by_role("status")
    field.fill("^MUL")
    assert column(result, 3) == ["mul_sum", "mul_sum"]
    assert column(result, 1) == ["64 × 64", "64 × 65"], "the first row left in a group names it"
    expect(status).to_have_text("2 of 4 rows")
    field.fill("(")
    expect(status).to_contain_text("not a usable pattern")
    assert column(result, 3) == ["mul_sum", "mul_sum"], "an unusable pattern keeps the last view"
    field.fill("nothing like it")
    assert column(result, 3) == []
    field.fill("")
    assert len(column(result, 3)) == 4
    assert page.locator(".torchbench").get_attribute("data-lm-suppress-shortcuts") == "true"


def test_a_pattern_that_explodes_is_given_up_and_the_next_one_works(show: Show) -> None:
    result = show(many(1000, "a" * 22))
    field, status = result.get_by_role("searchbox"), result.get_by_role("status")
    field.fill("(a+)+$")
    expect(status).to_have_text("not a usable pattern: this pattern takes too long", timeout=20_000)
    field.fill("\\[12\\]")
    expect(status).to_have_text("1 of 1\u202f000 rows")


def test_the_ratio_axis_switches_to_the_close_view(show: Show) -> None:
    result = show(timing_view.document(two_shapes()))
    arrows = result.locator("td.interval path.f-faster")
    assert arrows.count() == 0
    result.get_by_role("button", name="zoom to ±10 %").click()
    assert arrows.count() == 2, "ratios outside the axis are arrows"
    assert [text[:3] for text in result.locator("td.interval").all_text_contents() if text] == ["1.6", "1.6"]
    expect(result.get_by_role("button", name="zoom to ±10 %")).to_have_attribute("aria-pressed", "true")


def test_decimal_points_are_drawn_under_each_other(show: Show) -> None:
    result = show(profiling_view.document(profile_of()))
    edges = result.evaluate(
        """tb => [...tb.querySelector("table").querySelectorAll("tr.row > td:nth-child(3)")]
            .filter(td => td.textContent).map(td => {
            const range = document.createRange(), text = td.firstChild;
            const point = text.data.indexOf(".");
            range.setStart(text, point < 0 ? text.length : point);
            range.collapse(true);
            return Math.round(range.getBoundingClientRect().left);
        })"""
    )
    assert len(edges) == 11, "ten lines that ran and the total"
    assert len(set(edges)) == 1


def test_the_operations_of_a_line_open_in_place_one_at_a_time(page: Page, show: Show) -> None:
    result = show(profiling_view.document(profile_of()))
    first = result.get_by_role("button", name="operations of In[3]:2")
    second = result.get_by_role("button", name="operations of In[3]:7")
    second.click()
    expect(second).to_have_attribute("aria-expanded", "true")
    expect(result.locator("td.detail")).to_contain_text("engine: AddmmBackward0")
    first.press("Enter")
    expect(result.locator("td.detail")).to_have_count(1)
    expect(result.locator("td.detail")).to_contain_text("aten::empty")
    page.keyboard.press("Escape")
    expect(result.locator("td.detail")).to_have_count(0)


def test_arrows_walk_from_line_to_line(page: Page, show: Show) -> None:
    result = show(profiling_view.document(profile_of()))
    result.get_by_role("button", name="operations of In[3]:2").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(result.locator("td.detail")).to_contain_text("operation of In[3]:3")


def test_a_sorted_line_is_named_by_its_place(show: Show) -> None:
    result = show(profiling_view.document(profile_of()))
    assert column(result, 1)[:2] == ["1", "2"]
    header(result, "Python").get_by_role("button").click()
    assert column(result, 1)[0] == "In[2]:9"
    assert result.locator("tr.heading:visible").count() == 0


def test_lines_and_operations_are_two_views_of_one_output(show: Show) -> None:
    result = show(profiling_view.document(profile_of()))
    expect(result.get_by_text("In[3], this cell")).to_be_visible()
    result.get_by_role("button", name="operations", exact=True).click()
    expect(result.get_by_text("In[3], this cell")).to_be_hidden()
    expect(result.get_by_text("aten::addmm")).to_be_visible()
    assert result.locator("th[aria-sort=descending]").count() == 1, "the natural order is shown as one"


def test_a_lone_statement_unfolds(show: Show) -> None:
    result = show(timing_view.document(comparison_of([(None, 1, (1e-3,))], [None])))
    expect(result.get_by_text("loop overhead")).to_be_hidden()
    result.locator("summary").click()
    expect(result.get_by_text("loop overhead")).to_be_visible()


def test_of_many_rows_only_those_in_sight_are_in_the_page_and_all_can_be_reached(page: Page, show: Show) -> None:
    result = show(many(5000))
    assert result.locator("tbody tr.row").count() < 80
    assert result.locator("table").get_attribute("aria-rowcount") == "5001"
    result.locator(".pane").evaluate("pane => { pane.scrollTop = pane.scrollHeight; }")
    expect(result.locator("tr[aria-rowindex='5001']")).to_be_visible()
    header(result, "self").get_by_role("button").click()
    result.locator(".pane").evaluate("pane => { pane.scrollTop = 0; }")
    expect(result.locator("tbody tr.row").first).to_contain_text("4999")


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_or_none_are_drawn(show: Show, rows: int) -> None:
    result = show(many(rows))
    expect(result.locator("thead")).to_contain_text("operation")
    assert result.locator("tbody tr.row").count() == rows


@pytest.mark.parametrize("name", HOSTILE)
def test_no_injected_text_runs(page: Page, show: Show, name: str) -> None:
    result = show(timing_view.document(two_shapes(names=(name, name + "2"), stmt=name)))
    expect(result).to_be_visible()
    header(result, "alternative").get_by_role("button").click()
    result.get_by_role("searchbox").fill("2$")
    assert page.evaluate("window.INJECTED") is None
    assert result.locator("img, a, iframe, script").count() == 0
    assert page.locator(".torchbench").locator("img, iframe").count() == 0


def test_an_error_while_drawing_leaves_the_static_table(page: Page, tmp_path: Path) -> None:
    made = html.render(timing_view.document(two_shapes()))
    (spec,) = sent(made)
    data = packed_text(json.dumps(spec | {"tables": [{"name": "x"}, *spec["tables"]]}))
    broken, file = re.sub(r"','[^']+'\]\)</script>", lambda _: f"','{data}'])</script>", made), tmp_path / "broken.html"
    caught = "<script>onunhandledrejection = (event) => { window.FAILED = `${event.reason}`; event.preventDefault(); }"
    sound = html.render(timing_view.document(comparison_of()))
    whole = with_modules(f"<!doctype html><meta charset=utf-8>{caught}</script>{broken}{sound}")
    file.write_text(whole, encoding="utf-8")
    page.goto(file.as_uri())
    expect(page.locator(".tb")).to_have_count(1)  # the one that is sound
    assert page.evaluate("window.FAILED")
    expect(page.locator(".torchbench > table").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_page_in_both_themes(chromium: Browser, tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(html.page(timing_view.document(two_shapes())), encoding="utf-8")
    context = chromium.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(file.as_uri())
    contrast = page.locator(".tb").evaluate(
        """tb => {
            const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
            const light = colour => { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
                const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data]
                    .map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            const ground = light(getComputedStyle(tb).backgroundColor);
            return [".sentence", "td.faster", "td.quiet", ".foot"].map(name => {
                const ink = light(getComputedStyle(tb.querySelector(name)).color);
                return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05); });
        }"""
    )
    context.close()
    assert min(contrast) >= 4.5


def test_the_notebooks_colours_are_taken_where_there_are_any(page: Page, show: Show) -> None:
    result = show(timing_view.document(two_shapes()))
    page.add_style_tag(content=":root{--jp-layout-color0:rgb(1, 2, 3);--jp-ui-font-color1:rgb(250, 240, 230)}")
    assert result.evaluate("tb => getComputedStyle(tb).backgroundColor") == "rgb(1, 2, 3)"
    assert result.locator(".sentence").evaluate("e => getComputedStyle(e).color") == "rgb(250, 240, 230)"


WIDGET = """
const spec = %(spec)s;
const model = { data: { spec, state: {}, answers: %(answers)s }, saved: 0, sent: [], off() {},
  on(name, f) { this[{"change:spec": "changed", "msg:custom": "heard"}[name] ?? "lived"] = f; },
  send(content) { this.sent.push(content); },
  get(name) { return this.data[name]; }, set(name, value) { this.data[name] = value; },
  save_changes() { this.saved += 1; } };
window.model = model;
window.close_widget = module.default.render({ model, el: document.getElementById("w") });
"""


def open_widget(page: Page, tmp_path: Path, answers: str = "false") -> None:
    """The table as a widget in a box with a control; ``answers`` as of `TableWidget`."""
    sent = page_data.as_json(timing_view.document(two_shapes()), 10**6)
    module = str(TableWidget._esm).replace("export default", "const module = {}; module.default =")
    script = module + WIDGET % {"spec": sent, "answers": answers}
    file = tmp_path / "widget.html"
    controls = '<div class="torchbench-controls"><input id="control"></div>'
    box = f'<div class="torchbench-live">{controls}<div id="w"></div></div><input id="elsewhere">'
    file.write_text(f'<!doctype html><meta charset=utf-8>{box}<script type="module">{script}</script>')
    page.goto(file.as_uri())


@pytest.mark.slow
def test_the_widget_says_so_when_python_does_not_answer(page: Page, tmp_path: Path) -> None:
    open_widget(page, tmp_path, "true")
    line, rows = page.locator("#w > p[role=status]"), page.locator(".tb tbody tr.row")
    page.locator("#elsewhere").fill("x")
    assert page.evaluate("model.sent") == []
    page.locator("#control").fill("x")
    assert page.evaluate("model.sent") == [{"type": "asked"}]
    page.evaluate("model.heard({type: 'here'})")
    page.wait_for_timeout(2500)
    expect(line).to_be_hidden()
    rows.nth(1).click()
    assert len(page.evaluate("model.sent")) == 2
    expect(line).to_contain_text("The session does not answer", timeout=4000)
    off = page.locator(".torchbench-controls")
    assert off.evaluate("e => e.inert"), "what nobody hears is off"
    page.get_by_role("button", name="median").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("median")
    page.evaluate("model.heard({type: 'here'})")  # late: a cell was running
    expect(line).to_be_hidden()
    assert not off.evaluate("e => e.inert")
    dead = "() => { model.send = model.save_changes = () => { throw new Error('Kernel is dead'); }; }"
    page.evaluate(dead)
    rows.nth(2).click()
    expect(line).to_be_visible(timeout=1000)  # the front end knows: no wait
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")


def test_a_widget_that_the_front_end_marks_as_lost_says_so_at_once(page: Page, tmp_path: Path) -> None:
    open_widget(page, tmp_path, "true")
    line, box = page.locator("#w > p[role=status]"), page.locator(".torchbench-live")
    expect(line).to_be_hidden()
    box.evaluate("e => e.classList.add('jupyter-widgets-disconnected')")
    page.evaluate("model.lived()")
    expect(line).to_contain_text("The session does not answer", timeout=1000)
    assert page.locator(".torchbench-controls").evaluate("e => e.inert")


def test_a_table_that_asks_for_nothing_waits_for_no_answer(page: Page, tmp_path: Path) -> None:
    open_widget(page, tmp_path)
    page.locator(".tb tbody tr.row").nth(1).click()
    page.locator("#control").fill("x")
    assert page.evaluate("model.sent") == []


def test_the_widget_tells_python_what_is_selected_and_draws_anew_when_the_data_change(
    page: Page, tmp_path: Path
) -> None:
    open_widget(page, tmp_path)
    rows = page.locator(".tb tbody tr.row")
    rows.nth(1).click()
    assert page.evaluate("model.data.state.tables.timings.selected") == ["1"]
    rows.nth(3).click(modifiers=["Control"])
    assert page.evaluate("model.data.state.tables.timings.selected") == ["1", "3"]
    rows.nth(3).press("Enter")
    assert page.evaluate("model.data.state.tables.timings.selected") == []
    rows.nth(0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    assert page.evaluate("model.data.state.tables.timings.selected") == ["1"]
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    page.evaluate("model.data.spec = {...model.data.spec, sentence: ['another baseline']}; model.changed()")
    expect(page.locator(".tb .sentence")).to_have_text("another baseline")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")


def test_names_give_way_so_that_no_number_falls_off_the_end(show: Show, page: Page) -> None:
    long = "at::native::a_function_with_a_long_name_" + "x" * 40
    heads = [Column(f"n{at}", f"a number {at}", "per call", "number") for at in range(5)]
    columns = (Column("function", "function", kind="code", widest=60), Column("bar", "bar", kind="bar"), *heads)
    rows = (Row((Cell(long), Cell(picture=((("torch", 1.0),), ())), *[Cell("12", 12.0)] * 5)),)
    remark = Row((Cell("9 more, which differ by at most 56, 116 equal in one and in the other", tone="quiet"),
                  *[Cell()] * 6))  # fmt: skip
    table_of = Table("functions", columns, (Group((*rows, remark)),))
    drawn = show(Document("found", (Phrase("found"),), (table_of,)))
    pane, table = drawn.locator(".pane"), drawn.locator("table")
    for width in (1400, 860, 760, 1400):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_timeout(200)
        assert table.evaluate("t => t.offsetWidth") <= pane.evaluate("p => p.clientWidth") + 1, width
        name = table.locator("tbody tr td").first
        assert name.evaluate("td => td.offsetWidth") >= 160
        assert name.get_attribute("title") == long
        cut = name.evaluate("td => td.scrollWidth > td.clientWidth")
        assert cut == (width < 1400), width
    said = table.get_by_text("9 more, which differ")
    page.set_viewport_size({"width": 860, "height": 700})
    page.wait_for_timeout(200)
    seen = table.locator("thead th:visible, thead td:visible").count()
    assert said.evaluate("td => td.colSpan") == seen < 7, "the bar has given way"
    assert said.evaluate("td => td.scrollWidth <= td.clientWidth"), "it has the numbers' room"


def test_what_a_row_is_of_keeps_twice_the_room_of_other_names(show: Show, page: Page) -> None:
    names = [Column("op", "operation", kind="code", widest=30), Column("line", "line", widest=30)]
    heads = [Column(f"n{at}", f"a number {at}", "ms", "number") for at in range(3)]
    columns = (*names, *heads, Column("shapes", "input shapes", widest=30))
    rows = (Row((Cell("aten::convolution_backward_and_more"), Cell("In[12]:4 (53 %) and 2 more lines"),
                 *[Cell("12", 12.0)] * 3, Cell("[16, 32, 28, 28] [16, 16, 30, 30]"))),)  # fmt: skip
    drawn = show(Document("found", (Phrase("found"),), (Table("ops", columns, (Group(rows),)),)))
    page.set_viewport_size({"width": 700, "height": 500})
    page.wait_for_timeout(200)
    widths = [drawn.locator("tbody tr td").nth(at).evaluate("td => td.offsetWidth") for at in range(2)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.1)
    assert widths[1] > 70


def test_an_insight_unfolds_to_its_evidence_and_cures(show: Show) -> None:
    line = (Phrase("overhead", "strong"), Phrase(": "), Phrase("In[1]:4", "code"), Phrase(" runs many"))
    under = ((Phrase("operations 400."),), (Phrase("Fuse <b>them</b>."),))
    drawn = replace(many(3), insights=(Unfolding(line, under),))
    result = show(drawn)
    expect(result.locator("details.insight summary")).to_have_text("overhead: In[1]:4 runs many")
    cure = result.locator("details.insight p").nth(1)
    expect(cure).to_be_hidden()
    result.locator("details.insight summary").click()
    expect(cure).to_have_text("Fuse <b>them</b>.")
    expect(cure).to_be_visible()


# ==== browser memory ==================================================================================================
# ``static/memory.js`` in a real browser: the picture is read off with the keyboard and the pointer.


def test_the_picture_is_read_off_with_keys_and_pointer(show: Show, page: Page) -> None:
    cpu, _ = view.documents(made())
    show(cpu)
    drawing, status = page.locator(".tb-memory svg"), page.locator(".tb-memory p")
    expect(drawing).to_be_visible()
    expect(status).to_have_text("")
    drawing.focus()
    page.keyboard.press("Home")
    expect(status).to_contain_text("at ")
    page.keyboard.press("End")
    expect(status).to_contain_text("24 MiB")
    page.keyboard.press("Escape")
    expect(status).to_have_text("")
    box = drawing.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 56 + 690 * 0.715, box["y"] + 60)
    expect(status).not_to_have_text("")
    page.mouse.move(box["x"] + 5, box["y"] + 60)
    expect(status).to_have_text("")


def test_the_picture_stands_above_its_table_in_both_themes(show: Show, page: Page) -> None:
    cpu, _ = view.documents(made())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        drawn = show(cpu)
        picture, table = page.locator(".tb-memory svg").bounding_box(), drawn.locator("table").first.bounding_box()
        assert picture is not None
        assert table is not None
        assert picture["y"] + picture["height"] <= table["y"]
        fill = page.locator(".tb-memory path.ly").first.evaluate("e => getComputedStyle(e).fill")
        assert fill not in ("none", "rgb(0, 0, 0)")


def test_a_click_lists_what_is_alive_then_to_the_byte(show: Show, page: Page) -> None:
    cpu, _ = view.documents(made())
    show(cpu)
    picture = page.locator(".tb-memory")
    drawing = picture.locator("svg")
    box = drawing.bounding_box()
    assert box is not None
    at = box["x"] + 48 + 690 * 2.2 / max(made().wall_time, 3.4)
    page.mouse.move(at, box["y"] + 60)
    page.mouse.click(at, box["y"] + 60)
    texts = [row.locator("td").all_inner_texts() for row in picture.locator("tbody tr").all()]
    rows = [[text.replace("\u202f", "") for text in cells] for cells in texts]
    assert [row[1:] for row in rows] == [["1", "104857600", "100"], ["1", "20971520", "20.0"], ["1", "8388608", "8.00"]]
    assert rows[0][0].endswith("In[3]:3")
    expect(picture).to_have_attribute("data-alive-bytes", str(128 * 2**20))
    expect(picture).to_have_attribute("data-older", str(4 * 2**20))
    expect(picture).to_contain_text("4 194 304 bytes of blocks from before the cell".replace(" ", "\u202f", 2))
    expect(picture).to_contain_text("Not included: what NumPy, Python and libraries hold")
    drawing.focus()
    page.keyboard.press("Escape")
    expect(picture.locator("table")).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(picture).to_have_attribute("data-alive-bytes", "0")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(picture).to_contain_text("alive at 3.00 s, the peak of this column")


# ==== browser profile diff ============================================================================================
# The difference of two profiles and the timeline as pages, from disk: read, sorted, filtered, chosen from.


def faster_at_lines(op: str = "aten::mm") -> ProfileDiff:
    """A run, and one whose matrix product took a third; the op of it has the name that is given."""
    lines = [(*row[:3], row[3] / 3, *row[4:]) if row[:2] == ("cell", 7) else row for row in LINES]
    ops = [(op, *row[1:4], row[4] / 3, *row[5:]) if row[0] == "aten::mm" else row for row in OPS]
    before = [(op, *row[1:]) if row[0] == "aten::mm" else row for row in OPS]
    return ProfileDiff(profile_of(ops=before), profile_of(lines=lines, ops=ops), ("float64", "float32"))


def numbers_of(table: Locator, label: str, nth: int = 0) -> list[float | None]:
    """Its numbers as they stand in the page; None where there is none."""
    heads = [text.split("\n")[0].strip() for text in table.locator("thead th").all_inner_texts()]
    at = [place for place, head in enumerate(heads) if head == label][nth]
    found = []
    for text in table.locator(f"tbody tr.row td:nth-child({at + 1})").all_text_contents():
        text = re.sub("[\u202f ]", "", text).replace("\u2212", "-").replace("·", "0").replace("<", "")
        found.append(float(text) if text and text != "–" else None)
    return found


def is_sorted(values: list[float | None], *, falling: bool) -> bool:
    """What is not known stays last."""
    known = [value for value in values if value is not None]
    return known == sorted(known, reverse=falling) and values[: len(known)] == known


def test_the_lines_of_two_profiles_are_sorted_and_filtered(show: Show, page: Page) -> None:
    drawn = show(document(faster_at_lines()))
    expect(drawn.locator(".sentence")).to_contain_text("float32 takes")
    expect(drawn.locator(".sentence")).to_contain_text("650 ms of it on In[3]:7")
    table = drawn.get_by_label("lines").locator("visible=true")
    changed = table.locator("tbody tr.row").filter(has_text="In[3]:7")
    expect(changed.locator("td.faster")).to_contain_text("\u2212650")
    table.get_by_role("button", name="change").first.click()
    assert is_sorted(numbers_of(table, "change"), falling=True)
    expect(table.locator("th[aria-sort=descending]")).to_contain_text("change")
    table.get_by_role("button", name="change").first.press("Enter")
    assert is_sorted(numbers_of(table, "change"), falling=False)
    assert numbers_of(table, "change")[0] == -650
    drawn.get_by_role("searchbox").locator("visible=true").fill("backward")
    expect(table.locator("tbody tr.row")).to_have_count(1)
    expect(drawn.get_by_role("status").locator("visible=true")).to_have_text(re.compile(r"^1 of \d+ rows$"))


def test_its_operations_stand_behind_the_switch_and_rows_add_up(show: Show, page: Page) -> None:
    diff = faster_at_lines()
    drawn = show(document(diff))
    drawn.get_by_role("button", name="operations", exact=True).press("Enter")
    table = drawn.get_by_label("operations", exact=True).locator("visible=true").first
    row = table.locator("tbody tr.row").filter(has_text="aten::mm").first
    expect(row.locator("td.faster").first).to_contain_text("\u2212604")
    before, now, change = (numbers_of(table, name, at) for name, at in (("float64", 1), ("float32", 1), ("change", 0)))
    assert len(before) > 3
    for left, right, between in zip(before, now, change, strict=True):
        assert None in (left, right, between) or right - left == pytest.approx(between, abs=0.11)


@pytest.mark.parametrize("op", HOSTILE[:4])
def test_no_name_of_an_operation_becomes_markup(show: Show, page: Page, op: str) -> None:
    drawn = show(document(faster_at_lines(op)))
    drawn.get_by_role("button", name="operations", exact=True).click()
    expect(drawn.get_by_label("operations", exact=True).last).to_contain_text(op[:20])
    page.wait_for_timeout(100)
    assert page.evaluate("window.INJECTED") is None


def test_both_are_read_without_scripts(chromium: Browser, tmp_path: Path) -> None:
    line = timeline(profile_of_two_kernels())
    (tmp_path / "diff.html").write_text(html.page(document(faster_at_lines())), encoding="utf-8")
    line.to_html(tmp_path / "line.html")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "diff.html").as_uri())
    rows = page.locator("table tr").filter(has_text="out.square().mean().backward()")
    expect(rows.first).to_be_visible()
    expect(rows.first).to_contain_text("\u2212650")
    page.goto((tmp_path / "line.html").as_uri())
    expect(page.locator("table tr").filter(has_text="gemm").first).to_be_visible()
    expect(page.locator("body")).to_contain_text(line.title)
    context.close()
