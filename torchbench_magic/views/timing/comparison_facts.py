"""What can be said of a comparison besides its numbers: names of rows, what spoils a time, how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from torchbench_magic import units
from torchbench_magic.results.cell_text import code_title
from torchbench_magic.results.doubts import Doubt, most_important_first
from torchbench_magic.results.timing.across_runs.side_by_side import AXIS
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.ratio_doubts import row_names, still_valid
from torchbench_magic.results.timing.timing_doubts import BUSY_PRESSURE
from torchbench_magic.results.timing.used_up import said

from ..document import Phrase, StyledText, backticked
from .on_engines import engines_at_work

__all__ = [
    "LONGEST_NAME",
    "alternative_name",
    "contaminated",
    "doubt_lines",
    "doubts_in_order",
    "measured",
    "nothing_done",
    "placed_name",
    "with_one_machine",
]

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
    if void := [row for row, one in comparison.voids.items() if one.cause == "stalled"]:
        clauses.append(f"no verdict on {row_names(comparison, void)}")
    if valid := still_valid(comparison):
        clauses.append(valid[0].lower() + valid[1:].rstrip("."))
    again = "Measure again on a quiet machine, or at one thread (`-t 1`)." if many else ""
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
    """One line each, all that says that the machine was busy as one; a partial result says so first."""
    lines = [backticked(str(doubt)) for doubt in doubts_in_order(comparison)]
    if comparison.partial and not any(doubt.kind == "partial" for doubt in comparison.warnings):
        after = "" if math.isnan(comparison.elapsed) else f" after {units.seconds_text(comparison.elapsed)}"
        lines.insert(0, (Phrase(f"Partial: interrupted{after}. What was measured is shown."),))
    return tuple(lines)


def measured(comparison: Comparison) -> Iterator[str]:
    """Threads, device, versions, how long it took: only what the result knows."""
    environment, rows = comparison.environment, int((comparison.frame["samples"] > 0).sum())
    threads = sorted({int(n) for n in comparison.frame["num_threads"]})
    yield f"{_listed(threads)} of {_counted(environment.usable_cores, 'thread')}"
    yield environment.footer()
    states = {subject.state for subject in comparison.subjects}
    if len(states) == 1 and (common := states.pop()):
        yield f"ran with {', '.join(common)}"
    yield from engines_at_work(comparison)
    if not math.isnan(comparison.elapsed):
        yield f"{_counted(rows, 'measurement')} in {units.seconds_text(comparison.elapsed)}"
    if comparison.seed is not None:
        yield f"seed {comparison.seed}"


def _counted(number: int, word: str) -> str:
    return f"{units.count(number)} {word}{'' if number == 1 else 's'}"


def _listed(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
