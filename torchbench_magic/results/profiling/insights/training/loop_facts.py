"""What the kinds of a training loop share: its steps, the lines of its phases, and when nothing may be said of it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ....insights import CodeLine
from ....machine.load_doubts import LOAD_KINDS
from ...profile import Profile
from ..silenced import VOIDING

__all__ = ["FEWEST_STEPS", "LoopFacts", "loop_facts", "loop_silenced_by"]

FEWEST_STEPS = 3
"""The first step of a loop does what is done once (memory, kernels, workers); of two there is no usual one."""


@dataclass(frozen=True)
class LoopFacts:
    """
    Attributes:
        parts: rows of the steps, columns of `LOOP_COLUMNS`.
        outside: those outside of the steps.
        phases: ``step phase seconds``.
        steps: how many.
        wall: seconds of the run.
    """

    profile: Profile
    parts: pd.DataFrame
    outside: pd.DataFrame
    phases: pd.DataFrame
    steps: int
    wall: float

    def each(self, phase: str, *, but_first: bool = False) -> pd.Series[float]:
        """Seconds of each step in a phase."""
        mine = self.phases[self.phases["phase"] == phase].set_index("step")["seconds"]
        return mine.iloc[1:] if but_first else mine

    @property
    def step_seconds(self) -> pd.Series[float]:
        return self.phases.groupby("step")["seconds"].sum()

    def line(self, source_id: object, line: object) -> CodeLine:
        source = self.profile.sources.get(str(source_id))
        return CodeLine(f"{source.label if source is not None else '?'}:{line}", str(source_id), int(str(line)))

    def lines(self, rows: pd.DataFrame) -> list[tuple[CodeLine, float]]:
        """(line, seconds) of rows, the most first."""
        known = rows[rows["line"].notna()]
        sums = known.groupby(["source_id", "line"], sort=False)["seconds"].sum().sort_values(ascending=False)
        return [(self.line(*place), float(seconds)) for place, seconds in sums.items()]  # type: ignore[misc]


def loop_facts(profile: Profile) -> LoopFacts | None:
    """None where no phase of a loop was seen."""
    parts = profile.phases_by_line
    if parts.empty or not profile.wall_time > 0:
        return None
    inside = parts[parts["step"].notna()]
    phases = profile.phases
    steps = int(phases["step"].nunique())
    return LoopFacts(profile, inside, parts[parts["step"].isna()], phases, steps, profile.wall_time)


def loop_silenced_by(profile: Profile, *, of_facts: bool = False) -> str:
    """The kind of what keeps this profile from any insight on its loop; empty where nothing does.

    As `silenced.silenced_by`, but for what is about lines and operations: phases need neither.

    Args:
        of_facts: what is asked for rests on what ran, not on how long it took.
    """
    about_lines = {"no-lines", "lines-lost", "lines-cut", "lines-of-functions", "host-memory"}
    for doubt in profile.warnings:
        if of_facts and doubt.kind in LOAD_KINDS:
            continue
        if doubt.kind in VOIDING - about_lines or doubt.kind == "phases-cut":
            return doubt.kind
    return "partial" if profile.partial else ""
