"""Two profiles side by side as a document: how much faster or slower, and on which lines and in which ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.profiling.loops.view import phases_diff_table
from torchbench_magic.result_base import most_important_first
from torchbench_magic.show.document import Document, Phrase, StyledText, Unfolding, backticked, clipped, code
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    Group,
    Row,
    Table,
    Tone,
    cells_of,
    columns_of,
    counted,
    float_or_none,
    frame_rows,
    measured_columns,
    texts,
)

from .diff import ProfileDiff
from .lines_view import MOST_SHOWN, unfolding
from .ops_view import op_text
from .trace import line_label

_ROWS = 40
_LONGEST_NAME = 24
_LEAST_SHARE = 0.001  # of the longer wall time: rows with less in both, and no bytes, are counted
_ALIKE = 1.02  # times the whole difference: a line that has all of it, but for what the clocks differ by
_MATCHES = {"same": "", "text": "", "edited": "edited", "new": "new", "gone": "gone"}


def document(diff: ProfileDiff) -> Document:
    """The difference, ready for any carrier: the lines, then the operations."""
    lines = _lines(diff)
    tables = [_ops(diff)] if lines is None else [lines, _ops(diff)]
    if (phases := phases_diff_table(diff)) is not None:
        tables.insert(0 if lines is None else 1, phases)
    return Document(
        kind="comparison of profiles",
        sentence=tuple(_sentence(diff)),
        tables=tuple(tables),
        insights=tuple(_insights(diff)),
        doubts=tuple(backticked(str(doubt)) for doubt in most_important_first(diff.warnings)),
        doubts_where=".warnings",
        footer=tuple(_footer(diff, has_lines=lines is not None)),
        where=".lines",
    )


def _sentence(diff: ProfileDiff) -> Iterator[Phrase]:
    base, other = (clipped(name, _LONGEST_NAME) for name in diff.names)
    delta = diff.wall_time_delta
    before, now = (units.seconds_text(profile.wall_time) for profile in (diff.baseline, diff.other))
    yield Phrase(other, "subject")
    yield Phrase(f" takes {now}, ")
    yield Phrase(base, "subject")
    yield Phrase(f" {before}")
    if delta:
        yield Phrase(f": {units.seconds_text(abs(delta))} {'more' if delta > 0 else 'less'}")
    moved = diff.lines[diff.lines["thread"] == 0]
    moved = moved.assign(moved=moved["time"].fillna(0) - moved["baseline_time"].fillna(0))
    moved = moved[moved["line"].notna() | moved["baseline_line"].notna()]
    if len(moved) and delta:
        top = max(frame_rows(moved), key=lambda row: row["moved"] * (1 if delta > 0 else -1))
        place, moved = code(place_in_other(diff, top)), abs(top["moved"])
        if top["moved"] * delta <= 0:
            return
        if moved <= _ALIKE * abs(delta):
            yield Phrase(f", {units.seconds_text(min(moved, abs(delta)))} of it on ")
            yield place
        else:  # other lines make up for some of it: no part of the difference
            yield Phrase("; ")
            yield place
            yield Phrase(f" alone takes {units.seconds_text(moved)} {'more' if delta > 0 else 'less'}")


def _insights(diff: ProfileDiff) -> Iterator[Unfolding]:
    """Those that are new in the other, then those that are gone; of each those with the most at stake."""
    for word, insights in (("new, ", diff.insights_new), ("gone, ", diff.insights_gone)):
        yield from (unfolding(each, word, with_cures=word != "gone, ") for each in insights[:MOST_SHOWN])


def place_in_other(diff: ProfileDiff, row: dict[str, Any]) -> str:
    """``In[3]:4`` in the other; in the baseline, with its name, where the line is gone; empty for no line."""
    if pd.isna(row["line"]) and pd.isna(row["baseline_line"]):
        return ""
    gone = row["match"] == "gone"
    profile = diff.baseline if gone else diff.other
    source_id = row["baseline_source_id"] if gone else row["source_id"]
    line = row["baseline_line"] if gone else row["line"]
    return line_label(profile.sources, source_id, line) + (
        f" of {clipped(diff.names[0], _LONGEST_NAME)}" if gone else ""
    )


def _lines(diff: ProfileDiff) -> Table | None:
    frame = diff.lines
    if not (frame["line"].notna() | frame["baseline_line"].notna()).any():
        return None
    whole = max(diff.baseline.wall_time, diff.other.wall_time)
    largest = frame[["time", "baseline_time"]].fillna(0).max(axis=1)
    has_bytes = frame[["allocated", "baseline_allocated"]].fillna(0).astype(int).max(axis=1) > 0
    shown = frame[(largest >= _LEAST_SHARE * whole) | has_bytes].head(_ROWS)
    built = [
        BuiltColumn(Column("place", "line", kind="code", widest=24), lambda row: Cell(place_in_other(diff, row))),
        BuiltColumn(Column("source", "code", kind="code", widest=48), _source),
        *_values(diff, frame, ("time",)),
        BuiltColumn(Column("match", "status"), lambda row: Cell(_MATCHES[row["match"]], tone="quiet")),
    ]
    rows = tuple(Row(cells_of(built, row), key=place_in_other(diff, row)) for row in frame_rows(shown))
    return Table("lines", columns_of(built), (Group(rows),), hidden=_hidden(len(shown), len(frame), "lines", ".lines"))


def _source(row: dict[str, Any]) -> Cell:
    words = row["source"] if row["source"] is not None else row["baseline_source"]
    is_rest = pd.isna(row["line"]) and pd.isna(row["baseline_line"])
    return Cell(str(words).strip(), tone="quiet" if is_rest or row["match"] == "gone" else "")


def _ops(diff: ProfileDiff) -> Table:
    frame = diff.ops
    least = _LEAST_SHARE * max(diff.baseline.wall_time, diff.other.wall_time)
    times = frame[["self_cpu_time", "baseline_self_cpu_time", "self_device_time", "baseline_self_device_time"]]
    shown = frame[times.fillna(0).max(axis=1) >= least].head(_ROWS)
    base, other = (clipped(name, 16) for name in diff.names)
    built = [
        texts("op", "operation", 36, lambda row: op_text(str(row["op"]))),
        counted("baseline_calls", base, "calls"),
        counted("calls", other, "calls"),
        *_values(diff, frame, ("self_cpu_time", "self_device_time")),
    ]
    rows = tuple(Row(cells_of(built, row), key=str(row["op"])) for row in frame_rows(shown))
    hidden = _hidden(len(shown), len(frame), "operations", ".ops")
    return Table("operations", columns_of(built), (Group(rows),), hidden=hidden)


def _values(diff: ProfileDiff, frame: pd.DataFrame, times: Sequence[str]) -> Iterator[BuiltColumn]:
    """Of these times and of the bytes: the baseline's, the other's, the change. What nothing is known of is out."""
    base, other = (clipped(name, 16) for name in diff.names)
    words = {"allocated": " allocated", "self_device_time": " device"}
    for name in (*times, "allocated"):
        both = [float_or_none(value) for value in [*frame[name], *frame[f"baseline_{name}"]]]
        if any(both):
            scale = (units.bytes_scale if name == "allocated" else units.spread_scale)(both)
            scale = replace(scale, unit=f"{scale.unit}{words.get(name, '')}")
            yield measured_columns(f"baseline_{name}", base, scale)
            yield measured_columns(name, other, scale)
            yield BuiltColumn(Column(f"{name}_delta", "change", scale.unit, "number"), partial(_change, name, scale))


def _change(name: str, scale: units.Scale, row: dict[str, Any]) -> Cell:
    before, now, delta = (float_or_none(row[key]) for key in (f"baseline_{name}", name, f"{name}_delta"))
    return Cell(units.number(delta, scale, signed=True), delta, _tone(before, now, scale))


def _tone(before: float | None, now: float | None, scale: units.Scale) -> Tone:
    """A change of a tenth or more, that the column resolves, is coloured; single runs tell no finer."""
    if before is None or now is None or abs(now - before) < 0.1 * max(before, now):
        return ""
    if abs(now - before) < scale.size * 10.0 ** -(scale.places or 0):
        return ""
    return "slower" if now > before else "faster"


def _hidden(shown: int, total: int, what: str, where: str) -> str:
    return "" if shown == total else f"{units.count(shown)} of {units.count(total)} {what}. All rows: {where}"


def _footer(diff: ProfileDiff, *, has_lines: bool) -> Iterator[StyledText]:
    said = []
    if has_lines:
        said.append("The time of a line is its self time in torch and Python; all rows add up to the wall time.")
        said.append("Lines are matched by source, in edited code by their text.")
    said.append("Operations: self time. Each side is a single run: a change of a few per cent may be chance.")
    yield (Phrase(" ".join(said)),)
    for name, profile in zip(diff.names, (diff.baseline, diff.other), strict=True):
        count = profile.num_threads  # 0: a trace that was read does not tell
        threads = f"{count} thread{'' if count == 1 else 's'}" if count else ""
        where = profile.environment.footer() if profile.environment is not None else ""
        yield (Phrase(" · ".join(part for part in (name, threads, where) if part)),)
