"""The annotated source of a profile: time, bytes and calls beside each line, insights that unfold."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torchbench_magic import units
from torchbench_magic.profiling.efficiency.view import line_columns
from torchbench_magic.result_base import Cure, Insight
from torchbench_magic.show.document import (
    Phrase,
    Region,
    Span,
    StyledText,
    Unfolding,
    backticked,
    clipped,
    coloured,
    regions,
    shown_lines,
)
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    Group,
    Row,
    Table,
    built_table,
    cells_of,
    counted,
    float_or_none,
    frame_rows,
    measured_columns,
    texts,
)

from .ops_view import STEP_RANGE, Record, grouped, largest_first, numbers, op_text, shapes_text
from .profile import Profile
from .schema import LINE_COLUMNS
from .trace import Source

# ---- inside_line -----------------------------------------------------------------------------------------------------
# What holds the time of one line: the modules, ranges and backward passes that run below it.

_NAMED = ("module", "python")  # kinds of frames that have a name of the user's or of a library's
_ENGINE = "autograd::engine::evaluate_function: "
_BACKWARD = "backward"
_WORDS = {
    "enumerate(DataLoader)#_MultiProcessing": "waiting for the DataLoader's workers",
    "enumerate(DataLoader)#_SingleProcess": "the DataLoader fetching batches",
}
"""How the name of a range of torch's begins -> what it means."""
_NEARLY_ALL = 0.9  # of the line: then what is inside that is said instead
_WORTH = 0.05  # of the line


def range_in_words(name: str) -> str:
    """What a range of torch's own means, in words; empty for any other name."""
    return next((words for start, words in _WORDS.items() if name.startswith(start)), "")


def inside_line(profile: Profile, source_id: str, line: int, *, with_backward: bool = False) -> list[tuple[str, float]]:
    """(name, seconds) of what runs on the line itself, the largest first; empty where nothing there has a name.

    Seconds are those that stand on the line: what has lines of its own stands there. Where one name holds nearly all
    the time, what is inside that is given instead, if it has names.

    Args:
        with_backward: add the backward pass that each caused, which runs on another line.
    """
    paths = list(_paths(profile, source_id, line, with_backward))
    whole = sum(seconds for _, seconds in paths)
    level = 0
    while True:
        found: dict[str, float] = {}
        for path, seconds in paths:
            if len(path) > level:
                found[path[level]] = found.get(path[level], 0.0) + seconds
        name = max(found, key=found.__getitem__, default="")
        inside = [(path, seconds) for path, seconds in paths if path[level : level + 1] == (name,)]
        if not name or found[name] < _NEARLY_ALL * whole or all(len(path) == level + 1 for path, _ in inside):
            break
        paths, level = inside, level + 1
    by_size = sorted(found.items(), key=lambda item: -item[1])
    return [(name, seconds) for name, seconds in by_size if seconds >= _WORTH * whole > 0]


def _paths(profile: Profile, source_id: str, line: int, with_backward: bool) -> Iterator[tuple[tuple[str, ...], float]]:
    """Of each frame on the line: the names that it runs in, the outermost first, and its seconds."""
    times = ["self_time", *(["backward_cpu_time"] if with_backward else [])]
    names: list[tuple[str, ...]] = []
    for frame in frame_rows(profile.frames):  # a caller comes before what it calls
        here = frame["thread"] == 0 and frame["source_id"] == source_id and float_or_none(frame["line"]) == line
        around = names[int(frame["parent"])] if here and int(frame["parent"]) >= 0 else ()
        names.append((*around, *_name_of(frame, around)) if here else ())
        if here:
            yield names[-1], sum(float_or_none(frame[time]) or 0.0 for time in times)


def _name_of(frame: dict[str, Any], around: tuple[str, ...]) -> tuple[str, ...]:
    if frame["kind"] in _NAMED and frame["name"] != STEP_RANGE:
        return (str(frame["name"]),)
    is_backward = frame["kind"] == "op" and str(frame["name"]).startswith(_ENGINE)
    return (_BACKWARD,) if is_backward and _BACKWARD not in around else ()


# ---- insight_lines ---------------------------------------------------------------------------------------------------

