"""The annotated source of a profile: time, bytes and calls beside each line of the cell and of what it called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.profile import Profile, Source

from ..annotated_source import Region, Span, coloured, regions, shown_lines
from ..frame_rows import number, records
from ..table import Cell, Column, Group, Row, Table
from .operations import grouped, is_backward, op_text, place, shapes_text

__all__ = ["Annotated", "lines_table"]

_DETAIL_ROWS = 12
_LEGEND = (("torch", "torch"), ("python", "Python"), ("backward", "backward"), ("other", "not attributed"))
_SEEN_TWICE = 2.0  # a line whose inclusive time is this many times its own calls something worth naming


@dataclass(frozen=True)
class Annotated:
    """The numbers of every line, and the scales that all of them share.

    Attributes:
        rows: (source_id, thread, line) -> its row of ``Profile.lines``.
        ops: the same -> its operations, summed per name (and shapes where they were asked for), largest first.
        time, memory, host, device: the scales of the columns.
        top: seconds of the longest bar.
    """

    profile: Profile
    rows: Mapping[tuple[str, int, int], Mapping[str, Any]] = field(init=False)
    ops: Mapping[tuple[str, int, int], list[Mapping[str, Any]]] = field(init=False)
    time: units.Scale = field(init=False)
    memory: units.Scale = field(init=False)
    host: units.Scale = field(init=False)
    device: units.Scale = field(init=False)
    top: float = field(init=False)

    def __post_init__(self) -> None:
        frame = self.profile.lines
        on_lines = frame[frame["line"].notna()]
        rows = {(str(r["source_id"]), int(r["thread"]), int(r["line"])): r for r in records(on_lines)}
        own = on_lines["self_cpu_time"] + on_lines["python_time"] if self.is_split else on_lines["wall_time"]
        for name, value in (
            ("rows", rows),
            ("ops", _ops_by_line(self.profile)),
            ("time", units.spread_scale([*own, *on_lines["backward_cpu_time"]])),
            ("memory", units.bytes_scale([number(v) for v in [*frame["allocated"], *frame["peak"]]])),
            ("host", units.bytes_scale([number(v) for v in [*frame["host_net"], *frame["host_peak"]]])),
            ("device", units.spread_scale([number(v) for v in frame["self_device_time"]])),
            ("top", max([0.0, *own, *on_lines["backward_cpu_time"].dropna()])),
        ):
            object.__setattr__(self, name, value)

    @property
    def is_split(self) -> bool:
        """Whether each line's own time is known, torch and Python apart; else there is its wall time, with calls."""
        return self.profile.has_op_times

    @property
    def has_memory(self) -> bool:
        return bool(self.profile.lines["allocated"].notna().any())

    @property
    def has_host(self) -> bool:
        return bool(self.profile.lines["host_net"].notna().any())

    @property
    def has_device(self) -> bool:
        return bool((self.profile.lines["self_device_time"] > 0).any())

    @property
    def has_backward(self) -> bool:
        return bool((self.profile.lines["backward_cpu_time"] > 0).any())


def lines_table(profile: Profile) -> Table | None:
    """The annotated source; None where the profile has no lines."""
    if profile.lines["line"].notna().sum() == 0:
        return None
    seen = Annotated(profile)
    order = _Order()
    groups = [group for source, thread in _sources(profile) for group in _groups(seen, source, thread, order)]
    return Table("lines", _columns(seen), tuple(groups), totals=tuple(_totals(seen)))


def _ops_by_line(profile: Profile) -> dict[tuple[str, int, int], list[Mapping[str, Any]]]:
    on_lines = profile.ops[profile.ops["line"].notna()]
    by = ["source_id", "thread", "line", "op", *(["input_shapes"] if profile.options.shapes else [])]
    every = grouped(on_lines, by).sort_values("self_cpu_time", ascending=False, kind="stable")
    found: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
    for record in records(every):
        place_of = str(record["source_id"]), int(record["thread"]), int(record["line"])
        found.setdefault(place_of, []).append(record)
    return found


