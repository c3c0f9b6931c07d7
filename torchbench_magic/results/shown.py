"""What every result can do: become a page of its own."""

from __future__ import annotations

import os

from . import _gateway

__all__ = ["HtmlFile"]


class HtmlFile:
    """Gives a result ``to_html``."""

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The result as one page that sorts, filters and zooms without kernel and network.

        Args:
            path: the file to write, one of that name is replaced; None returns the text instead.

        Raises:
            InputError: the file cannot be written.
        """
        written: str | None = _gateway.show(self, "to_html", path=path)
        return written