MOST_SHOWN = 3  # under the sentence: the rest has less at stake, and is in the table


def first_insights(insights: Sequence[Insight]) -> Sequence[Insight]:
    """Those under the sentence: who asks for ``--memory`` sees the first about memory, whatever the times say."""
    of_memory = [each for each in insights if each.nbytes]
    of_time = [each for each in insights if not each.nbytes]
    kept = max(MOST_SHOWN - len(of_memory), MOST_SHOWN - 1) if of_memory else MOST_SHOWN
    return [*of_time[:kept], *of_memory][:MOST_SHOWN]


def unfolding(insight: Insight, before: str = "", *, with_cures: bool = True) -> Unfolding:
    """``overhead: In[1]:4 runs ...``, after ``before``; under it one line of evidence and one for each cure."""
    line = (Phrase(before), Phrase(insight.kind, "strong"), Phrase(": "), *backticked(insight.text))
    cures = tuple(map(_cure, insight.cures)) if with_cures else ()
    return Unfolding(line, ((Phrase(_evidence(insight.evidence)),), *cures))


def _cure(cure: Cure) -> StyledText:
    pasted = (Phrase(" "), Phrase(cure.code, "code")) if cure.code else ()
    tried = (Phrase(" Try it: "), Phrase(f"%%timer --try {cure.lever}", "code")) if cure.lever else ()
    return (*backticked(cure.text), *pasted, *tried)


def _evidence(evidence: Mapping[str, object]) -> str:
    """``operations 40 000, per operation 1.9 µs``: facts that are nothing are left out."""
    return ", ".join(f"{_words(name)} {_value(name, value)}" for name, value in evidence.items() if value) + "."


def _words(name: str) -> str:
    return name.removeprefix("seconds_").removeprefix("share_").replace("_", " ")


def _value(name: str, value: object) -> str:
    if isinstance(value, int | float):
        if name.startswith("seconds"):
            return units.seconds_text(value)
        if name.startswith("share"):
            return f"{units.percent(value)} %"
        if name.startswith("bytes"):
            return units.bytes_text(value)
        return units.count(value) if float(value).is_integer() else f"{value:.2f}"
    return clipped(str(value), 80)


def insights_table(insights: Sequence[Insight]) -> Table | None:
    """All of them, the most at stake first; None where there is none."""
    if not insights:
        return None
    scale = units.spread_scale([each.seconds for each in insights])
    built: Iterable[BuiltColumn] = (
        texts("place", "line", 24, lambda row: _place(row["insight"])),
        texts("kind", "kind", 16, lambda row: row["insight"].kind),
        measured_columns("seconds", "at most", scale),
        texts("text", "why", 120, lambda row: row["insight"].text.replace("`", "")),
        texts("cure", "what may help", 120, lambda row: _cures(row["insight"])),
    )
    rows = [{"insight": each, "seconds": each.seconds or None} for each in insights]
    return built_table("insights", tuple(built), rows, lambda row: _place(row["insight"]))


def _place(insight: Insight) -> str:
    return str(insight.places[0]) if insight.places else "the whole run"


def _cures(insight: Insight) -> str:
    return " ".join(f"{cure.text.replace('`', '')} {cure.code}".strip() for cure in insight.cures)


# ---- lines -----------------------------------------------------------------------------------------------------------

Place = tuple[str, int, int]  # source_id, thread, line

_DETAIL_ROWS = 12
_LEGEND = (("torch", "torch"), ("python", "Python"), ("backward", "backward"), ("other", "not attributed"))
_SEEN_TWICE = 2.0  # a line whose inclusive time is this many times its own calls something worth naming


