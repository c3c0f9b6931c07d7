"""What ``torch.compile`` did in a profile, and the phases of its training loop, as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from torchbench_magic.results.profiling.loops.phases import shares_of
from torchbench_magic.results.profiling.profile import Profile

from ..frame_rows import frame_rows
from ..profiling.place_names import place_of
from .plain_values import finite_number, plain_value

__all__ = ["compiling_as_json", "loop_as_json"]

_MOST_ROWS = 12
_LONGEST_NAME, _LONGEST_REASON = 80, 200


def loop_as_json(profile: Profile) -> dict[str, Any]:
    """``steps`` (0 without a loop), and each phase that took time, with the line that has most of it."""
    parts = profile.phases_by_line
    places = {(row["source_id"], row["line"]): place_of(row) for row in frame_rows(parts[parts["line"].notna()])}
    phases = [
        {
            "phase": each.phase,
            "seconds": finite_number(each.seconds),
            "share": finite_number(each.share),
            "median": finite_number(each.median),
            "place": plain_value(places.get((each.source_id, each.line)), _LONGEST_NAME),
        }
        for each in shares_of(parts)
    ]
    return {"steps": int(parts["step"].nunique()), "phases": [_known(phase) for phase in phases]}


def compiling_as_json(profile: Profile) -> dict[str, Any]:
    """The frames that were compiled, the most seconds first, and the lines that broke a graph, the most often first."""
    compiled = profile.compilations.sort_values("seconds", ascending=False, kind="stable", na_position="last")
    broken = profile.graph_breaks.sort_values("count", ascending=False, kind="stable")
    return {
        "compilations": [
            _known(
                {
                    "function": plain_value(row["function"], _LONGEST_NAME),
                    "place": plain_value(place_of(row), _LONGEST_NAME),
                    "kind": row["kind"],
                    "seconds": finite_number(row["seconds"]),
                    "calls": finite_number(row["calls"]),
                    **_texts(row, ("reason", "fell_back")),
                }
            )
            for row in frame_rows(compiled.head(_MOST_ROWS))
        ],
        "graph_breaks": [
            _known(
                {
                    "place": plain_value(place_of(row), _LONGEST_NAME),
                    **_texts(row, ("reason", "hint")),
                    "count": finite_number(row["count"]),
                }
            )
            for row in frame_rows(broken.head(_MOST_ROWS))
        ],
    }


def _texts(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: None if pd.isna(row[name]) else plain_value(str(row[name]), _LONGEST_REASON) for name in names}


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "")}
