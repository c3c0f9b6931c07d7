"""Buttons that try the cures of a profile's insights on the profiled cell, and the comparison under them.

Front ends that have subshells send a click to a thread of its own, while a cell may be running. The trial is handed to
the loop of the main thread, so it waits until that cell has ended and is measured alone.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

import ipywidgets
import traitlets

from torchbench_magic.errors import Interrupted, TorchBenchError
from torchbench_magic.results.insights import Insight
from torchbench_magic.results.timing.comparison import Comparison

from ..carriers import document_json
from ..carriers.kept_output import CONTROLS
from ..document import clipped, printable
from ..timing import comparison as comparison_view

__all__ = ["CureTrials", "first_by_lever"]

_WRAP = ipywidgets.Layout(display="flex", flex_flow="row wrap", align_items="center", grid_gap="2px 8px")
_TOOLTIP = "Runs the code of the profiled cell many times, as it is and with this cure. What it changes is put back."


def first_by_lever(insights: Sequence[Insight]) -> dict[str, Insight]:
    """Each lever that some cure names, with the insight that has the most at stake of it."""
    found: dict[str, Insight] = {}
    for insight in insights:
        for lever in insight.levers if insight.body else ():
            found.setdefault(lever, insight)
    return found


class CureTrials(ipywidgets.VBox):
    """One button per lever.

    Args:
        insights: those of the profile, most at stake first.
        table: makes the widget in which a comparison is drawn.

    Attributes:
        buttons: by lever.
        comparison: of the last trial; None before the first.
        status: what is under way, or why a trial could not be made.
    """

    comparison = traitlets.Instance(Comparison, allow_none=True)

    def __init__(self, insights: Sequence[Insight], table: Callable[[], Any]) -> None:
        self._table, self._loop = table, _main_loop()
        self.status = ipywidgets.Label()
        self.buttons = {lever: self._button(lever, insight) for lever, insight in first_by_lever(insights).items()}
        question = ipywidgets.Label("Try a cure on this cell:")
        self._row = ipywidgets.Box([question, *self.buttons.values()], layout=_WRAP)
        self._row.add_class(CONTROLS)
        self._drawn: ipywidgets.Widget | None = None
        self._say("")
        super().__init__([self._row, self.status])

    def _button(self, lever: str, insight: Insight) -> ipywidgets.Button:
        made = ipywidgets.Button(description=lever, tooltip=_TOOLTIP, layout=ipywidgets.Layout(width="auto"))
        made.on_click(lambda _: self._asked(lever, insight))
        return made

    def _asked(self, lever: str, insight: Insight) -> None:
        """In whatever thread the click arrives."""
        if any(button.disabled for button in self.buttons.values()):
            return
        self._switch(off=True)
        self._say(f"Trying {lever}. A running cell ends first.")
        if self._loop is None or threading.current_thread() is threading.main_thread():
            self._try(lever, insight)
        else:
            self._loop.call_soon_threadsafe(self._try, lever, insight)

    def _try(self, lever: str, insight: Insight) -> None:
        """In the main thread: what the code prints was seen when it was profiled, and is not shown again."""
        said = ""
        made: object = None
        try:
            with redirect_stdout(io.StringIO()):
                made = insight.try_(lever)
        except Interrupted as stopped:
            said, made = f"{lever}: interrupted; this is what was measured until then.", stopped.partial
        except KeyboardInterrupt:
            said = f"{lever}: interrupted before anything was measured."
        except TorchBenchError as error:
            said = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own, of whatever kind
            said = f"{lever}: the code raised {type(error).__name__}: {error}"
        finally:
            self._switch(off=False)
        self._say(clipped(printable(said), 300))
        if isinstance(made, Comparison):
            self._show(made)

    def _show(self, made: Comparison) -> None:
        drawn = self._table()
        drawn.spec = document_json.as_dict(comparison_view.document(made))
        if self._drawn is not None:
            self._drawn.close()
        self._drawn = drawn
        self.children: tuple[ipywidgets.Widget, ...] = (self._row, self.status, drawn)
        self.comparison = made

    def _say(self, text: str) -> None:
        self.status.value, self.status.layout.display = text, None if text else "none"

    def _switch(self, *, off: bool) -> None:
        for button in self.buttons.values():
            button.disabled = off


def _main_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that the kernel's main thread comes back to after a cell; None where there is none."""
    if threading.current_thread() is not threading.main_thread():
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
