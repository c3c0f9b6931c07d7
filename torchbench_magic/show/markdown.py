"""A document as GitHub markdown: sentence, pipe tables, doubts, footer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import tabulate

from torchbench_magic.printable import printable

from .document import Document, StyledText
from .table import Cell, Column, Table, dots_text

_MOST_ROWS = 500
_ROWS_OF_SHORT = 40
_Written = Callable[[list[str], list[list[str]], list[str]], str]  # (heads, rows, alignments) -> a table
_SPECIAL = re.compile(r"([\\`*_\[\]|~$])|^(?:[-+#=]|\d+(?=[.)]\s))")


def render(document: Document) -> str:
    """The whole document. Nothing of what users named is markdown or HTML in it."""
    return "\n\n".join(_parts(document.still, _lined_up)) + "\n"


def short(document: Document) -> str:
    """The same for an output of a notebook, where each byte is stored: tables of at most 40 rows, without the spaces
    that line their columns up."""
    still = document.still
    cut = replace(still, tables=tuple(table.head(_ROWS_OF_SHORT, still.where) for table in still.tables))
    return "\n\n".join(_parts(cut, _close)) + "\n"


def _parts(document: Document, written: _Written) -> Iterator[str]:
    yield _line(document.sentence)
    for insight in document.insights:
        yield "\n".join([f"- {_line(insight.line)}", *(f"  - {_line(line)}" for line in insight.under)])
    for table in document.tables:
        yield _table(table, written)
    for doubt in document.first_doubts:
        yield f"> {_line(doubt)}"
    if document.doubts_left:
        yield f"> {_escaped(document.doubts_left)}"
    for line in document.footer:
        yield _line(line)


def _line(line: StyledText) -> str:
    return "".join(_code(run.text) if run.style in ("code", "subject") else _escaped(run.text) for run in line)


def _table(table: Table, written: _Written) -> str:
    table = table.head(_MOST_ROWS, "")
    shown = [(at, column) for at, column in enumerate(table.columns) if not column.drawn or column.kind == "dots"]
    rows = []
    for group in table.groups:
        if group.title and group.sums:
            sums = [_cell(group.sums[at], column, False) for at, column in shown[1:]]
            rows.append([f"**{_escaped(group.title)}**", *sums])
        elif group.title and not any(cell.flat for row in group.rows for cell in row.cells):
            # cells with a flat form say themselves where they belong; these would be read as rows of the group above
            rows.append([f"**{_escaped(group.title)}**", *[""] * (len(shown) - 1)])
        rows += [[_cell(row.cells[at], column, bool(group.title)) for at, column in shown] for row in group.rows]
    rows += [[_cell(row.cells[at], column, False) for at, column in shown] for row in table.totals]
    if not rows:
        return _escaped(table.hidden or "no rows")
    heads = [_head(column) for _, column in shown]
    aligned = ["right" if column.right and column.kind == "number" else "left" for _, column in shown]
    text = written(heads, rows, aligned)
    return f"{text}\n\n{_escaped(table.hidden)}" if table.hidden else text


def _lined_up(heads: list[str], rows: list[list[str]], aligned: list[str]) -> str:
    return tabulate.tabulate(rows, heads, tablefmt="pipe", disable_numparse=True, colalign=aligned)


def _close(heads: list[str], rows: list[list[str]], aligned: list[str]) -> str:
    rule = ["-:" if side == "right" else "-" for side in aligned]
    return "\n".join(f"|{'|'.join(line)}|" for line in (heads, rule, *rows))


def _head(column: Column) -> str:
    return _escaped(f"{column.label} ({column.unit})" if column.unit else column.label)


def _cell(cell: Cell, column: Column, grouped: bool) -> str:
    if column.kind == "dots":
        return _code(dots_text(cell), table=True) if cell.picture else ""
    text = cell.flat if grouped and cell.flat else cell.text
    if column.kind in ("code", "source") and text.strip():
        return _code(text, table=True)
    if column.kind == "number":
        return text.replace("<", "&lt;")
    return _escaped(", ".join(part for part in (text, cell.note) if part))


def _code(text: str, *, table: bool = False) -> str:
    """A code span whose fence is longer than any run of backticks in it."""
    text = printable(text)
    if table:
        text = text.replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _escaped(text: str) -> str:
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(lambda found: "\\" + found[0], text)
