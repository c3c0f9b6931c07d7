"""The README's cells run, and what it shows is what they show."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernel.conftest import by_files

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", README, flags=re.MULTILINE | re.DOTALL)


def shape(text: str) -> list[str]:
    """What stays the same from run to run: the lines of names and of source, without numbers and widths."""
    kept = (line for line in text.splitlines() if re.search(r"alternative|verdict|this cell|forward|^!.*numpy", line))
    return [" ".join(re.sub(r"[\d.…<·|#−]+", " ", line).split()) for line in kept if "as fast as" not in line]


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150


@pytest.mark.kernel
def test_its_cells_run_and_show_what_is_printed_below_them() -> None:
    sources, shown = blocks("python"), blocks("text")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=120, kernel_name="python3", config=by_files()).execute()
    texts = [output.data["text/plain"] for cell in book.cells[1:4] for output in cell.outputs if "data" in output]
    assert len(shown) == len(texts) == 2
    for printed, now in zip(shown, texts, strict=True):
        assert set(shape(printed)) <= set(shape(now))
    assert "2 of 2 threads" in shown[0], "the first output tells its thread count"
