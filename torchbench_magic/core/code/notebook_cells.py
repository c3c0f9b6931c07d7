"""The cells of the notebook that the extension is loaded in, for functions that scripts and cells call alike.

Who has a book of cells enters it here; in a script there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from torchbench_magic.results.cell_text import CellText

__all__ = ["cell_of", "close_book", "open_book"]

_books: list[Callable[[str], CellText | None]] = []


def open_book(book: Callable[[str], CellText | None]) -> None:
    """``book``: file name of code -> its cell, None for what is no cell."""
    _books.append(book)


def close_book(book: Callable[[str], CellText | None]) -> None:
    if book in _books:
        _books.remove(book)


def cell_of(file: str) -> CellText | None:
    """The cell that the code of ``file`` is of; None for what is no cell."""
    found = (book(file) for book in reversed(_books))
    return next((cell for cell in found if cell is not None), None)
