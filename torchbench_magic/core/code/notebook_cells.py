"""The cells and names of the notebook that the extension is loaded in, for functions that scripts and cells call alike.

Who has a book of cells enters it here; in a script there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchbench_magic.results.cell_text import CellText

__all__ = ["Notebook", "cell_of", "close_book", "notebook_now", "open_book"]


@dataclass(frozen=True)
class Notebook:
    """What code of a notebook finds and how it is compiled, asked for when it is needed; nothing of it is kept.

    Attributes:
        names: its variables, now.
        compiling: how its cells are compiled: ``flags`` and ``transform_ast`` of a `Task`.
        plain: a cell's text -> Python, its IPython syntax translated.
    """

    names: Mapping[str, Any]
    compiling: Mapping[str, Any]
    plain: Callable[[str], str]


_books: list[Callable[[str], CellText | None]] = []
_notebooks: dict[int, Callable[[], Notebook]] = {}  # by the id of the book


def open_book(book: Callable[[str], CellText | None], notebook: Callable[[], Notebook] | None = None) -> None:
    """``book``: file name of code -> its cell, None for what is no cell; ``notebook``: what its cells find."""
    _books.append(book)
    if notebook is not None:
        _notebooks[id(_books[-1])] = notebook


def close_book(book: Callable[[str], CellText | None]) -> None:
    if book in _books:
        _notebooks.pop(id(_books.pop(_books.index(book))), None)


def cell_of(file: str) -> CellText | None:
    """The cell that the code of ``file`` is of; None for what is no cell."""
    found = (book(file) for book in reversed(_books))
    return next((cell for cell in found if cell is not None), None)


def notebook_now() -> Notebook | None:
    """What cells find that run now; None where no notebook is known."""
    notebooks = (_notebooks.get(id(book)) for book in reversed(_books))
    return next((notebook() for notebook in notebooks if notebook is not None), None)
