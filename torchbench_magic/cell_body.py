"""The text of a cell, and a piece of it that is to be run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


def source_id_of(text: str) -> str:
    """Identify a source by its text, across kernels and re-runs: 12 hex digits.

    A first line that is a cell magic is left out, so that other options make no other source. Leading and
    trailing blank lines do not count either.
    """
    lines = text.strip("\n").splitlines()
    if lines and lines[0].lstrip().startswith("%%"):
        lines = lines[1:]
    kept = "\n".join(line.rstrip() for line in lines).strip("\n")
    return hashlib.sha1(kept.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:12]


def code_title(text: str) -> str:
    """What code without a name is called: its one line of code, or the first of several and `` …``; empty for none."""
    lines = [line.strip() for line in text.splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    return "" if not code else code[0] if len(code) == 1 else f"{code[0]} …"


@dataclass(frozen=True)
class CellText:
    """One cell (or one source file) as the user sees it.

    Attributes:
        text: the visible text, magic line included.
        file: the file name that its code objects carry.
        number: n of ``In[n]``; None where no such claim can be made (a file, a body that matched no cell).
        source_id: ``source_id_of(text)``.
        visible: the visible line (from 1) of each line that its code objects count; empty where they are the same.
    """

    text: str
    file: str
    number: int | None
    source_id: str
    visible: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, file: str, number: int | None = None) -> CellText:
        return cls(text, file, number, source_id_of(text))

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def visible_line(self, compiled: int) -> int:
        """The line that the user sees, for a line number of the cell's code objects."""
        return self.visible[compiled - 1] if 0 < compiled <= len(self.visible) else compiled

    @property
    def label(self) -> str:
        """``In[3]``, or the last part of the file name."""
        return f"In[{self.number}]" if self.number is not None else self.file.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Body:
    """A piece of Python text that is to be compiled and run.

    Attributes:
        source: Python text (IPython syntax already transformed).
        file: the file name it is compiled under.
        first_line: the visible line number of the first line of ``source``, from 1.
        cell: n of ``In[n]``, or None.
    """

    source: str
    file: str = "<stmt>"
    first_line: int = 1
    cell: int | None = None
