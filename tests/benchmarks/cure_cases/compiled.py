"""What ``torch.compile`` did: 15 planted causes, each with its line, its reason and its seconds.

The truth of the seconds is taken in the cell itself: a call that compiles against the same call again, which does not.
A cell is run as it is first, and then profiled, after a reset of the compiler each time: both are to compile the same
number of frames.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
from record import Figure, record
from tabulate import tabulate

from .compile_cells import CELLS, CompileCell

__all__ = ["main", "our_words"]

REPETITIONS = 3
"""Of the seconds: another process may have the core in the first of two calls and not in the second."""


class Calls:
    """Calls twice, and adds up what the first call took more: the time that compiling took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[[], object]) -> None:
        moments = [time.perf_counter()]
        for _ in range(2):
            function()
            moments.append(time.perf_counter())
        first, second = moments[1] - moments[0], moments[2] - moments[1]
        self.seconds += first - second


def main() -> int:
    import torch

    from torchbench_magic import profile

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    profile(CELLS[0].text, globals=_names(Calls()))  # what is imported once is no compiling
    rows, named, right, more, off = [], 0, 0, 0, []
    for cell in CELLS:
        frames = _frames(lambda cell=cell: exec(cell.text, _names(Calls())))  # type: ignore[misc]
        distances = []
        for _ in range(REPETITIONS):
            torch._dynamo.reset()
            calls, before = Calls(), _count()
            made = profile(cell.text, globals=_names(calls))
            seen = _count() - before
            said = float(made.compilations["seconds"].sum())
            distances.append(abs(said / calls.seconds - 1))
        line, reason, found = _found(cell, made)
        kinds = [each.kind for each in made.insights]
        wanted = {"recompile": "recompiles", "break": "graph-break", "fell_back": "fell-back"}[cell.table]
        named += found
        right += wanted in kinds
        more += max(0, seen - frames)
        off.append(min(distances))
        shares = f"{said:.3f} of {calls.seconds:.3f} s, {min(distances):.1%} off"
        verdict = "right" if found else "WRONG"
        rows.append((cell.name, line, reason, verdict, shares, f"{seen} / {frames}", kinds))
    header = ("planted", "line", "reason", "", "compiling", "frames with / without", "insights")
    print(tabulate(rows, header, "plain"))
    figures = [
        Figure("cells with the right line and the right reason", named, f"of {len(CELLS)}", at_least=len(CELLS)),
        Figure("cells with the insight of that kind", right, f"of {len(CELLS)}", at_least=len(CELLS)),
        Figure("frames compiled that are not compiled without", more, "frames", at_most=0),
        Figure("seconds of compiling, farthest from the wall time", 100 * max(off), "%", limit=5),
        Figure("seconds of compiling, in the median", 100 * float(pd.Series(off).median()), "%"),
    ]
    backends = "aot_eager, eager"
    return record("cures_compile", figures, repetitions=REPETITIONS, torch=torch.__version__, backends=backends)


def our_words(cell: CompileCell) -> tuple[str, str, bool]:
    """(the reason that is said of the cell, the line that it stands on, whether both are right)."""
    import torch

    from torchbench_magic import profile

    torch._dynamo.reset()
    made = profile(cell.text, globals=_names(Calls()))
    line, reason, is_right = _found(cell, made)
    return reason, f"line {line}" if line else "no line", is_right


def _names(calls: Calls) -> dict[str, Any]:
    import torch

    return {"torch": torch, "x": torch.ones(16), "call": calls, "__name__": "__main__"}


def _count() -> int:
    from torch._dynamo.utils import get_compilation_metrics

    count: int = len(get_compilation_metrics())
    return count


def _frames(run: Callable[[], object]) -> int:
    import torch
    from torch._dynamo.utils import clear_compilation_metrics

    torch._dynamo.reset()
    clear_compilation_metrics()  # it keeps 64
    run()
    frames = _count()
    clear_compilation_metrics()
    return frames


def _found(cell: CompileCell, made: Any) -> tuple[str, str, bool]:
    """The line and the reason that stand in the tables, and whether both are right."""
    if cell.table == "break":
        rows = made.graph_breaks.to_dict("records")
        texts = [(row, str(row["reason"])) for row in rows]
    elif cell.table == "fell_back":
        table = made.compilations[made.compilations["fell_back"].notna()]
        texts = [(row, str(row["fell_back"])) for row in table.to_dict("records")]
    else:
        table = made.compilations[made.compilations["kind"] == "recompile"]
        texts = [(row, str(row["reason"])) for row in table.to_dict("records")]
    for row, text in texts:
        on_line = _line_text(cell, row)
        function = row.get("function", cell.function)
        if all(word in text for word in cell.words) and cell.marked in on_line and function == cell.function:
            return f"{row['line']}", text, True
    return "; ".join(str(row["line"]) for row, _ in texts), "; ".join(text for _, text in texts), False


def _line_text(cell: CompileCell, row: dict[str, Any]) -> str:
    if row["source_id"] is None or pd.isna(row["source_id"]):
        return str(row["file"])  # of a library
    return cell.text.splitlines()[int(row["line"]) - 1]
