"""The README's cells run, and what it shows is what they showed when its figures were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernel.conftest import by_files

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = json.loads((ROOT / "tests" / "benchmarks" / "results" / "readme.json").read_text(encoding="utf-8"))
MOST_WORDS, MOST_LINES = 900, 110
FIRST_SCREEN = 30  # lines


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", README, flags=re.MULTILINE | re.DOTALL)


def names(text: str) -> set[str]:
    """The lines of names and of source, without numbers and widths: what stays the same from run to run."""
    kept = (line for line in text.splitlines() if re.search(r"alternative|faster|this cell|__getitem__|np\.pad", line))
    return {" ".join(re.sub(r"[\d.…<·|#−]+", " ", line).split()) for line in kept if "as fast as" not in line}


def test_it_is_short_and_begins_with_a_picture_and_how_to_install_it() -> None:
    assert len(README.split()) <= MOST_WORDS
    lines = README.splitlines()
    assert len(lines) <= MOST_LINES
    assert next(at for at, line in enumerate(lines) if "pip install" in line) < FIRST_SCREEN
    assert next(at for at, line in enumerate(lines) if "tour-light.gif" in line) < FIRST_SCREEN


def test_its_figures_are_those_of_one_file() -> None:
    """Each line of a printed result is one of the run that was kept, in its order; ``…`` alone stands for some."""
    for printed, kept in zip(blocks("text"), FIGURES["conditions"]["texts"], strict=True):
        left = iter(kept.splitlines())
        assert [line for line in printed.splitlines() if line != "…" and line not in left] == []
    low, high = FIGURES["figures"][0]["spread"]
    assert f"{FIGURES['conditions']['runs']} sessions gave {low:.2f} to {high:.2f}" in README


@pytest.mark.kernel
def test_its_cells_run_and_show_what_is_printed_below_them() -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in blocks("python")]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=120, kernel_name="python3", config=by_files()).execute()
    texts = [output.data["text/plain"] for cell in book.cells for output in cell.outputs if "data" in output]
    for printed, now in zip(blocks("text"), texts, strict=True):
        assert names(printed)
        assert names(printed) <= names(now)
