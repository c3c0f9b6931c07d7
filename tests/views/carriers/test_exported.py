"""Outputs of a notebook that nbconvert writes as text: tables, and not what draws them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.results.profiles import profile_of_two_kernels
from tests.views.builders import comparison_of, profile_of, two_shapes
from torchbench_magic.show import markdown
from torchbench_magic.timing import view

pytestmark = pytest.mark.interpreter

CONFIG = Path(__file__).parents[3] / "jupyter-config"
CELL = "%%timer --baseline bmm\n# --- bmm\nbmm(x, x)\n# --- mul_sum\nmul_sum(x, x)"
OF_OTHERS = "<p>mine</p><script>mine()</script>"


def exported(bundles: list[dict[str, Any]], folder: Path, to: str = "markdown", ending: str = "md") -> str:
    """A notebook with these outputs as ``jupyter nbconvert`` writes it, where the wheel is installed."""
    cells = [
        nbformat.v4.new_code_cell(CELL, outputs=[nbformat.v4.new_output("display_data", bundle)]) for bundle in bundles
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "book.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", to, str(folder / "book.ipynb")]
    done = subprocess.run(
        command, env=os.environ | {"JUPYTER_CONFIG_PATH": str(CONFIG)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return (folder / f"book.{ending}").read_text(encoding="utf-8")


def test_a_comparison_is_less_than_four_kilobytes_of_markdown(tmp_path: Path) -> None:
    text = exported([comparison_of()._repr_mimebundle_()], tmp_path)
    assert len(text.encode()) < 4000
    assert "|`mul_sum`|" in text
    assert "<script" not in text
    assert "<table" not in text


def test_outputs_of_others_stay_and_pictures_are_their_tables(tmp_path: Path) -> None:
    timeline = profile_of_two_kernels().timeline()._repr_mimebundle_()
    text = exported([{"text/html": OF_OTHERS, "text/markdown": "theirs"}, timeline], tmp_path)
    assert OF_OTHERS in text
    assert text.count("<script") == 1
    assert "<table>" in text
    assert len(text) < 6000


def test_a_page_of_the_same_notebook_keeps_what_draws_it(tmp_path: Path) -> None:
    assert "<script data-brings=" in exported([comparison_of()._repr_mimebundle_()], tmp_path, "html", "html")


@pytest.mark.parametrize("make", [comparison_of, two_shapes, profile_of])
def test_an_outputs_markdown_is_that_of_its_document_without_padding(make: Any) -> None:
    short, document = make()._repr_mimebundle_()["text/markdown"], make()
    drawn = markdown.render(view.document(document)) if make is not profile_of else document.to_markdown()

    def squeezed(text: str) -> list[str]:
        """Cells without the spaces round them; rules of tables apart."""
        lines = (line for line in text.splitlines() if line.strip() and not set(line) <= set("|:- "))
        return ["|".join(cell.strip() for cell in line.split("|")) for line in lines]

    assert squeezed(short) == squeezed(drawn)
    assert len(short) < len(drawn)
