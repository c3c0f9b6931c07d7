"""text/plain: what a terminal, GitHub or a diff shows. At most 100 columns, no colour, one rule under the header."""

from __future__ import annotations

import sys
import textwrap
import unicodedata
from collections.abc import Sequence

import tabulate

from torchbench_magic import units

from ..document import Document, plain, printable
from ..table import Cell, Column, Group, Row, Table, dots_text

__all__ = ["WIDTH", "for_stdout", "render", "table_text"]

WIDTH = 100
MOST_ROWS = 200
_BAR = 9  # characters of the longest bar
_GAP = "  "
_LEAST, _NAMES = 8, 18  # columns that a text keeps; and that the names of the rows keep while others can give way
_KEEP = "\ue000"  # a space that tabulate must not strip; a private character, which `printable` lets nobody else use

_FORMAT = tabulate.TableFormat(
    lineabove=None,
    linebelowheader=None,
    linebetweenrows=None,
    linebelow=None,
    headerrow=tabulate.DataRow("", _GAP, ""),
    datarow=tabulate.DataRow("", _GAP, ""),
    padding=0,
    with_header_hide=None,
)


def render(document: Document, *, ascii_only: bool = False) -> str:
    """The whole document: sentence, tables, doubts, footer. A folded one is its sentence and its doubts."""
    document = document.still
    parts = [_wrapped(plain(document.sentence), WIDTH)]
    for insight in document.insights:
        parts.append(_wrapped(plain(insight.line), WIDTH, "* "))
        parts += [_wrapped(plain(line), WIDTH, "    ") for line in insight.under]
    if not document.folded:
        parts += [part for table in document.tables for part in ("", table_text(table))] or [""]
        if document.doubts or document.footer:
            parts.append("")
    parts += [_wrapped(plain(doubt), WIDTH, "! ") for doubt in document.doubts]
    if not document.folded:
        parts += [_wrapped(plain(line), WIDTH) for line in document.footer]
    text = "\n".join(parts).rstrip("\n")
    return units.to_ascii(text) if ascii_only else text


def for_stdout(document: Document) -> str:
    """The document in what standard output can write: ASCII where its encoding has no µ, … or U+202F."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        "µ…·×−\u202f".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return render(document, ascii_only=True)
    return render(document)


def table_text(table: Table, *, width: int = WIDTH) -> str:
    """One table with its totals and what it hides; drawn columns give way to the numbers beside them."""
    table = table.head(MOST_ROWS, "")
    shown = [at for at, column in enumerate(table.columns) if not column.drawn or column.kind in ("bar", "dots")]
    columns = [table.columns[at] for at in shown]
    places = [table.places(at) for at in shown]
    rows: list[list[str]] = []
    titles: dict[int, str] = {}
    starts: set[int] = set()  # of rows that share their leading cells
    for group in table.groups:
        starts.add(len(rows))
        if group.title and group.sums:
            rows.append([_title(group), *_group_rows(Group((Row(group.sums),)), shown, columns, places)[0][1:]])
        elif group.title:
            titles[len(rows)] = _title(group)
        lead = len(rows)
        starts.add(lead)
        rows += _group_rows(group, shown, columns, places)
        if group.sums:
            for row in rows[lead:]:
                row[0] = f"  {row[0]}"
    summed = len(rows)
    if table.aligned:
        rows += _group_rows(Group(table.totals), shown, columns, places)
    if any(column.kind == "bar" and not column.label for column in columns) and _is_tight(rows, columns, width):
        kept = [at for at, column in enumerate(columns) if column.kind != "bar"]
        columns, rows = [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]
    rows, begins = _fitted(rows, columns, width, starts | {summed})
    titles = {begins[at]: title for at, title in titles.items()}
    summed = begins[summed]
    head, lines = _tabulated(rows, columns, table.headless)
    rule = "-" * max(map(_columns_of, [*head, *lines]), default=0)
    out = [*head, rule] if head else []
    for at, line in enumerate(lines):
        if at == summed and at:
            out.append(rule)
        if at in titles:
            out.append(_clip(titles[at], width))
        out.append(line)
    if table.totals and not table.aligned:
        out += [rule, *(_wrapped(_total(row), width) for row in table.totals)]
    if table.hidden:
        out.append(_wrapped(table.hidden, width))
    return "\n".join(out)


def _group_rows(group: Group, shown: list[int], columns: list[Column], places: list[int]) -> list[list[str]]:
    return [
        [
            "" if nth and column.leading else _cell(row.cells[at], column, place)
            for at, column, place in zip(shown, columns, places, strict=True)
        ]
        for nth, row in enumerate(group.rows)
    ]


def _total(row: Row) -> str:
    """A row of totals as words: its longest text, which says the numbers too."""
    return max((cell.text for cell in row.cells), key=len)


def _cell(cell: Cell, column: Column, places: int) -> str:
    if column.kind == "bar":
        return _bar(cell)
    if column.kind == "dots":
        return dots_text(cell)
    text = printable(cell.text)
    if column.kind == "number":
        return text + " " * len(units.padding(text, places))
    if column.kind == "source":
        return text  # its notes are for where there is room
    return ", ".join(part for part in (text, printable(cell.note)) if part)


def _bar(cell: Cell) -> str:
    if not cell.picture:
        return ""
    parts, thin = cell.picture
    longest = max((sum(share for _, share in some) for some in (parts, thin)), default=0.0)  # type: ignore[attr-defined]
    return "|" + "#" * round(longest * _BAR)


def _limits(rows: list[list[str]], columns: Sequence[Column], width: int, names: int) -> dict[int, int]:
    """Columns of text -> how wide they may be for the table to fit: the widest give way first, the ``names`` first
    characters of a row's name last. Numbers and headers are never shortened."""
    heads = [max(len(column.label), len(column.unit)) for column in columns]
    widths = [max([heads[at], *(_columns_of(row[at]) for row in rows)]) for at in range(len(columns))]
    limits = {
        at: min(widths[at], column.widest)
        for at, column in enumerate(columns)
        if column.kind in ("text", "code", "source", "verdict")
    }
    fixed = sum(w for at, w in enumerate(widths) if at not in limits) + len(_GAP) * (len(columns) - 1)
    least = {at: max(_LEAST, heads[at]) for at in limits}
    for floor in (least | ({0: max(names, least[0])} if 0 in least else {}), least):
        while fixed + sum(max(limit, heads[at]) for at, limit in limits.items()) > width:
            widest = max((at for at in limits if limits[at] > floor[at]), key=lambda at: limits[at], default=None)
            if widest is None:
                break
            limits[widest] -= 1
    return limits