@dataclass(frozen=True)
class Annotated:
    """The numbers of every line, and the scales that all of them share.

    Attributes:
        rows: (source_id, thread, line) -> its row of ``Profile.lines``.
        ops: the same -> its operations, summed per name (and shapes where they were asked for), largest first.
        top: seconds of the longest bar.
        numbers: the columns of numbers that are known, each with its scale.
    """

    profile: Profile

    @cached_property
    def rows(self) -> Mapping[Place, Record]:
        return {_place_of(record): record for record in self._every if record["line"] is not None}

    @cached_property
    def ops(self) -> Mapping[Place, list[Mapping[str, Any]]]:
        on_lines = [row for row in frame_rows(self.profile.ops) if row["line"] is not None]
        by = ["source_id", "thread", "line", "op", *(["input_shapes"] if self.profile.options.shapes else [])]
        found: dict[Place, list[Mapping[str, Any]]] = {}
        for record in largest_first(grouped(on_lines, by), "self_cpu_time"):
            found.setdefault(_place_of(record), []).append(record)
        return found

    @cached_property
    def _every(self) -> list[Record]:
        return frame_rows(self.profile.lines)

    def values(self, *names: str) -> list[float]:
        """Those of these columns that are known, of all rows."""
        return numbers(self._every, *names)

    @cached_property
    def _times(self) -> list[float]:
        of_own = ("self_cpu_time", "python_time") if self.is_split else ("wall_time",)
        own = [sum(numbers([row], *of_own)) for row in self.rows.values()]
        return [*own, *numbers(self.rows.values(), "backward_cpu_time")]

    @cached_property
    def top(self) -> float:
        return max(self._times, default=0.0)

    @cached_property
    def time(self) -> units.Scale:
        return units.spread_scale(self._times)

    @property
    def reached(self) -> list[BuiltColumn]:
        """How near each line came to the roof, where that was asked for."""
        return line_columns(self.profile)

    @property
    def is_split(self) -> bool:
        """Whether each line's own time is known, torch and Python apart; else there is its wall time, with calls."""
        return self.profile.has_op_times

    @property
    def has_memory(self) -> bool:
        return bool(self.values("allocated"))

    @property
    def has_backward(self) -> bool:
        return any(self.values("backward_cpu_time"))

    def bytes_scale(self, *names: str) -> units.Scale:
        """That of these columns together."""
        if names not in self._bytes_scales:  # it is asked for at each line
            self._bytes_scales[names] = units.bytes_scale(self.values(*names))
        return self._bytes_scales[names]

    @cached_property
    def _bytes_scales(self) -> dict[tuple[str, ...], units.Scale]:
        return {}

    @cached_property
    def numbers(self) -> tuple[tuple[BuiltColumn, units.Scale], ...]:
        time = self.time
        own = {"self_cpu_time": "torch", "python_time": "Python"} if self.is_split else {"wall_time": "with calls"}
        found = [(measured_columns(name, label, time, missing=0.0), time) for name, label in own.items()]
        if self.has_backward:
            found.append((measured_columns("backward_cpu_time", "backward", time), time))
        if any(times := self.values("self_device_time")):
            device = units.spread_scale(times)
            found.append((measured_columns("self_device_time", "device", device), device))
        for net, peak, word in (("allocated", "peak", ""), ("host_net", "host_peak", "Python ")):
            if self.values(net):
                scale = self.bytes_scale(net, peak)
                labels = (f"{word}net" if word else "allocated", f"{word}peak")
                found += [
                    (measured_columns(name, said, scale), scale) for name, said in zip((net, peak), labels, strict=True)
                ]
        return tuple(found)


def lines_table(profile: Profile) -> Table | None:
    """The annotated source; None where the profile has no lines."""
    seen = Annotated(profile)
    if not seen.rows:
        return None
    order = itertools.count(1.0)  # numbers the rows as they are written down: what the line column sorts by
    groups = [group for source, thread in _sources(seen) for group in _groups(seen, source, thread, order)]
    return Table("lines", _columns(seen), tuple(groups), totals=tuple(_totals(seen)), keyed="line")


def _place_of(record: Mapping[str, Any]) -> Place:
    return str(record["source_id"]), int(record["thread"]), int(record["line"])


def _columns(seen: Annotated) -> tuple[Column, ...]:
    time, longest = seen.time.unit, units.number(seen.top, seen.time)
    columns = [
        Column("line", "", kind="line"),
        Column("bar", "self time" if seen.is_split else "wall time", f"0 … {longest} {time}", "bar"),
    ]
    columns += [built.column for built, _ in seen.numbers]
    columns.append(Column("calls", "calls", kind="number"))
    columns += [built.column for built in seen.reached]
    legend = tuple(key for key in _LEGEND if key[0] != "backward" or seen.has_backward) * seen.is_split
    columns.append(Column("source", "source", kind="source", widest=200, legend=legend))
    return tuple(columns)


