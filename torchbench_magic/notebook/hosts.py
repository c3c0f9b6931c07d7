"""The programs that show outputs: how each is recognised, what it draws, which cells hold the modules that draw.

A host is a row of `HOSTS`. What concerns no kernel stands with what it is about: colours in `show.palette`, the frame
for marimo in `show.html.in_frame`, exports to text in `show.nbconvert`.

An output leaves out what other cells' outputs hold (`show.javascript`). That is known only where a request says which
cell it runs, and where the outputs of a notebook stand on one page. Elsewhere each output holds everything.

What the kernel is not told is that outputs were cleared, or a cell was moved to another notebook. So two cells hold
each module, and after every ten outputs without it the next one. A page that is loaded again is another session, of
which nothing is known: there the next outputs hold the modules again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

_Request = dict[str, Any]
_HOLDERS = 2  # cells, so that the notebook still has the module when one of them is cleared
_MOST_WITHOUT = 10  # outputs; with them, 50 comparisons are a fifth larger than with one copy


@dataclass(frozen=True)
class Host:
    """A program that shows outputs.

    Attributes:
        is_this: whether it shows those of a shell that was sent this request.
        cell_of: which cell a request runs; None where that, or the page that its output comes to stand on, is unknown.
        draws: html and widgets; else it shows text.
    """

    name: str
    is_this: Callable[[Any, _Request], bool]
    cell_of: Callable[[_Request], str | None] = lambda request: None
    draws: bool = True


def _named_cell(request: _Request) -> str | None:
    named = request["metadata"].get("cellId")
    return named if re.fullmatch(r"[\w-]{1,64}", str(named)) else None  # as of nbformat; VS Code's are addresses


def _runs_all(shell: Any, request: _Request) -> bool:
    return request["metadata"].get("cellId") is None and request["content"].get("allow_stdin") is False


HOSTS = (
    Host("terminal, script", lambda shell, _: getattr(shell, "kernel", None) is None, draws=False),
    Host("Colab", lambda *_: "COLAB_RELEASE_TAG" in os.environ),  # each output is a page of its own
    Host("JupyterLab, Notebook, VS Code", lambda _, request: "deletedCells" in request["metadata"], _named_cell),
    Host("nbclient, papermill, nbconvert", _runs_all, lambda request: str(request["content"].get("code"))),  # each once
    Host("console", lambda *_: True),
)
"""The first that fits is the one."""


def host_of(shell: Any) -> Host:
    request = _request_of(shell)
    return next(host for host in HOSTS if host.is_this(shell, request))


def is_watched(shell: Any) -> bool:
    """Whether somebody sits before it while a cell runs: a program that runs a notebook allows no stdin."""
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


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
    request = _request_of(shell)
    header = request["header"]
    cell = host_of(shell).cell_of(request)
    if cell is None or request.get("msg_type", header.get("msg_type")) != "execute_request" or _is_captured(shell):
        return None
    page = _pages.setdefault(shell, {}).setdefault(header["session"], NotebookPage())
    page.begin(header["msg_id"], cell, request["metadata"].get("deletedCells") or ())
    return page


def _request_of(shell: Any) -> _Request:
    return {"header": {}, "metadata": {}, "content": {}} | (getattr(shell, "get_parent", dict)() or {})


def _is_captured(shell: Any) -> bool:
    """What is displayed now is kept in a variable (``%%capture``) and may never be seen."""
    from IPython.core.displaypub import CapturingDisplayPublisher

    return isinstance(shell.display_pub, CapturingDisplayPublisher)
