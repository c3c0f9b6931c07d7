"""What stays of a live widget: beside its view, the table and the text that it had when it was shown.

A widget's view needs its model. Where that is gone (the kernel has ended and the state was not saved), front ends show
an error in its place, whatever else its bundle holds. So the table is an output of its own; while the widget is drawn
in the same page, a rule of style hides it. Where no style is let through (an untrusted notebook) it is simply there.
"""

from __future__ import annotations

from typing import Any

import ipywidgets

__all__ = ["Lasting"]

_NOTE = "live controls need a running kernel; the table shows the last state"


class Lasting:
    """To be mixed into a widget, before its other bases."""

    def _drawn(self) -> ipywidgets.DOMWidget:
        """The widget whose view draws what would be lost."""
        raise NotImplementedError

    def _still(self) -> dict[str, str]:
        """``text/html`` and ``text/plain`` of what is shown now."""
        raise NotImplementedError

    def outputs(self) -> tuple[dict[str, str], tuple[dict[str, Any], dict[str, Any]]]:
        """Two outputs: the table that stays, and the widget's view with its metadata."""
        still, drawn = self._still(), self._drawn()
        name = f"torchbench-live-{drawn.model_id}"
        drawn.add_class(name)
        rule = f"<style>body:has(.{name}) .{name}-still{{display:none}}</style>"
        html = f'{rule}<div class="{name}-still">{still["text/html"]}</div>'
        data, metadata = self._view()
        return {"text/html": html, "text/plain": still["text/plain"]}, (data | {"text/plain": _NOTE}, metadata)

    def _view(self) -> tuple[dict[str, Any], dict[str, Any]]:
        made = super()._repr_mimebundle_()  # type: ignore[misc]  # of the widget that this is mixed into
        data, metadata = made if isinstance(made, tuple) else (made, {})
        return data or {}, metadata

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Both in one, for where the extension is not loaded."""
        data, metadata = self._view()
        return {**data, **self._still()}, metadata
