"""The columns of a comparison: compiling, processes, engines; and what is said beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.cell_body import code_title
from torchbench_magic.process.environment import EnginePlace
from torchbench_magic.result_base import Doubt, most_important_first
from torchbench_magic.show.document import Phrase, StyledText, backticked
from torchbench_magic.show.table import BuiltColumn, Cell, Column, float_or_none

from .comparison import Comparison
from .repeat_warnings import said
from .samples import AXIS
from .scaling import THREADS
from .verdict import CAUSES
from .warnings import BUSY_PRESSURE, row_names, still_valid

# ---- on_engines ------------------------------------------------------------------------------------------------------
# What engines measured, in a comparison: which engine, how loaded its host was, its versions, why it did not.

_VERSIONS = {"torch": "torch", "python": "Python"}


def are_environments(comparison: Comparison) -> bool:
    """Whether engines measured the same, each as an environment of its own."""
    places = [subject.place for subject in comparison.subjects]
    return None not in places and len({subject.env for subject in comparison.subjects}) > 1


def engine_columns(comparison: Comparison) -> list[BuiltColumn]:
    """Columns of what is known of the engines; none where this process measured it all."""
    places = [subject.place for subject in comparison.subjects]
    known = [place for place in places if place is not None]
    if not known:
        return []
    found = []
    if not are_environments(comparison):  # else the column of environments names them
        found.append(_column("engine", "engine", places, lambda place: Cell(place.name)))
    found.append(_column("load", "load", places, _load, kind="number"))
    for name, header in _VERSIONS.items():
        if len({getattr(place.environment, name) for place in known if place.environment is not None}) > 1:
            found.append(_column(name, header, places, _version(name)))
    if any(place.why_not for place in known):
        found.append(_column("why_not", "not measured", places, lambda place: Cell(place.why_not, tone="quiet")))
    return found


def _column(name: str, header: str, places: list[EnginePlace | None], cell: Any, kind: Any = "text") -> BuiltColumn:
    def made(at: int, record: Any) -> Cell:
        place = places[at]
        shown: Cell = Cell() if place is None else cell(place)
        return shown

    return BuiltColumn(Column(name, header, kind=kind, widest=40), made)


def _load(place: EnginePlace) -> Cell:
    load = place.environment.load if place.environment is not None else math.nan
    return Cell() if math.isnan(load) else Cell(f"{load:.1f}", load)


def _version(name: str) -> Any:
    return lambda place: Cell(getattr(place.environment, name) if place.environment is not None else "")


def engines_at_work(comparison: Comparison) -> Iterator[str]:
    """``2 engines of 1 host, one of a host at a time``; nothing where this process measured it."""
    known = [subject.place for subject in comparison.subjects if subject.place is not None]
    places = {(place.host, place.engine) for place in known if not place.why_not}
    hosts = {host for host, _ in places}
    if len(places) == 1:
        ((host, engine),) = places
        yield f"measured on {EnginePlace(engine, host).name}"
    elif places:
        of = f"{len(hosts)} host{'s' if len(hosts) > 1 else ''}"
        yield f"measured on {units.count(len(places))} engines of {of}, one per host at a time"


def unpaired_definition(comparison: Comparison) -> str:
    """Where the ratios of rows of another time or machine come from."""
    if are_environments(comparison):
        return (
            " Engines measure one after the other or on different machines: ratios between them are unpaired and give"
            " no verdict unless the reproducibility of each time is known."
        )
    return " Rows of different runs were measured at different times: their interval allows for machine drift."


# ---- across_processes ------------------------------------------------------------------------------------------------
# What several processes measured, in a comparison: each one's ratio as a dot, and how many there were.

_LEAST_SPAN = math.log(1.02)
"""The least width of the axis, so that dots a thousandth apart do not look far apart."""


def process_dots(comparison: Comparison, *, in_speeds: bool) -> list[BuiltColumn]:
    """A column with a dot for each process at its ratio, on one axis for all rows; none without processes."""
    sign = -1 if in_speeds else 1  # as the column of figures beside it
    rows = range(len(comparison.subjects))
    ratios = {row: [sign * log for log in comparison.ratio_by_process(row).values()] for row in rows}
    logs = [log for of_row in ratios.values() for log in of_row]
    if not logs:
        return []
    low, high = min(logs), max(logs)
    less = max(_LEAST_SPAN - (high - low), 0.0) / 2
    low, high = low - less, high + less

    def dots(at: int, record: Any) -> Cell:
        if not ratios[at]:
            return Cell()
        places = tuple((log - low) / (high - low) for log in sorted(ratios[at]))
        return Cell(picture=(places, -low / (high - low) if low < 0 < high else None))

    unit = units.interval(math.exp(low), math.exp(high))
    return [BuiltColumn(Column("processes", "each process", unit, "dots"), dots)]


def in_how_many(comparison: Comparison) -> StyledText:
    """``, over 6 processes``; ``, in this session`` where the next one may well say otherwise; else empty."""
    decided = {row for row, one in enumerate(comparison.rulings) if one.word in ("faster", "slower")}
    if decided and decided == {*comparison.of_this_kernel}:
        return (Phrase(", in this session"),)
    counts = {len(comparison.ratio_by_process(row)) for row in range(len(comparison.subjects))} - {0}
    if not counts:
        return ()
    low, high = min(counts), max(counts)
    if high == 1:  # nothing is over one
        return ()
    return (Phrase(f", over {high} processes" if low == high else f", each over {low} to {high} processes"),)


# ---- comparison_facts ------------------------------------------------------------------------------------------------
# What can be said of a comparison besides its numbers: names of rows, what spoils a time, how it was measured.

LONGEST_NAME = 60
_SPOILING = frozenset(
    {"busy", "clock", "co-load", "noisy", "oversubscribed", "stalled", "steal", "throttled", "used-up"}
)
"""Doubts that are about the single times; their facts may name the ``rows``, ``threads`` or ``groups``."""


def alternative_name(comparison: Comparison, row: int) -> str:
    """The alternative's name; where it has none its code, of several lines the first."""
    subject = comparison.subjects[row]
    if subject.place is not None and subject.place.why_not and not subject.stmt:
        return "all"
    return subject.description or code_title(subject.stmt) or "statement"


