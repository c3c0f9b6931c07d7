"""A comparison as a document: the tables, the code under them, and threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.counting import view
from torchbench_magic.counting.counts import CountKey
from torchbench_magic.errors import OptionError
from torchbench_magic.show.document import Document, Phrase, StyledText, clipped, code, coloured, of_result
from torchbench_magic.show.drawing import MOST_VALUES, histogram, span_of, span_text
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    Group,
    Row,
    Table,
    cells_of,
    columns_of,
    float_or_none,
    frame_rows,
    measured_columns,
)

from . import columns_view, levers_view, scaling_view, verdict_words
from .columns_view import (
    LONGEST_NAME,
    alternative_name,
    clauses,
    compiled_columns,
    compiled_definition,
    contaminated,
    doubt_lines,
    fixed_text,
    in_how_many,
    measured,
    nothing_done,
    placed_name,
    was_compiled,
)
from .comparison import Comparison
from .samples import are_tried
from .scaling import ThreadCurve, ThreadPoint, thread_curves
from .verdict_words import ratio_columns, ratio_definition

# ---- code_under ------------------------------------------------------------------------------------------------------
# Code under a comparison: what was edited between two runs, as a diff; what ran, where the reader did not write it.

_MOST = 5
_LONGEST_NAME = 60


def edited(comparison: Comparison) -> list[Document]:
    """The diffs of source that the doubts of results side by side hold, one below the other."""
    diffs = dict(_diffs(comparison))
    shown = [_source_change(name, lines) for name, lines in list(diffs.items())[:_MOST]]
    more = len(diffs) - _MOST
    if more > 0:
        said = f"{units.count(more)} more edited source{'s' if more > 1 else ''}: see the facts of .warnings"
        shown.append(Document(kind="source changes", sentence=(Phrase(said),)))
    return shown


def to_paste(comparison: Comparison) -> list[Document]:
    """The cell that ran, under a comparison that was made for the reader (`benchmark_op`); nothing under others."""
    if not comparison.code:
        return []
    lines = comparison.code.splitlines()
    rows = tuple(Row((Cell(line, picture=span),)) for line, span in zip(lines, coloured(lines), strict=True))
    column = Column("code", "", kind="source", widest=200)
    return [
        Document(
            kind="code to paste",
            sentence=(Phrase("The code that ran, as a cell to paste ("), code(".code"), Phrase(" holds the text):")),
            tables=(Table("code", (column,), (Group(rows),), headless=True),),
        )
    ]


def _diffs(comparison: Comparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    for doubt in comparison.warnings:
        held = doubt.facts.get("diffs")
        if isinstance(held, Mapping):
            for name, lines in held.items():
                yield str(name), tuple(map(str, lines))


def _source_change(name: str, lines: tuple[str, ...]) -> Document:
    rows = tuple(Row((Cell(line),)) for line in lines)
    table = Table("diff", (Column("diff", "", kind="source", widest=160),), (Group(rows),), headless=True)
    return Document(kind="source change", sentence=_source_change_said(name, lines), tables=(table,))


def _source_change_said(name: str, lines: tuple[str, ...]) -> StyledText:
    removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    what = name.removeprefix("source of ")
    own = (code(clipped(what, _LONGEST_NAME)),) if what != name else (Phrase(f"The {name}"),)
    is_whole = not lines[-1].startswith("…")
    return (
        *own,
        Phrase(f" was edited: {_lines(removed)} removed, {_lines(added)} added" if is_whole else " was edited"),
    )


def _lines(number: int) -> str:
    return units.counted(number, "line")


# ---- threads ---------------------------------------------------------------------------------------------------------
# Time against threads: the table of speed-up and efficiency, and which thread count to use.

_MOST_ADVICE = 3
DEFINITION = (
    "“use”: the largest thread count within the usable cores that still gains more than 10 %."
    " Extra CPU: CPU time beyond that of the smallest count."
)
"""Explains the columns of the table, for the footer."""


def threads_table(comparison: Comparison) -> Table | None:
    """One group a curve; None where no alternative was measured at two thread counts."""
    found = thread_curves(comparison)
    if not found:
        return None
    points = [point for curve in found for point in curve.points]
    wall = units.smallest_scale([point.time for point in points])
    spent = units.smallest_scale([point.cpu_seconds for point in points])
    built = (
        measured_columns("num_threads", "threads", units.Scale(places=0), "threads", digits=None),
        BuiltColumn(Column("note", ""), _note),
        measured_columns("time", "time", wall),
        measured_columns("speed_up", "speed-up", units.Scale("×", places=2), digits=None),
        _per_cent("efficiency", "efficiency"),
        measured_columns("cpu_seconds", "CPU time", spent),
        _per_cent("extra_cpu", "extra CPU"),
        measured_columns("outside", "others", units.Scale("cores", places=2), digits=None, tone="quiet"),
    )
    several = len(found) > 1
    groups = tuple(
        Group(
            tuple(Row(cells_of(built, _record(curve, point)), key=str(point.row)) for point in curve.points),
            title=clipped(_name(comparison, curve), LONGEST_NAME) if several else "",
            note=fixed_text(curve.fixed) if several else "",
        )
        for curve in found
    )
    return Table("threads", columns_of(built), groups)


def _record(curve: ThreadCurve, point: ThreadPoint) -> dict[str, Any]:
    note = "use" if point.threads == curve.knee else "oversubscribed" if point.threads > curve.usable_cores else ""
    return vars(point) | {"note": note}


def _note(row: dict[str, Any]) -> Cell:
    return Cell(row["note"], tone="strong" if row["note"] == "use" else "quiet")


def _per_cent(name: str, label: str) -> BuiltColumn:
    """Whole per cents: a thread curve is not known better than that."""

    def cell(record: Any) -> Cell:
        value = record[name] if math.isnan(record[name]) else float(round(100 * record[name]))
        return Cell(units.number(value, units.Scale(places=0), digits=None), record[name])

    return BuiltColumn(Column(name, label, "%", "number"), cell)


def threads_advice(comparison: Comparison) -> StyledText:
    """``Use -t 2: 1.93 times the speed of 1``, one by one where alternatives differ; empty where none is named."""
    named = [(curve, curve.knee) for curve in thread_curves(comparison) if curve.knee is not None]
    if not named:
        return ()
    if len({knee for _, knee in named}) == 1:
        return (Phrase("Use "), code(f"-t {named[0][1]}"), Phrase(f": {_gain([curve for curve, _ in named])}."))
    runs: list[Phrase] = [Phrase("Use ")]
    for nth, (curve, knee) in enumerate(named[:_MOST_ADVICE]):
        runs += [Phrase(", ")] if nth else []
        runs += [code(f"-t {knee}"), Phrase(" for "), code(clipped(_name(comparison, curve), LONGEST_NAME))]
        runs += [Phrase(f" ({fixed_text(curve.fixed)})")] if curve.fixed else []
    left = len(named) - _MOST_ADVICE
    return (*runs, Phrase(f", {left} more in the table." if left > 0 else "."))


def doubt(comparison: Comparison) -> StyledText:
    """Why no thread count is named, where that is so."""
    refused = [curve for curve in thread_curves(comparison) if curve.refused]
    if not refused:
        return ()
    worst = max(refused, key=lambda curve: max(float_or_none(point.outside) or 0.0 for point in curve.points))
    return (Phrase(f"No thread count recommended: {worst.refused}."),)


def _gain(found: Sequence[ThreadCurve]) -> str:
    gains = [next(p.speed_up for p in curve.points if p.threads == curve.knee) for curve in found]
    first = found[0].points[0].threads
    low, high = (units.number(gain, units.Scale(places=2), digits=None) for gain in (min(gains), max(gains)))
    if found[0].knee == first:
        return "more threads gain less than 10 %"
    return f"{low if low == high else f'{low} to {high}'} times the speed of {first}"


def _name(comparison: Comparison, curve: ThreadCurve) -> str:
    return curve.description or alternative_name(comparison, 0)


# ---- comparison ------------------------------------------------------------------------------------------------------
# A comparison as a document: which alternative is faster, by how much, and how sure that is.

_MOST_SAMPLES, _LEAST_SAMPLES = 4_000, 20  # values that travel: of all rows together, and of each
_MOST_CURVES = 12  # against threads, as a table; of more, a sweep's, the picture shows the first


METRICS = {"median": "median", "mean": "mean", "cpu_clock_median": "CPU clock"}
"""Columns of ``.frame`` that can be shown as the time, and their headers. Ratios are of wall time whichever it is."""


def document(comparison: Comparison, *, metric: str = "median") -> Document:
    """The comparison, ready for any carrier. A lone statement is one line that unfolds.

    Raises:
        OptionError: ``metric`` is not one of `METRICS`.
    """
    if metric not in METRICS:
        raise OptionError(f"metric {metric!r} is unknown; use one of {', '.join(METRICS)}")
    frame = comparison.frame
    if len(frame) == 1:
        return _of_lone_statement(comparison)
    curve = threads_table(comparison)
    by_threads = [curve] if curve is not None and len(curve.groups) <= _MOST_CURVES else []
    return Document(
        kind="timing comparison" if frame["verdict"].notna().any() else "timings",
        sentence=_after(nothing_done(comparison), _sentence(comparison)),
        tables=(_table(comparison, metric), *by_threads),
        doubts=doubt_lines(comparison) + tuple(filter(None, [doubt(comparison)] if by_threads else [])),
        doubts_where=of_result(".warnings"),
        footer=tuple(_footer(comparison, DEFINITION if by_threads else "")),
        where=of_result(".frame"),
        picture=scaling_view.curves_svg(comparison) or "",
    )


def under(comparison: Comparison) -> list[Document]:
    """What stands below it: what was edited, the differences of counts, the code that ran."""
    return [*edited(comparison), *_counts_inline(comparison), *to_paste(comparison)]


def _shows_levers(comparison: Comparison) -> bool:
    """Whether it is of levers, tried in one run."""
    return are_tried(comparison.subjects) and not comparison.axes


# ---- the sentence -------------------------------------------------------------------------------------------


def _after(before: StyledText, sentence: StyledText) -> StyledText:
    """A sentence after another one: with a capital, unless it begins with a name."""
    if before and sentence and not sentence[0].style:
        text = sentence[0].text
        return (*before, Phrase(text[:1].upper() + text[1:]), *sentence[1:])
    return before + sentence


def _sentence(comparison: Comparison) -> StyledText:
    frame = comparison.frame
    if not len(frame):
        return (Phrase("nothing was measured"),)
    if _shows_levers(comparison):
        return levers_view.trial_sentence(comparison)
    names = _baselines(comparison)
    judged = [
        verdict_words.SaidRow(
            placed_name(comparison, at),
            record.ratio,
            record.ratio_low,
            record.ratio_high,
            record.verdict,
            comparison.rulings[at].told.said,
            placed_name(comparison, base) if (base := comparison.base_row(at)) is not None else "",
        )
        for at, record in enumerate(_named(frame))
        if not math.isnan(record.ratio) and record.verdict != "baseline"
    ]
    if judged:
        swap = verdict_words.swaps_clause(comparison)
        in_which = in_how_many(comparison)
        baseline = names[0] if len(names) == 1 else None
        is_one_point = frame["num_threads"].nunique() == 1
        where = "engines" if is_one_point and columns_view.are_environments(comparison) else "points"
        answer = verdict_words.sentence(judged, baseline, where)
        return answer + in_which + ((Phrase("; "), *swap) if swap else ())
    medians = frame["median"].dropna()
    name = Phrase(clipped(alternative_name(comparison, 0), LONGEST_NAME), "subject")
    if not len(medians):
        return name, Phrase(": no sample was taken")
    if len({alternative_name(comparison, at) for at in range(len(frame))}) > 1:
        return _uncompared(comparison)
    low, high = (units.seconds_text(float(end)) for end in (medians.min(), medians.max()))
    places = frame["num_threads"].nunique() == len(frame)
    where = "thread counts" if places else "points"
    advice = threads_advice(comparison) if places else ()
    figures = f"{low} to {high}" if len(medians) > 1 else low
    said = (Phrase(f": {figures} at {units.count(len(medians))} {where} (medians)"),)
    if len(medians) < len(frame) and columns_view.are_environments(comparison):
        said = (Phrase(f": {figures} (median); of {len(frame)} engines {len(medians)} measured"),)
    return name, *said, *((Phrase(". "), *advice) if advice else ())


_MOST_NAMED = 3


def _uncompared(comparison: Comparison) -> StyledText:
    """The medians of alternatives of which no two can be compared (yet)."""
    by_name: dict[str, list[float]] = {}
    for at, median in enumerate(comparison.frame["median"]):
        by_name.setdefault(clipped(placed_name(comparison, at), LONGEST_NAME), []).append(float(median))
    said: list[Phrase] = []
    for name, medians in [*by_name.items()][:_MOST_NAMED]:
        known = sorted({units.seconds_text(median) for median in (min(medians), max(medians)) if median > 0})
        said += [Phrase(", "), Phrase(name, "subject"), Phrase(f" {' to '.join(known) or 'no sample'}")]
    more = len(by_name) - _MOST_NAMED
    return (*said[1:], Phrase(f"{f', {more} more below' if more > 0 else ''} (medians); no ratio yet"))


def _baselines(comparison: Comparison) -> list[str]:
    verdicts_of = enumerate(comparison.frame["verdict"].fillna(""))
    return list(dict.fromkeys(placed_name(comparison, at) for at, verdict in verdicts_of if verdict == "baseline"))


def _baseline_text(comparison: Comparison) -> str:
    """``bmm``; ``its baseline (mul in one, bmm in one)`` where rows have different ones."""
    names = [clipped(name, LONGEST_NAME) for name in _baselines(comparison)]
    more = len(names) - _MOST_NAMED
    listed = f"{', '.join(names[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"
    return listed if len(names) == 1 else f"its baseline ({listed})" if names else "its baseline"


# ---- the table ----------------------------------------------------------------------------------------------


def _table(comparison: Comparison, metric: str) -> Table:
    frame = comparison.frame
    built = [*_identity(comparison), *_times(comparison, metric)]
    if frame["ratio"].notna().any():
        built += ratio_columns(comparison)
    if _shows_levers(comparison):
        built += levers_view.trial_columns(comparison)
    if frame["instructions"].notna().any():
        column = Column("instructions", "instructions", "per call", "number")
        counted = lambda at, record: Cell(units.count(record.instructions), float_or_none(record.instructions))
        built.append(BuiltColumn(column, counted))
    if frame["instructions_ratio"].nunique() > 1:
        column = Column("instructions_ratio", "ratio", "instr.", "number")
        built.append(BuiltColumn(column, _instructions_ratio))
    if was_compiled(frame):
        built += compiled_columns(frame)
    rows = [Row(cells_of(built, at, record), key=str(at)) for at, record in enumerate(_named(frame))]
    groups: dict[int, list[Row]] = {}
    alone = not frame["verdict"].notna().any()
    for subject, row in zip(comparison.subjects, rows, strict=True):
        groups.setdefault(0 if alone else subject.group, []).append(row)
    return Table("timings", columns_of(built), tuple(Group(tuple(rows)) for rows in groups.values()))


def _identity(comparison: Comparison) -> list[BuiltColumn]:
    frame, axes = comparison.frame, comparison.axes
    alone = not frame["verdict"].notna().any()
    found: list[BuiltColumn] = []

    def add(name: str, label: str, cell: Callable[[int, Any], Cell], **more: Any) -> None:
        found.append(BuiltColumn(Column(name, label, **more), cell))

    given = [name for name in ("label", "env", "device") if frame[name].nunique(dropna=False) > 1]
    if not axes and frame["sub_label"].notna().any():
        given.append("sub_label")
    for name in given:
        widest = 44 if name == "sub_label" else 24  # a fuzzed input says at its end that it is discontiguous
        add(name, name.replace("_", " "), _reader(name), leading=not alone, widest=widest)
    for name in axes:
        numeric = all(_plain_number(value) is not None for value in frame[name])
        kind = "number" if numeric else "text"
        add(name, clipped(name, 24), _reader(name, numeric=numeric), kind=kind, leading=not alone, widest=24)
    threads = lambda at, record: Cell(units.count(record.num_threads), float(record.num_threads))
    add("num_threads", "threads", threads, kind="number", leading=not alone)
    word = "statement" if alone else "alternative"
    add("description", word, lambda at, record: Cell(alternative_name(comparison, at)), kind="code", widest=32)
    found += columns_view.engine_columns(comparison)
    if len({subject.state for subject in comparison.subjects}) > 1:  # one that all share is in the footer
        add("state", "ran with", lambda at, record: Cell(", ".join(comparison.subjects[at].state)), widest=32)
    return found


def _reader(name: str, *, numeric: bool = False) -> Callable[[int, Any], Cell]:
    def cell(at: int, record: Any) -> Cell:
        value = getattr(record, name)
        if value is None or value is pd.NA or value != value:
            return Cell()
        return Cell(_axis_text(value), _plain_number(value) if numeric else None)

    return cell


def _named(frame: pd.DataFrame) -> list[SimpleNamespace]:
    """Rows whose columns are attributes, a missing verdict is empty; the name of an axis need not be an identifier."""
    return [SimpleNamespace(**record) for record in frame_rows(frame.assign(verdict=frame["verdict"].fillna("")))]


def _axis_text(value: object) -> str:
    """``(64, 64)`` reads as 64 × 64, a shape; everything else as it prints."""
    if isinstance(value, (tuple, list)) and value and all(isinstance(part, int) for part in value):
        return " × ".join(map(str, value))
    return str(value)


def _plain_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    return float(value)


def _times(comparison: Comparison, metric: str) -> list[BuiltColumn]:
    frame = comparison.frame
    header = METRICS[metric] if comparison.clock == "wall" else f"{comparison.clock} {METRICS[metric]}"
    scale = units.smallest_scale(frame[metric])
    times = [comparison.call_times(at) for at in range(len(frame))]
    span, most = span_of(times), min(MOST_VALUES, max(_MOST_SAMPLES // max(len(times), 1), _LEAST_SAMPLES))

    def time(at: int, record: Any) -> Cell:
        spoiled = contaminated(comparison, at)
        value = getattr(record, metric)
        shown = units.number(value, scale, digits=2 if spoiled else 3)
        return Cell(shown, float_or_none(value), "quiet" if spoiled else "")

    def iqr(at: int, record: Any) -> Cell:
        share = record.iqr / record.median if record.median else math.nan
        return Cell(units.percent(share), float_or_none(share))

    def samples(at: int, record: Any) -> Cell:
        return Cell(picture=histogram(times[at], record.median, span, most))

    return [
        BuiltColumn(Column(metric, header, scale.unit, "number"), time),
        BuiltColumn(Column("iqr", "IQR", "%", "number"), iqr),
        BuiltColumn(Column("samples", "samples", span_text(span), "histogram"), samples),
    ]


def _instructions_ratio(at: int, record: Any) -> Cell:
    value = record.instructions_ratio
    if math.isnan(value):
        return Cell()
    shown = "1" if value == 1 else units.number(value, units.Scale(places=3), digits=None)
    return Cell(shown, float(value), "quiet" if value == 1 else "")


# ---- the footer ---------------------------------------------------------------------------------------------


def _footer(comparison: Comparison, more: str) -> Iterable[StyledText]:
    frame = comparison.frame
    if frame["ratio"].notna().any():
        definition = ratio_definition(comparison, _baseline_text(comparison))
        if "unpaired" in set(frame["method"].dropna()):
            definition += columns_view.unpaired_definition(comparison)
        yield (Phrase(definition),)
    if _shows_levers(comparison):
        yield from levers_view.ways(comparison)
        yield (Phrase(levers_view.DEFINITION),)
    if more:
        yield (Phrase(more),)
    if was_compiled(comparison.frame):
        yield (Phrase(compiled_definition(comparison.frame)),)
    if comparison.counts:
        yield (Phrase(view.counts_definition(comparison.counts)),)
    yield (Phrase(" · ".join([*measured(comparison), *columns_view.clauses(comparison)])),)


# ---- lone_statement --------------------------------------------------------------------------------------------------
# A statement timed alone: one line with its time, which unfolds to how it was measured.

_FACT_COLUMNS = (
    Column("fact", "fact"),
    Column("value", "value"),
    Column("picture", "samples", kind="histogram"),
    Column("note", "note", widest=60),
)


def _of_lone_statement(comparison: Comparison) -> Document:
    """``64.3 µs median · IQR 1.6 % · repeats within 63.9 … 65.6 · 1 512 samples, 1 thread``, unfolding to facts."""
    record = comparison.frame.iloc[0]
    median = float(record["median"])
    name = Phrase(clipped(alternative_name(comparison, 0), LONGEST_NAME), "code")
    facts = Table("facts", _FACT_COLUMNS, (Group(tuple(_facts(comparison))),), headless=True)
    counted = ((Phrase(view.counts_definition(comparison.counts)),),) if comparison.counts else ()
    footer = (
        *counted,
        (Phrase("95 % interval: for the median, in this run. Reproducibility: where the median of a rerun would be."),),
        (Phrase(" · ".join(measured(comparison))),),
    )
    sentence: StyledText
    if math.isnan(median):
        sentence = (*levers_view.none_timed(comparison), name, Phrase(": no sample was taken"))
    else:
        spoiled = contaminated(comparison, 0)
        figure = f"~{units.seconds_text(median, digits=2)}" if spoiled else _median_text(comparison, median)
        spread = Phrase(" · ".join(_spread(comparison)), "quiet")
        before = (*levers_view.none_timed(comparison), *nothing_done(comparison))
        sentence = (*before, name, Phrase("  "), Phrase(figure, "figure"), Phrase(" "), spread)
    return Document(
        "timing of one statement",
        sentence,
        (facts,),
        doubt_lines(comparison),
        footer,
        folded=True,
        doubts_where=of_result(".warnings"),
    )


def _median_text(comparison: Comparison, median: float) -> str:
    """Three digits, more where it then seems to lie outside of the interval beside it."""
    detail = comparison.details.iloc[0]
    low, high = float(detail["precision_low"]), float(detail["precision_high"])
    if not median or math.isnan(low) or not math.isnan(detail["reproducibility_low"]) or not low <= median <= high:
        return units.seconds_text(median)
    scale = units.smallest_scale([median])
    ends = units.range_text(low, high, scale)
    if units.reads_within(units.number(median, scale), ends):
        return units.seconds_text(median)
    return f"{units.fixed(median / scale.size, units.decimals_of(ends.partition(' ')[0]) or 0)} {scale.unit}"


def _spread(comparison: Comparison) -> Iterator[str]:
    """What is known of the spread, in the unit of the median."""
    record, detail = comparison.frame.iloc[0], comparison.details.iloc[0]
    threads = int(record["num_threads"])
    in_threads = f"{threads} thread{'' if threads == 1 else 's'}"
    if record["samples"] < 2:
        yield "one sample: spread unknown"
        yield in_threads
        return
    scale = units.smallest_scale([record["median"]])
    yield "median" if comparison.clock == "wall" else f"median, {comparison.clock} time"
    if record["median"]:  # of nothing there is no share
        yield f"IQR {units.percent(record['iqr'] / record['median'])} %"
    if not math.isnan(detail["reproducibility_low"]):
        yield f"repeats within {units.range_text(detail['reproducibility_low'], detail['reproducibility_high'], scale)}"
    else:
        medians = comparison.processes["median"]
        if len(medians):
            ends = units.range_text(float(medians.min()), float(medians.max()), scale)
            yield f"medians of {units.count(len(medians))} processes {ends}"
        else:
            if not math.isnan(detail["precision_low"]):
                ends = units.range_text(detail["precision_low"], detail["precision_high"], scale)
                yield f"95 % interval in this run {ends}"
            yield "one run: reproducibility unknown"
    yield f"{units.count(record['samples'])} samples, {in_threads}"
    if state := comparison.subjects[0].state:
        yield f"ran with {', '.join(state)}"
    yield from clauses(comparison)
    if not math.isnan(record["instructions"]):
        yield f"{units.number(record['instructions'], units.Scale(places=0), digits=None)} instructions per call"


def _facts(comparison: Comparison) -> Iterator[Row]:
    record, detail = comparison.frame.iloc[0], comparison.details.iloc[0]
    median, samples = float(record["median"]), int(record["samples"])
    scale = units.smallest_scale([median])
    times = comparison.call_times(0)
    number = int(record["number_per_run"])
    calls = units.counted(number, "call")
    blocks = f"{units.counted(samples, 'block')} of {calls}"
    spread = f"IQR {units.number(record['iqr'], scale)} {scale.unit}" if samples > 1 else "spread unknown"
    yield _fact("samples", blocks, spread, histogram(times, median, span_of([times])))
    for name, word in (("precision", "95 % interval in this run"), ("reproducibility", "reproducibility")):
        low, high = detail[f"{name}_low"], detail[f"{name}_high"]
        if math.isnan(low):
            yield _fact(word, "not known", "from one run" if name == "reproducibility" else "too few samples")
        else:
            note = "of the median" if name == "precision" else f"medians of {comparison.known_range(0)}"
            yield _fact(word, f"{units.range_text(low, high, scale)} {scale.unit}", note)
    cpu = float(record["cpu_clock_median"])
    if not math.isnan(cpu):
        share = 1 / float(detail["wall_over_cpu"]) if detail["wall_over_cpu"] > 0 else 0.0  # of all blocks, see scaling
        share = min(share, float(comparison.environment.usable_cores or share))
        note = f"{units.number(share, digits=2)} cores busy" if share else "no processor time"
        both = f"{units.number(median, scale)} / {units.number(cpu, scale)} {scale.unit}"
        yield _fact("wall / CPU time", both, note)
    first, warm = float(detail["first_call"]), int(detail["warmup_calls"])
    if not math.isnan(first):
        many = "over 1000" if first > 1000 * median else units.number(first / median, digits=2)
        times_median = f"{many} times the median; " if median else ""
        settled = f"{times_median}settled after {units.counted(warm, 'call')}"
        yield _fact("first call", units.seconds_text(first), settled)
    compiling = comparison.subjects[0].compile_time
    if compiling >= 0:
        took = units.seconds_text(compiling, digits=2)
        yield _fact("compile time", took, "by torch.compile, before the first sample")
    if detail["loop_overhead"] > 0:
        yield _fact("loop overhead", units.seconds_text(float(detail["loop_overhead"]), digits=2), "subtracted")
    if not math.isnan(detail["page_faults"]):
        faults = units.number(float(detail["page_faults"]), units.Scale(places=2), digits=2)
        yield _fact("page faults", f"{'0' if faults == units.ZERO else faults} per call", "")


def _fact(name: str, value: str, note: str, picture: tuple[object, ...] = ()) -> Row:
    return Row((Cell(name, tone="quiet"), Cell(value), Cell(picture=picture), Cell(note, tone="quiet")))


# ---- counts_inline ---------------------------------------------------------------------------------------------------
# The differences of instruction counts that stand under a comparison, one of them shown at a time.

_MOST_INLINE = 40  # differences that can be chosen in the output


def _counts_inline(comparison: Comparison) -> list[Document]:
    """What stands under a comparison: each row's counts against its baseline's, one of them at a time."""
    pairs = comparison.count_pairs
    if not pairs:
        return []
    at_one_place = len({key[1:] for _, key in pairs}) == 1
    made = []
    for base, key in pairs[:_MOST_INLINE]:
        diff = comparison.diff(key, base).standardize()
        where = _reached(comparison, key)
        place = None if at_one_place else _place_of(key)
        name = diff.names[1] if place is None else f"{diff.names[1]}, {place}"
        made.append((name, view.document(diff, where=f"{where}.frame", place=place, alone=False)))
    if len(made) == 1:
        return [made[0][1]]
    first = made[0][1]
    tables = []
    for nth, (name, one) in enumerate(made):
        different = (
            f"{clipped(name, view.LONGEST_NAME)}{f' ({nth + 1})' if name in [other for other, _ in made[:nth]] else ''}"
        )
        tables.append(replace(one.tables[0], name=different, sentence=one.sentence))
    more = len(pairs) - 1
    called = _reached(comparison, pairs[1][1])
    said = f"{units.count(more)} more difference{'s' if more > 1 else ''}: {called}"
    return [replace(first, tables=tuple(tables), rest=f"{said} and so on." if more > 1 else f"{said}.")]


def _reached(comparison: Comparison, key: CountKey) -> str:
    """The expression that gives this difference."""
    if comparison.count_pairs[0][1] == key:
        return of_result(".diff()")
    alone = [known for known in comparison.counts if known[0] == key[0]] == [key] and key[0] is not None
    return of_result(f".diff({clipped(repr(key[0] if alone else key), 4 * view.LONGEST_NAME)})")


def _place_of(key: CountKey) -> str:
    sub_label, threads = key[1:3]
    parts = [clipped(sub_label, 2 * view.LONGEST_NAME)] if sub_label is not None else []
    if threads > 1:
        parts.append(f"{threads} threads")
    if len(key) > 3:
        parts.append(str(key[-1]))
    return ", ".join(parts) or "1 thread"
