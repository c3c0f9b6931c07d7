"""torch's own results as documents: what a cell shows whose last value is one of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils import common
from torch.utils.benchmark.utils.compare import Colorize
from torch.utils.benchmark.utils.compare import Table as TorchTable

from torchbench_magic import units
from torchbench_magic.printable import printable, printable_lines

from .document import Document, Phrase, StyledText, clipped
from .drawing import histogram, span_of
from .renderers import bundle
from .table import (
    BuiltColumn,
    Cell,
    Column,
    ColumnKind,
    Group,
    Row,
    Table,
    Tone,
    built_table,
    cells_of,
    columns_of,
    share_cell,
    texts,
)

if TYPE_CHECKING:
    from torch.autograd.profiler_util import EventList
    from torch.profiler import profile
    from torch.utils.benchmark import CallgrindStats, Compare, FunctionCounts

# ---- compare_tables --------------------------------------------------------------------------------------------------
# torch's Compare as a document: the figures of its text, in a table with units, groups and colours by meaning.

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


# ---- torch_results ---------------------------------------------------------------------------------------------------
# Numbers keep torch's meaning: a `CallgrindStats` counts every run it made, a `Measurement` knows nothing of other
# runs, and the table of a profiler has its percentages of torch's own total, in which the kernel's threads take part.

Bundle = dict[str, str]
_ROWS = 20
_LONGEST = 120


def measurement(result: Measurement) -> Bundle:
    """One line with the median, which unfolds to the samples; torch's own text beside."""
    times = np.array(result.times, dtype=float)
    name = Phrase(clipped(result.task_spec.title or result.task_spec.summarize(), _LONGEST), "code")
    if not len(times):
        empty = "no sample was taken"  # its repr raises
        return _shown(Document("measurement", (name, Phrase(f": {empty}"))), empty)
    median, threads = float(np.median(times)), result.task_spec.num_threads
    runs = f"{units.counted(len(times), 'block')} of {units.count(result.number_per_run)}"
    parts = [
        "median",
        f"IQR {units.percent(result.iqr / median)} %" if len(times) > 1 and median else "one sample: spread unknown",
        f"{runs} call{'' if result.number_per_run == 1 else 's'}, {threads} thread{'' if threads == 1 else 's'}",
    ]
    scale = units.smallest_scale([median])
    facts = (
        ("mean", f"{units.number(float(times.mean()), scale)} {scale.unit}", ()),
        ("range", f"{units.range_text(float(times.min()), float(times.max()), scale)} {scale.unit}", ()),
        ("samples", "", histogram(times, median, span_of([times]))),
    )
    columns = (Column("fact", "fact"), Column("value", "value"), Column("picture", "samples", kind="histogram"))
    rows = [Row((Cell(fact, tone="quiet"), Cell(value), Cell(picture=picture))) for fact, value, picture in facts]
    figure = Phrase(units.seconds_text(median), "figure")
    sentence: StyledText = (name, Phrase("  "), figure, Phrase(" "), Phrase(" · ".join(parts), "quiet"))
    return _shown(
        Document(
            kind="measurement",
            sentence=sentence,
            tables=(Table("facts", columns, (Group(tuple(rows)),), headless=True),),
            doubts=_doubts(result),
            footer=((Phrase("torch's Measurement: a single run; the median of a rerun may differ."),),),
            folded=True,
        ),
        printable_lines(repr(result)),
    )


def _doubts(result: Measurement) -> tuple[StyledText, ...]:
    """torch's own warning, in a line."""
    if not result.has_warnings:
        return ()
    share = units.percent(result.iqr / result.median)
    return ((Phrase(f"This time is unreliable: IQR {share} %. Measure longer, or compare in one %%timer cell."),),)


def compare_table(table: Compare) -> Bundle:
    """The table of a plain torch ``Compare``, by the one that survives what torch's does not."""
    from torchbench_magic.timing.torch_compare import Compare as Repaired

    repaired = Repaired(list(table._results))
    repaired.__dict__.update(vars(table))
    return repaired._repr_mimebundle_()


def callgrind_stats(stats: CallgrindStats) -> Bundle:
    counts = stats.stats(inclusive=False)
    total = stats.counts(denoise=False)
    runs = units.counted(stats.number_per_run, "run")
    name = clipped(stats.task_spec.title or stats.task_spec.summarize(), _LONGEST)
    figure = Phrase(units.count(total), "figure")
    sentence = (Phrase(name, "code"), Phrase("  "), figure, Phrase(f" instructions in {runs}", "quiet"))
    said = [f"The empty loop's own {units.count(stats.baseline_exclusive_stats.sum())} are among them."]
    if not stats.built_with_debug_symbols:
        said.append("torch was built without debug symbols: places in its sources are not known.")
    footer = tuple((Phrase(text),) for text in said)
    document = Document("instruction counts", sentence, (_functions(counts),), (), footer, where=".stats()")
    return _shown(document, printable_lines(repr(stats)))


def function_counts(counts: FunctionCounts) -> Bundle:
    """Functions by how much they count; differences with their sign."""
    kind = "inclusive" if counts.inclusive else "exclusive"
    sentence = (
        Phrase(units.count(len(counts)), "figure"), Phrase(f" functions, {kind}: "),
        Phrase(units.count(counts.sum()), "strong"), Phrase(" instructions in all"),
    )  # fmt: skip
    document = Document("function counts", sentence, (_functions(counts),), where="the object itself")
    return _shown(document, printable_lines(repr(counts)))


