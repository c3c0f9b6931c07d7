"""What stays of a live widget: beside its view, the table and the text that it had when it was shown.

A widget's view needs its model. Where that is gone (the kernel has ended and the state was not saved), front ends show
an error in its place, whatever else its bundle holds. So the table is an output of its own; while the widget is drawn
in the same page, a rule of style hides it, and while it is not, another one hides the error. Where no style is let
through (an untrusted notebook) both are simply there.
"""

from __future__ import annotations

from typing import Any

import ipywidgets

from .html import in_frame

LIVE, CONTROLS = "torchbench-live", "torchbench-controls"  # classes: a widget of ours; those parts that Python answers
WITHOUT_KERNEL = (
    f".{LIVE}.jupyter-widgets-disconnected::before,.{LIVE} .jupyter-widgets-disconnected::before{{display:none}}"
    f".{CONTROLS}[inert]{{opacity:.5}}"
)
"""Style: ipywidgets puts a red broken chain before each part of a widget that has no kernel, good tables too."""

_GONE = "The controls of this view need the session that made it: run the cell again to get them back."
_NOTE = "live controls need a running session; the table shows the last state"


class Lasting:
    """To be mixed into a widget, before its other bases."""

    def _drawn(self) -> ipywidgets.DOMWidget:
        """The widget whose view draws what would be lost."""
        raise NotImplementedError

    def _still(self) -> dict[str, str]:
        """``text/html``, ``text/plain`` and perhaps ``text/markdown`` of what is shown now."""
        raise NotImplementedError

    def outputs(self) -> tuple[dict[str, str], tuple[dict[str, Any], dict[str, Any]]]:
        """Two outputs: the table that stays, and the widget's view with its metadata."""
        still, drawn = self._still(), self._drawn()
        name = f"torchbench-live-{drawn.model_id}"
        drawn.add_class(name)
        rules = (
            f"body:has(.{name}) .{name}-still{{display:none}}"
            f"body:not(:has(.{name})) .jp-OutputArea-child:has(.{name}-still)+.jp-OutputArea-child{{display:none}}"
        )
        note = f"<p><small>{_GONE}</small></p>"
        html = f'<style>{rules}</style><div class="{name}-still">{still["text/html"]}{note}</div>'
        data, metadata = self._view()
        return still | {"text/html": html}, (data | {"text/plain": _NOTE}, metadata)

    def _mime_(self) -> tuple[str, str]:
        """What marimo asks for: it knows no boxes of widgets, and a page has the table alive, if not the controls."""
        return "text/html", in_frame(self._still()["text/html"], type(self).__name__)

    def _view(self) -> tuple[dict[str, Any], dict[str, Any]]:
        made = super()._repr_mimebundle_()  # type: ignore[misc]  # of the widget that this is mixed into
        data, metadata = made if isinstance(made, tuple) else (made, {})
        return data or {}, metadata

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Both in one, for where the extension is not loaded."""
        data, metadata = self._view()
        return {**data, **self._still()}, metadata
