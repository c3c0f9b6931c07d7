"""The examples as they are read on a page, without a session: what they ask, and what they say."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import nbformat
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_asks_one_question_and_ends_with_its_answer_and_what_to_do_next(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    texts = [cell.source if cell.cell_type == "markdown" else "" for cell in book.cells]
    assert re.match(r"# .+\n\n\*\*Question\.\*\* [^?]+\?\n\n", texts[0])
    assert re.search(r"(?:^|\n\n)\*\*Answer\.\*\* .+\n\n\*\*Next\.\*\* .+$", texts[-1], re.DOTALL)
    assert re.findall(r"\*\*(Question|Answer|Next)\.\*\*", "\n".join(texts)) == ["Question", "Answer", "Next"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_outputs_of_an_example_are_of_its_cells_and_need_no_script(path: Path) -> None:
    """What ``make notebooks`` stored, for a page that runs nothing."""
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    assert "widgets" not in book.metadata
    assert path.stat().st_size <= 300_000
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)], "run from top to bottom, once"
    made_from = [hashlib.sha256(cell.source.encode()).hexdigest()[:16] for cell in code]
    assert [cell.metadata.get("made_from") for cell in code] == made_from, "a cell has changed: make notebooks"
    outputs = [output for cell in code for output in cell.outputs]
    for cell in code:
        if re.match(r"%%t(imer|profile)(?!.* -q\b)", cell.source):
            assert any("text/markdown" in output.get("data", {}) for output in cell.outputs), cell.source
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/markdown", "text/html", "image/png", "image/svg+xml"}
    for output in outputs:
        assert output.output_type in ("stream", "display_data", "execute_result"), "an error"
        for text in (output.get("text", ""), *output.get("data", {}).values()):
            assert "<script" not in text
            assert "UsageError" not in text
            assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|mnt|opt|srv|Users|workspace)/|site-packages", text)
