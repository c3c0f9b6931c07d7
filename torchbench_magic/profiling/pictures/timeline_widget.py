"""The live timeline: the span that is brushed in the browser is read in Python."""

from __future__ import annotations

from typing import Any, Protocol

import anywidget
import ipywidgets
import pandas as pd
import traitlets

from torchbench_magic.show.html import box_class
from torchbench_magic.show.javascript import self_unpacking
from torchbench_magic.show.kept_output import LIVE, WITHOUT_KERNEL, Lasting

from .timeline import module


class _Timeline(Protocol):
    @property
    def duration(self) -> int: ...
    @property
    def profile(self) -> object | None: ...
    def between(self, start: float, end: float) -> pd.DataFrame: ...
    def _repr_mimebundle_(self) -> dict[str, str]: ...


class TimelineWidget(Lasting, anywidget.AnyWidget):  # type: ignore[misc]  # anywidget has no annotations
    """A timeline drawn by ``static/timeline_explorer.js``.

    Args:
        spec: what ``static/timeline_graph.js`` reads of it, see `profiling.pictures.timeline.spec_of`.

    Attributes:
        selection: the brushed span, (start, end) in seconds since the body was entered; empty for none.
        state: what the reader chose: the span in view, the brush.
    """

    _esm = self_unpacking(module())
    _css = WITHOUT_KERNEL
    spec = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    selection = traitlets.Tuple()

    def __init__(self, line: _Timeline, spec: dict[str, Any]) -> None:
        self.timeline = line
        super().__init__(spec=spec)
        self.add_class(LIVE)
        if line.profile is not None:
            self.add_class(box_class(line.profile))
        self.observe(self._choose, "state")

    @property
    def rows(self) -> pd.DataFrame:
        """What ran in the brushed span (in all of the time, without one), every bar of it: see `Timeline.between`."""
        start, end = self.selection or (0.0, self.timeline.duration / 1e9)
        return self.timeline.between(start, end)

    def _choose(self, change: Any) -> None:
        brush = change["new"].get("brush") or ()
        self.selection = tuple(float(moment) for moment in brush)

    def _drawn(self) -> ipywidgets.DOMWidget:
        return self

    def _still(self) -> dict[str, str]:
        return self.timeline._repr_mimebundle_()
