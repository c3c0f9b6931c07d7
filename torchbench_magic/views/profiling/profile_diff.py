"""Two profiles side by side as a document: how much faster or slower, and on which lines and in which ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.profile_diff import ProfileDiff

from ..document import Document, Phrase, StyledText, backticked, clipped, code
from ..frame_rows import float_or_none, frame_rows
from ..table import Cell, Column, Group, Row, Table, Tone
from .place_names import op_text

__all__ = ["document", "place_in_other"]

_ROWS = 40
_LONGEST_NAME = 24
_LEAST_SHARE = 0.001  # of the longer wall time: rows with less in both, and no bytes, are counted
_MATCHES = {"same": "", "text": "", "edited": "edited", "new": "new", "gone": "gone"}


def document(diff: ProfileDiff) -> Document:
    """The difference, ready for any carrier: the lines, then the operations."""
    lines = _lines(diff)
    return Document(
        kind="comparison of profiles",
        sentence=tuple(_sentence(diff)),
        tables=(_ops(diff),) if lines is None else (lines, _ops(diff)),
        doubts=tuple(backticked(str(doubt)) for doubt in diff.warnings),
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
    yield Phrase(f" {before}: {units.seconds_text(abs(delta))} {'more' if delta > 0 else 'less'}")
    moved = diff.lines[diff.lines["thread"] == 0]
    moved = moved.assign(moved=moved["time"].fillna(0) - moved["baseline_time"].fillna(0))
    moved = moved[moved["line"].notna() | moved["baseline_line"].notna()]
    if len(moved) and delta:
        top = max(frame_rows(moved), key=lambda row: row["moved"] * (1 if delta > 0 else -1))
        if top["moved"] * delta > 0:
            yield Phrase(f", {units.seconds_text(abs(top['moved']))} of it on ")
            yield code(place_in_other(diff, top))


def place_in_other(diff: ProfileDiff, row: dict[str, Any]) -> str:
    """``In[3]:4`` in the other; in the baseline, with its name, where the line is gone; empty for no line."""
    if pd.isna(row["line"]) and pd.isna(row["baseline_line"]):
        return ""
    gone = row["match"] == "gone"
    profile = diff.baseline if gone else diff.other
    source_id = row["baseline_source_id"] if gone else row["source_id"]
    line = row["baseline_line"] if gone else row["line"]
    source = profile.sources.get(source_id)
    label = source.label if source is not None else "?"
    return f"{label}:{line}" + (f" of {clipped(diff.names[0], _LONGEST_NAME)}" if gone else "")


def _lines(diff: ProfileDiff) -> Table | None:
    frame = diff.lines
    if not (frame["line"].notna() | frame["baseline_line"].notna()).any():
        return None
    whole = max(diff.baseline.wall_time, diff.other.wall_time)
    largest = frame[["time", "baseline_time"]].fillna(0).max(axis=1)
    has_bytes = frame[["allocated", "baseline_allocated"]].fillna(0).astype(int).max(axis=1) > 0
    shown = frame[(largest >= _LEAST_SHARE * whole) | has_bytes].head(_ROWS)
    values = _Values(frame, ("time",), ("allocated",))
    rows = []
    for row in frame_rows(shown):
        is_rest = pd.isna(row["line"]) and pd.isna(row["baseline_line"])
        words = row["source"] if row["source"] is not None else row["baseline_source"]
        cells = (
            Cell("" if is_rest else place_in_other(diff, row)),
            Cell(str(words).strip(), tone="quiet" if is_rest or row["match"] == "gone" else ""),
            *values.cells(row),
            Cell(_MATCHES[row["match"]], tone="quiet"),
        )
        rows.append(Row(cells, key=place_in_other(diff, row) if not is_rest else ""))
    columns = (
        Column("place", "line", kind="code", widest=24),
        Column("source", "code", kind="code", widest=48),
        *values.columns(diff),
        Column("match", "joined"),
    )
    return Table("lines", columns, (Group(tuple(rows)),), hidden=_hidden(len(shown), len(frame), "lines", ".lines"))


def _ops(diff: ProfileDiff) -> Table:
    frame = diff.ops
    least = _LEAST_SHARE * max(diff.baseline.wall_time, diff.other.wall_time)
    times = frame[["self_cpu_time", "baseline_self_cpu_time", "self_device_time", "baseline_self_device_time"]]
    shown = frame[times.fillna(0).max(axis=1) >= least].head(_ROWS)
    values = _Values(frame, ("self_cpu_time", "self_device_time"), ("allocated",))
    rows = [
        Row((Cell(op_text(str(row["op"]))), *_calls(row), *values.cells(row)), key=str(row["op"]))
        for row in frame_rows(shown)
    ]
    base, other = (clipped(name, 16) for name in diff.names)
    columns = (
        Column("op", "operation", kind="code", widest=36),
        Column("baseline_calls", base, "calls", "number"),
        Column("calls", other, "calls", "number"),
        *values.columns(diff),
    )
    hidden = _hidden(len(shown), len(frame), "operations", ".ops")
    return Table("operations", columns, (Group(tuple(rows)),), hidden=hidden)


def _calls(row: dict[str, Any]) -> tuple[Cell, Cell]:
    before, now = float(row["baseline_calls"]), float(row["calls"])
    return Cell(units.count(before), before), Cell(units.count(now), now)


class _Values:
    """Columns of times and bytes: the baseline's, the other's, the change. Those of which nothing is known are out."""

    def __init__(self, frame: pd.DataFrame, times: Sequence[str], sizes: Sequence[str]) -> None:
        self._scales: dict[str, units.Scale] = {}
        for names, scale in ((times, units.spread_scale), (sizes, units.bytes_scale)):
            for name in names:
                both = [float_or_none(value) for value in [*frame[name], *frame[f"baseline_{name}"]]]
                if any(both):
                    self._scales[name] = scale(both)

    def columns(self, diff: ProfileDiff) -> tuple[Column, ...]:
        base, other = (clipped(name, 16) for name in diff.names)
        found = []
        words = {"allocated": "allocated", "self_device_time": "device"}
        for name, scale in self._scales.items():
            what = words.get(name, "")
            unit = f"{scale.unit} {what}".strip()
            found += [
                Column(f"baseline_{name}", base, unit, "number"),
                Column(name, other, unit, "number"),
                Column(f"{name}_delta", "change", unit, "number"),
            ]
        return tuple(found)

    def cells(self, row: dict[str, Any]) -> Iterator[Cell]:
        for name, scale in self._scales.items():
            before, now, delta = (float_or_none(row[key]) for key in (f"baseline_{name}", name, f"{name}_delta"))
            yield Cell(units.number(before, scale), before)
            yield Cell(units.number(now, scale), now)
            yield Cell(units.number(delta, scale, signed=True), delta, _tone(before, now, scale))


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
        said.append("Time of a line is its own, in torch and in Python, and adds up to the wall time with all rows.")
        said.append("Lines are joined by their source, in edited code by their text.")
    said.append("Operations: self time. Each side is one run: a change of a few per cent may be chance.")
    yield (Phrase(" ".join(said)),)
    for name, profile in zip(diff.names, (diff.baseline, diff.other), strict=True):
        count = profile.num_threads  # 0: a trace that was read does not tell
        threads = f"{count} thread{'' if count == 1 else 's'}" if count else ""
        where = profile.environment.footer() if profile.environment is not None else ""
        yield (Phrase(" · ".join(part for part in (name, threads, where) if part)),)
