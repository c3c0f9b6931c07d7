"""text/plain: what a terminal, GitHub or a diff shows. As wide as the terminal, no colour, one rule under the header.

A table that does not fit gives up, in this order: its bars, headers on one line, the ends of its texts; then it is
printed in parts, each with the names of the rows. A number is never cut.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

import tabulate

from torchbench_magic import units
from torchbench_magic.printable import printable

from .document import Document, plain
from .table import Cell, Column, Group, Row, Table, dots_text

WIDTH = 100  # columns where there is no terminal: a notebook, a file
_NARROWEST, _WIDEST = 40, 160  # a table needs, and gains from, no less and no more
MOST_ROWS = 200
_BAR = 9  # characters of the longest bar
_GAP = "  "
_LEAST, _NAMES = 8, 18  # columns that a text keeps; and that the names of the rows keep while others can give way
_VERDICT, _SOURCE = 10, 28  # columns that a verdict keeps; and that source keeps while bars can give way
_NOTE = 12  # columns of a note after a verdict; less of it is left out
_KEEP = "\ue000"  # a space that tabulate must not strip; a private character, which `printable` lets nobody else use

_FIGURE = re.compile(r"(?<=\d) (?=(?:[nµm]?s|[KMG]?i?B|%)(?!\w))")  # a number and its unit stay together

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
    width = columns_at_hand()
    prose = min(width, WIDTH)
    parts = [_wrapped(plain(document.sentence), prose)]
    for insight in document.insights:
        parts.append(_wrapped(plain(insight.line), prose, "* "))
        parts += [_wrapped(plain(line), prose, "    ") for line in insight.under]
    if not document.folded:
        parts += [part for table in document.tables for part in ("", table_text(table, width=width))] or [""]
        if document.doubts or document.footer:
            parts.append("")
    parts += [_wrapped(plain(doubt), prose, "! ") for doubt in document.first_doubts]
    if document.doubts_left:
        parts.append(f"! {document.doubts_left}")
    if not document.folded:
        parts += [_wrapped(plain(line), prose) for line in document.footer]
    text = "\n".join(parts).rstrip("\n")
    return units.to_ascii(text) if ascii_only else text


def columns_at_hand() -> int:
    """Columns that a line may have: those of ``COLUMNS``, else of the terminal, else `WIDTH`."""
    told = os.environ.get("COLUMNS", "")
    columns = int(told) if told.isdecimal() else 0
    if not columns:
        try:
            columns = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
        except (OSError, ValueError, AttributeError):  # not a file, or closed
            columns = 0
    return min(max(columns or WIDTH, _NARROWEST), _WIDEST)


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
    text = _table_lines(table, width)
    if max(map(_columns_of, text)) <= width:
        return "\n".join(text)
    return "\n\n".join("\n".join(_table_lines(part, width)) for part in _parts(table, width))


def _parts(table: Table, width: int) -> Iterator[Table]:
    """The table side by side in parts that fit, each with the columns that name the rows; its last words at the"
    " last."""
    shown = [at for at, column in enumerate(table.columns) if not column.drawn or column.kind == "dots"]
    named = sum(table.columns[at].leading for at in shown) + 1
    names, rest = shown[:named], shown[named:]
    part: list[int] = []
    for at in rest:
        wider = _of_columns(table, [*names, *part, at])
        if part and max(map(_columns_of, _table_lines(replace(wider, totals=(), hidden=""), width))) > width:
            before = _of_columns(table, [*names, *part])
            yield replace(before, hidden="", totals=before.totals if table.aligned else ())
            part = []
        part.append(at)
    yield _of_columns(table, [*names, *part])


def _of_columns(table: Table, shown: Sequence[int]) -> Table:
    def taken(row: Row) -> Row:
        return replace(row, cells=tuple(row.cells[at] for at in shown))

    totals = tuple(taken(row) if table.aligned else _in_words(row, len(shown)) for row in table.totals)
    groups = tuple(
        replace(
            group,
            rows=tuple(map(taken, group.rows)),
            sums=tuple(group.sums[at] for at in shown) if group.sums else (),
        )
        for group in table.groups
    )
    return replace(table, columns=tuple(table.columns[at] for at in shown), groups=groups, totals=totals)


def _in_words(row: Row, columns: int) -> Row:
    return replace(row, cells=(Cell(_total(row)), *[Cell()] * (columns - 1)))


