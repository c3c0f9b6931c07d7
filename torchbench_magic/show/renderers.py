"""Whatever result in each carrier: its document, and those that stand under it; as what a notebook keeps, as a page."""

from __future__ import annotations

import os
from typing import Any

from torchbench_magic.files import PAGE, check_target, whole_file
from torchbench_magic.result_base import TABLE, show

from . import html, markdown, text
from .document import Document
from .html import boxed
from .javascript import own_page, with_modules


def _documents(result: object, options: dict[str, Any]) -> list[Document]:
    under = show(result, "under") if (type(result).__name__, "under") in TABLE else ()
    return [show(result, "document", **options), *under]


def to_text(result: object, **options: Any) -> str:
    """What ``print(result)`` shows. ``options`` are those of the result's ``document``, here and below."""
    return "\n\n".join(map(text.for_stdout, _documents(result, options)))


def mimebundle(result: object, **options: Any) -> dict[str, str]:
    """``text/plain``, ``text/html`` and ``text/markdown``."""
    has_pictures = (type(result).__name__, "flamegraph") in TABLE
    return bundle(*_documents(result, options), of=result if has_pictures else None)


def to_markdown(result: object, **options: Any) -> str:
    """The documents as GitHub markdown."""
    return "\n\n".join(map(markdown.render, _documents(result, options)))


def to_html(shown: Any, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str | None:
    """See `Shown.to_html`; of anything that displays itself as html."""
    if path is not None:
        check_target(path, PAGE, overwrite=overwrite)
    with own_page():
        text = html.around(shown._repr_mimebundle_()["text/html"], type(shown).__name__)
    if path is None:
        return text
    with whole_file(path, PAGE, overwrite=overwrite) as part:
        part.write_text(text, encoding="utf-8", errors="replace")
    return None


def framed(shown: Any) -> tuple[str, str]:
    """(mime type, data) for marimo, see `show.html.in_frame`."""
    return "text/html", html.in_frame(shown._repr_mimebundle_()["text/html"], type(shown).__name__)


def bundle(document: Document, *under: Document, of: object | None = None) -> dict[str, str]:
    """``text/plain`` with the numbers, ``text/html`` with the same, live where scripts run, and ``text/markdown`` for
    what exports to text; at most 1 MB.

    What stands ``under`` the document has its own sentence and table, and is small. ``of``: the result, where what is
    chosen in one view of it is shown by the others.
    """
    below = "".join(map(html.render, under))
    plain = "\n\n".join(map(text.render, (document, *under)))
    marked = "\n".join(map(markdown.short, (document, *under)))
    fragment = html.render(document, most_bytes=html.MOST_BYTES - len(below) - len(marked)) + below
    return {"text/plain": plain, "text/html": with_modules(boxed(fragment, of)), "text/markdown": marked}
