"""The difference of two profiles and the timeline as pages, from disk: read, sorted, filtered, chosen from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.results.profiles import profile_of_two_kernels
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.diff_view import document
from torchbench_magic.profiling.pictures.timeline import timeline
from torchbench_magic.show import html

from ..builders import HOSTILE, LINES, OPS, profile_of
from ..carriers.test_browser_table import Show, chromium, page, show  # noqa: F401  # fixtures

pytestmark = pytest.mark.browser


def faster_at_lines(op: str = "aten::mm") -> ProfileDiff:
    """A run, and one whose matrix product took a third; the op of it has the name that is given."""
    lines = [(*row[:3], row[3] / 3, *row[4:]) if row[:2] == ("cell", 7) else row for row in LINES]
    ops = [(op, *row[1:4], row[4] / 3, *row[5:]) if row[0] == "aten::mm" else row for row in OPS]
    before = [(op, *row[1:]) if row[0] == "aten::mm" else row for row in OPS]
    return ProfileDiff(profile_of(ops=before), profile_of(lines=lines, ops=ops), ("float64", "float32"))


def column(table: Locator, label: str, nth: int = 0) -> list[float | None]:
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


def test_the_lines_of_two_profiles_are_sorted_and_filtered(show: Show, page: Page) -> None:  # noqa: F811
    drawn = show(document(faster_at_lines()))
    expect(drawn.locator(".sentence")).to_contain_text("float32 takes")
    expect(drawn.locator(".sentence")).to_contain_text("650 ms of it on In[3]:7")
    table = drawn.get_by_label("lines").locator("visible=true")
    changed = table.locator("tbody tr.row").filter(has_text="In[3]:7")
    expect(changed.locator("td.faster")).to_contain_text("\u2212650")
    table.get_by_role("button", name="change").first.click()
    assert is_sorted(column(table, "change"), falling=True)
    expect(table.locator("th[aria-sort=descending]")).to_contain_text("change")
    table.get_by_role("button", name="change").first.press("Enter")
    assert is_sorted(column(table, "change"), falling=False)
    assert column(table, "change")[0] == -650
    drawn.get_by_role("searchbox").locator("visible=true").fill("backward")
    expect(table.locator("tbody tr.row")).to_have_count(1)
    expect(drawn.get_by_role("status").locator("visible=true")).to_have_text(re.compile(r"^1 of \d+ rows$"))


def test_its_operations_stand_behind_the_switch_and_rows_add_up(show: Show, page: Page) -> None:  # noqa: F811
    diff = faster_at_lines()
    drawn = show(document(diff))
    drawn.get_by_role("button", name="operations", exact=True).press("Enter")
    table = drawn.get_by_label("operations", exact=True).locator("visible=true").first
    row = table.locator("tbody tr.row").filter(has_text="aten::mm").first
    expect(row.locator("td.faster").first).to_contain_text("\u2212604")
    before, now, change = (column(table, name, at) for name, at in (("float64", 1), ("float32", 1), ("change", 0)))
    assert len(before) > 3
    for left, right, between in zip(before, now, change, strict=True):
        assert None in (left, right, between) or right - left == pytest.approx(between, abs=0.11)


@pytest.mark.parametrize("op", HOSTILE[:4])
def test_no_name_of_an_operation_becomes_markup(show: Show, page: Page, op: str) -> None:  # noqa: F811
    drawn = show(document(faster_at_lines(op)))
    drawn.get_by_role("button", name="operations", exact=True).click()
    expect(drawn.get_by_label("operations", exact=True).last).to_contain_text(op[:20])
    page.wait_for_timeout(100)
    assert page.evaluate("window.INJECTED") is None


def test_both_are_read_without_scripts(chromium: Browser, tmp_path: Path) -> None:  # noqa: F811
    line = timeline(profile_of_two_kernels())
    (tmp_path / "diff.html").write_text(html.page(document(faster_at_lines())), encoding="utf-8")
    line.to_html(tmp_path / "line.html")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()  # noqa: F811
    page.goto((tmp_path / "diff.html").as_uri())
    rows = page.locator("table tr").filter(has_text="out.square().mean().backward()")
    expect(rows.first).to_be_visible()
    expect(rows.first).to_contain_text("\u2212650")
    page.goto((tmp_path / "line.html").as_uri())
    expect(page.locator("table tr").filter(has_text="gemm").first).to_be_visible()
    expect(page.locator("body")).to_contain_text(line.title)
    context.close()
