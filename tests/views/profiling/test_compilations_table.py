"""The table of what was compiled: kinds and units."""

from __future__ import annotations

from typing import Any

from torchbench_magic.profiling.compiling.view import compilations_table
from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, frame_of

from ..builders import profile_of


def shown(seconds: float, kind: str, fell_back: str | None) -> list[str]:
    row: dict[str, Any] = {
        "compile_id": ["0/0"],
        "function": ["f"],
        "cell": [3],
        "line": [2],
        "seconds": [seconds],
        "calls": [0],
        "kind": [kind],
        "fell_back": [fell_back],
    }
    table = compilations_table(profile_of(compilations=frame_of(COMPILATION_COLUMNS, row)))
    assert table is not None
    return [*(column.unit for column in table.columns), *(cell.text for cell in table.groups[0].rows[0].cells)]


def test_what_was_given_up_before_the_run_has_no_time_in_nanoseconds() -> None:
    said = shown(0.0, "earlier", "recompile_limit of 8 reached before this run")
    assert "ns" not in said
    assert "ms" in said
    assert "before this run" in said


def test_an_attempt_at_the_limit_was_refused() -> None:
    assert "refused" in shown(0.001, "recompile", "recompile_limit of 8 reached")
    assert "again" in shown(0.001, "recompile", None)
