"""What a kernel sends to its front end past ``sys.stdout``: displayed outputs, messages of widgets, figures.

All of it leaves by ``session.send`` of the kernel. A terminal shows on ``sys.stdout`` what is displayed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchbench_magic.process.output import Drops, replaced, shown

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
        self._request = _request(getattr(shell, "get_parent", dict)())
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
        if kind in _KINDS and _request(parent) == self._request and self._is_held(kind, content):
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


def _request(parent: Any) -> str | None:
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
