"""torch's Compare as a document: the figures of its text, in a table with units, groups and colours by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils import common
from torch.utils.benchmark.utils.compare import Colorize
from torch.utils.benchmark.utils.compare import Table as TorchTable

from ..document import Document, Phrase, StyledText
from ..table import Cell, Column, ColumnKind, Group, Row, Table, Tone

__all__ = ["Document", "document"]

_UNITS = {"us": "µs"}
_WARNED = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."


def document(
    results: Sequence[Measurement], colorize: Colorize, trim_significant_figures: bool, highlight_warnings: bool
) -> Document:
    """One label's measurements: a row a name (and environment), a column a description, a group a thread count."""
    table = TorchTable(list(results), Colorize.NONE, trim_significant_figures, highlight_warnings)
    envs = len({result.env for result in results}) > 1
    warned = highlight_warnings and any(result.has_warnings for result in results)
    kind: ColumnKind = "text" if warned else "number"  # a figure with a warning behind it is no number
    unit = _UNITS.get(table.time_unit, table.time_unit)
    columns = (
        Column("threads", "threads", kind="number", leading=True),
        *((Column("env", "env"),) if envs else ()),
        Column("row", ""),
        *(Column(f"c{at}", key or "time", unit, kind) for at, key in enumerate(table.column_keys)),
    )
    by_threads: dict[int, list[Row]] = {}
    row: Any  # torch's rows have no annotations
    for key, row in zip(table.row_keys, table.rows, strict=True):
        peers = [other for k, other in zip(table.row_keys, table.rows, strict=True) if k[0] == key[0]]
        times = [None if m is None else m.median for m in row._results]
        cells = [
            Cell(text.strip(), time, _tone(time, best))
            for text, time, best in zip(row.as_column_strings()[1:], times, _bests(peers, row, colorize), strict=True)
        ]
        names = [Cell(str(key[0]), key[0]), *((Cell(key[1] or ""),) if envs else ()), Cell(key[2])]
        by_threads.setdefault(key[0], []).append(Row((*names, *cells)))
    return Document(
        kind="comparison",
        sentence=_sentence(table),
        tables=(Table("times", columns, tuple(Group(tuple(rows)) for rows in by_threads.values())),),
        footer=((Phrase(_WARNED),),) if warned else (),
    )


def _sentence(table: TorchTable) -> StyledText:
    unit = f"median times in {common.unit_to_english(table.time_unit)}s"
    return (Phrase(table.label, "subject"), Phrase(f": {unit}")) if table.label else (Phrase(unit.capitalize()),)


def _bests(peers: Sequence[Any], row: Any, colorize: Colorize) -> list[float | None]:
    """For each cell what torch colours it by: the shortest time of its row, or of its column at that thread count."""
    width = len(row._results)
    if colorize == Colorize.ROWWISE:
        return [min(m.median for m in row._results if m is not None)] * width
    if colorize == Colorize.COLUMNWISE:
        times = ([r._results[at].median for r in peers if r._results[at] is not None] for at in range(width))
        return [min(found, default=None) for found in times]
    return [None] * width


def _tone(value: float | None, best: float | None) -> Tone:
    """The limits are those of torch's colours."""
    if value is None or best is None:
        return ""
    if value <= best * 1.01 or value <= best + 100e-9:
        return "faster"
    return "slower" if value >= best * 2 else ""
