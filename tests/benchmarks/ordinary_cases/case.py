"""What a planted case is: cells as people write them, and what would be a right answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One ordinary habit whose true answer is known, run in a fresh kernel.

    Every judge is the text of a cell that binds ``outcome`` to one of three words, and ``shows`` to a few words of what
    came out: ``"right"``, the number or the verdict is the known one; ``"said"``, it is not, or it is withheld, and the
    output says why; ``"wrong"``, it is not, and nothing tells.

    Attributes:
        name: the habit, in words, as a row of the table.
        item: what it is about: "isolation", "inputs", "verdict", "counting", "lines", ...
        cells: run one after the other; ``torch`` is imported and the extension loaded. An error in a cell does not end
            the case.
        judge: run last. ``outputs`` is there: for each of ``cells``, all that it displayed, as plain text (streams and
            the text of an error included).
        files: name -> text of the files that lie beside the notebook.
        peers: what other tools make of the same: their name ("timeit", "torch", "line_profiler") -> (cells, judge), in
            a kernel of its own.
        needs: a package that the cells import and the project does not install; without it the case is left out.
    """

    name: str
    item: str
    cells: tuple[str, ...]
    judge: str
    files: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    needs: str = ""
