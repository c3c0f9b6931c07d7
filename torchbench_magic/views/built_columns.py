"""A column together with what makes its cells, so that a column which is not always shown is left out in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchbench_magic import units

from .frame_rows import float_or_none
from .table import Cell, Column, Group, Rest, Row, Table, Tone

__all__ = [
    "BuiltColumn",
    "built_table",
    "cells_of",
    "columns_of",
    "counted",
    "measured_columns",
    "rest_of",
    "share",
    "texts",
]


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
    """The cells of one record."""
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
