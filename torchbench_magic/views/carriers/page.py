"""A result as a file: one html page that opens from disk, without kernel and without network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torchbench_magic.errors import InputError

from . import html

__all__ = ["to_html"]


def to_html(shown: Any, path: str | os.PathLike[str] | None = None) -> str | None:
    """The page of anything that displays itself as html: written to ``path``, or returned.

    Raises:
        InputError: the file cannot be written.
    """
    text = html.around(shown._repr_mimebundle_()["text/html"], type(shown).__name__)
    if path is None:
        return text
    try:
        Path(path).expanduser().write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from None
    return None