class _Order:
    """Numbers the rows as they are written down: what the line column sorts by."""

    def __init__(self) -> None:
        self._last = 0.0

    def next(self) -> float:
        self._last += 1
        return self._last


def _columns(seen: Annotated) -> tuple[Column, ...]:
    time, longest = seen.time.unit, units.number(seen.top, seen.time)
    columns = [
        Column("line", "", kind="line"),
        Column("bar", "self time" if seen.is_split else "wall time", f"0 … {longest} {time}", "bar"),
    ]
    if seen.is_split:
        columns.append(Column("self_cpu_time", "torch", time, "number"))
        columns.append(Column("python_time", "Python", time, "number"))
    else:
        columns.append(Column("wall_time", "with calls", time, "number"))
    if seen.has_backward:
        columns.append(Column("backward_cpu_time", "backward", time, "number"))
    if seen.has_device:
        columns.append(Column("self_device_time", "device", seen.device.unit, "number"))
    if seen.has_memory:
        columns += [
            Column("allocated", "allocated", seen.memory.unit, "number"),
            Column("peak", "peak", seen.memory.unit, "number"),
        ]
    if seen.has_host:
        columns += [
            Column("host_net", "Python net", seen.host.unit, "number"),
            Column("host_peak", "Python peak", seen.host.unit, "number"),
        ]
    columns.append(Column("calls", "calls", kind="number"))
    legend = tuple(key for key in _LEGEND if key[0] != "backward" or seen.has_backward) * seen.is_split
    columns.append(Column("source", "source", kind="source", widest=200, legend=legend))
    return tuple(columns)


def _sources(profile: Profile) -> Iterator[tuple[Source, int]]:
    """(source, thread): this cell first, then by time; other threads after the cell's own."""
    on_lines = profile.lines[profile.lines["line"].notna()]
    own = on_lines["self_cpu_time"] + on_lines["python_time"] + on_lines["backward_cpu_time"].fillna(0)
    times = own.groupby([on_lines["thread"], on_lines["source_id"]]).sum()
    keys = sorted(times.index, key=lambda key: (key[0], key[1] != profile.source_id, -times[key]))
    for thread, source_id in keys:
        yield profile.sources.get(source_id) or _unknown(on_lines, source_id), int(thread)


def _unknown(on_lines: pd.DataFrame, source_id: str) -> Source:
    """A source whose text was not kept: the text of the lines that ran, each in its place."""
    rows = on_lines[on_lines["source_id"] == source_id]
    texts = {int(line): str(text or "") for line, text in zip(rows["line"], rows["source"], strict=True)}
    text = "\n".join(texts.get(line, "") for line in range(1, max(texts) + 1))
    cell = rows["cell"].iloc[0]
    return Source(source_id, str(rows["file"].iloc[0]), text, None if pd.isna(cell) else int(cell))


def _groups(seen: Annotated, source: Source, thread: int, order: _Order) -> Iterator[Group]:
    ran = {line for source_id, of, line in seen.rows if source_id == source.source_id and of == thread}
    in_notebook = source.cell is not None or source.file.startswith("<")
    is_cell = source.source_id == seen.profile.source_id and thread == 0 and in_notebook
    texts = source.text.splitlines()
    spans = coloured(texts)
    names = seen.profile.threads
    beside = "" if thread == 0 else f"thread {names[thread] if thread < len(names) else thread}, beside the cell's"
    for region in regions(source.text, ran, whole=is_cell, first_line=source.first_line):
        title = f"{source.label}, this cell" if is_cell else ", ".join(filter(None, (source.label, region.name)))
        rows = tuple(_region_rows(seen, source, thread, region, ran, texts, spans, order))
        yield Group(rows, title, beside)


