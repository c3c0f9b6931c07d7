"""A statement timed alone: one line with its time, which unfolds to how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchbench_magic import units
from torchbench_magic.counting import view
from torchbench_magic.show.document import Document, Phrase, StyledText, clipped, of_result
from torchbench_magic.show.drawing import histogram, span_of
from torchbench_magic.show.table import Cell, Column, Group, Row, Table

from . import levers_view
from .columns_view import (
    LONGEST_NAME,
    alternative_name,
    clauses,
    contaminated,
    doubt_lines,
    measured,
    nothing_done,
)
from .comparison import Comparison

_COLUMNS = (
    Column("fact", "fact"),
    Column("value", "value"),
    Column("picture", "samples", kind="histogram"),
    Column("note", "note", widest=60),
)


def document(comparison: Comparison) -> Document:
    """``64.3 µs median · IQR 1.6 % · repeats within 63.9 … 65.6 · 1 512 samples, 1 thread``, unfolding to facts."""
    record = comparison.frame.iloc[0]
    median = float(record["median"])
    name = Phrase(clipped(alternative_name(comparison, 0), LONGEST_NAME), "code")
    facts = Table("facts", _COLUMNS, (Group(tuple(_facts(comparison))),), headless=True)
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
