"""Code under a comparison: what was edited between two runs, as a diff; what ran, where the reader did not write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison

from ..annotated_source import coloured
from ..document import Document, Phrase, StyledText, clipped, code
from ..table import Cell, Column, Group, Row, Table

__all__ = ["edited", "to_paste"]

_MOST = 5
_LONGEST_NAME = 60


def edited(comparison: Comparison) -> list[Document]:
    """The diffs of source that the doubts of results side by side hold, one below the other."""
    diffs = dict(_diffs(comparison))
    shown = [_document(name, lines) for name, lines in list(diffs.items())[:_MOST]]
    more = len(diffs) - _MOST
    if more > 0:
        said = f"{units.count(more)} more edited source{'s' if more > 1 else ''}: see the facts of .warnings"
        shown.append(Document(kind="source changes", sentence=(Phrase(said),)))
    return shown


def to_paste(comparison: Comparison) -> list[Document]:
    """The cell that ran, under a comparison that was made for the reader (`benchmark_op`); nothing under others."""
    if not comparison.code:
        return []
    lines = comparison.code.splitlines()
    rows = tuple(Row((Cell(line, picture=span),)) for line, span in zip(lines, coloured(lines), strict=True))
    column = Column("code", "", kind="source", widest=200)
    return [
        Document(
            kind="code to paste",
            sentence=(Phrase("The code that ran, as a cell to paste ("), code(".code"), Phrase(" holds the text):")),
            tables=(Table("code", (column,), (Group(rows),), headless=True),),
        )
    ]


def _diffs(comparison: Comparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    for doubt in comparison.warnings:
        held = doubt.facts.get("diffs")
        if isinstance(held, Mapping):
            for name, lines in held.items():
                yield str(name), tuple(map(str, lines))


def _document(name: str, lines: tuple[str, ...]) -> Document:
    rows = tuple(Row((Cell(line),)) for line in lines)
    table = Table("diff", (Column("diff", "", kind="source", widest=160),), (Group(rows),), headless=True)
    return Document(kind="source change", sentence=_sentence(name, lines), tables=(table,))


def _sentence(name: str, lines: tuple[str, ...]) -> StyledText:
    removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    what = name.removeprefix("source of ")
    own = (code(clipped(what, _LONGEST_NAME)),) if what != name else (Phrase(f"The {name}"),)
    is_whole = not lines[-1].startswith("…")
    return (
        *own,
        Phrase(f" was edited: {_lines(removed)} removed, {_lines(added)} added" if is_whole else " was edited"),
    )


def _lines(number: int) -> str:
    return f"{units.count(number)} line{'' if number == 1 else 's'}"
