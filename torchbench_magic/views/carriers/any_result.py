"""Whatever result in each carrier: its document, and those that stand under it."""

from __future__ import annotations

from typing import Any

from torchbench_magic.results._gateway import TABLE, show

from ..document import Document
from . import bundle, markdown, text

__all__ = ["mimebundle", "to_markdown", "to_text"]


def _documents(result: object, options: dict[str, Any]) -> list[Document]:
    under = show(result, "under") if (type(result).__name__, "under") in TABLE else ()
    return [show(result, "document", **options), *under]


def to_text(result: object, **options: Any) -> str:
    """What ``print(result)`` shows. ``options`` are those of the result's ``document``, here and below."""
    return "\n\n".join(map(text.for_stdout, _documents(result, options)))


def mimebundle(result: object, **options: Any) -> dict[str, str]:
    """``text/plain`` and ``text/html``."""
    return bundle.bundle(*_documents(result, options))


def to_markdown(result: object, **options: Any) -> str:
    """The documents as GitHub markdown."""
    return "\n\n".join(map(markdown.render, _documents(result, options)))
