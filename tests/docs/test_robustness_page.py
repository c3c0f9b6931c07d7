"""docs/robustness.md is what the benchmark's results give."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_page_of_what_was_tried_to_break_it_is_made_from_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in [name for name in sys.modules if name.split(".")[0] == "breaking"]:
        monkeypatch.delitem(sys.modules, name)
    from breaking.page import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/benchmarks/faults.py --page"


def test_a_section_that_was_not_measured_is_not_on_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from breaking import page

    monkeypatch.setattr(page, "_RESULTS", tmp_path)
    assert "##" not in page.page()
