"""The texts that the lines of a profile stand in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from .trace import Trace

__all__ = ["Source", "line_text", "node_sources"]


@dataclass(frozen=True)
class Source:
    """The text that the lines of a profile stand in: a cell, or a file.

    Attributes:
        source_id: identifies the text across kernels and re-runs.
        file: file name of its code.
        text: the visible text, magic line included.
        cell: the last n of ``In[n]`` it ran as; None for a file.
        first_line: number of the first line of ``text``.
        version: which text of the file it is, in words; empty for the one that the file has.
    """

    source_id: str
    file: str
    text: str
    cell: int | None = None
    first_line: int = 1
    version: str = ""

    @property
    def label(self) -> str:
        """``In[3]``, or the last part of the file name, with the version in brackets."""
        name = f"In[{self.cell}]" if self.cell is not None else self.file.rsplit("/", 1)[-1]
        return f"{name} ({self.version})" if self.version else name

    def line(self, number: int) -> str:
        """Text of line ``number``; empty where the text has no such line."""
        index = number - self.first_line
        return self._lines[index] if 0 <= index < len(self._lines) else ""

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()


def node_sources(trace: Trace, sources: Mapping[str, Source]) -> list[Source | None]:
    """Of each node of ``trace``, the source that its line stands in; None for a root, and where no text is known."""
    return [sources.get(trace.sources[at]) if at >= 0 else None for at in trace.nodes["source"].tolist()]


def line_text(sources: Mapping[str, Source], source_id: Any, line: Any) -> str | None:
    """Text of a line of one of ``sources``; None for no line (NA), or of a source that is not there."""
    if pd.isna(source_id) or pd.isna(line) or source_id not in sources:
        return None
    return sources[str(source_id)].line(int(line))
