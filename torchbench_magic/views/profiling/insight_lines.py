"""Insights as lines that unfold to their evidence and cures, and all of them as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchbench_magic import units
from torchbench_magic.results.insights import Cure, Insight

from ..built_columns import BuiltColumn, built_table, measured_columns, texts
from ..document import Phrase, StyledText, Unfolding, backticked, clipped
from ..table import Table

__all__ = ["MOST_SHOWN", "first_insights", "insights_table", "unfolding"]

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
        texts("cure", "what may help", 120, lambda row: " ".join(_said(row["insight"].cures))),
    )
    rows = [{"insight": each, "seconds": each.seconds or None} for each in insights]
    return built_table("insights", tuple(built), rows, lambda row: _place(row["insight"]))


def _place(insight: Insight) -> str:
    return str(insight.places[0]) if insight.places else "the whole run"


def _said(cures: Iterable[Cure]) -> Iterator[str]:
    for cure in cures:
        yield cure.text.replace("`", "") + (f" {cure.code}" if cure.code else "")
