"""How counts look: the difference as a table, callers and callees, the flame graph, the steps of a reader."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.errors import InputError
from torchbench_magic.show.document import Document, Phrase, StyledText, clipped
from torchbench_magic.show.flame import FlameGraph, Measure
from torchbench_magic.show.json_output import finite_number, plain_value, rows_of
from torchbench_magic.show.table import Cell, Column, Group, Row, Table, Tone, float_or_none, frame_rows

from .counts import GROUPS, CountKey, Counts, Frame
from .diff import CountsDiff

# ---- counts ----------------------------------------------------------------------------------------------------------
# The difference of two instruction counts as a document: how many more, and in which functions.

_ROWS = 12  # of a group
_LEAST_SHARE = 0.001  # of the larger total: what changes by less is counted, not listed
LONGEST_NAME = 40
_WHOLE = units.Scale(places=0)


def document(
    diff: CountsDiff,
    *,
    where: str = ".frame",
    place: str | None = None,
    rows: int = _ROWS,
    least: float = _LEAST_SHARE,
    detail: Callable[[str], Table | None] | None = None,
    alone: bool = True,
) -> Document:
    """The difference, ready for any carrier.

    Args:
        where: how its frame is reached.
        place: which of several inputs it is at.
        rows: the most of one group.
        least: what changes by less than this share of the total is counted, not listed; 0 lists equal ones too.
        detail: function -> what opens under its row.
        alone: it does not stand under a comparison, which says what holds for all counts.
    """
    return Document(
        kind="difference of instruction counts",
        sentence=_sentence(diff, place),
        tables=(_table(diff, where, rows, least, detail),),
        footer=tuple(footer(diff, alone)),
        where=where,
    )


def _sentence(diff: CountsDiff, place: str | None) -> StyledText:
    base, other = (clipped(name, LONGEST_NAME) for name in diff.names)
    at = f" at {place}" if place is not None else ""
    if diff.inclusive or diff.whole is None:
        return Phrase(other, "subject"), Phrase(
            f" against {base}{at}: instructions of each function and those it calls"
        )
    total = diff.whole
    if total.noise >= abs(total.delta) or abs(total.delta) < 0.5:
        by = exact_text(total.noise)
        moved = "" if math.isnan(total.noise) else f"; shifted memory layouts alone change it by {by}"
        same = "as many instructions" if abs(total.delta) < 0.5 else "about as many instructions"
        difference = "" if abs(total.delta) < 0.5 else f" ({signed_text(total.delta)} per call, within noise{moved})"
        return Phrase(other, "subject"), Phrase(f" runs {same} as {base}{at}{difference}")
    word = "more" if total.delta > 0 else "fewer"
    share = f" ({_change(total.baseline, total.count)} %)" if total.baseline > 0 and total.count > 0 else ""
    said = (
        Phrase(f"{exact_text(abs(total.delta))} {word} instructions", "strong"),
        Phrase(f" per call than {base}{at}{share}"),
    )
    return Phrase(other, "subject"), Phrase(" runs "), *said


# ---- the table ----------------------------------------------------------------------------------------------


def _table(
    diff: CountsDiff, where: str, most: int, least: float, detail: Callable[[str], Table | None] | None
) -> Table:
    base, other = (clipped(name, 16) for name in diff.names)
    columns: tuple[Column, ...] = (
        Column("function", "function", kind="code", widest=52),
        Column("baseline_count", base, "per call", "number"),
        Column("count", other, "per call", "number"),
        Column("delta", "difference", "per call", "number"),
        Column("bar", "fewer or more", kind="change", legend=(("faster", "fewer"), ("slower", "more"))),
        Column("change", "change", "%", "number"),
        Column("noise", "noise", "per call", "number"),
    )
    frame = diff.frame.assign(text=diff.functions)
    largest = float(frame["delta"].abs().max()) if len(frame) else 0.0
    whole = max(float(frame["baseline_count"].sum()), float(frame["count"].sum()), 1.0)
    smallest = max(least * whole, 0.5) if least else 0.0
    groups = []
    for name in GROUPS:
        of = frame[frame["group"] == name]
        if of.empty:
            continue
        listed = of[of["delta"].abs() >= smallest].head(most)
        rows = [_function_row(record, largest, detail) for record in frame_rows(listed)]
        rows += _left(of, len(listed), diff.names)
        sums = _sums(of) if not diff.inclusive else tuple(Cell() for _ in columns)
        groups.append(Group(tuple(rows), name, _note(of, diff), sums))
    differ = int((frame["delta"].abs() >= 0.5).sum())
    every, changed = (units.count(number) if number else "none" for number in (len(frame), differ))
    counted = f"{every} function{'' if len(frame) == 1 else 's'}, {changed} differ{'s' if differ == 1 else ''}"
    totals = () if diff.inclusive or frame.empty else tuple(_totals(frame, diff))
    if not diff.layouts or not (frame["noise"] > 0).any():  # nothing is known of noise, or the footer says it all
        columns, totals = columns[:-1], tuple(map(_without_last, totals))
        groups = [replace(g, rows=tuple(map(_without_last, g.rows)), sums=g.sums[:-1]) for g in groups]
    return Table(
        "instructions",
        columns,
        tuple(groups),
        totals=totals,
        hidden=f"{counted}. All rows: {where}",
        sorted_by="delta",
        aligned=True,
    )


def _without_last(row: Row) -> Row:
    return replace(row, cells=row.cells[:-1])


def _note(of: pd.DataFrame, diff: CountsDiff) -> str:
    """What the layout of memory alone moves a group by is no finding."""
    delta, noise = abs(float(of["delta"].sum())), float(of["noise"].sum())
    return "within noise" if diff.layouts and not diff.inclusive and 0.5 <= delta <= noise * (1 + 1e-9) else ""


def _left(of: pd.DataFrame, listed: int, names: tuple[str, str]) -> Iterator[Row]:
    """How many of a group are not listed."""
    rest = of.iloc[listed:]
    if rest.empty:
        return
    base, other = (clipped(name, 16) for name in names)
    differ = rest[rest["delta"].abs() >= 0.5]
    equal, largest = len(rest) - len(differ), float(rest["delta"].abs().max())
    said = []
    if len(differ):
        said.append(f"{units.count(len(differ))} more, which differ by at most {exact_text(largest)}")
    if equal:
        said.append(f"{units.count(equal)} {'' if said else 'more, '}equal in {base} and {other}")
    yield Row((Cell(", ".join(said), tone="quiet"), *(Cell() for _ in range(6))))


def _function_row(record: dict[str, Any], largest: float, detail: Callable[[str], Table | None] | None = None) -> Row:
    base, count, delta, noise = (float(record[name]) for name in ("baseline_count", "count", "delta", "noise"))
    text = str(record["text"])
    cells = (
        Cell(str(record["function"])),
        *_numbers(base, count, delta),
        Cell(picture=(delta / largest,) if largest and delta else (0.0,)),
        Cell(_change(base, count), (count - base) / base if base > 0 else None, "quiet"),
        Cell("" if math.isnan(noise) else exact_text(noise), float_or_none(noise), "quiet"),
    )
    return Row(cells, key=text, detail=None if detail is None else detail(text))


def _sums(of: pd.DataFrame, name: str = "", noise: str = "", tone: Tone = "") -> tuple[Cell, ...]:
    base, count, delta = (float(of[column].sum()) for column in ("baseline_count", "count", "delta"))
    numbers = _numbers(base, count, delta, tone)
    change = Cell(_change(base, count), None, tone)
    return Cell(name, tone=tone), *numbers, Cell(picture=(0.0,)), change, Cell(noise, None, "quiet")


def _numbers(base: float, count: float, delta: float, tone: Tone = "") -> tuple[Cell, ...]:
    both = (Cell(exact_text(value), value, tone) for value in (base, count))
    return *both, Cell(signed_text(delta), delta, tone)


def _totals(frame: pd.DataFrame, diff: CountsDiff) -> Iterator[Row]:
    """All that is listed and counted, with and without the allocator and the lookup of names."""
    known = frame[frame["group"] != "allocator and lookup"]
    whole = diff.whole.noise if diff.whole is not None and not diff.applied[1:] else math.nan
    noise = "" if math.isnan(whole) or diff.applied not in ((), ("standardize",)) else exact_text(whole)
    yield Row(_sums(frame, "total", noise, "strong"))
    if 0 < len(known) < len(frame):
        yield Row(_sums(known, "total without allocator and lookup", "", "quiet"))


def exact_text(value: float) -> str:
    """A count per call, to the whole instruction; what is there but rounds to nothing is ``<1``."""
    if value == 0:
        return units.ZERO
    if abs(value) < 0.5:
        return "<1"
    return units.number(value, _WHOLE, digits=None)


def signed_text(value: float) -> str:
    return exact_text(value) if abs(value) < 0.5 else units.number(value, _WHOLE, digits=None, signed=True)


def _change(base: float, count: float) -> str:
    if abs(count - base) < 0.5:
        return ""
    if base <= 0:
        return "new"
    if count <= 0:
        return "gone"
    share = 100 * (count - base) / base
    return "<1" if abs(share) < 0.5 else units.number(share, _WHOLE, digits=None, signed=True)


# ---- the footer ---------------------------------------------------------------------------------------------


def counts_definition(counts: Counts) -> str:
    """What the instructions beside the times are of."""
    number = next(iter(counts.counted.values())).stats.number_per_run
    threads = sorted({key[2] for key in counts})
    at = "1 thread" if threads == [1] else "the row's thread count, the sum over threads, ±0.01 %"
    form = ", in torch's module form" if counts.form == "module" else ""
    calls = units.counted(number, "call")
    has_symbols = all(one.stats.built_with_debug_symbols for one in counts.counted.values())
    bare = "" if has_symbols else " PyTorch was built without debug symbols: its functions have no source files."
    return (
        f"Instructions per call, from {calls} at {at}{form}, without the empty loop;"
        f" counted by valgrind in {units.seconds_text(counts.elapsed, digits=2)}.{bare}"
    )


def footer(diff: CountsDiff, alone: bool = True) -> Iterator[StyledText]:
    """How it was counted."""
    if diff.whole is not None and diff.layouts:
        moved = diff.whole.noise
        layouts = units.counted(diff.layouts, "shifted memory layout")
        by = f"changed the total by at most {exact_text(moved)}" if moved else "did not change the total"
        yield (Phrase(f"Noise: {layouts} {by}."),)
    if diff.applied:
        yield (Phrase(f"Applied: {'; '.join(diff.applied)}."),)
    if alone and not diff.debug_symbols:
        yield (
            Phrase(
                "This torch has no debug symbols: its functions have no file, and inlined ones count for their callers."
            ),
        )
    kind = "counts include what a function calls" if diff.inclusive else "self counts"
    threads = "1 thread" if diff.num_threads == 1 else f"{diff.num_threads} threads, their sum, ±0.01 %"
    form = "the form that is timed" if diff.form == "function" else "module form, as torch counts"
    calls = f"{units.counted(diff.number, 'call')} each"
    parts = (calls, "without the empty loop", kind, threads, form, "valgrind runs no AVX-512 kernels")
    yield (Phrase(" · ".join(parts)),)


# ---- counts_as_json --------------------------------------------------------------------------------------------------
# What the difference of two counts adds to the envelope of every result's JSON.

_MOST_ROWS = 20
_FUNCTION = ("function", "file", "library", "baseline_count", "count", "delta", "noise", "group")


def facts(diff: CountsDiff) -> dict[str, Any]:
    """Instructions per call, the empty loop taken out."""
    whole = diff.whole
    return {
        "names": [plain_value(name, 100) for name in diff.names],
        "calls": diff.number,
        "threads": diff.num_threads,
        "inclusive": diff.inclusive,
        "changes_made": [plain_value(each, 100) for each in diff.applied],
        "whole": None
        if whole is None
        else {name: finite_number(getattr(whole, name)) for name in ("baseline", "count", "delta", "noise")},
        "functions": rows_of(diff.frame, _FUNCTION, _MOST_ROWS),
        "repeat": None,
    }


# ---- callers_and_callees ---------------------------------------------------------------------------------------------

_MOST = 12  # of each


def neighbours_table(diff: CountsDiff, function: str) -> Table:
    """Who called ``function`` and what it called, in both statements.

    Args:
        diff: a difference whose calls are known.
        function: the whole text of one of its rows.
    """
    base, other = (clipped(name, 16) for name in diff.names)
    columns = (
        Column("function", "function", kind="code", widest=44),
        Column("baseline_calls", "calls", base, "number"),
        Column("calls", "calls", other, "number"),
        Column("baseline_count", base, "instructions", "number"),
        Column("count", other, "instructions", "number"),
        Column("delta", "difference", "instructions", "number"),
    )
    groups, hidden = [], []
    for title, frame in (("called by", diff.callers(function)), ("calls", diff.callees(function))):
        if frame.empty:
            continue
        groups.append(Group(tuple(_caller_row(record) for record in frame_rows(frame.head(_MOST))), title))
        if len(frame) > _MOST:
            verb = "callers" if title == "called by" else "callees"
            hidden.append(f"{units.count(len(frame) - _MOST)} more: .{verb}({clipped(repr(function), 60)})")
    if any(row.cells[at].text == units.NOT_MEASURED for group in groups for row in group.rows for at in (1, 2)):
        hidden.append(f"{units.NOT_MEASURED}: how often is not known")
    said = "; ".join(hidden) if groups else "no calls to it or from it were counted"
    return Table("callers and callees", columns, tuple(groups), hidden=said)


def _caller_row(record: dict[str, float]) -> Row:
    numbers = ("baseline_calls", "calls", "baseline_count", "count")
    cells = [Cell(exact_text(float(record[name])), float(record[name])) for name in numbers]
    for at in (0, 1):  # how often a function was called is not always known
        if record[numbers[at]] == 0 and record[numbers[at + 2]] != 0:
            cells[at] = Cell(units.NOT_MEASURED)
    change = Cell(signed_text(float(record["delta"])), float(record["delta"]))
    return Row((Cell(str(record["function"])), *cells, change))


# ---- call_flame ------------------------------------------------------------------------------------------------------

_KINDS = {"torch": "torch", "Python": "python", "allocator and lookup": "memory", "other": "other"}
_NOTE = (
    "Instructions per call, without the empty loop. callgrind records calls, not whole stacks: what a"
    " function costs is shared among its callers in proportion to what each paid for calling it, and functions that"
    " call each other are one frame. Functions below 0.05 % are merged into their caller."
)


def flamegraph(counts: Counts, key: CountKey | str | None = None, *, held: str = "") -> FlameGraph:
    """The flame graph of one count; errors as of ``Counts.tree``. ``held``: the attribute that the counts are."""
    if key is None and len(counts) == 1:
        (key,) = counts
    tree = counts.tree(key)
    where = "" if key is None else f"{held}.graph({key!r}).frame"
    return _drawn(tree, where)


def of_diff(diff: CountsDiff) -> FlameGraph:
    """The flame graph of the alternative of a difference, whole: what was filtered stays in it."""
    if diff.source is not None and diff.keys is not None:
        return flamegraph(diff.source, diff.keys[1], held=".source")
    if diff.sides is None:
        return flamegraph(Counts())
    return flamegraph(Counts({(diff.names[1], None, diff.num_threads): diff.sides[1]}))


def _drawn(tree: Frame, where: str) -> FlameGraph:
    parents, frames = [], []
    for parent, frame in _flat(tree):
        parents.append(parent)
        frames.append(frame)
    measure = Measure(
        "instructions",
        np.array([frame.total for frame in frames]),
        np.array([frame.own for frame in frames]),
        units.Scale(places=0),
    )
    calls = Measure("calls", np.array([frame.calls for frame in frames]), None, units.Scale(places=1))
    count = units.number(tree.total, units.Scale(places=0), digits=None)
    return FlameGraph(
        f"{tree.name} executes {count} instructions per call",
        np.array(parents, dtype=np.int64),
        [frame.name for frame in frames],
        [_KINDS.get(frame.group, "other") for frame in frames],
        (measure,),
        facts=(calls,),
        notes={at: [text for text in (frame.file, frame.library) if text] for at, frame in enumerate(frames)},
        note=_NOTE,
        where=where,
    )


def _flat(tree: Frame) -> Iterator[tuple[int, Frame]]:
    """(position of the parent, frame), parents first."""
    waiting, made = [(-1, tree)], 0
    while waiting:
        parent, frame = waiting.pop()
        yield parent, frame
        at, made = made, made + 1
        waiting += [(at, child) for child in reversed(frame.children)]


# ---- exploration -----------------------------------------------------------------------------------------------------
# The steps a reader applies to a difference of counts (filter, denoise, ...); each can be undone by itself.

StepKind = Literal["standardize", "denoise", "transform", "filter"]

_LONGEST = 40


@dataclass(frozen=True)
class Step:
    """One change. ``pattern`` and ``to`` are a regular expression and its replacement, where the kind has them."""

    kind: StepKind
    pattern: str = ""
    to: str = ""

    @property
    def words(self) -> str:
        """What its chip says."""
        if self.kind == "transform":
            return f"{clipped(self.pattern, _LONGEST)} to {clipped(self.to, _LONGEST) or 'nothing'}"
        return f"only {clipped(self.pattern, _LONGEST)}" if self.kind == "filter" else self.kind

    def applied(self, diff: CountsDiff) -> CountsDiff:
        """The difference after this step.

        Raises:
            InputError: the pattern is none.
        """
        if self.kind == "standardize":
            return diff.standardize()
        if self.kind == "denoise":
            return diff.denoise()
        if self.kind == "filter":
            known = _compiled(self.pattern, re.IGNORECASE)
            return diff.filter(lambda name: known.search(name) is not None)
        names = list(dict.fromkeys(diff.functions))
        new = dict(zip(names, replaced(self.pattern, self.to, names), strict=True))
        return diff.transform(lambda name: new[name])


def after(diff: CountsDiff, steps: Iterable[Step]) -> CountsDiff:
    """The difference after all steps, in order; errors as of `Step.applied`."""
    for step in steps:
        diff = step.applied(diff)
    return diff


def replaced(pattern: str, to: str, texts: Sequence[str]) -> list[str]:
    r"""The texts with ``to`` in place of what the pattern matches; ``\1`` is its first group, as in ``re.sub``.

    Raises:
        InputError: it is no pattern, or ``to`` names a group that is not there.
    """
    known = _compiled(pattern)
    try:
        return [known.sub(to, text) for text in texts]
    except (re.error, IndexError) as error:
        raise InputError(f"not a usable replacement: {error}") from None


def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"not a usable pattern: {error}") from None