def _functions(counts: FunctionCounts) -> Table:
    """The largest first, as torch orders them, each with its share of what is counted, signs apart."""
    entries = sorted(((entry.count, entry.function) for entry in counts), key=lambda one: -abs(one[0]))
    whole = float(sum(abs(count) for count, _ in entries)) or 1.0
    signed = any(count < 0 for count, _ in entries)
    most = max((abs(count) for count, _ in entries), default=1) or 1
    kind: Any = "change" if signed else "bar"
    legend = (("faster", "fewer"), ("slower", "more")) if signed else ()

    def bar(count: int) -> Cell:
        return Cell(picture=(count / most,) if signed else ((("torch", count / most),), ()))

    built = (
        BuiltColumn(Column("count", "instructions", kind="number"), lambda one: Cell(units.count(one[0]), one[0])),
        BuiltColumn(Column("share", "share", "%", "number"), lambda one: share_cell(abs(one[0]), whole)),
        BuiltColumn(Column("bar", "", kind=kind, legend=legend), lambda one: bar(one[0])),
        texts("function", "function", 60, lambda one: one[1]),
    )
    rows = tuple(Row(cells_of(built, one)) for one in entries)
    return Table("functions", columns_of(built), (Group(rows),), sorted_by="" if signed else "count")


def event_list(events: EventList) -> Bundle:
    """What ``prof.key_averages()`` holds, the largest self times first; of single events their averages."""
    averages = _averages(events)
    return _shown(_events(averages), events_text(averages))


def events_text(events: EventList) -> str:
    """torch's own table of the largest self times."""
    averages: Any = copy.copy(_averages(events))  # torch's methods have no annotations
    if not averages:
        return "no event was recorded"
    averages[:] = map(_printable_event, averages)
    return str(averages.table(sort_by="self_cpu_time_total", row_limit=_ROWS))


def _printable_event(event: Any) -> Any:
    """The event with names that torch's table may hold: a cell of it is a part of one line."""
    shown = copy.copy(event)
    shown.key = printable(str(event.key))
    shown.stack = [printable(str(frame)) for frame in event.stack or ()]
    return shown


def _averages(events: EventList) -> EventList:
    from torch.autograd.profiler_util import FunctionEventAvg

    single: Any = events
    return events if all(isinstance(event, FunctionEventAvg) for event in events) else single.key_averages()


def profiler_averages(prof: profile) -> Bundle | None:
    """The averages of a profile that has ended; None while there is nothing to show."""
    if getattr(getattr(prof, "profiler", None), "kineto_results", None) is None:
        return None
    averages = prof.key_averages()
    note: StyledText = (
        Phrase("Cell lines need "),
        Phrase("%%tprofile", "code"),
        Phrase(": this profile was not recorded with them."),
    )
    text = f"{events_text(averages)}\n{''.join(run.text for run in note)}"
    return _shown(_events(averages, note), text)


def _events(events: EventList, *notes: StyledText) -> Document:
    rows: Sequence[Any] = sorted(events, key=lambda event: -event.self_cpu_time_total)
    whole = float(sum(event.self_cpu_time_total for event in rows)) / 1e6
    if not rows:
        return Document("profile", (Phrase("No event was recorded."),), footer=notes)
    top = rows[0]
    sentence = (
        Phrase(clipped(top.key, _LONGEST), "subject"),
        Phrase(f" has {share_cell(top.self_cpu_time_total / 1e6, whole).text} % of the self time"),
    )
    built = _event_columns(rows, whole)
    scope = f"Self time of all events: {units.seconds_text(whole)}; those of Jupyter's own threads are among them."
    return Document(
        kind="profile",
        sentence=sentence,
        tables=(built_table("operations", built, rows, sorted_by="self_cpu_time"),),
        footer=(*notes, (Phrase(scope),)),
        where=".table(row_limit=-1)",
    )


def _event_columns(rows: Sequence[Any], whole: float) -> list[BuiltColumn]:
    """The columns that hold something. torch's times are microseconds."""
    built = [texts("op", "operation", 48, lambda event: str(event.key))]
    if any(event.input_shapes for event in rows):
        shown = lambda event: str(event.input_shapes) if event.input_shapes else ""
        built.append(texts("shapes", "shapes", 36, shown))
    built += [
        BuiltColumn(
            Column("share", "self", "%", "number"), lambda event: share_cell(event.self_cpu_time_total / 1e6, whole)
        ),
        BuiltColumn(Column("calls", "calls", kind="number"), lambda event: Cell(units.count(event.count), event.count)),
    ]

    def add(name: str, label: str, field: str, scaled: Callable[[Iterable[float]], units.Scale], size: float) -> None:
        values = [getattr(event, field) * size for event in rows]
        if not any(values) and name != "self_cpu_time":
            return
        scale = scaled(values)
        column = Column(name, label, scale.unit, "number")
        built.append(BuiltColumn(column, lambda event: _number(getattr(event, field) * size, scale)))

    add("self_cpu_time", "self CPU", "self_cpu_time_total", units.spread_scale, 1e-6)
    add("cpu_time", "CPU total", "cpu_time_total", units.spread_scale, 1e-6)
    add("self_device_time", "self device", "self_device_time_total", units.spread_scale, 1e-6)
    add("device_time", "device total", "device_time_total", units.spread_scale, 1e-6)
    add("self_memory", "self memory", "self_cpu_memory_usage", units.bytes_scale, 1)
    add("memory", "memory", "cpu_memory_usage", units.bytes_scale, 1)
    add("device_memory", "device memory", "self_device_memory_usage", units.bytes_scale, 1)
    return built


def _number(value: float, scale: units.Scale) -> Cell:
    return Cell(units.number(value, scale), value)


def _shown(document: Document, text: str) -> Bundle:
    return {**bundle(document), "text/plain": text}
