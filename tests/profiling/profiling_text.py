"""Profiles a text as a cell, for the tests of what a profile holds."""

from __future__ import annotations

import linecache
from typing import Any

from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling import recorder as run_module
from torchbench_magic.profiling.run import Outcome, profile_body

from .asking import asked
from .running import KeptKineto

__all__ = ["CELL", "profiled", "profiled_with_torch", "row"]

CELL = "<cell>"


def profiled(text: str, namespace: dict[str, Any] | None = None, **options: Any) -> Outcome:
    """Run ``text`` as cell 7."""
    import torch

    cell = CellText.of(text, CELL, 7)
    linecache.cache[CELL] = (len(text), None, text.splitlines(True), CELL)
    names = {"torch": torch} if namespace is None else namespace
    body = compile_body(Body(text, CELL))
    return profile_body(body, asked(namespace=names, cells=lambda f: cell if f == CELL else None, **options))


def profiled_with_torch(text: str, namespace: dict[str, Any] | None = None, **options: Any) -> tuple[Outcome, Any]:
    """The same, with torch's profiler object of that run, whose own tables can be read."""
    kept, run_module.Kineto = run_module.Kineto, KeptKineto  # type: ignore[misc]
    try:
        outcome = profiled(text, namespace, **options)
    finally:
        run_module.Kineto = kept  # type: ignore[misc]
    return outcome, KeptKineto.last


def row(outcome: Outcome, line: int, thread: int = 0) -> Any:
    lines = outcome.profile.lines
    (found,) = lines[(lines["line"] == line) & (lines["thread"] == thread)].to_dict("records")
    return found
