"""What lines, operations, modules and functions are called when one is chosen: the same in every view of a profile.

``static/chosen.js`` hands these names from view to view, and what runs where, so that a table of lines marks the lines
of an operation that was chosen in the flame graph.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.views.document import clipped, printable

from ..place_names import place

__all__ = ["chosen_key", "line_name", "links"]

_LONGEST = 400  # as of the keys of rows
_MOST_ROWS = 5_000  # of what runs where: about 20 KB; an output has room for fewer
_KINDS = {"op": "op", "python": "op", "line": "line", "module": "module", "function": "frame"}  # ranges are ops


def chosen_key(kind: str, name: str) -> str:
    """``op:aten::mm``; empty for what cannot be chosen.

    Args:
        kind: of a row of ``Profile.frames``.
        name: whole, as its table has it; of a line, its `line_name`.
    """
    return f"{_KINDS[kind]}:{printable(clipped(name, _LONGEST))}" if name and kind in _KINDS else ""


def line_name(profile: Profile, source_id: Any, line: Any, cell: Any = None, file: Any = None) -> str:
    """``In[3]:4``; of a source whose text is not known, by its cell or file."""
    source = None if pd.isna(source_id) else profile.sources.get(str(source_id))
    return f"{source.label}:{line}" if source is not None else place(cell, file, line)


def links(profile: Profile, most: int = _MOST_ROWS) -> dict[str, Any] | None:
    """Which operation runs on which line, in which module: of each the ``names``, and a column ``at`` of places in it,
    -1 for none; one row per distinct combination, at most ``most``, those with the most time first. ``left_out``: how
    many more there are. None where no operation is known.
    """
    ops = profile.ops
    if ops.empty:
        return None
    by = ["op", "source_id", "line", "cell", "file", "module"]
    sums = ops.groupby(by, dropna=False, sort=False)["self_cpu_time"].sum().sort_values(ascending=False, kind="stable")
    rows = sums.index.to_frame(index=False)
    left_out = max(len(rows) - most, 0)
    columns: dict[str, list[str | None]] = {"op": [], "line": [], "module": []}
    for op, source_id, line, cell, file, module in rows.head(most).itertuples(index=False, name=None):
        columns["op"].append(chosen_key("op", str(op)))
        where = None if pd.isna(line) else line_name(profile, source_id, int(line), cell, file)
        columns["line"].append(None if where is None else chosen_key("line", where))
        columns["module"].append(None if pd.isna(module) else chosen_key("module", str(module)))
    found: dict[str, Any] = {name: _indexed(name, keys) for name, keys in columns.items()}
    return found | {"left_out": left_out} if left_out else found


def _indexed(kind: str, keys: list[str | None]) -> dict[str, Any]:
    different = {key: at for at, key in enumerate(dict.fromkeys(key for key in keys if key is not None))}
    return {
        "names": [key.removeprefix(f"{kind}:") for key in different],
        "at": [-1 if key is None else different[key] for key in keys],
    }