def _table_lines(table: Table, width: int) -> list[str]:
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
    heads = [[printable(column.label)] for column in columns]
    if any(column.kind == "bar" for column in columns) and _is_tight(rows, columns, width, heads):
        kept = [at for at, column in enumerate(columns) if column.kind != "bar"]
        columns, rows = [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]
        heads = [heads[at] for at in kept]
    if _is_tight(rows, columns, width, heads):
        heads = _narrow_heads(rows, columns)
    rows, begins = _fitted(rows, columns, width, starts | {summed}, heads)
    titles = {begins[at]: title for at, title in titles.items()}
    summed = begins[summed]
    head, lines = _tabulated(rows, columns, [] if table.headless else heads)
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
    return "\n".join(out).split("\n")


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


Heads = list[list[str]]
"""Of each column the lines of its header, above its unit."""


def _narrow_heads(rows: list[list[str]], columns: Sequence[Column]) -> Heads:
    """Headers of several words on several lines, no wider than what stands under them needs."""
    heads = []
    for at, column in enumerate(columns):
        body = max([len(column.unit), *(_columns_of(row[at]) for row in rows)])
        words = printable(column.label).split(" ")
        heads.append(textwrap.wrap(" ".join(words), max(body, *map(len, words)), break_on_hyphens=False) or [""])
    return heads


def _limits(rows: list[list[str]], columns: Sequence[Column], width: int, names: int, labels: Heads) -> dict[int, int]:
    """Columns of text -> how wide they may be for the table to fit: the widest give way first, the ``names`` first
    characters of a row's name last. Numbers and headers are never shortened."""
    heads = [max(len(column.unit), *map(_columns_of, lines)) for column, lines in zip(columns, labels, strict=True)]
    widths = [max([heads[at], *(_columns_of(row[at]) for row in rows)]) for at in range(len(columns))]
    limits = {
        at: min(widths[at], column.widest)
        for at, column in enumerate(columns)
        if column.kind in ("text", "code", "source", "verdict")
    }
    fixed = sum(w for at, w in enumerate(widths) if at not in limits) + len(_GAP) * (len(columns) - 1)
    least = {at: max(_VERDICT if columns[at].kind == "verdict" else _LEAST, heads[at]) for at in limits}
    for floor in (least | ({0: max(names, least[0])} if 0 in least else {}), least):
        while fixed + sum(max(limit, heads[at]) for at, limit in limits.items()) > width:
            widest = max((at for at in limits if limits[at] > floor[at]), key=lambda at: limits[at], default=None)
            if widest is None:
                break
            limits[widest] -= 1
    return limits


def _is_tight(rows: list[list[str]], columns: Sequence[Column], width: int, heads: Heads) -> bool:
    """Whether it does not fit, the names of the rows could not be told apart any more, or source could not be read."""
    if not columns:
        return False
    limits = _limits(rows, columns, width, _LEAST, heads)
    wide = [max(map(_columns_of, [*heads[at], *(row[at] for row in rows)])) for at in range(len(columns))]
    if sum(limits.get(at, wide[at]) for at in range(len(columns))) + len(_GAP) * (len(columns) - 1) > width:
        return True
    kept = {at: _SOURCE for at, column in enumerate(columns) if column.kind == "source"} | {0: _NAMES}
    return any(limits.get(at, wide[at]) < min(wide[at], least) for at, least in kept.items())


def _fitted(
    rows: list[list[str]], columns: Sequence[Column], width: int, starts: set[int], heads: Heads
) -> tuple[list[list[str]], list[int]]:
    """The rows with their text columns shortened until the table fits, and where each of them begins (and the end).

    A leading cell is not cut but goes on below, where the group's other rows leave it blank: the end of an input's
    name may be all that tells it from the next.
    """
    limits = _limits(rows, columns, width, _NAMES, heads)
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
                line[at] = _clip(_without_note(row[at], limit) if columns[at].kind == "verdict" else row[at], limit)
        fitted += [line] if row else []
    return fitted, begins


def _without_note(verdict: str, limit: int) -> str:
    """``undecided`` of ``undecided, see below`` where a word of the note at most would be left."""
    word = verdict.partition(", ")[0]
    return word if _columns_of(verdict) > limit and limit < _columns_of(word) + _NOTE else verdict


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


def _tabulated(rows: list[list[str]], columns: Sequence[Column], heads: Heads) -> tuple[list[str], list[str]]:
    """Lines of the header (labels over units; none without ``heads``) and of the body, aligned as one table."""
    units_row = [column.unit for column in columns]
    high = max(map(len, heads), default=0)
    labels = [list(row) for row in zip(*([""] * (high - len(lines)) + lines for lines in heads), strict=True)]
    above = [*labels, *([units_row] if heads and any(units_row) else [])]
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
    whole = _FIGURE.sub(_KEEP, printable(text))
    lines = textwrap.fill(whole, width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
    return lines.replace(_KEEP, " ")


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
