"""The cells of ``planted_work.txt``, whose later calls do other work than the first, or the same."""

from __future__ import annotations

from pathlib import Path

CELLS = Path(__file__).parent / "planted_work.txt"


def cells() -> list[tuple[bool, str, str, str, str]]:
    """(whether later calls do other work, kind, name, setup, body) of each."""
    found = []
    for text in CELLS.read_text().split("\n=== ")[2:]:
        head, _, rest = text.partition("\n")
        truth, kind, name = head.split(" | ")
        setup, _, body = rest.partition("---\n")
        found.append((truth == "other", kind, name, setup, body.rstrip()))
    return found
