"""The html that the demo writes: one file, opened from disk, works by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.show.builders import comparison_of
from torchbench_magic.show.renderers import to_html

from .results import filters, sorts_by_click_and_by_key

pytestmark = [pytest.mark.browser, pytest.mark.kernel]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_prints_its_tables_and_its_page_sorts_and_filters_from_disk(visit, shots, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchbench_magic", "demo", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "UsageError" not in done.stdout, "a magic that refuses its line does not stop the notebook"
    for shown in ("95 % interval  verdict", "np.argwhere", "not attributed", "threads · CPU · torch", "make lab"):
        assert shown in done.stdout
    *tables, _path, _lab = done.stdout.splitlines()
    assert max(map(len, tables)) <= 100

    page = visit.open((tmp_path / "01_quickstart.html").as_uri())
    compared = page.locator(".jp-OutputArea-output .tb").first
    expect(compared).to_be_visible()
    assert page.locator(".jp-OutputArea-output .tb:visible").count() == 7, "3 comparisons, 2 profiles, 2 memories"
    sorts_by_click_and_by_key(compared, "median")
    filters(page, compared, "mul_sum")
    page.screenshot(path=shots / "page.png", full_page=True)


def test_the_page_shows_its_numbers_without_scripts(chromium, tmp_path: Path, shots) -> None:
    page_of_one = tmp_path / "one.html"
    code = (
        "import sys, torchbench_magic as t\n"
        "result = t.compare({'add': 'x + x', 'mul': 'x * 2'}, globals={'x': 1}, min_run_time=0.01)\n"
        "html = result._repr_mimebundle_()['text/html']\n"
        "open(sys.argv[1], 'w', encoding='utf-8').write(html)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(page_of_one)], check=True, timeout=120)
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of_one.as_uri())
    expect(page.locator("table")).to_be_visible()
    expect(page.locator("table")).to_contain_text("mul")
    expect(page.locator("table")).to_contain_text("baseline")
    page.screenshot(path=shots / "without-scripts.png")
    context.close()


@pytest.mark.parametrize("width", [560, 700, 1200])
def test_how_long_an_undecided_row_needs_is_read_at_any_width(visit, tmp_path: Path, width: int) -> None:
    """On a narrow page it is a line of its own in its row: the number is what it is there for."""
    made = comparison_of([(None, 1, (100e-6, 101.5e-6))], ("reference", "a longer name of an alternative"), spread=0.2)
    to_html(made, tmp_path / "one.html")
    page = visit.open((tmp_path / "one.html").as_uri())
    page.set_viewport_size({"width": width, "height": 700})
    cell = page.locator("td.verdict", has_text="undecided")
    expect(cell).to_have_text(re.compile(r"undecided needs ~[\d.]+ s more"))
    assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth + 1")
    assert cell.evaluate("cell => cell.scrollHeight <= cell.clientHeight + 1")
    one_line = cell.evaluate("cell => cell.clientHeight") < 30
    assert one_line == (width == 1200)
    page.close()
