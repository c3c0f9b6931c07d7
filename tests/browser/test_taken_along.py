"""What a reader takes along from a table: a copy for other programs, the samples of a row, two rows compared."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.show.builders import comparison_of, ops_of, profile_of, two_shapes
from torchbench_magic.profiling.ops_view import operations
from torchbench_magic.show import html
from torchbench_magic.show.document import Document, Phrase
from torchbench_magic.show.drawing import values
from torchbench_magic.show.renderers import mimebundle
from torchbench_magic.show.table import Cell, Column, Group, Row, Table

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
READ = "navigator.clipboard.readText()"
REFUSED = "() => { navigator.clipboard.writeText = () => Promise.reject(new DOMException('no', 'NotAllowedError')); }"


@pytest.fixture
def show(visit: Any, opened: Callable[..., Page]) -> Open:
    def open_page(text: str, *, allowed: bool = True) -> Page:
        if allowed:
            visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        return opened(text, until=".tb")

    return open_page


def table_of(*rows: Row) -> str:
    columns = (
        Column("op", "operation", kind="code"),
        Column("self", "self", "ms", "number"),
        Column("low", "95 % interval", kind="range"),
        Column("bar", "", kind="bar"),
    )
    return html.page(Document("some", (Phrase("some rows"),), (Table("rows", columns, (Group(rows),)),)))


def row_of(name: str, text: str, value: float | None, interval: str = "") -> Row:
    return Row((Cell(name), Cell(text, value), Cell(interval), Cell()), name)


def output_of(result: Any) -> str:
    """A page with what a notebook shows of it: smaller than a page of its own."""
    return f"<!doctype html><title>notebook</title><body>{mimebundle(result)['text/html']}"


TRICKY = (
    row_of("=1+1", "1\u202f230", 1.2345, "0.40 … 1.2"),
    row_of("a\tb|c", "<0.1", 0.00002),
    row_of("`tick` *x*", "·", 0.0),
    row_of("plain", "–", None),
)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))


def test_a_copy_has_plain_numbers_in_the_unit_of_its_header_and_as_many_cells_in_each_row(show: Open) -> None:
    page = show(table_of(*TRICKY))
    page.get_by_role("button", name="copy TSV").click()
    expect(page.locator(".tb .acts [role=status]")).to_have_text("copied")
    assert read(page.evaluate(READ)) == [
        ["operation", "self (ms)", "95 % interval low", "95 % interval high"],
        [" =1+1", "1234.5", "0.40", "1.2"],
        ["a b|c", "0.02", "", ""],
        ["`tick` *x*", "0", "", ""],
        ["plain", "", "", ""],
    ]


def test_a_copy_as_markdown_holds_its_cells_whatever_is_in_them(show: Open) -> None:
    page = show(table_of(*TRICKY))
    page.get_by_role("button", name="copy markdown").click()
    expect(page.locator(".tb .acts [role=status]")).to_have_text("copied")
    assert page.evaluate(READ).splitlines() == [
        "| operation | self (ms) | 95 % interval |",
        "| :-- | --: | :-- |",
        "| `=1+1` | 1\u202f230 | 0.40 … 1.2 |",
        "| `a b\\|c` | &lt;0.1 |  |",
        "| `` `tick` *x* `` | · |  |",
        "| `plain` | – |  |",
    ]


def test_a_copy_has_all_rows_that_are_left_in_the_order_that_is_seen(show: Open) -> None:
    profile = ops_of(1200)
    page = show(html.page(Document("many", (Phrase("many"),), (operations(profile),))))
    page.get_by_role("searchbox").fill("calls > 600")
    page.get_by_role("button", name="total").click()
    page.get_by_role("button", name="copy TSV").click()
    expect(page.locator(".tb .acts [role=status]")).to_have_text("copied")
    head, *rows = read(page.evaluate(READ))
    assert head[:4] == ["operation", "calls", "self (µs)", "self (%)"]
    ops = profile.ops[profile.ops["calls"] > 600].sort_values("cpu_time", ascending=False)
    assert [row[0] for row in rows] == ops["op"].tolist()
    assert [int(row[1]) for row in rows] == ops["calls"].tolist()
    for row, own in zip(rows, ops["self_cpu_time"], strict=True):
        assert float(row[2]) == pytest.approx(own * 1e6, rel=1e-4)


def test_the_keyboard_copies_a_whole_table_and_a_selection_its_rows(show: Open) -> None:
    page = show(two_shapes().to_html())
    page.locator(".tb tbody tr.row").first.focus()
    page.keyboard.press("Control+c")
    whole = read(page.evaluate(READ))
    assert {len(line) for line in whole} == {len(whole[0])}
    assert [line[2] for line in whole] == ["alternative", "bmm", "mul_sum", "bmm", "mul_sum"]
    assert [line[0] for line in whole][1:] == ["64 × 64", "64 × 64", "64 × 65", "64 × 65"], "not only in the first row"
    rows = page.locator(".tb tbody tr.row")
    first, last = rows.nth(1).bounding_box(), rows.nth(2).bounding_box()
    assert first is not None
    assert last is not None
    page.mouse.move(first["x"] + 170, first["y"] + 11)
    page.mouse.down()
    page.mouse.move(last["x"] + 400, last["y"] + 11, steps=4)
    page.mouse.up()
    page.keyboard.press("Control+c")
    assert [line[2] for line in read(page.evaluate(READ))] == ["alternative", "mul_sum", "bmm"]
    assert page.locator(".tb tr[aria-selected=true]").count() == 0, "who selects text chooses no row"


def test_where_the_clipboard_is_refused_the_text_is_selected_in_a_field(show: Open) -> None:
    page = show(table_of(*TRICKY), allowed=False)
    page.evaluate(REFUSED)
    button = page.get_by_role("button", name="copy TSV")
    button.click()
    field = page.locator(".tb textarea")
    expect(field).to_be_focused()
    assert field.evaluate("f => f.value.slice(f.selectionStart, f.selectionEnd)") == field.input_value()
    assert field.input_value().startswith("operation\tself (ms)\t")
    expect(page.locator(".tb .acts [role=status]")).to_contain_text("press Ctrl-C")
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    expect(button).to_be_focused()


def test_a_histogram_shows_its_samples_in_place(show: Open) -> None:
    made = comparison_of([("64 × 64", 1, (4.6e-6, 2.8e-6))])
    page = show(made.to_html())
    page.get_by_role("button", name="samples of mul_sum").click()
    shown = page.locator(".tb td.detail")
    times = np.sort(made.call_times(1)) * 1e6
    written = [float(text) for text in shown.locator(".values").inner_text().split()]
    assert written == pytest.approx(times.tolist(), rel=2e-4)
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    facts = dict(zip(shown.locator("dt").all_inner_texts(), shown.locator("dd").all_inner_texts(), strict=True))
    assert facts["samples"] == "40"
    for name, value in (("min", times[0]), ("lower quartile", low), ("median", middle), ("upper quartile", high)):
        assert float(facts[name]) == pytest.approx(value, rel=2e-4)
    outside = times[(times < low - 1.5 * (high - low)) | (times > high + 1.5 * (high - low))]
    assert [float(text) for text in shown.locator(".values b").all_inner_texts()] == pytest.approx(outside, rel=2e-4)
    assert facts["outliers"].startswith(str(len(outside)))
    page.keyboard.press("Enter")
    expect(shown).to_have_count(0)
    page.locator(".tb tbody tr.row").nth(1).focus()
    page.keyboard.press("s")
    expect(shown).to_be_visible()
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)


def test_of_many_samples_the_ends_and_as_many_between_travel() -> None:
    times = np.random.default_rng(0).lognormal(size=5000) * 2e-3
    unit, step, count, quartiles, (below, above), *differences = values(times, 100)
    assert (unit, count, len(differences)) == ("ms", 5000, 100)
    shown = np.cumsum(differences) * step * 1e-3  # type: ignore[operator]
    assert shown[0] == pytest.approx(times.min(), abs=step * 1e-3)  # type: ignore[operator]
    assert shown[-1] == pytest.approx(times.max(), rel=1e-4)
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    assert [each * step * 1e-3 for each in quartiles] == pytest.approx([low, middle, high], rel=1e-4)  # type: ignore[attr-defined, operator]
    assert below == np.sum(times < low - 1.5 * (high - low))
    assert above == np.sum(times > high + 1.5 * (high - low))


def test_two_pinned_rows_are_compared_number_by_number(show: Open) -> None:
    page = show(profile_of().to_html())
    page.get_by_role("button", name="operations", exact=True).click()
    rows = page.locator(".tb tbody:visible tr.row")
    rows.filter(has_text="aten::mm").locator("td").nth(1).click()
    page.get_by_role("button", name="pin", exact=True).locator("visible=true").click()
    expect(page.locator(".tb .pinned")).to_contain_text("pin it to compare the two")
    rows.filter(has_text="aten::addmm").first.focus()
    page.keyboard.press("p")
    lines = [row.locator("th, td").all_inner_texts() for row in page.locator(".tb .pinned tr").all()]
    heads = [text.replace("\n", " ") for text in lines[0]]
    assert heads == ["", "calls", "self ms", "self %", "total ms", "allocated MiB"]
    assert lines[1:] == [
        ["aten::mm", "3", "906", "28.1", "906", "192"],
        ["aten::addmm", "3", "484", "15.0", "484", "24.0"],
        ["second / first", "1", "0.534", "0.534", "0.534", "0.125"],
    ]
    page.keyboard.press("Escape")
    expect(page.locator(".tb .pinned")).to_have_count(0)
    page.keyboard.press("p")
    page.get_by_role("button", name="unpin").click()
    expect(page.locator(".tb .pinned")).to_have_count(0)


def test_an_output_within_a_notebook_can_do_it_too(show: Open) -> None:
    page = show(output_of(two_shapes()))
    page.get_by_role("button", name="copy markdown").click()
    expect(page.locator(".tb .acts [role=status]")).to_have_text("copied")
    assert page.evaluate(READ).startswith("| sub label | threads | alternative |")
    page.get_by_role("button", name="samples of mul_sum").first.click()
    expect(page.locator(".tb td.detail dt").first).to_have_text("samples")
    rows = page.locator(".tb tbody tr.row")
    for nth in (1, 3):
        rows.nth(nth).locator("td").nth(2).click()
        page.keyboard.press("p")  # the row that was clicked has the keys
    names = page.locator(".tb .pinned tbody th").all_inner_texts()
    assert names == ["64 × 64, mul_sum", "64 × 65, mul_sum", "second / first"]


def test_a_profile_beside_its_pictures_is_copied_with_all_its_operations(show: Open) -> None:
    profile = profile_of()
    page = show(output_of(profile))
    page.get_by_role("button", name="operations", exact=True).click()
    page.get_by_role("button", name="copy TSV").locator("visible=true").click()
    expect(page.locator(".tb .acts [role=status]:visible")).to_have_text("copied")
    _, *rows = read(page.evaluate(READ))
    assert len(rows) == profile.ops["op"].nunique(), "those out of sight too; overloads are one row"
    page.locator(".tb tbody:visible tr.row").first.focus()
    page.keyboard.press("Control+c")
    assert len(read(page.evaluate(READ))) == 1 + len(rows)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_controls_are_seen_in_either_theme(chromium: Browser, tmp_path: Path, scheme: Any) -> None:
    """Text against its own background, at least 4.5 to 1, as WCAG has it."""
    file = tmp_path / "page.html"
    file.write_text(two_shapes().to_html(), encoding="utf-8")
    context = chromium.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(file.as_uri())
    page.locator(".tb").wait_for()
    page.get_by_role("button", name="samples of mul_sum").first.click()
    page.locator(".tb tbody tr.row").first.click()
    page.keyboard.press("p")
    body = page.locator(".tb").evaluate("box => getComputedStyle(box).backgroundColor")
    for part in (".act:visible", ".values b", ".facts dt", ".pinned td.number", ".under"):
        for color in page.locator(f".tb {part}").evaluate_all("all => all.map(e => getComputedStyle(e).color)"):
            assert contrast(color, body) >= 4.5, (part, color, body)
    context.close()


def contrast(one: str, other: str) -> float:
    first, second = sorted((luminance(one), luminance(other)))
    return (second + 0.05) / (first + 0.05)


def luminance(color: str) -> float:
    numbers = [float(part) for part in re.findall(r"[\d.]+", color)][:3]
    shares = [part if color.startswith("color(") else part / 255 for part in numbers]
    linear = [share / 12.92 if share <= 0.04045 else math.pow((share + 0.055) / 1.055, 2.4) for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
