"""Texts of the notebook's cells on their way to engines, so that lines there stand on ``In[n]``."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from torchbench_magic.results.cell_text import CellText

__all__ = ["known_cells", "pack_cells"]


def pack_cells(files: Iterable[str], text_of: Callable[[str], CellText | None]) -> list[dict[str, Any]]:
    """The cells among ``files``, as plain values."""
    texts = {file: text_of(file) for file in sorted(set(files))}
    shown = {file: list(linecache.getlines(file)) for file in texts}  # as compiled, or as seen under a magic
    return [{"text": asdict(text), "lines": shown[file]} for file, text in texts.items() if text is not None]


@contextmanager
def known_cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[Callable[[str], CellText | None]]:
    """On the engine: `linecache` has the texts in the block; gives file -> its cell, None for what is no cell."""
    made = {}
    for each in cells:
        text = CellText(**{**each["text"], "visible": tuple(each["text"]["visible"])})
        made[text.file] = text
    before = {file: linecache.cache.get(file) for file in made}
    for text, each in zip(made.values(), cells, strict=True):
        lines = each["lines"] or [f"{line}\n" for line in text.lines]
        linecache.cache[text.file] = (len("".join(lines)), None, lines, text.file)
    try:
        yield made.get
    finally:
        for file, entry in before.items():
            if entry is None:
                linecache.cache.pop(file, None)
            else:
                linecache.cache[file] = entry