def fixed_text(fixed: Iterable[tuple[str, Any]]) -> str:
    """``2 threads, mode = sum``."""
    words = []
    for name, value in fixed:
        if name == THREADS:
            words.append(f"{value} thread{'' if value == 1 else 's'}")
        elif name in ("env", "label", "sub_label", "device"):
            words.append("no env" if value is None else str(value))
        else:
            words.append(f"{name} {value}" if name in ("input", "run") else f"{name} = {value}")
    return ", ".join(words)


def placed_name(comparison: Comparison, row: int) -> str:
    """The alternative's name, with the result it is from where several stand side by side, or the engine."""
    subject = comparison.subjects[row]
    result = dict(subject.axes).get(AXIS)
    name = alternative_name(comparison, row)
    name = name if result is None else f"{name} in {result}"
    if subject.place is not None and row in comparison.unpaired and _are_envs_compared(comparison):
        return f"{name} on {subject.place.name}"
    return name


def _are_envs_compared(comparison: Comparison) -> bool:
    pairs = ((row, one.baseline) for row, one in comparison.unpaired.items() if one.baseline is not None)
    return any(comparison.subjects[row].env != comparison.subjects[base].env for row, base in pairs)


def nothing_done(comparison: Comparison) -> StyledText:
    """What comes before every answer: that calls had nothing left to do; empty where they had."""
    clauses = said(comparison.subjects)
    more = f" (and {len(clauses) - 1} more below)" if len(clauses) > 1 else ""
    return backticked(f"{clauses[0]}{more}. ") if clauses else ()


