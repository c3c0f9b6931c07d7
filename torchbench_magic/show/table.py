"""The one table: columns, rows in groups, details in place. Every form of output draws it from this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from torchbench_magic import units

# ---- frame_rows ------------------------------------------------------------------------------------------------------


def frame_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """One mapping per row, column name -> value; NA is None. A tenth of the time of pandas' own ``to_dict``."""
    names = [str(name) for name in frame.columns]
    rows = frame.to_numpy(object).tolist()
    return [{name: None if value is pd.NA else value for name, value in zip(names, row, strict=True)} for row in rows]


def float_or_none(value: Any) -> float | None:
    """A cell as float; NA, NaN and None are None."""
    return None if value is None or value is pd.NA or value != value else float(value)


# ---- table -----------------------------------------------------------------------------------------------------------
# A table is written down once, with its cells already as text (see `torchbench_magic.units`) and, beside the text,
# the number they are sorted by and the numbers of their picture. So text/plain, HTML, markdown, the inline module and
# the widget show the same figures, and a new kind of result adds a specification, not a table.

ColumnKind = Literal[
    "text", "code", "number", "range", "line", "bar", "change", "interval", "dots", "histogram", "verdict", "source"
]
Tone = Literal["", "quiet", "strong", "faster", "slower", "torch", "python", "backward", "memory", "other"]
Picture = tuple[object, ...]

