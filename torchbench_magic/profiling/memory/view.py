"""Memory over time as a document: the peak, the lines whose blocks make it up, and what stays after the cell.

One document per device. The picture is static SVG: a stack of what each line holds, by the line that allocated it,
with the peak marked; ``static/memory.js`` reads it off at the pointer, and every number of the peak is in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.profiling.ops_view import place_of, runs_text
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.steps import highest_cycle
from torchbench_magic.show.document import Document, Phrase, StyledText, code, of_result
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    Row,
    Table,
    built_table,
    counted,
    float_or_none,
    frame_rows,
    measured_columns,
    share,
    texts,
)

from .allocations import by_line, devices_of, older_freed, peak_of
from .picture import picture

_MOST_ROWS = 12
_LARGE = 0.2  # share of the peak from which a line is named in the sentence


def documents(profile: Profile) -> tuple[Document, ...]:
    """A document per device that gave or took a block; none without ``--memory``."""
    memory = profile.memory
    if memory is None or memory.empty or bool(memory["change"].isna().all()):
        return ()
    alive = profile.alive_at_peak
    lines = by_line(memory, profile.sources)
    return tuple(_document(profile, memory, alive, lines, device) for device in devices_of(memory))


def _document(
    profile: Profile, memory: pd.DataFrame, alive: pd.DataFrame, lines: pd.DataFrame, device: str
) -> Document:
    mine = lines[lines["device"] == device]
    held = alive[alive["device"] == device]
    peak = peak_of(memory, device)
    older = older_freed(memory, device, peak.row) if peak.row >= 0 else 0
    scale = units.bytes_scale([float(peak.bytes), *mine["retained"].astype(float)])
    return Document(
        kind=f"memory over time, {device}",
        sentence=tuple(_sentence(memory, device, held, mine, older)),
        tables=(_table(held, mine, peak.bytes, older, scale),),
        footer=tuple(_footer(profile, memory, device)),
        where=of_result(".alive_at_peak"),
        picture=picture(profile, device, scale),
        picture_first=True,
    )


def _sentence(
    memory: pd.DataFrame, device: str, held: pd.DataFrame, lines: pd.DataFrame, older: int
) -> Iterator[Phrase]:
    """``cpu: peak 1.14 GiB in In[3]:9; In[3]:4 holds 82 % of it, to the end``."""
    peak = peak_of(memory, device)
    if not peak.bytes:
        end = int(memory.loc[memory["device"] == device, "bytes"].iloc[-1])
        yield Phrase(f"Memory of {_said(device)} never exceeded the memory at the start")
        yield Phrase(f"; it ends {units.bytes_text(-end)} below" if end < 0 else "")
        return
    yield Phrase(f"Memory of {_said(device)}: peak ")
    yield Phrase(units.bytes_text(peak.bytes), "subject")
    where = place_of(memory.iloc[peak.row])
    if where:
        yield Phrase(" in ")
        yield code(where)
    if held.empty:
        return
    top = frame_rows(held.head(1))[0]
    share = float(top["bytes"]) / peak.bytes
    name = place_of(top)
    if share < _LARGE or not name:
        return
    yield Phrase("; ")
    yield code(name)
    if share > 1:  # no part of it: blocks from before the cell were freed by then
        freed = units.bytes_text(older)
        yield Phrase(f" holds {units.bytes_text(int(top['bytes']))}, less {freed} freed of what was there before")
    else:
        yield Phrase(f" holds {units.number(share * 100, units.Scale('%', 1.0, 0), digits=2)} % of it")
    same = (
        (lines["source_id"] == top["source_id"]) & (lines["line"] == top["line"]) & (lines["thread"] == top["thread"])
    )
    if (lines.loc[same, "retained"] >= int(top["bytes"])).any():
        yield Phrase(", to the end")


def _said(device: str) -> str:
    return "the CPU" if device == "cpu" else device


def _table(held: pd.DataFrame, lines: pd.DataFrame, peak: int, older: int, scale: units.Scale) -> Table:
    """The lines whose blocks were alive at the peak, or still are after the cell."""
    by = ["source_id", "line", "thread"]
    kept = lines[lines["retained"] > 0][[*by, "cell", "source", "retained"]]
    every = held.merge(kept, on=by, how="outer", suffixes=("", "_kept"))
    every["source"] = every["source"].where(every["source"].notna(), every["source_kept"])
    every["cell"] = every["cell"].where(every["cell"].notna(), every["cell_kept"])
    every = every.sort_values(["bytes", "retained"], ascending=False, kind="stable", na_position="last")

    moments = every.loc[every["bytes"] > 0, "since"]
    seconds = units.Scale("s", 1.0, 2) if moments.max() >= 1 else units.spread_scale(moments)
    is_part = float(every["bytes"].max()) <= peak  # else what was freed of before the cell made room

    def of_peak(row: dict[str, Any]) -> float:
        return (float_or_none(row["bytes"]) or 0.0) / peak if peak else 0.0

    def part(row: dict[str, Any]) -> float:
        return of_peak(row) if is_part or not peak else math.nan

    def bar(row: dict[str, Any]) -> Cell:
        return Cell(picture=((("memory", min(of_peak(row), 1.0)),), ()) if of_peak(row) >= 0.002 else ())

    def since(row: dict[str, Any]) -> Cell:
        known = bool(float_or_none(row["bytes"]))
        return Cell(units.number(row["since"], seconds) if known else "", row["since"] if known else None)

    built = (
        texts("line", "allocated by", 24, lambda row: place_of(row) or "no line"),
        texts(
            "source",
            "source",
            34,
            lambda row: row["source"].strip() if isinstance(row["source"], str) else "",
            quiet=True,
        ),
        measured_columns("alive", "at the peak", scale, "bytes", missing=0.0),
        BuiltColumn(Column("bar", "", kind="bar"), bar),
        share("", part),
        counted("blocks", "blocks", missing=0.0),
        BuiltColumn(Column("since", "allocated at", seconds.unit, "number"), since),
        measured_columns("retained", "after the cell", scale, missing=0.0),
    )
    rest = every["bytes"].iloc[_MOST_ROWS:].fillna(0.0)
    hidden = f"{units.count(len(rest))} more lines hold {units.bytes_text(float(rest.sum()))} at the peak."
    hidden += f" All rows: {of_result('.alive_at_peak')}"
    return built_table(
        "memory",
        built,
        frame_rows(every.head(_MOST_ROWS)),
        place_of,
        totals=tuple(_totals(every, peak, older, scale, len(built))),
        hidden=hidden if len(rest) else "",
        sorted_by="alive",
        aligned=True,
    )


def _totals(every: pd.DataFrame, peak: int, older: int, scale: units.Scale, count: int) -> Iterator[Row]:
    retained = float(every["retained"].fillna(0).sum())
    if older:
        cells = [Cell("freed, allocated before", tone="quiet"), Cell(), Cell(units.number(-float(older), scale))]
        yield Row((*cells, *[Cell()] * (count - len(cells))))
    blocks = Cell(units.count(float(every["blocks"].fillna(0).sum())))
    total = Cell(units.number(float(peak), scale, digits=None), tone="strong")
    after = Cell(units.number(retained, scale), retained)
    yield Row((Cell("at the peak"), Cell(), total, Cell(), Cell(), blocks, Cell(), after))


def _start(profile: Profile) -> str:
    """From when on bytes are counted; with a schedule only one cycle is shown, since nobody saw what lies between."""
    if not profile.cycles:
        return "the start of the cell"
    shown = highest_cycle(profile.cycles).steps
    if not shown:
        return "the start of the cycle with the highest peak"
    of_several = ", the cycle with the highest peak" if len(profile.cycles) > 1 else ""
    return f"the start of step{'s' if len(shown) > 1 else ''} {runs_text(shown)}{of_several}"


def _footer(profile: Profile, memory: pd.DataFrame, device: str) -> Iterator[StyledText]:
    mine = memory[memory["device"] == device]
    given, freed = int((mine["change"] > 0).sum()), int((mine["change"] < 0).sum())
    before = ""
    if device == "cpu" and not math.isnan(profile.bytes_before):
        before = f"; tensors of {units.bytes_text(profile.bytes_before)} were there before it"
    older = older_freed(memory, device, len(memory) - 1)
    if older:
        freed_by_it = units.bytes_text(older)
        before += f", {freed_by_it} of them freed by it" if before else f"; {freed_by_it} of older blocks were freed"
    yield (Phrase(f"Counted from {_start(profile)}{before}. torch's allocations only, each block on its line."),)
    counted = units.counted(given, "allocation")
    counted += f", {units.counted(freed, 'free')}" if freed else ", none freed"
    yield Phrase(f"{counted}. Each column of the picture shows its maximum. Changes: "), code(of_result(".memory"))
