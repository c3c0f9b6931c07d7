"""A document as the data of the scripts that make it live, and where they are put on a page."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from html import escape
from typing import Any

from torchbench_magic import units
from torchbench_magic.printable import printable

from .document import Document, StyledText, Unfolding, clipped
from .javascript import data_script, packed_text
from .table import Cell, Column, Group, Rest, Row, Table

# ---- mounting --------------------------------------------------------------------------------------------------------


def mounted(
    kind: str, label: str, still: str, module: str, data: Callable[[int], str], *, most_bytes: int, slot: str = ""
) -> tuple[str, str]:
    """(the element that is drawn in; the script with its data). `show.javascript.with_modules` adds what draws it.

    Args:
        kind: class of the element.
        label: its name for assistive technology.
        still: markup in it that is read where no script runs.
        module: name of the module, which exports ``mount(element, data)``.
        data: bytes that there is room for -> `script_data` of what is drawn; see `fitted`.
        most_bytes: of both parts together as a notebook stores them, about.
        slot: a place in the shadow root of the element that this one is put into.
    """
    name = drawing_id()
    slotted = f' slot="{attribute(slot)}"' if slot else ""
    element = f'<div id="{name}" class="{kind}"{slotted} role="figure" aria-label="{attribute(label)}">{still}</div>'
    room = most_bytes - stored(element) - 300
    script = data_script(module, name, packed_text(data(room)))
    while stored(script) > room > 300:  # what does not compress is a third longer as base64
        room = room * 9 // 10
        script = data_script(module, name, packed_text(data(room)))
    return element, script


def drawing_id() -> str:
    """A name for an element that no other output has."""
    return f"torchbench-{uuid.uuid4().hex[:12]}"


def fitted(data: Callable[[int], str], room: int, most: int, least: int, *, is_packed: bool = False) -> str:
    """The data of ``most`` parts, or of as many as ``room`` bytes hold, packed or as they are; of ``least`` anyway."""
    while True:
        text = data(most)
        taken = len(packed_text(text)) if is_packed else stored(text)
        if taken <= room or most <= least:
            return text
        most = max(least, int(most * min(0.95, 0.97 * room / taken)))


def script_data(value: object) -> str:
    """JSON that is safe inside a script element too: no ``<``, U+2028 or U+2029 is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent to a front end
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def stored(text: str) -> int:
    """Bytes of ``text`` in a notebook file, where it stands as a JSON string itself."""
    return len(text.encode("utf-8", "replace")) + text.count('"') + text.count("\\") + text.count("\n")


def attribute(text: str) -> str:
    """User text as it may stand in an attribute or an element."""
    return escape(printable(text), quote=True)


# ---- as JSON --------------------------------------------------------------------------------------------------------
# A document as JSON for ``static/table_document.js``: short forms of the records of `document` and `table`.
#
# A cell is its text, or its value where the column says how that is written, or ``[text, value, tone, note, flat,
# picture]`` without the empty end. What is cut away to keep an output small is counted in ``hidden``.

LONGEST_TEXT = 400  # characters of one cell; a longer name says nothing more, and 5 000 of them fill the output
_FEWEST_ROWS, _MOST_ROWS = 20, 20_000


def as_json(document: Document, most_bytes: int) -> str:
    """The document as `script_data`, at most ``most_bytes`` as a notebook stores it.

    Rows are left out, and counted, from the end of the largest table (until only a few are left); before them those
    that no table shows by itself.
    """
    if any(table.rest for table in document.tables) and stored(script_data(as_dict(document))) > most_bytes:
        document = replace(document, tables=tuple(replace(table, rest=None) for table in document.tables))
    largest = min(max((len(table) for table in document.tables), default=0), _MOST_ROWS)
    return fitted(lambda limit: script_data(as_dict(document, limit)), most_bytes, largest, _FEWEST_ROWS)


def as_dict(document: Document, limit: int | None = None) -> dict[str, Any]:
    """The document as what JSON can hold, each table cut to ``limit`` rows."""
    tables = [table if limit is None else table.head(limit, document.where) for table in document.tables]
    return {
        "kind": document.kind,
        "sentence": _line(document.sentence),
        "tables": [_table(table) for table in tables],
        **({"insights": [_unfolding(each) for each in document.insights]} if document.insights else {}),
        "doubts": [_line(doubt) for doubt in document.first_doubts],
        **({"moreDoubts": [_line(doubt) for doubt in document.folded_doubts]} if document.folded_doubts else {}),
        "footer": [_line(line) for line in document.footer],
        "folded": document.folded,
        **({"pictureFirst": True} if document.picture_first else {}),
        **({"choice": True} if document.rest else {}),
        "drawn": [_text(drawn.name) for drawn in document.drawn],
    }


def _line(line: StyledText) -> list[Any]:
    return [[_text(run.text), run.style] if run.style else _text(run.text) for run in line]


def _unfolding(insight: Unfolding) -> list[Any]:
    """The line, then those under it."""
    return [_line(insight.line), *map(_line, insight.under)]