def _sources(seen: Annotated) -> Iterator[tuple[Source, int]]:
    """(source, thread): this cell first, then by time; other threads after the cell's own."""
    profile, times = seen.profile, dict[tuple[int, str], float]()
    for (source_id, thread, _), row in seen.rows.items():
        took = sum(numbers([row], "self_cpu_time", "python_time", "backward_cpu_time"))
        times[thread, source_id] = times.get((thread, source_id), 0.0) + took
    for thread, source_id in sorted(times, key=lambda key: (key[0], key[1] != profile.source_id, -times[key])):
        yield profile.sources.get(source_id) or _unknown(seen, source_id), thread


def _unknown(seen: Annotated, source_id: str) -> Source:
    """A source whose text was not kept: the text of the lines that ran, each in its place."""
    rows = [row for (of, _, _), row in seen.rows.items() if of == source_id]
    texts = {int(row["line"]): str(row["source"] or "") for row in rows}
    text = "\n".join(texts.get(line, "") for line in range(1, max(texts) + 1))
    return Source(source_id, str(rows[0]["file"]), text, rows[0]["cell"])


def _groups(seen: Annotated, source: Source, thread: int, order: Iterator[float]) -> Iterator[Group]:
    ran = {line for source_id, of, line in seen.rows if source_id == source.source_id and of == thread}
    in_notebook = source.cell is not None or source.file.startswith("<")
    is_cell = source.source_id == seen.profile.source_id and thread == 0 and in_notebook
    texts = source.text.splitlines()
    spans = coloured(texts)
    names = seen.profile.threads
    name = names[thread] if thread < len(names) else str(thread)
    beside = "" if thread == 0 else f"{name if name.startswith('thread ') else f'thread {name}'}, beside the cell's"
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
    order: Iterator[float],
) -> Iterator[Row]:
    blank = (Cell(),) * (len(_columns(seen)) - 2)
    own = texts[region.first - source.first_line : region.last - source.first_line + 1]
    margin = min((len(text) - len(text.lstrip(" ")) for text in own if text.strip()), default=0)
    for line in shown_lines(region, ran):
        if isinstance(line, tuple):
            words = f"… {units.count(line[0])} line{'s' if line[0] != 1 else ''} not executed"
            yield Row((Cell(value=next(order)), *blank, Cell(words, tone="quiet")))
            continue
        at = line - source.first_line
        text, span = (texts[at], spans[at]) if 0 <= at < len(texts) else ("", ())
        text = text[margin:]
        span = tuple((max(start - margin, 0), end - margin, meaning) for start, end, meaning in span if end > margin)
        where = f"{source.label}:{line}"
        number_cell = Cell(str(line), next(order), flat=where)
        record = seen.rows.get((source.source_id, thread, line))
        if record is None:
            yield Row((number_cell, *blank, Cell(text, picture=span)))
            continue
        detail = _detail(seen, source, thread, line, where)
        cells = _numbers(seen, record)
        yield Row((number_cell, *cells, Cell(text, None, "", _note(seen, record), "", span)), where, detail)


def _numbers(seen: Annotated, record: Mapping[str, Any]) -> Iterator[Cell]:
    if seen.is_split:
        own, python = float_or_none(record["self_cpu_time"]) or 0.0, float_or_none(record["python_time"]) or 0.0
        caused = float_or_none(record["backward_cpu_time"]) or 0.0
        yield Cell(value=own + python, picture=_bar(seen, own, python, caused))
    else:
        wall = float_or_none(record["wall_time"]) or 0.0
        share = wall / seen.top if seen.top else 0.0
        yield Cell(value=wall, picture=((("other", share),), ()) if share >= 0.002 else ())
    yield from cells_of([built for built, _ in seen.numbers], record)
    calls = float_or_none(record["calls"])
    yield Cell(units.count(calls), calls)
    yield from cells_of(seen.reached, record)


