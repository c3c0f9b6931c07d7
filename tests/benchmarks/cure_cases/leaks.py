"""Holders of memory that were planted: which are named; and healthy cells, of which nothing may be said.

A leaking cell is right when exactly one ``leak`` is said, its sentence has the holder, the kind of the holder is right,
and so is the line, where the line is the cell's own.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3])]

from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from torchbench_magic.profiling.profile import Profile  # noqa: E402
from torchbench_magic.result_base import Insight  # noqa: E402

from .leak_cells import HEALTHY, LEAKING, LeakCell, leaks_said, profile_in_shell  # noqa: E402


def is_right(cell: LeakCell, said: list[Insight]) -> bool:
    if len(said) != 1 or cell.holder not in said[0].text or said[0].evidence["kind_of_holder"] != cell.kind:
        return False
    return not cell.line or (bool(said[0].places) and said[0].places[0].line == cell.line)


def measured(cell: LeakCell) -> tuple[Profile, list[Insight]]:
    with contextlib.redirect_stdout(io.StringIO()):  # the shell shows what earlier cells give, and their errors
        profile = profile_in_shell(cell)
    return profile, leaks_said(profile)


def main() -> int:
    rows, searched = [], []
    named = silent = 0
    for cell in (*LEAKING, *HEALTHY):
        profile, said = measured(cell)
        right = is_right(cell, said) if cell.holder else not said
        named += right and bool(cell.holder)
        silent += right and not cell.holder
        searched.append(0 if profile.holders is None else len(profile.holders))
        rows.append((cell.name, cell.holder, " | ".join(each.text for each in said), "right" if right else "WRONG"))
    print(tabulate(rows, ("cell", "planted", "said", ""), "plain", maxcolwidths=[30, 30, 80, None]))
    return record(
        "cures_leaks",
        [
            Figure("planted holders that are named", named, "cells", at_least=len(LEAKING)),
            Figure("planted holders", len(LEAKING), "cells", at_least=10),
            Figure("healthy cells of which nothing is said", silent, "cells", at_least=len(HEALTHY)),
            Figure("healthy cells", len(HEALTHY), "cells"),
        ],
        cells=[{"cell": name, "planted": planted, "said": said, "is": is_} for name, planted, said, is_ in rows],
    )


if __name__ == "__main__":
    sys.exit(main())
