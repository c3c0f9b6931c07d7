"""Steps that took much longer than the others, and what they did in that time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from .modes import EVALUATION
from .phases import phases_of, step_seconds

__all__ = ["Outlier", "long_first_step", "outliers_of"]

TIMES = 2.0
"""Times the median: what takes twice as long as usual did something else, or was held up; a garbage collection or the
system's own work takes milliseconds, and lengthens short steps only."""
LEAST = 1e-3  # seconds more than the median
FIRST_TIMES = 10.0
"""The same of the first step, which does what is done once: it makes states and workspaces."""
FEWEST = 5  # steps: of fewer there is no usual one
_MOST = 0.5  # of what the step took more: from which on it is said what it was


@dataclass(frozen=True)
class Outlier:
    """A step that took long.

    Attributes:
        seconds: of the step; ``times``: of the median.
        phase, source_id, line: what has most of the time that it took more than usual, a phase or `EVALUATION`; empty
            and None where nothing has half of it.
        share: of the step, that this took; at least so much where ``is_least``: looks at the stack fell on no line.
    """

    step: int
    seconds: float
    times: float
    phase: str = ""
    source_id: str | None = None
    line: int | None = None
    share: float = 0.0
    is_least: bool = False


def outliers_of(parts: pd.DataFrame, most: int = 3) -> tuple[Outlier, ...]:
    """At most so many, the longest first; the first step, which does what is done once, is none."""
    seconds = step_seconds(phases_of(parts))
    if len(seconds) < FEWEST:
        return ()
    median, long = float(seconds.median()), seconds.iloc[1:]
    return _told(parts, median, long[(long > TIMES * median) & (long > median + LEAST)].nlargest(most))


def long_first_step(parts: pd.DataFrame) -> Outlier | None:
    """The first step, where it took much longer than what is done once usually does."""
    seconds = step_seconds(phases_of(parts))
    if len(seconds) < FEWEST:
        return None
    median, first = float(seconds.median()), seconds.iloc[:1]
    found = _told(parts, median, first[(first > FIRST_TIMES * median) & (first > median + LEAST)])
    return found[0] if found else None


def _told(parts: pd.DataFrame, median: float, long: pd.Series[float]) -> tuple[Outlier, ...]:
    """These steps with what they did in the time that they took more than the median."""
    if long.empty:
        return ()
    inside = parts[parts["step"].notna()]
    evaluates = inside["mode"].fillna("").map(lambda mode: EVALUATION in mode.split()).astype(bool)
    keyed = inside.assign(
        source_id=inside["source_id"].fillna(""),
        line=inside["line"].fillna(-1).astype("int64"),
        phase=inside["phase"].mask(evaluates, EVALUATION),
    )
    table = keyed.pivot_table("seconds", "step", ["phase", "source_id", "line"], aggfunc="sum", fill_value=0.0)
    usual = table.median()
    unseen = keyed[(keyed["line"] < 0) & (keyed["looks"].fillna(0) > 0)]
    found = []
    for step, took in long.items():
        number = int(str(step))
        spent: Any = table.loc[number]
        more = spent - usual
        top: Any = more.idxmax()
        phase, source_id, line = top
        out = Outlier(number, float(took), float(took) / median)
        if float(more.max()) >= _MOST * (float(took) - median):
            share = float(spent[top]) / float(took)
            place = (source_id or None, int(line) if line >= 0 else None)
            is_unseen = (unseen["step"] == number) & (unseen["phase"] == phase)
            is_least = bool(line >= 0 and is_unseen.any())
            out = Outlier(number, float(took), float(took) / median, str(phase), *place, share, is_least)
        found.append(out)
    return tuple(found)