def _table(table: Table) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "name": _text(table.name),
        "columns": [_column(table, at) for at in range(len(table.columns))],
        "groups": [_group(group, table.columns) for group in table.groups],
        "hidden": _text(table.hidden),
    }
    if table.sentence:
        spec["sentence"] = _line(table.sentence)
    if table.totals:
        spec["totals"] = [_row(row, table.columns) for row in table.totals]
    if table.sorted_by:
        spec["sorted"] = [_text(table.sorted_by), -1 if table.descending else 1]
    if table.headless:
        spec["headless"] = True
    if table.rest is not None:
        spec["rest"] = _rest(table.rest, table.columns)
    if table.keyed:
        spec["keyed"] = table.keyed
    return spec


def _column(table: Table, at: int) -> dict[str, Any]:
    column: Column = table.columns[at]
    longest = max((_characters(row.cells[at], column) for row in table.every_row()), default=0)
    if table.rest is not None:
        longest = max([longest, *(len(each) for each in table.rest.columns[at] if isinstance(each, str))])
    spec: dict[str, Any] = {
        "name": _text(column.name),
        "label": _text(column.label),
        "unit": _text(column.unit),
        "kind": column.kind,
        "chars": min(longest, column.widest),
    }
    if column.kind == "number":
        spec["places"] = table.places(at)
    if (scale := column.scale) is not None:
        spec["scale"] = [scale.size, scale.places, column.digits, *([1] if scale.whole else [])]
        if table.rest is not None:
            spec["places"] = max(spec["places"], scale.places or 0)
    if column.leading:
        spec["leading"] = True
    if column.axes:
        spec["axes"] = [asdict(axis) for axis in column.axes]
    if column.legend:
        spec["legend"] = column.legend
    return spec


def _characters(cell: Cell, column: Column) -> int:
    return len(cell.text) + (len(cell.note) + 1 if cell.note and column.kind != "source" else 0)


def _group(group: Group, columns: Sequence[Column]) -> dict[str, Any]:
    spec: dict[str, Any] = {"rows": [_row(row, columns) for row in group.rows]}
    if group.title:
        spec["title"] = _text(group.title)
        spec["note"] = _text(group.note)
        if group.sums:
            spec["sums"] = [*map(_cell, group.sums, columns)]
    return spec


def _row(row: Row, columns: Sequence[Column]) -> Any:
    cells = [*map(_cell, row.cells, columns)]
    if not row.key and row.detail is None:
        return cells
    spec: dict[str, Any] = {"cells": cells}
    if row.key:
        spec["key"] = _text(row.key)
    if row.detail is not None:
        spec["detail"] = _table(row.detail)
    return spec


def _cell(cell: Cell, column: Column) -> Any:
    if column.scale is not None and _is_number(cell, column):
        return _short(cell.value)
    value = cell.value if cell.value is None or math.isfinite(cell.value) else _beyond(cell.value)
    picture = _shares(cell.picture) if column.kind == "bar" else _finite(cell.picture)
    full = [_text(cell.text), _short(value), cell.tone, _text(cell.note), _text(cell.flat), picture]
    while full and (full[-1] is None or full[-1] == "" or full[-1] == ()):
        full.pop()
    return full[0] if len(full) == 1 else full or ""


def _is_number(cell: Cell, column: Column) -> bool:
    """Whether the cell is its value, and nothing else, as the column writes it."""
    if cell.value is None or not math.isfinite(cell.value) or cell.tone or cell.note or cell.flat or cell.picture:
        return False
    return cell.text == units.number(_short(cell.value), column.scale or units.Scale(), digits=column.digits)


def _rest(rest: Rest, columns: Sequence[Column]) -> dict[str, Any]:
    """By column: ``[...]``, or ``{of, at}``, the different texts and the place of each row's."""
    spec: dict[str, Any] = {
        "columns": [
            _packed([_raw(each, column) for each in made]) for made, column in zip(rest.columns, columns, strict=True)
        ],
        "total": rest.total,
    }
    if any(rest.keys):
        spec["keys"] = [_text(key) for key in rest.keys]
    if rest.top:
        spec["top"] = rest.top
    return spec


def _raw(made: Any, column: Column) -> Any:
    if isinstance(made, Cell):
        return _cell(made, column)
    if isinstance(made, str):
        return _text(made)
    return None if made is None or math.isnan(made) else _short(_beyond(made) if math.isinf(made) else made)


def _packed(values: list[Any]) -> Any:
    if not all(isinstance(each, str) for each in values):
        return values
    different = {each: at for at, each in enumerate(dict.fromkeys(values))}
    if 2 * len(different) > len(values):
        return values
    return {"of": [*different], "at": [different[each] for each in values]}


def _beyond(value: float) -> float | None:
    """JSON knows no infinity: the largest number sorts alike. NaN is nothing."""
    return None if math.isnan(value) else math.copysign(1.7e308, value)


def _short(value: float | None) -> float | int | None:
    if value is None:
        return None
    if float(value).is_integer() and abs(value) < 1e15:  # a count is exact
        return int(value)
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _shares(picture: Any) -> Any:
    """To a thousandth of a bar, which is less than a tenth of a pixel."""
    if isinstance(picture, tuple | list):
        return tuple(_shares(part) for part in picture)
    return _short(round(picture, 3)) if isinstance(picture, float) and math.isfinite(picture) else _finite(picture)


def _finite(picture: Any) -> Any:
    if isinstance(picture, tuple | list):
        return tuple(_finite(part) for part in picture)
    if isinstance(picture, float):
        return _short(picture) if math.isfinite(picture) else None
    return picture


def _text(text: str) -> str:
    return printable(clipped(text, LONGEST_TEXT))
