"""A measurement while it runs: the line with the time and Stop, and under it the table as far as it is known.

It is a widget, for Stop must reach Python while the cell is busy. That works where the front end sends comm messages
over a subshell of the kernel (JupyterLab 4.4 and ipykernel 7 do): there they are handled at once in another thread,
elsewhere only when the cell has ended. The line in the browser says hello when it is drawn; an answer during the run
shows that the way is open, and only then Stop is drawn.

Its height is set when it appears and stays: a page that moves while one reads it is worse than some empty room.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

import anywidget
import ipywidgets
import traitlets

from torchbench_magic.printable import printable
from torchbench_magic.show import document_json
from torchbench_magic.show.document import Document
from torchbench_magic.show.kept_output import LIVE, WITHOUT_KERNEL
from torchbench_magic.timing import view
from torchbench_magic.timing.comparison import Comparison

from .explorers import TableWidget

MOST_ROWS = 200
_LINE, _ROW = 26, 22  # px: the bar, a row of the table
_AROUND_ROWS = 150  # px: sentence, controls, header, and the footer of the result that takes the place of the view
_MOST_SHOWN = 12  # rows in sight; of more, the others are scrolled to


class LiveBar(anywidget.AnyWidget):
    """The line drawn by ``static/live.js``.

    Attributes:
        what: what is under way.
        done, total: seconds; ``total`` None where it is not known.
        can_stop: the browser's messages are heard while the cell runs.
        stopping: Stop was asked for.
    """

    _esm = files("torchbench_magic.show").joinpath("static/live.js").read_text(encoding="utf-8")
    _css = WITHOUT_KERNEL
    what = traitlets.Unicode().tag(sync=True)
    done = traitlets.Float(0.0).tag(sync=True)
    total = traitlets.Float(None, allow_none=True).tag(sync=True)
    can_stop = traitlets.Bool(False).tag(sync=True)
    stopping = traitlets.Bool(False).tag(sync=True)

    def open(self) -> None:
        super().open()
        self._hear()

    def _send(self, msg: Any, buffers: Any = None) -> None:
        super()._send(msg, buffers)
        self._hear()

    def _hear(self) -> None:
        """Let answers come by the subshell that the front end sends them over.

        ipykernel 7.4 sends what answers a comm to the shell that wrote on it last, here the one that is busy.
        """
        getattr(self.comm, "__dict__", {}).pop("_reply_subshell_id", None)  # no comm: closed, or no kernel


class LiveView(ipywidgets.VBox):
    """The bar and the table. `tell` and `draw` are called by the thread that measures.

    Args:
        rows: those that the table will have; 0 where there will be none.

    Attributes:
        stop_asked: whether the reader pressed Stop. It is set in the thread of the subshell, and only read elsewhere.
    """

    def __init__(self, rows: int = 0) -> None:
        self.stop_asked = False
        self._heard = self._has_table = False
        self.bar = LiveBar()
        self.table = TableWidget()
        self.bar.on_msg(self._on_message)
        height = _LINE + (_AROUND_ROWS + _ROW * min(rows, _MOST_SHOWN) if rows else 0)
        super().__init__([self.bar], layout=ipywidgets.Layout(height=f"{height}px", overflow="hidden auto"))
        self.add_class(LIVE)

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        """In whatever thread the front end's message arrives: only notes it."""
        kind = content.get("type") if isinstance(content, dict) else None
        self._heard = True
        if kind == "stop":
            self.stop_asked = True

    def tell(self, done: float, total: float | None, what: str) -> None:
        """Say how far the run is; seconds."""
        with self.bar.hold_sync():
            self.bar.what, self.bar.done, self.bar.total = printable(what), done, total
            self.bar.can_stop, self.bar.stopping = self._heard, self.stop_asked

    def draw(self, partial: Comparison) -> None:
        """Show what is known; what the reader chose in the table stays."""
        self.table.spec = document_json.as_dict(document(partial), MOST_ROWS)
        if not self._has_table:
            self.children, self._has_table = (self.bar, self.table), True

    def close(self) -> None:
        """Take the models away, so that none stays in a saved notebook."""
        for widget in (self.bar, self.table):
            widget.close()
        super().close()


def document(partial: Comparison) -> Document:
    """What is known so far, without the doubts and pictures that belong to a whole result."""
    drawn = view.document(partial)
    return replace(drawn, doubts=(), footer=(), picture="", drawn=(), folded=False)
