"""Several comparisons as one: the points of a sweep, or what was measured before an interrupt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from torchbench_magic.errors import InputError

from ..counting.counts import Counts
from ..doubts import Doubt
from .comparison import Comparison
from .counted_rows import key_of_row
from .subject import Subject
from .timing_doubts import doubts_of

__all__ = ["distinct", "join_comparisons", "take"]


def join_comparisons(parts: Sequence[Comparison]) -> Comparison:
    """Put comparisons of one request one after the other; ratios stay within the groups that were sampled together.

    Raises:
        InputError: nothing to join, or parts that were asked for with another baseline, margin or clock.
    """
    if not parts:
        raise InputError("nothing to join: give at least one comparison")
    first = parts[0]
    if len(parts) == 1:
        return first
    for name in ("baseline", "margin", "clock"):
        if len({getattr(part, name) for part in parts}) > 1:
            raise InputError(f"results with another {name} cannot be joined: measure them with one, or rebase them")
    subjects: list[Subject] = []
    frames, groups = [], 0
    for part in parts:
        frames.append(part.samples.assign(measurement=part.samples["measurement"] + len(subjects)))
        subjects += [replace(s, group=s.group + groups) for s in part.subjects]
        groups = 1 + max((s.group for s in subjects), default=-1)
    return replace(
        first,
        subjects=tuple(subjects),
        samples=pd.concat(frames, ignore_index=True),
        warnings=distinct(doubt for part in parts for doubt in part.warnings),
        elapsed=sum(part.elapsed for part in parts),
        partial=any(part.partial for part in parts),
        counts=Counts.joined(part.counts for part in parts),
        family=max(part.family for part in parts),
        unpaired={},
        history={},
        sources={key: text for part in parts for key, text in part.sources.items()},
    )


def take(whole: Comparison, rows: Sequence[int]) -> Comparison:
    """Some rows of a comparison, in the order given, with their samples and the doubts that concern them.

    Rows of one group stay comparable side by side; how rows compared with those of another time is dropped.
    """
    place = {row: at for at, row in enumerate(rows)}
    counted = [key_of_row(whole.counts, whole.subjects[row]) for row in rows]
    kept = whole.samples[whole.samples["measurement"].isin(place)]
    made = replace(
        whole,
        subjects=tuple(whole.subjects[row] for row in rows),
        samples=kept.assign(measurement=kept["measurement"].map(place)),
        warnings=[doubt for doubt in whole.warnings if "rows" not in doubt.facts],
        counts=whole.counts.only(counted),
        unpaired={},
        history={place[row]: known for row, known in whole.history.items() if row in place},
    )
    return replace(made, warnings=distinct([*made.warnings, *doubts_of(made)])) if rows else made


def distinct(doubts: Iterable[Doubt]) -> list[Doubt]:
    """One doubt of each kind about each thing; the points of a sweep would say the same many times."""
    kept: dict[tuple[object, ...], Doubt] = {}
    for doubt in doubts:
        about = doubt.facts.get("name") or tuple(sorted(doubt.facts.get("changes", ())))  # type: ignore[call-overload]
        kept.setdefault((doubt.kind, about, doubt.facts.get("function")), doubt)
    return list(kept.values())
