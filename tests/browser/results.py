"""What a person does with a result in a page: read a column, sort, filter; and the notebook that it is in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, Page, expect

# Whether the modules of a page have drawn all that they draw when it opens.
ALL_DRAWN = """() => [...document.querySelectorAll("div[id^=torchbench-]")].every(
    (view) => view.shadowRoot || [...view.children].some((part) => part.shadowRoot))"""


def write_notebook(file: Path, cells: Iterable[str]) -> None:
    """A notebook of these cells, not run yet."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(made, file)


def rows(result: Locator) -> Locator:
    return result.locator("table").first.locator("tbody tr.row")


def column(result: Locator, at: int) -> list[float]:
    """The numbers of a column, in the order in which they stand in the page."""
    texts = rows(result).locator(f"td:nth-child({at + 1})").all_inner_texts()
    return [float(re.sub(r"[^0-9.]", "", text)) for text in texts]


def header(result: Locator, label: str) -> tuple[Locator, int]:
    """A sortable column by its name: its header and its place."""
    heads = result.locator("table").first.locator("thead th")
    for at in range(heads.count()):
        if heads.nth(at).inner_text().split("\n")[0].strip() == label:
            return heads.nth(at), at
    raise AssertionError(f"no column {label!r} among {heads.all_inner_texts()}")


def sorts_by_click_and_by_key(result: Locator, label: str) -> None:
    result.scroll_into_view_if_needed()
    head, at = header(result, label)
    before = column(result, at)
    assert len(set(before)) > 1, "a column of one value shows no order"
    seen = set()
    head.get_by_role("button").click()
    for _ in range(2):
        way = head.get_attribute("aria-sort")
        values = column(result, at)
        assert values == sorted(values, reverse=way == "descending"), way
        assert sorted(values) == sorted(before), "sorting loses no row"
        seen.add(way)
        head.get_by_role("button").press("Enter")
    assert seen == {"ascending", "descending"}


def filters(page: Page, result: Locator, word: str) -> None:
    """What is typed narrows the rows and says how many are left."""
    every = rows(result).count()
    field = result.get_by_role("searchbox").first
    field.click()
    page.keyboard.type(word)
    expect(rows(result)).not_to_have_count(every)
    left = rows(result).all_inner_texts()
    assert left
    assert all(word in text for text in left)
    expect(result.get_by_role("status").first).to_contain_text(str(len(left)))
    field.fill("")
    expect(rows(result)).to_have_count(every)