def contaminated(comparison: Comparison, row: int) -> bool:
    """Whether something spoiled the single time of this row; ratios of adjacent blocks may hold all the same.

    Such a time is shown with two digits and in quiet ink.
    """
    subject = comparison.subjects[row]
    concerned = {"rows": row, "threads": subject.num_threads, "groups": subject.group}
    return any(
        doubt.kind in _SPOILING
        and all(value in _listed_in(doubt.facts.get(name), value) for name, value in concerned.items())
        for doubt in comparison.warnings
    )


def _listed_in(fact: object, otherwise: int) -> Sequence[int]:
    """What a doubt names, or all: then ``otherwise`` is among it."""
    return fact if isinstance(fact, (list, tuple)) else (otherwise,)


_OF_MACHINE = frozenset({"busy", "co-load", "stalled", "steal"})
"""Doubts with one cause: others had the processor. ``noisy`` beside one of them is what that did."""


def with_one_machine(comparison: Comparison) -> list[Doubt]:
    """The warnings, with one doubt in the place of all those that say that the machine was busy."""
    warnings = list(comparison.warnings)
    of_machine = [doubt for doubt in warnings if doubt.kind in _OF_MACHINE]
    of_machine += [doubt for doubt in warnings if doubt.kind == "noisy"] if of_machine else []
    if len(of_machine) < 2:
        return warnings
    at = warnings.index(of_machine[0])
    rest = [doubt for doubt in warnings if not any(doubt is one for one in of_machine)]
    return [*rest[:at], _busy_machine(comparison, {doubt.kind: doubt for doubt in of_machine}), *rest[at:]]


def _busy_machine(comparison: Comparison, by_kind: Mapping[str, Doubt]) -> Doubt:
    """What, how much, what still stands, what does not."""
    evidence = ", ".join(_evidence(comparison, by_kind))
    is_alone = len(comparison.subjects) == 1
    many = " and can be many times too long" if by_kind.keys() & {"co-load", "stalled"} else ""
    clauses = [f"{'this time is' if is_alone else 'absolute times are'} unreliable{many}"]
    if void := [row for row, one in enumerate(comparison.rulings) if one.cause == "stalled"]:
        clauses.append(f"no verdict on {row_names(comparison, void)}")
    if valid := still_valid(comparison):
        clauses.append(valid[0].lower() + valid[1:].rstrip("."))
    again = CAUSES["stalled"].cure if many else ""
    action = again or ("To choose between alternatives, compare them in one %%timer cell." if is_alone else "")
    about = f" ({evidence})" if evidence else ""
    return Doubt("busy", f"Busy machine{about}: {'; '.join(clauses)}.", action)


def _evidence(comparison: Comparison, by_kind: Mapping[str, Doubt]) -> Iterator[str]:
    facts = {kind: doubt.facts for kind, doubt in by_kind.items()}
    if ext := _number(facts, "co-load", "ext"):
        yield f"other processes used up to {ext:.1f} cores"
    elif "stalled" in facts:
        yield "threads waited for a core"
    if (pressure := _number(facts, "busy", "pressure")) > BUSY_PRESSURE:
        yield f"CPU pressure {100 * pressure:.0f} %"
    if ratio := _number(facts, "busy", "wall_over_cpu"):
        yield f"wall time {ratio:.1f} times CPU time"
    if steal := _number(facts, "steal", "steal"):
        yield f"the hypervisor took {steal:.2f} cores"
    if "noisy" in facts:
        rows = _listed_in(facts["noisy"].get("rows"), 0)
        frame = comparison.frame
        spread = max(frame["iqr"][row] / frame["median"][row] for row in rows)
        yield f"IQR {'' if len(frame) == 1 else 'up to '}{units.percent(spread)} %"


def _number(facts: Mapping[str, Mapping[str, object]], kind: str, name: str) -> float:
    """The fact; 0 where it is not known."""
    value = facts.get(kind, {}).get(name)
    return value if isinstance(value, float) and not math.isnan(value) else 0.0