PICTURES = ("bar", "change", "interval", "dots", "histogram")
RIGHT = ("number", "range", "line")
_DOTS = 15  # characters of a line of dots


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a row.

    Attributes:
        text: what is read; user text goes in as it is and is escaped by the carrier.
        value: what the column sorts by, SI; None sorts last.
        tone: its colour, by meaning.
        note: quiet text after it ("needs ~0.4 s more").
        flat: what is read instead of ``text`` where the groups are dissolved (a line number alone says too little).
        picture: the numbers of a drawn cell, by the kind of its column:
            bar: ``(parts, thin)``, each a tuple of ``(meaning, share of the column's longest bar)``;
            change: ``(share,)`` of the column's longest bar, with its sign: drawn from the middle;
            interval: ``(ratio, low, high, mark)``, mark one of ``baseline``, ``decided``, ``open``;
            dots: ``(places, one)``, places a tuple of shares of the column's width, one the place of 1 or None;
            histogram: ``(counts, more, centre, samples)``, see `show.drawing`;
            source: ``(start, end, meaning)`` triples, meaning ``k`` keyword, ``s`` string, ``c`` comment.
    """

    text: str = ""
    value: float | None = None
    tone: Tone = ""
    note: str = ""
    flat: str = ""
    picture: Picture = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale that a drawn column can use.

    Attributes:
        name: what its switch says.
        low, high: the values at its ends.
        ticks: ``(value, label)``.
        band: the half width of the margin around 1, as a share.
        log: positions go by the logarithm.
    """

    name: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    band: float = 0.0
    log: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A column of cells of one kind.

    Attributes:
        name: stable name, what ``sort_by`` and selections call it.
        label: the header.
        unit: beneath the label; the unit of every cell.
        kind: how its cells are read or drawn.
        leading: the value is the same in a whole group and is written once, in the group's first row.
        widest: characters after which its text is shortened.
        axes: the scales of a drawn column; the first is shown, more than one get a switch.
        legend: ``(meaning, word)`` keys shown in the header.
        scale, digits: how its numbers are written from their values, where that is all there is to them.
    """

    name: str
    label: str
    unit: str = ""
    kind: ColumnKind = "text"
    leading: bool = False
    widest: int = 40
    axes: tuple[Axis, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    scale: units.Scale | None = None
    digits: int | None = 3

    @property
    def drawn(self) -> bool:
        """Its cells are pictures; the numbers behind them stand in other columns."""
        return self.kind in PICTURES

    @property
    def right(self) -> bool:
        return self.kind in RIGHT


@dataclass(frozen=True, slots=True)
class Row:
    """One row; ``key`` names it in a selection, ``detail`` opens in place under it."""

    cells: tuple[Cell, ...]
    key: str = ""
    detail: Table | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, parted from the next by a hairline, or by a heading if there is a title.

    ``sums`` are cells of the heading itself, one a column; the first one gives way to the title.
    """

    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""
    sums: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class Rest:
    """Rows after those of a table, which live forms hold beside them, to be sorted and filtered.

    Attributes:
        columns: of each column of the table what its rows have: values of a column with a ``scale``, texts, or cells.
        keys: of the rows; an empty one is the text of the first column.
        total: rows there are in all, those of the table and those left out among them.
        top: so many rows with the largest values of each column are here; all rows if 0.
    """

    columns: tuple[Sequence[Any], ...]
    keys: Sequence[str]
    total: int
    top: int = 0

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the language of the result views.

    Attributes:
        name: what the view switch says ("lines").
        columns, groups: what is shown, in natural order.
        totals: rows under a rule, which no sorting moves.
        hidden: what is not shown, and where it is ("13 of 31 operations; the other 18 take 0.3 ms").
        sorted_by: name of the column that the natural order follows, if it follows one.
        descending: the direction of that order.
        headless: no header (a list of facts).
        rest: more rows, for live forms.
        keyed: what the keys of the rows are of, for the other views of the result: ``line``, ``op``, ``module`` or
            ``frame``; empty where no other view knows them.
        aligned: the totals are numbers under their columns in text too; else each is one line of words.
        sentence: what stands above this table, in a document of which one table is shown at a time.
    """

    name: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    totals: tuple[Row, ...] = ()
    hidden: str = ""
    sorted_by: str = ""
    descending: bool = True
    headless: bool = False
    rest: Rest | None = None
    keyed: str = ""
    aligned: bool = False
    sentence: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for row in self.every_row():
            if len(row.cells) != len(self.columns):
                raise ValueError(f"table {self.name!r}: {len(row.cells)} cells for {len(self.columns)} columns")

    def every_row(self) -> Iterator[Row]:
        yield from self.rows()
        yield from self.totals
        yield from (Row(group.sums) for group in self.groups if group.sums)

    def rows(self) -> Iterator[Row]:
        for group in self.groups:
            yield from group.rows

    def __len__(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    def places(self, column: int) -> int:
        """The most decimals in a column: where its decimal points go."""
        shown = (units.decimals_of(row.cells[column].text) for row in self.every_row())
        return max((places for places in shown if places is not None), default=0)

    def head(self, limit: int, where: str) -> Table:
        """The first ``limit`` rows, with the others counted in ``hidden``. ``where`` names the place of all rows."""
        total = len(self) + len(self.rest or ())
        if len(self) <= limit:
            return self
        groups, left = [], limit
        for group in self.groups:
            if left <= 0:
                break
            groups.append(replace(group, rows=group.rows[:left]))
            left -= len(group.rows)
        counted = f"{units.count(limit) if limit else 'none'} of {units.count(total)} rows shown"
        said = "; ".join(part for part in (self.hidden, f"{counted}. All rows: {where}" if where else counted) if part)
        return replace(self, groups=tuple(groups), rest=None, hidden=said)


def dots_text(cell: Cell) -> str:
    """A cell of dots in characters, each value a point on one line: ``:`` are two in one place, ``#`` more."""
    if not cell.picture:
        return ""
    shares, one = cell.picture
    marks = [" "] * _DOTS
    if one is not None:
        marks[round(one * (_DOTS - 1))] = "|"  # type: ignore[operator]
    for place, count in Counter(round(share * (_DOTS - 1)) for share in shares).items():  # type: ignore[attr-defined]
        marks[place] = {1: "·", 2: ":"}.get(count, "#")
    return "".join(marks)


# ---- built_columns ---------------------------------------------------------------------------------------------------
# A column together with what makes its cells, so that a column which is not always shown is left out in one place.


@dataclass(frozen=True)
class BuiltColumn:
    """A column and how the cell of a record is made; ``raw`` is what `Rest` has of it: the value of a column with a
    scale, or the text, if that is all there is to the cell."""

    column: Column
    cell: Callable[..., Cell]
    raw: Callable[..., Any] | None = None


def columns_of(built: Iterable[BuiltColumn]) -> tuple[Column, ...]:
    """The columns alone."""
    return tuple(each.column for each in built)


def cells_of(built: Iterable[BuiltColumn], *record: Any) -> tuple[Cell, ...]:
    return tuple(each.cell(*record) for each in built)


def rest_of(
    built: Sequence[BuiltColumn], records: Sequence[Any], key: Callable[[Any], str], total: int, top: int = 0
) -> Rest | None:
    """The records as `Rest`; None without any. ``total`` and ``top`` are its own."""
    columns = tuple([(each.raw or each.cell)(record) for record in records] for each in built)
    names = [each if isinstance(each, str) else "" for each in columns[0]]
    keys = [made if (made := key(record)) != name else "" for record, name in zip(records, names, strict=True)]
    return Rest(columns, keys, total, top) if len(records) else None


def built_table(
    name: str,
    built: Sequence[BuiltColumn],
    records: Iterable[Any],
    key: Callable[[Any], str] = lambda record: "",
    **more: Any,
) -> Table:
    """The table of ``records``, each with its ``key``; ``more`` are other attributes of the table."""
    rows = tuple(Row(cells_of(built, record), key(record)) for record in records)
    return Table(name, columns_of(built), (Group(rows),) if rows else (), **more)


def measured_columns(
    name: str,
    label: str,
    scale: units.Scale,
    field: str = "",
    *,
    missing: float | None = None,
    digits: int | None = 3,
    tone: Tone = "",
) -> BuiltColumn:
    """A number in the unit of ``scale``: the record's ``field``, which is ``name`` unless given."""

    def raw(record: Any) -> float | None:
        value = float_or_none(record[field or name])
        return missing if value is None else value

    def cell(record: Any) -> Cell:
        value = raw(record)
        return Cell(units.number(value, scale, digits=digits), value, tone)

    column = Column(name, label, scale.unit, "number", scale=scale, digits=digits)
    return BuiltColumn(column, cell, None if tone else raw)


def counted(name: str, label: str, unit: str = "", *, missing: float | None = None) -> BuiltColumn:
    """A whole number, all digits."""
    return measured_columns(name, label, units.Scale(unit, places=0), missing=missing, digits=None)


def share_cell(part: float, whole: float) -> Cell:
    """Per cent; 0 of nothing."""
    value = part / whole if whole > 0 else 0.0
    return Cell(units.percent(value), value)


def share(label: str, of: Callable[[Any], float]) -> BuiltColumn:
    """A share of one, as per cent."""

    scale = units.Scale("%", 0.01, 1)

    def cell(record: Any) -> Cell:
        value = of(record)
        return Cell(units.number(value, scale), value)

    return BuiltColumn(Column("share", label, "%", "number", scale=scale), cell, of)


def texts(name: str, label: str, widest: int, text: Callable[[Any], str], *, quiet: bool = False) -> BuiltColumn:
    """Code or a name, shortened after ``widest`` characters."""
    column = Column(name, label, kind="code", widest=widest)
    cell = lambda record: Cell(text(record), tone="quiet" if quiet else "")
    return BuiltColumn(column, cell, None if quiet else text)
