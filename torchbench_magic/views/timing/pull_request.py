"""A comparison in markdown for a pull request: the sentence, one compact table, doubts, where it ran, how to repeat it.

It takes at most `MOST_BYTES`, whatever the comparison is of: doubts are shortened first, to the two gravest, then rows
are left out from the end; the cell stays, but for one that takes more than half of the room. What is left out is said.
Nothing of what users named is markup in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchbench_magic.errors import OptionError
from torchbench_magic.printable import printable_lines
from torchbench_magic.results.timing.comparison import Comparison

from ..carriers import markdown
from ..document import MOST_DOUBTS, Document, Phrase, StyledText, clipped, plain
from ..table import Table
from .comparison import document
from .comparison_facts import doubt_lines, measured
from .repeat_cell import repeat_cell

__all__ = ["MOST_BYTES", "pull_request"]

MOST_BYTES = 4096
"""Of the whole. A comment may hold 65,536 characters; one that is read is shorter."""
_ROWS = (200, 50, 24, 16, 12, 8, 6, 4, 2, 1)
_DOUBTS = ((2, 400), (2, 200), (1, 200))
"""How many doubts are kept, and characters of each, where room is short; the others are counted."""
_LONGEST = 400  # characters of a sentence where room is short


def pull_request(comparison: Comparison, *, metric: str = "median", max_bytes: int = MOST_BYTES) -> str:
    """See the module. ``metric`` is the time that the table shows, as of the view.

    Raises:
        OptionError: an unknown ``metric``; ``max_bytes`` below 1024.
    """
    most: Any = max_bytes
    if isinstance(most, bool) or not isinstance(most, int) or most < 1024:
        raise OptionError("max_bytes: give a whole number of at least 1024")
    whole = document(comparison, metric=metric)
    repeat = _repeat(repeat_cell(comparison))
    text = ""
    is_short = len(repeat.encode()) <= most // 2
    for text in _forms(comparison, whole, (repeat,) if is_short else (repeat, _LEFT_OUT)):
        if len(text.encode()) <= most:
            return text
    return text.encode()[: most - 4].decode("utf-8", "ignore") + "…\n"


def _forms(comparison: Comparison, whole: Document, cells: tuple[str, ...]) -> Iterator[str]:
    """From all of it to the shortest.

    Args:
        cells: the cell that repeats it, and what stands in its place where it may be left out.
    """
    doubts = doubt_lines(comparison)
    table = whole.tables[0]
    for rows in _ROWS:
        if rows <= 2 * len(table) or rows == _ROWS[-1]:
            shown = _first(table, rows, whole)
            few = doubts[:MOST_DOUBTS]
            yield _rendered(comparison, whole, shown, few, cells[0], len(doubts) - len(few))
            if len(table) <= rows or rows <= 12:
                for cell in cells:
                    for many, longest in _DOUBTS:
                        few = tuple(_short(line, longest) for line in doubts[:many])
                        yield _rendered(comparison, whole, shown, few, cell, len(doubts) - len(few))
    one = tuple(_short(line) for line in doubts[:1])
    yield _rendered(comparison, whole, None, one, cells[-1], len(doubts) - len(one))


def _first(table: Table, rows: int, whole: Document) -> Table:
    return table if len(table) <= rows else table.head(rows, whole.where)


def _rendered(
    comparison: Comparison,
    whole: Document,
    table: Table | None,
    doubts: tuple[StyledText, ...],
    repeat: str,
    more: int = 0,
) -> str:
    said = doubts if more <= 0 else (*doubts, (Phrase(f"{more} more: .warnings"),))
    sentence = whole.sentence if table is not None else _short(whole.sentence)
    environment = (Phrase(" · ".join(measured(comparison))),)
    tables = (table,) if table is not None else ()
    shown = Document(whole.kind, sentence, tables, said, (environment,), doubts_shown=len(said))
    return "\n".join(filter(None, [markdown.render(shown), repeat]))


def _short(line: StyledText, longest: int = _LONGEST) -> StyledText:
    text = plain(line)
    return line if len(text) <= longest else (Phrase(clipped(text, longest)),)


_LEFT_OUT = "How to repeat it: the cell is too long to show here; see `.to_json()`.\n"


def _repeat(cell: str | None) -> str:
    """The cell, folded, in a fence that is longer than any run of backticks in it."""
    if cell is None:
        return ""
    text = printable_lines(cell)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"<details><summary>How to repeat it</summary>\n\n{fence}python\n{text}\n{fence}\n\n</details>\n"
