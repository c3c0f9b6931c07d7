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
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torchbench_magic.process.output import Drops, replaced, shown

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


# ---- sent messages ---------------------------------------------------------------------------------------------------
# What a kernel sends to its front end past ``sys.stdout``: displayed outputs, messages of widgets, figures. All of it
# leaves by ``session.send`` of the kernel. A terminal shows on ``sys.stdout`` what is displayed.

_KINDS = {
    "display_data": "displays",
    "update_display_data": "displays",
    "execute_result": "displays",
    "clear_output": "",  # it shows nothing, and would clear what the first call has shown
    "comm_open": "widgets",
    "comm_msg": "widgets",
    "comm_close": "widgets",
}


@contextmanager
def held_back(shell: Any, drops: Drops) -> Iterator[None]:
    """A `process.output.Channel`: ask before each message that would show something.

    A widget that was made meanwhile is closed in the end, as the front end never heard of it. One that was there before
    and was changed sends its state once: the page is to show what it holds.
    """
    session = getattr(getattr(shell, "kernel", None), "session", None)
    if session is None:
        yield
        return
    messages, figures = _Messages(shell, session.send, drops), _figures()
    try:
        with replaced(session, "send", messages.send):
            try:
                yield
            finally:
                for number in _figures() - figures:  # else they would be shown as the cell ends
                    messages.holds("displays")
                    sys.modules["matplotlib.pyplot"].close(number)
                for widget in _widgets(messages.opened):
                    widget.close()
    finally:
        with shown():
            for widget in _widgets(messages.changed):
                widget.send_state()


class _Messages:
    """The messages of one span.

    Attributes:
        opened, changed: ids of comms.
    """

    def __init__(self, shell: Any, send: Any, drops: Drops) -> None:
        self._request = _id_of(_request_of(shell))
        self._send, self._drops = send, drops
        self.opened: set[str] = set()
        self.changed: set[str] = set()

    def holds(self, kind: str) -> bool:
        return self._drops(kind)

    def send(self, stream: Any, message: Any, content: Any = None, parent: Any = None, *more: Any, **named: Any) -> Any:
        """Called by whatever sends, in its thread. What answers another request, as the move of a slider, goes on."""
        if isinstance(message, str):
            kind = message
        else:
            kind, content, parent = message["header"]["msg_type"], message["content"], message["parent_header"]
        if kind in _KINDS and _id_of(parent) == self._request and self._is_held(kind, content):
            return None
        return self._send(stream, message, content, parent, *more, **named)

    def _is_held(self, kind: str, content: Any) -> bool:
        comm = content.get("comm_id", "")
        if kind == "comm_close" and comm not in self.opened:
            return False  # of a widget that the front end has
        if not self._drops(_KINDS[kind]):
            return False
        if kind == "comm_open":
            self.opened.add(comm)
        elif comm not in self.opened:
            self.changed.add(comm)
        return True


def _id_of(parent: Any) -> str | None:
    """Id of the request that a message answers: of a request, or of the header of one."""
    header = parent.get("header", parent) if parent else {}
    return header.get("msg_id")


def _figures() -> set[int]:
    """Numbers of the open figures."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _widgets(comms: set[str]) -> list[Any]:
    """The open widgets of these comms."""
    known = getattr(sys.modules.get("ipywidgets.widgets.widget"), "_instances", {})
    return [known[comm] for comm in comms if comm in known]
