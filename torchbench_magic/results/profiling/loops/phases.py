"""The phases of the steps of a training loop: their table, and what a step is made of.

A phase is a call that torch can tell: a loader's next batch, a move to another device, the outermost call of a module,
``backward``, an optimizer's ``step`` and ``zero_grad``. ``loss`` is what lies between the forward pass and backward;
``other`` is the rest of the step. Times are those of the thread that runs the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..columns import LOOP_COLUMNS, frame_of

__all__ = ["PHASES", "StepShare", "empty_phases", "phases_of", "renumbered", "shares_of", "step_seconds"]

PHASES = ("input", "transfer", "forward", "loss", "backward", "optimizer", "zero_grad", "other")
"""In the order in which a step has them."""
_OF_STEPS = {"step": "int64", "phase": "object", "seconds": "float64"}
_GAPS = ("loss", "other")  # what is left between calls: their lines may be known from looks at the stack alone


def empty_phases() -> pd.DataFrame:
    return frame_of(LOOP_COLUMNS, {})


def phases_of(parts: pd.DataFrame) -> pd.DataFrame:
    """``step phase seconds`` from a table of `LOOP_COLUMNS`: all phases of each step, which add up to the step."""
    if parts.empty:
        return pd.DataFrame({name: np.empty(0, dtype) for name, dtype in _OF_STEPS.items()})
    inside = parts[parts["step"].notna()]
    sums = inside.groupby([inside["step"].astype("int64"), "phase"])["seconds"].sum()
    steps = np.unique(inside["step"].astype("int64"))
    rows = pd.MultiIndex.from_product([steps, PHASES], names=["step", "phase"])
    found = sums.reindex(rows, fill_value=0.0).reset_index()
    return found.astype(_OF_STEPS)[[*_OF_STEPS]]


def step_seconds(phases: pd.DataFrame) -> pd.Series[float]:
    """Seconds of each step, by its number."""
    seconds: pd.Series[float] = phases.groupby("step")["seconds"].sum()
    return seconds


@dataclass(frozen=True)
class StepShare:
    """One phase of all steps.

    Attributes:
        seconds: in all steps; ``median`` of a step; ``share`` of all steps.
        source_id, line: the line with most of it; None for none, and where more looks at the stack fell on no line.
        line_share: that line's share of the phase.
        looks: (at that line, in the phase), where the share is known from looks at the stack; else None. It is at least
            so much, where some looks fell on no line.
        unseen: how many did.
    """

    phase: str
    seconds: float
    median: float
    share: float
    source_id: str | None = None
    line: int | None = None
    line_share: float = 0.0
    looks: tuple[int, int] | None = None
    unseen: int = 0

    @property
    def is_least(self) -> bool:
        return self.looks is not None and self.unseen > 0


def shares_of(parts: pd.DataFrame) -> tuple[StepShare, ...]:
    """Each phase that took any time, in the order of `PHASES`."""
    if parts.empty:
        return ()
    phases = phases_of(parts)
    whole = float(phases["seconds"].sum())
    inside = parts[parts["step"].notna()]
    found = []
    for name in PHASES:
        mine = phases[phases["phase"] == name]["seconds"]
        seconds = float(mine.sum())
        if seconds <= 0:
            continue
        top = _top_line(inside[inside["phase"] == name], seconds)
        on_none = int(inside.loc[(inside["phase"] == name) & inside["line"].isna(), "looks"].fillna(0).sum())
        if top[3] is not None and on_none > top[3][0]:  # it is where looks fall, not where most of the time is
            top = None, None, 0.0, (0, top[3][1])
        found.append(StepShare(name, seconds, float(mine.median()), seconds / whole, *top, on_none))
    return tuple(found)


def _top_line(rows: pd.DataFrame, seconds: float) -> tuple[str | None, int | None, float, tuple[int, int] | None]:
    """(source, line, share, looks): most stretches of a phase may be too short for a look, so that what looks tell is
    the share of all of them that fell on a line, whatever the lengths of the stretches."""
    is_looked = rows["looks"].notna() & rows["phase"].isin(_GAPS)
    looked, exact = rows[is_looked], rows[~is_looked]
    sums = _by_line(exact, "seconds")
    looks = _by_line(looked, "looks")
    looks, of_all = looks[looks > 0], int(looked["looks"].sum())
    if of_all:
        sums = sums.add(looks * (float(looked["seconds"].sum()) / of_all), fill_value=0.0)
    if sums.empty:
        return None, None, 0.0, None
    top: Any = sums.idxmax()
    source_id, line = top
    mine = int(looks.get(top, 0))
    return str(source_id), int(line), float(sums.max()) / seconds, (mine, of_all) if mine else None


def _by_line(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    on_lines = rows[rows["line"].notna()]
    sums: pd.Series[float] = on_lines.groupby(["source_id", "line"], sort=False)[column].sum().astype("float64")
    return sums


def seconds_by_step(parts: pd.DataFrame, keys: Mapping[str, Any] | None = None) -> NDArray[np.float64]:
    """Seconds of each step in the rows that have these values."""
    inside = parts[parts["step"].notna()]
    steps = np.unique(inside["step"].astype("int64"))
    for name, value in (keys or {}).items():
        inside = inside[inside[name] == value]
    sums = inside.groupby(inside["step"].astype("int64"))["seconds"].sum()
    return sums.reindex(steps, fill_value=0.0).to_numpy(np.float64)


def renumbered(parts: pd.DataFrame, steps: Sequence[int]) -> pd.DataFrame:
    """The table with these numbers in place of 0, 1, ..."""
    named = dict(enumerate(steps))
    return parts.assign(step=parts["step"].map(named, na_action="ignore").astype("Int64"))
