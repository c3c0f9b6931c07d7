"""What ``torch.compile`` did: the frames that it compiled, and the lines at which a graph broke."""

from __future__ import annotations

from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.profiling.ops_view import place_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.document import of_result
from torchbench_magic.show.table import Table, built_table, counted, frame_rows, measured_columns, texts

_MOST_ROWS = 30
_KINDS = {"first": "first", "recompile": "again", "resume": "rest, after a break", "earlier": "before this run"}


def compilations_table(profile: Profile) -> Table | None:
    """A row per compiled frame, in the order in which they were compiled; None where nothing was."""
    table = profile.compilations
    if table.empty:
        return None
    is_timed = bool((table["seconds"] > 0).any())  # not of what was given up before the run
    seconds = units.spread_scale(list(table["seconds"])) if is_timed else units.Scale("ms", 1e-3, 1)
    built = (
        texts("place", "compiled", 40, place_of),
        texts("function", "function", 40, lambda record: str(record["function"])),
        texts("kind", "kind", 24, _kind),
        measured_columns("seconds", "compile time", seconds),
        counted("calls", "calls"),
        texts("reason", "why compiled again", 80, _why),
    )
    shown = table.head(_MOST_ROWS)
    said = f"{units.count(len(shown))} of {units.count(len(table))} compilations."
    hidden = f"{said} All rows: {of_result('.compilations')}" if len(shown) < len(table) else ""
    key = lambda record: str(record["compile_id"])
    return built_table("compilations", built, frame_rows(shown), key, hidden=hidden)


def _kind(record: dict[str, Any]) -> str:
    """At its limit the compiler refused: nothing was compiled again."""
    is_refused = record["kind"] != "earlier" and "_limit of " in _text(record["fell_back"])
    return "refused" if is_refused else _KINDS[record["kind"]]


def _why(record: dict[str, Any]) -> str:
    said = [_text(record["reason"])]
    if fell_back := _text(record["fell_back"]):
        since = "" if record["kind"] == "earlier" else " from here on"
        said.append(f"runs uncompiled{since}: {fell_back}")
    return "; ".join(filter(None, said)).replace("`", "")


def graph_breaks_table(profile: Profile) -> Table | None:
    """A row per line and reason; None where no graph broke."""
    table = profile.graph_breaks
    if table.empty:
        return None
    built = (
        texts("place", "graph break", 40, place_of),
        texts("reason", "why", 100, lambda record: _text(record["reason"]).replace("`", "")),
        texts("hint", "what may help", 100, lambda record: _text(record["hint"]).replace("`", "")),
        counted("count", "times"),
    )
    shown = table.head(_MOST_ROWS)
    return built_table("graph breaks", built, frame_rows(shown), place_of)


def _text(value: Any) -> str:
    return "" if value is None or pd.isna(value) else str(value)