def _region_rows(
    seen: Annotated,
    source: Source,
    thread: int,
    region: Region,
    ran: set[int],
    texts: list[str],
    spans: list[tuple[Span, ...]],
    order: _Order,
) -> Iterator[Row]:
    blank = (Cell(),) * (len(_columns(seen)) - 2)
    margin = _margin(texts[region.first - source.first_line : region.last - source.first_line + 1])
    for line in shown_lines(region, ran):
        if isinstance(line, tuple):
            words = f"… {units.count(line[0])} line{'s' if line[0] != 1 else ''} that did not run"
            yield Row((Cell(value=order.next()), *blank, Cell(words, tone="quiet")))
            continue
        at = line - source.first_line
        text, span = (texts[at], spans[at]) if 0 <= at < len(texts) else ("", ())
        text = text[margin:]
        span = tuple((max(start - margin, 0), end - margin, meaning) for start, end, meaning in span if end > margin)
        where = f"{source.label}:{line}"
        number_cell = Cell(str(line), order.next(), flat=where)
        record = seen.rows.get((source.source_id, thread, line))
        if record is None:
            yield Row((number_cell, *blank, Cell(text, picture=span)))
            continue
        detail, backward = _detail(seen, source, thread, line, where)
        cells = _numbers(seen, record, backward)
        yield Row((number_cell, *cells, Cell(text, None, "", _note(seen, record), "", span)), where, detail)


def _margin(texts: list[str]) -> int:
    """The indent that all lines of a region share; a method is shown from the left."""
    return min((len(text) - len(text.lstrip(" ")) for text in texts if text.strip()), default=0)


def _numbers(seen: Annotated, record: Mapping[str, Any], backward: bool) -> Iterator[Cell]:
    own, python = number(record["self_cpu_time"]) or 0.0, number(record["python_time"]) or 0.0
    caused = number(record["backward_cpu_time"])
    if seen.is_split:
        yield Cell(value=own + python, picture=_bar(seen, own, python, caused or 0.0, backward))
        yield _time(own, seen.time)
        yield _time(python, seen.time)
    else:
        wall = number(record["wall_time"]) or 0.0
        share = wall / seen.top if seen.top else 0.0
        yield Cell(value=wall, picture=((("other", share),), ()) if share >= 0.002 else ())
        yield _time(wall, seen.time)
    if seen.has_backward:
        yield _time(caused, seen.time)
    if seen.has_device:
        yield _time(number(record["self_device_time"]), seen.device)
    if seen.has_memory:
        for name in ("allocated", "peak"):
            value = number(record[name])
            yield Cell(units.number(value, seen.memory), value)
    if seen.has_host:
        for name in ("host_net", "host_peak"):
            value = number(record[name])
            yield Cell(units.number(value, seen.host), value)
    calls = number(record["calls"])
    yield Cell(units.count(calls), calls)


def _time(value: float | None, scale: units.Scale) -> Cell:
    return Cell(units.number(value, scale), value)


def _bar(seen: Annotated, own: float, python: float, caused: float, backward: bool) -> tuple[object, ...]:
    if not seen.top:
        return ()
    parts = [("backward" if backward else "torch", own), ("python", python)]
    shares = tuple((meaning, value / seen.top) for meaning, value in parts if value / seen.top >= 0.002)
    thin = (("backward", caused / seen.top),) if caused / seen.top >= 0.002 else ()
    return (shares, thin) if shares or thin else ()


def _note(seen: Annotated, record: Mapping[str, Any]) -> str:
    """The inclusive time of a line that spends it elsewhere."""
    if not seen.is_split:
        return ""
    wall = number(record["wall_time"]) or 0.0
    own = (number(record["self_cpu_time"]) or 0.0) + (number(record["python_time"]) or 0.0)
    if wall < _SEEN_TWICE * own or wall < 0.01 * seen.profile.wall_time:
        return ""
    return f"{units.number(wall, seen.time)} {seen.time.unit} with calls"


