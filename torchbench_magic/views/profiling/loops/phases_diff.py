"""The phases of two profiles' steps side by side."""

from __future__ import annotations

import math

from torchbench_magic import units
from torchbench_magic.results.profiling.loops.phases import PHASES, step_seconds
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.profiling.profile_diff import ProfileDiff

from ...built_columns import built_table, measured_columns, texts
from ...document import clipped
from ...table import Table

__all__ = ["phases_diff_table"]

_LONGEST_NAME = 16


def phases_diff_table(diff: ProfileDiff) -> Table | None:
    """A row per phase, and one for the whole step: medians over the steps; None where one of the two has no steps."""
    before, now = _medians(diff.baseline), _medians(diff.other)
    if not before or not now:
        return None
    names = [name for name in (*PHASES, "step") if before[name] or now[name]]
    rows = [
        {"phase": name, "other": now[name], "baseline": before[name], "change": now[name] - before[name]}
        for name in names
    ]
    scale = units.spread_scale([value for name in names for value in (before[name], now[name]) if value])
    base, other = (clipped(name, _LONGEST_NAME) for name in diff.names)
    built = (
        texts("phase", "phase of a step", 12, lambda row: str(row["phase"])),
        measured_columns("baseline", base, scale),
        measured_columns("other", other, scale),
        measured_columns("change", "change", scale),
    )
    return built_table("phases", built, rows, lambda row: str(row["phase"]))


def _medians(profile: Profile) -> dict[str, float]:
    """Phase -> its median seconds in a step, and those of the step; empty without steps."""
    phases = profile.phases
    if phases.empty:
        return {}
    found = {str(name): float(value) for name, value in phases.groupby("phase")["seconds"].median().items()}
    whole = float(step_seconds(phases).median())
    return {name: 0.0 if math.isnan(value) else value for name, value in (found | {"step": whole}).items()}
