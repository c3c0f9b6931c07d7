"""Levers that were tried, as a sentence and as columns: which makes the cell faster with the same result, which not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from torchbench_magic import units
from torchbench_magic.show.document import Phrase, StyledText, backticked, code
from torchbench_magic.show.table import BuiltColumn, Cell, Column, frame_rows

from . import verdict_words
from .columns_view import calls_text
from .comparison import Comparison
from .samples import AS_IT_IS, Trial, are_tried

DEFINITION = (
    "Each lever is an alternative; the cell is unchanged. Results are compared by"
    " torch.testing.assert_close, with the same initial state and random numbers."
)
_MOST_NAMED = 4


class _Tried(SimpleNamespace):
    """One lever: ``row name trial judged break_even verdict is_sure``."""

    @property
    def is_recommended(self) -> bool:
        return bool(self.verdict == "faster" and self.trial.is_same and self.is_sure)


def recommended(comparison: Comparison) -> list[str]:
    """Names of the levers that make it faster with the same result, the fastest first."""
    return [each.name for each in _recommended(comparison)]


def levers_recommended(comparison: Comparison) -> dict[int, bool]:
    """Row -> whether that lever makes it faster with the same result; empty where ratios are not to the cell as it is
    of the same run."""
    if comparison.axes or comparison.baseline not in (None, AS_IT_IS):
        return {}
    return {each.row: each.is_recommended for each in _tried(comparison) if each.name != AS_IT_IS}


def none_timed(comparison: Comparison) -> StyledText:
    """What comes before the time of the cell as it is where no lever was timed beside it, with the first reason;
    empty for a statement that nothing was tried on."""
    if not are_tried(comparison.subjects):
        return ()
    reasons: dict[str, str] = {}
    for doubt in comparison.warnings:
        if doubt.kind == "lever":
            held = doubt.facts.get("reasons")
            named = held if isinstance(held, Mapping) else {doubt.facts.get("name"): doubt.facts.get("reason")}
            reasons.update({str(name): str(why) for name, why in named.items()})
    if not reasons:
        return (Phrase("no lever was timed. "),)
    name, why = next(iter(reasons.items()))
    more = len(reasons) - 1
    others = f" (and {more} more lever{'' if more == 1 else 's'}, see below)" if more else ""
    return code(name), Phrase(" was not timed: "), *backticked(why), Phrase(f"{others}. ")


def _recommended(comparison: Comparison) -> list[_Tried]:
    return sorted(
        (each for each in _tried(comparison) if each.is_recommended), key=lambda each: float(each.judged.ratio)
    )


def trial_sentence(comparison: Comparison) -> StyledText:
    """``compile makes it 2.3 times as fast (2.2 … 2.4) with the same result; it pays off after 3 100 calls. bf16: no
    faster.`` A lever whose result differs is never among those that make it faster."""
    tried = _tried(comparison)
    if not tried:
        return (Phrase("no lever could be timed"),)
    best = _recommended(comparison)
    said: list[Phrase] = []
    for nth, each in enumerate(best[:_MOST_NAMED]):
        said += [Phrase("; "), code(each.name)] if nth else [Phrase(each.name, "subject")]
        said += _gain(each, is_first=not nth)
    if len(best) > _MOST_NAMED:
        said.append(Phrase(f"; {len(best) - _MOST_NAMED} more below"))
    decided = [each for each in tried if each.verdict in ("faster", "same", "slower")]
    if not best and len(decided) == len(tried):
        said.append(Phrase("no lever makes it faster with the same result"))
    elif not best and decided:
        said.append(Phrase("no lever with a verdict makes it faster with the same result"))
    for words, names in _others(tried):
        said += [*([Phrase(". ")] if said else []), *_listed(names), Phrase(words)]
    return tuple(said)


def _gain(each: _Tried, *, is_first: bool) -> Iterator[Phrase]:
    times = verdict_words.speed_text(each.judged)
    is_other = bool(each.trial.differs_in)
    yield Phrase(f" makes it {times} with {_same(each.trial)}" if is_first or is_other else f" {times}")
    if math.isfinite(each.break_even):
        pays = f"pays off after {_calls(each.break_even)}"
        yield Phrase(f"; it {pays}" if is_first else f" ({pays})")


def _calls(number: float) -> str:
    return f"{calls_text(number)} call{'' if number == 1 else 's'}"


def _others(tried: Sequence[_Tried]) -> Iterator[tuple[str, list[str]]]:
    """(what is said, of which levers), for those that are not recommended."""
    faster = [each for each in tried if each.verdict == "faster" and not each.is_recommended]
    for each in faster:
        times = verdict_words.speed_text(each.judged)
        if each.trial.result == "differs":
            yield f" is {times}, but its result differs{_how_far(each.trial)}", [each.name]
        elif not each.trial.result:
            yield f" is {times}; results were not compared", [each.name]
        else:
            yield f" is {times} in this session, too little to count on in another", [each.name]
    nothing = [each.name for each in tried if each.verdict in ("same", "slower")]
    if nothing:
        yield ": no faster", nothing
    reasons: dict[str, list[str]] = {}
    for each in tried:
        if each.verdict not in ("faster", "same", "slower"):
            why = f": {each.judged.why}" if each.judged.why else ""
            reasons.setdefault(f": undecided{why}", []).append(each.name)
    yield from reasons.items()


def _how_far(trial: Trial) -> str:
    """What is of another kind, or the largest difference, where there is one."""
    if trial.differs_in:
        return f" ({trial.differs_in})"
    largest = trial.max_difference
    return f" (by up to {units.number(largest, digits=2)})" if math.isfinite(largest) and largest > 0 else ""


def _same(trial: Trial) -> str:
    return f"a close result ({trial.differs_in})" if trial.differs_in else "the same result"


def _listed(names: Sequence[str]) -> list[Phrase]:
    said = [code(names[0])]
    for name in names[1:]:
        said += [Phrase(", "), code(name)]
    return said


def _tried(comparison: Comparison) -> list[_Tried]:
    found = []
    for at, record in enumerate(frame_rows(comparison.frame)):
        trial = comparison.subjects[at].trial
        if at == comparison.base_row(at) or trial is None:
            continue
        verdict = record["verdict"] if isinstance(record["verdict"], str) else ""
        ends = (record["ratio"], record["ratio_low"], record["ratio_high"])
        judged = verdict_words.SaidRow(str(record["description"]), *ends, verdict, comparison.rulings[at].told.said)
        is_sure = at not in comparison.of_this_kernel
        found.append(
            _Tried(row=at, name=judged.name, trial=trial, judged=judged, break_even=record["break_even"],
                   verdict=verdict, is_sure=is_sure)
        )  # fmt: skip
    return found


# ---- the table ------------------------------------------------------------------------------------------------


def trial_columns(comparison: Comparison) -> Iterator[BuiltColumn]:
    def result(at: int, record: Any) -> Cell:
        trial = comparison.subjects[at].trial
        if trial is not None and trial.result == "differs" and trial.differs_in.startswith("dtype"):
            return Cell("other dtype", None, _tone(record.result))
        is_known = isinstance(record.result, str) and bool(record.result)
        unknown = "" if at == comparison.base_row(at) else "not compared"
        return Cell(record.result if is_known else unknown, None, _tone(record.result))

    def difference(at: int, record: Any) -> Cell:
        value = record.max_difference
        shown = "" if math.isnan(value) else "0" if value == 0 else _scientific(value)
        return Cell(shown, None if math.isnan(value) else float(value), "quiet" if value == 0 else "")

    yield BuiltColumn(Column("result", "result"), result)
    yield BuiltColumn(Column("max_difference", "largest", "difference", "number"), difference)


def _tone(result: object) -> Any:
    return "slower" if result == "differs" else "quiet"


def _scientific(value: float) -> str:
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+") if value < 0.001 else units.number(value, digits=2)


def ways(comparison: Comparison) -> Iterable[StyledText]:
    """How to have each lever that is recommended, and what was changed before the clock for others."""
    for each in _recommended(comparison):
        yield _way(each.name, each.trial)


def _way(name: str, trial: Trial) -> StyledText:
    changed = () if not trial.changed else (Phrase("; "), *backticked(trial.changed))
    return (code(name), Phrase(": "), code(trial.how), *changed, Phrase("."))
