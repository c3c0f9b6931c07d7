"""A document as a mime bundle: what a notebook keeps of a result."""

from __future__ import annotations

from ..document import Document
from . import html, text

__all__ = ["bundle"]


def bundle(document: Document, *under: Document) -> dict[str, str]:
    """``text/plain`` with the numbers and ``text/html`` with the same, live where scripts run; at most 1 MB.

    What stands ``under`` the document has its own sentence and table, and is small.
    """
    below = "".join(map(html.render, under))
    plain = "\n\n".join(map(text.render, (document, *under)))
    return {"text/plain": plain, "text/html": html.render(document, most_bytes=html.MOST_BYTES - len(below)) + below}
