"""Cells that run under the profiler, for what is said of them: with a setup cell before, as in a notebook."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.profiling.asking import asked
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.process.code import compile_body
from torchbench_magic.process.contention import LOAD_KINDS
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.run import profile_body

__all__ = ["Planted", "calm", "found", "namespace_of", "profiled"]


@dataclass(frozen=True)
class Planted:
    """A cell and what is wrong with it.

    Attributes:
        setup: the cell before it.
        body: the profiled cell, without the magic's line.
        kind: of the insight that is to come; empty for a healthy cell.
        line: in the cell, the magic's being the first.
        cured: a setup and a body that do the same without the fault; an empty setup is the same one.
    """

    name: str
    setup: str
    body: str
    kind: str = ""
    line: int = 0
    cured: tuple[str, str] = ("", "")


def namespace_of(setup: str) -> dict[str, Any]:
    """The names after a first cell ran."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(f"import torch\nimport numpy as np\ntorch.manual_seed(0)\n{setup}", "<setup>", "exec"), names)
    return names


def profiled(case: Planted, **options: Any) -> Profile:
    """The profile of the cell after its setup, and after one run of it that is not profiled."""
    text = f"%%tprofile\n{case.body}"
    file = f"/tmp/ipykernel_1/{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}.py"
    linecache.cache[file] = (len(text), None, text.replace("%%", "# ").splitlines(True), file)
    names = namespace_of(case.setup)
    exec(compile(case.body, "<first>", "exec"), names)
    body = compile_body(Body(case.body, file, 2, 1))
    cells = {file: CellText.of(text, file, 1)}
    return profile_body(body, asked(namespace=names, cells=cells.get, root=Path("/tmp"), **options)).profile


def calm(profile: Profile) -> Profile:
    """Without the doubts about what else ran on this machine: in tests others always do."""
    return replace(profile, warnings=[doubt for doubt in profile.warnings if doubt.kind not in LOAD_KINDS])


def found(profile: Profile) -> Iterable[tuple[str, int]]:
    """(kind, line) of each insight, the most at stake first."""
    return [(each.kind, each.places[0].line) for each in calm(profile).insights]