def _is_tight(rows: list[list[str]], columns: Sequence[Column], width: int) -> bool:
    """Whether the names of the rows could not be told apart any more."""
    longest = max((_columns_of(row[0]) for row in rows), default=0)
    return _limits(rows, columns, width, _LEAST).get(0, longest) < min(longest, _NAMES)


def _fitted(
    rows: list[list[str]], columns: Sequence[Column], width: int, starts: set[int]
) -> tuple[list[list[str]], list[int]]:
    """The rows with their text columns shortened until the table fits, and where each of them begins (and the end).

    A leading cell is not cut but goes on below, where the group's other rows leave it blank: the end of an input's
    name may be all that tells it from the next.
    """
    limits = _limits(rows, columns, width, _NAMES)
    fitted: list[list[str]] = []
    begins: list[int] = []
    rest: dict[int, list[str]] = {}
    for nth, row in enumerate([*rows, []]):
        if nth in starts or not row:
            fitted += _remainder(rest, len(columns))
        begins.append(len(fitted))
        line = list(row)
        for at, limit in limits.items() if row else ():
            if columns[at].leading and row[at]:
                line[at], *rest[at] = _lines(_clip(row[at], columns[at].widest), limit)
            elif rest.get(at):
                line[at] = rest[at].pop(0)
            else:
                line[at] = _clip(row[at], limit)
        fitted += [line] if row else []
    return fitted, begins


def _remainder(rest: dict[int, list[str]], columns: int) -> list[list[str]]:
    """Rows for what the rows of a group had no place for."""
    more = [[""] * columns for _ in range(max(map(len, rest.values()), default=0))]
    for at, lines in rest.items():
        for row, line in zip(more, lines, strict=False):
            row[at] = line
    rest.clear()
    return more


def _lines(text: str, limit: int) -> list[str]:
    """``text`` broken between its words into lines of at most ``limit`` columns; a longer word is cut."""
    if _columns_of(text) <= limit:
        return [text]
    found = textwrap.wrap(text, limit, break_long_words=False, break_on_hyphens=False) or [text]
    return [_clip(line, limit) for line in found]


def _tabulated(rows: list[list[str]], columns: Sequence[Column], headless: bool) -> tuple[list[str], list[str]]:
    """Lines of the header (labels over units) and of the body, aligned as one table."""
    units_row = [column.unit for column in columns]
    labels = [printable(column.label) for column in columns]
    above = [] if headless else [labels, *([units_row] if any(units_row) else [])]
    if not above and not rows:
        return [], []
    kept = [[text.replace("\u00a0", " ").replace(" ", _KEEP) for text in row] for row in above + rows]  # indents too
    aligned = ["right" if column.right else "left" for column in columns]
    text = tabulate.tabulate(kept, tablefmt=_FORMAT, disable_numparse=True, colalign=aligned)
    lines = [line.replace(_KEEP, " ").rstrip() for line in text.split("\n")]
    return lines[: len(above)], lines[len(above) :]


def _title(group: Group) -> str:
    return ", ".join(part for part in (printable(group.title), printable(group.note)) if part)


def _wrapped(text: str, width: int, lead: str = "") -> str:
    indent = " " * len(lead)
    return textwrap.fill(printable(text), width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)


def _columns_of(text: str) -> int:
    """Terminal columns that ``text`` takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _clip(text: str, columns: int) -> str:
    if _columns_of(text) <= columns:
        return text
    kept, used = [], 1
    for char in text:
        used += _columns_of(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…"