def _detail(seen: Annotated, source: Source, thread: int, line: int, where: str) -> tuple[Table | None, bool]:
    """The operations of one line, and whether they are a backward pass."""
    every = seen.ops.get((source.source_id, thread, line), [])
    if not every:
        return None, False
    shapes = seen.profile.options.shapes
    columns = [
        Column("op", f"operation of {where}", kind="code", widest=36),
        Column("calls", "calls", kind="number"),
        Column("self", "self", seen.time.unit, "number"),
    ]
    columns += [Column("allocated", "allocated", seen.memory.unit, "number")] if seen.has_memory else []
    columns += [Column("input_shapes", "input shapes", kind="code", widest=60)] if shapes else []
    rows = []
    for record in every[:_DETAIL_ROWS]:
        cells = [
            Cell(op_text(str(record["op"]))),
            Cell(units.count(record["calls"]), float(record["calls"])),
            _time(number(record["self_cpu_time"]), seen.time),
        ]
        if seen.has_memory:
            allocated = number(record["allocated"])
            cells.append(Cell(units.number(allocated, seen.memory), allocated))
        if shapes:
            cells.append(Cell(shapes_text(record["input_shapes"]), tone="quiet"))
        rows.append(Row(tuple(cells)))
    rest = every[_DETAIL_ROWS:]
    left = sum(float(record["self_cpu_time"]) for record in rest)
    hidden = f"{len(rest)} more take {units.seconds_text(left, digits=2)}" if rest else ""
    backward = any(is_backward(str(record["op"])) for record in every)
    return Table("operations of a line", tuple(columns), (Group(tuple(rows)),), hidden=hidden), backward


def _totals(seen: Annotated) -> Iterator[Row]:
    """What stands on no line, and the sums of the cell's own thread."""
    profile, time = seen.profile, seen.time
    if not seen.is_split:
        blank = [Cell()] * (len(_columns(seen)) - 1)
        yield Row((*blank, Cell(f"wall time {_said(profile.wall_time, time)} {time.unit}")))
        return
    own = profile.lines[(profile.lines["thread"] == 0) & profile.lines["line"].notna()]
    torch_time, python = float(own["self_cpu_time"].sum()), float(own["python_time"].sum())
    rest = profile.not_attributed
    missing = rest / seen.top if seen.top else 0.0
    blank = [Cell()] * (len(_columns(seen)) - 3)
    bar = ((("other", min(missing, 1.0)),), ()) if missing > 0.002 else ()
    said = f"not attributed {_said(rest, time)} {time.unit}"
    yield Row((Cell(), Cell(picture=bar), *blank, Cell(said, tone="quiet")))
    cells = [Cell(), Cell(), Cell(_sum(torch_time, time), tone="strong"), Cell(_sum(python, time), tone="strong")]
    if seen.has_backward:
        cells.append(Cell(_sum(float(own["backward_cpu_time"].sum()), time)))
    if seen.has_device:
        cells.append(Cell(units.number(float(own["self_device_time"].sum()), seen.device, digits=None)))
    if seen.has_memory:
        cells.append(Cell(units.number(float(own["allocated"].sum()), seen.memory)))
        cells.append(Cell(units.number(number(own["peak"].max()), seen.memory)))
    if seen.has_host:
        cells.append(Cell(units.number(float(own["host_net"].sum()), seen.host)))
        cells.append(Cell(units.number(number(own["host_peak"].max()), seen.host)))
    equation = (
        f"wall time {_said(profile.wall_time, time)} {time.unit} = {_said(torch_time, time)} torch"
        f" + {_said(python, time)} Python + {_said(rest, time)} not attributed"
    )
    yield Row((*cells, Cell(), Cell(equation)))


def _sum(seconds: float, scale: units.Scale) -> str:
    """Every digit that the column has: sums must be seen to add up."""
    return units.number(seconds, scale, digits=None)


def _said(seconds: float, scale: units.Scale) -> str:
    """The same in a sentence, where a zero is written out."""
    return _sum(seconds, scale) if seconds else "0"


def label_of(record: Mapping[str, Any]) -> str:
    """``In[3]:4``."""
    return place(record["cell"], record["file"], record["line"])
