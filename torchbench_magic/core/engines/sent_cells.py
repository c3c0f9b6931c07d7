"""Texts of the notebook's cells on their way to engines, so that lines there stand on ``In[n]``."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from torchbench_magic.results.cell_text import CellText

__all__ = ["known_cells", "pack_cells"]


def pack_cells(files: Iterable[str], text_of: Callable[[str], CellText | None]) -> list[dict[str, Any]]:
    """The cells among ``files``, as plain values."""
    texts = {file: text_of(file) for file in sorted(set(files))}
    return [asdict(text) for text in texts.values() if text is not None]


@contextmanager
def known_cells(cells: Iterable[Mapping[str, Any]]) -> Iterator[Callable[[str], CellText | None]]:
    """On the engine: `linecache` has the texts in the block; gives file -> its cell, None for what is no cell."""
    made = [CellText(**{**each, "visible": tuple(each["visible"])}) for each in cells]
    before = {text.file: linecache.cache.get(text.file) for text in made}
    for text in made:
        lines = [f"{line}\n" for line in text.lines]
        if text.visible:  # code objects count lines of their own
            lines = [lines[line - 1] if 0 < line <= len(lines) else "\n" for line in text.visible]
        linecache.cache[text.file] = (len(text.text), None, lines, text.file)
    try:
        yield {text.file: text for text in made}.get
    finally:
        for file, entry in before.items():
            if entry is None:
                linecache.cache.pop(file, None)
            else:
                linecache.cache[file] = entry
