"""The code that ran, where the reader did not write it: as a cell to paste."""

from __future__ import annotations

from torchbench_magic.results.timing.comparison import Comparison

from ..annotated_source import coloured
from ..document import Document, Phrase, code
from ..table import Cell, Column, Group, Row, Table

__all__ = ["inline"]


def inline(comparison: Comparison) -> list[Document]:
    """What stands under a comparison that was made for the reader (`benchmark_op`); nothing under others."""
    if not comparison.code:
        return []
    lines = comparison.code.splitlines()
    rows = tuple(Row((Cell(line, picture=span),)) for line, span in zip(lines, coloured(lines), strict=True))
    column = Column("code", "", kind="source", widest=200)
    return [
        Document(
            kind="code to paste",
            sentence=(Phrase("What ran, as a cell to paste ("), code(".code"), Phrase(" holds the text):")),
            tables=(Table("code", (column,), (Group(rows),), headless=True),),
        )
    ]