def doubts_in_order(comparison: Comparison) -> list[Doubt]:
    """As they are shown: the most important first."""
    return most_important_first(with_one_machine(comparison))


def doubt_lines(comparison: Comparison) -> tuple[StyledText, ...]:
    """One line each, all that says that the machine was busy as one; a partial result says so first. What the
    calls left or did not is no doubt of a time: it is one of the `clauses`."""
    in_sentence = tuple(said(comparison.subjects)[:1])  # `nothing_done`: here only what to do about it
    found = [doubt for doubt in doubts_in_order(comparison) if "clause" not in doubt.facts]
    texts = [doubt.action if in_sentence and doubt.text.startswith(in_sentence) else str(doubt) for doubt in found]
    lines = [backticked(text) for text in texts if text]
    if comparison.partial and not any(doubt.kind == "partial" for doubt in comparison.warnings):
        after = "" if math.isnan(comparison.elapsed) else f" after {units.seconds_text(comparison.elapsed)}"
        lines.insert(0, (Phrase(f"Partial: interrupted{after}. What was measured is shown."),))
    return tuple(lines)


def clauses(comparison: Comparison) -> Iterator[str]:
    """Of the objects that the code changed and that nobody put back: their names, and how often; names put back."""
    found = (doubt.facts["clause"] for doubt in comparison.warnings if "clause" in doubt.facts)
    yield from (str(clause).replace("`", "") for clause in found)


def measured(comparison: Comparison) -> Iterator[str]:
    """Threads, device, versions, how long it took: only what the result knows."""
    environment, rows = comparison.environment, int((comparison.frame["samples"] > 0).sum())
    threads = sorted({int(n) for n in comparison.frame["num_threads"]})
    yield f"{units.listed([*map(str, threads)])} of {units.counted(environment.usable_cores, 'thread')}"
    yield environment.footer()
    states = {subject.state for subject in comparison.subjects}
    if len(states) == 1 and (common := states.pop()):
        yield f"ran with {', '.join(common)}"
    yield from engines_at_work(comparison)
    if not math.isnan(comparison.elapsed):
        yield f"{units.counted(rows, 'measurement')} in {units.seconds_text(comparison.elapsed)}"
    if comparison.seed is not None:
        yield f"seed {comparison.seed}"


# ---- compiled_columns ------------------------------------------------------------------------------------------------
# What compiling took, and when it has paid, beside the times of a comparison.


def was_compiled(frame: pd.DataFrame) -> bool:
    return "compile_time" in frame and bool(frame["compile_time"].notna().any())


def calls_text(number: float) -> str:
    """Two digits: what compiling takes differs from one time to the next."""
    return units.count(round(number, 1 - math.floor(math.log10(number))) if number >= 100 else number)


def compiled_columns(frame: pd.DataFrame) -> list[BuiltColumn]:
    """The time that compiling took; where it pays, the number of calls after which it has."""
    scale = units.smallest_scale(frame["compile_time"].dropna())

    def took(at: int, record: Any) -> Cell:
        value = float_or_none(record.compile_time)
        return Cell(units.number(value, scale, digits=2), value) if value is not None else Cell()

    def pays(at: int, record: Any) -> Cell:
        value = float_or_none(record.break_even)
        return Cell(calls_text(value), value) if value is not None else Cell()

    built = [BuiltColumn(Column("compile_time", "compile time", scale.unit, "number"), took)]
    if frame["break_even"].notna().any():
        built.append(BuiltColumn(Column("break_even", "pays off after", "calls", "number"), pays))
    return built


def compiled_definition(frame: pd.DataFrame) -> str:
    """What the columns say."""
    text = "Compile time: torch.compile before the first sample; not included elsewhere.".replace("`", "")
    if frame["break_even"].notna().any():
        text += " Pays off after: compile time / (time of the baseline - its own time)."
    return text
