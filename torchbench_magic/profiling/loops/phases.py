"""The phases of the steps of a training loop as a table: modes, outliers, shares of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.profiling.schema import LOOP_COLUMNS, frame_of

# A phase is a call that torch can tell: a loader's next batch, a move to another device, the outermost call of a
# module, ``backward``, an optimizer's ``step`` and ``zero_grad``. ``loss`` is what lies between the forward pass and
# backward; ``other`` is the rest of the step. Times are those of the thread that runs the loop.

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
    seconds: pd.Series[float] = phases.groupby("step")["seconds"].sum()
    return seconds


@dataclass(frozen=True)
class StepShare:
    """One phase of all steps.

    Attributes:
        seconds: in all steps; ``median`` of a step; ``share`` of all steps.
        recording: of the seconds, what recording is estimated to have added; 0 where that is not known.
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
    recording: float = 0.0

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
        added = float(inside.loc[inside["phase"] == name, "recording_seconds"].sum())
        found.append(StepShare(name, seconds, float(mine.median()), seconds / whole, *top, on_none, added))
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


def without_recording(parts: pd.DataFrame, times: float) -> pd.DataFrame:
    """The table with so many times what recording is estimated to have added taken out of the seconds."""
    left = parts["seconds"] - times * parts["recording_seconds"].fillna(0.0)
    return parts.assign(seconds=left.clip(lower=0.0))


def renumbered(parts: pd.DataFrame, steps: Sequence[int]) -> pd.DataFrame:
    """The table with these numbers in place of 0, 1, ..."""
    named = dict(enumerate(steps))
    return parts.assign(step=parts["step"].map(named, na_action="ignore").astype("Int64"))


# ---- modes -----------------------------------------------------------------------------------------------------------
# The words of column ``mode``: how a module was called in a forward pass, and what became of its result; of an
# optimizer's step, what its gradients were.

TRAIN_MODE = "train"
"""The module was in training mode; else in evaluation mode."""
GRAPH = "graph"
"""It recorded a graph for a backward pass."""
VARIES = "varies"
"""It has dropout or batch norm, to which the mode makes a difference."""
TRAINED = "trained"
"""A backward pass followed, before the loop asked for its next input."""
EVALUATION = "evaluation"
"""It is of a loop over an input, none of whose iterations has a backward pass."""
UNCLEARED = "uncleared"
"""Of an optimizer's step: a backward pass has added to the gradients of its step before, which nothing had cleared."""


def mode_text(words: dict[str, bool]) -> str:
    """Those that are true, in a fixed order; empty where none is."""
    return " ".join(word for word in (TRAIN_MODE, GRAPH, VARIES, TRAINED, EVALUATION) if words.get(word))


# ---- looks -----------------------------------------------------------------------------------------------------------
# How much of a time is on a line, where that is known from looks at the stack alone.

FEWEST_LOOKS = 20
"""From which on a share is said in per cent: then it is within 22 points at 95 %; of fewer their number is said."""
_Z = 1.96  # 95 %, both sides


def is_most(some: int, of_all: int) -> bool:
    """Whether more than half of the time is where so many of all looks fell: the lower end of Wilson's 95 % interval is
    above a half, for which four looks out of four suffice, and 16 out of 22."""
    if of_all <= 0:
        return False
    share, square = some / of_all, _Z * _Z / of_all
    middle, spread = share + square / 2, _Z * sqrt(share * (1 - share) / of_all + square / 4 / of_all)
    return (middle - spread) / (1 + square) > 0.5


# ---- outliers --------------------------------------------------------------------------------------------------------

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
