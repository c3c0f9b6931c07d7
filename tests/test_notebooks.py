"""The examples as they are read on a page, without a session: what they ask, and what they say."""

from __future__ import annotations

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