def _bar(seen: Annotated, own: float, python: float, caused: float) -> tuple[object, ...]:
    """Each part in the colour of the column that its number stands in."""
    if not seen.top:
        return ()
    parts = [("torch", own), ("python", python)]
    shares = tuple((meaning, value / seen.top) for meaning, value in parts if value / seen.top >= 0.002)
    thin = (("backward", caused / seen.top),) if caused / seen.top >= 0.002 else ()
    return (shares, thin) if shares or thin else ()


def _note(seen: Annotated, record: Mapping[str, Any]) -> str:
    """The inclusive time of a line that spends it elsewhere."""
    if not seen.is_split:
        return ""
    wall = float_or_none(record["wall_time"]) or 0.0
    own = (float_or_none(record["self_cpu_time"]) or 0.0) + (float_or_none(record["python_time"]) or 0.0)
    if wall < _SEEN_TWICE * own or wall < 0.01 * seen.profile.wall_time:
        return ""
    return f"{units.number(wall, seen.time)} {seen.time.unit} with calls"


def _detail(seen: Annotated, source: Source, thread: int, line: int, where: str) -> Table | None:
    every = seen.ops.get((source.source_id, thread, line), [])
    if not every:
        return None
    built = [
        texts("op", f"operation of {where}", 36, lambda op: op_text(str(op["op"]))),
        counted("calls", "calls"),
        measured_columns("self", "self", seen.time, "self_cpu_time"),
    ]
    if seen.has_memory:
        built.append(measured_columns("allocated", "allocated", seen.bytes_scale("allocated", "peak")))
    if seen.profile.options.shapes:
        built.append(texts("input_shapes", "input shapes", 60, lambda op: shapes_text(op["input_shapes"]), quiet=True))
    rest = every[_DETAIL_ROWS:]
    left = sum(float(record["self_cpu_time"]) for record in rest)
    hidden = f"{len(rest)} more take {units.seconds_text(left, digits=2)}" if rest else ""
    return built_table("operations of a line", built, every[:_DETAIL_ROWS], hidden=hidden)


def _totals(seen: Annotated) -> Iterator[Row]:
    """What stands on no line, and the sums of the cell's own thread."""
    profile, time = seen.profile, seen.time
    if not seen.is_split:
        blank = [Cell()] * (len(_columns(seen)) - 1)
        yield Row((*blank, Cell(f"wall time {_seconds_text(profile.wall_time, time)} {time.unit}")))
        return
    own = [row for (_, thread, _), row in seen.rows.items() if thread == 0]
    torch_time, python = sum(numbers(own, "self_cpu_time")), sum(numbers(own, "python_time"))
    rest = profile.not_attributed
    missing = rest / seen.top if seen.top else 0.0
    blank = [Cell()] * (len(_columns(seen)) - 3)
    bar = ((("other", min(missing, 1.0)),), ()) if missing > 0.002 else ()
    said = f"not attributed {_seconds_text(rest, time)} {time.unit}"
    yield Row((Cell(), Cell(picture=bar), *blank, Cell(said, tone="quiet")))
    cells = [_total(own, built.column.name, scale) for built, scale in seen.numbers]
    equation = (
        f"wall time {_seconds_text(profile.wall_time, time)} {time.unit} = {_seconds_text(torch_time, time)} torch"
        f" + {_seconds_text(python, time)} Python + {_seconds_text(rest, time)} not attributed"
    )
    yield Row((Cell(), Cell(), *cells, Cell(), *[Cell()] * len(seen.reached), Cell(equation)))


def _total(own: Iterable[Record], name: str, scale: units.Scale) -> Cell:
    """Sums of times with every digit that the column has, the most of what is not added up."""
    known = numbers(own, name)
    if LINE_COLUMNS[name].combined == "max":
        return Cell(units.number(max(known, default=None), scale))
    digits = None if name.endswith("_time") else 3
    strong = name in ("self_cpu_time", "python_time")
    return Cell(units.number(sum(known), scale, digits=digits), tone="strong" if strong else "")


def _seconds_text(seconds: float, scale: units.Scale) -> str:
    """Every digit that the column has, since sums must be seen to add up; in a sentence a zero is written out."""
    return units.number(seconds, scale, digits=None) if seconds else "0"
