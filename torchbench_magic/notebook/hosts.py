"""Which cells of a notebook hold the modules that draw its outputs, as far as a kernel can know that.

An output leaves out what other cells' outputs hold (`show.javascript`). That is known only where the
request to run a cell says which cell it is, and where the outputs of a notebook stand on one page:

* JupyterLab and Notebook name the cell and list those that were deleted since (``cellId``, ``deletedCells``);
* a program that runs a notebook from its top (nbclient, papermill, nbconvert) allows no stdin, and names none: there a
  cell is its text.

Elsewhere each output holds everything: VS Code (its ids are addresses), Colab (each output is a page of its own), a
console, a terminal, a script.

What the kernel is not told is that outputs were cleared, or a cell was moved to another notebook. So two cells hold
each module, and after every ten outputs without it the next one. A page that is loaded again is another session, of
which nothing is known: there the next outputs hold the modules again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

_CELL_ID = re.compile(r"[\w-]{1,64}")  # of nbformat; VS Code's are addresses
_HOLDERS = 2  # cells, so that the notebook still has the module when one of them is cleared
_MOST_WITHOUT = 10  # outputs; with them, 50 comparisons are a fifth larger than with one copy


class NotebookPage:
    """The outputs of one notebook on one page."""

    def __init__(self) -> None:
        self._run = self._cell = ""
        self._holders: dict[str, set[str]] = {}  # module -> cells whose outputs have it
        self._without: dict[str, int] = {}  # module -> outputs since that need it and do not have it

    def begin(self, run: str, cell: str, deleted: Sequence[str] = ()) -> None:
        """A cell runs: its former output is gone, and so are cells that were deleted."""
        if run == self._run:
            return
        self._run, self._cell = run, cell
        for cells in self._holders.values():
            cells.difference_update((cell, *deleted))

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of the modules that this cell's next output is to hold."""
        return [name for name in names if self._is_due(name)]

    def _is_due(self, name: str) -> bool:
        cells = self._holders.setdefault(name, set())
        if self._cell in cells:
            return False  # an output of the same run has it
        if len(cells) >= _HOLDERS and self._without[name] < _MOST_WITHOUT:
            self._without[name] += 1
            return False
        cells.add(self._cell)
        self._without[name] = 0
        return True


_pages: WeakKeyDictionary[Any, dict[str, NotebookPage]] = WeakKeyDictionary()


def page_of(shell: Any) -> NotebookPage | None:
    """The page that what this cell displays comes to stand on; None where nothing is known of it.

    To be asked as each cell begins too, whatever it does: it may replace an output that holds a module.
    """
    request: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    cell = _cell_of(request)
    if cell is None or "COLAB_RELEASE_TAG" in os.environ or _is_captured(shell):
        return None
    header = request["header"]
    page = _pages.setdefault(shell, {}).setdefault(header["session"], NotebookPage())
    page.begin(header["msg_id"], cell, request["metadata"].get("deletedCells") or ())
    return page


def _cell_of(request: dict[str, Any]) -> str | None:
    """Which cell is asked for; None where that, or where its output goes, is not known."""
    asked, content = request.get("metadata") or {}, request.get("content") or {}
    if request.get("msg_type", request.get("header", {}).get("msg_type")) != "execute_request":
        return None
    named = asked.get("cellId")
    if "deletedCells" in asked:
        return named if isinstance(named, str) and _CELL_ID.fullmatch(named) else None
    if named is None and content.get("allow_stdin") is False:
        return str(content.get("code"))
    return None


def _is_captured(shell: Any) -> bool:
    """What is displayed now is kept in a variable (``%%capture``) and may never be seen."""
    from IPython.core.displaypub import CapturingDisplayPublisher

    return isinstance(shell.display_pub, CapturingDisplayPublisher)
