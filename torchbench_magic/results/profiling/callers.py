"""From an op to where it is called: its rows of ``Profile.ops`` by line, module and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import pandas as pd

from torchbench_magic.errors import InputError

from .source_texts import Source, line_text

__all__ = ["calls_of", "full_name"]

_BY = ["cell", "file", "source_id", "line", "module", "input_shapes", "thread"]
_SHOWN = [
    "cell",
    "line",
    "source",
    "file",
    "module",
    "input_shapes",
    "thread",
    "calls",
    "self_cpu_time",
    "cpu_time",
    "share",
]


def full_name(ops: pd.Series[Any], op: str) -> str:
    """The name as the table has it; ``aten::`` may be left out.

    Raises:
        InputError: there is none; the message names those near it.
    """
    known = set(ops)
    for name in (op, f"aten::{op}"):
        if name in known:
            return name
    short = {name.removeprefix("aten::"): name for name in sorted(known)}
    near = get_close_matches(op.removeprefix("aten::"), short, n=3) or [n for n in short if op.lower() in n.lower()][:3]
    raise InputError(f"no op {op!r} in this profile" + (f"; similar names: {', '.join(near)}" if near else ""))


def calls_of(ops: pd.DataFrame, sources: Mapping[str, Source], op: str) -> pd.DataFrame:
    """See `Profile.where`."""
    mine = ops[ops["op"] == full_name(ops["op"], op)]
    sums = mine.groupby(_BY, dropna=False, sort=False)[["calls", "self_cpu_time", "cpu_time"]].sum().reset_index()
    whole = float(sums["cpu_time"].sum())
    sums["share"] = sums["cpu_time"] / whole if whole else 0.0
    sums["source"] = [line_text(sources, *place) for place in zip(sums["source_id"], sums["line"], strict=True)]
    ordered = sums.sort_values(["cpu_time", "self_cpu_time"], ascending=False, kind="stable")
    return ordered[_SHOWN].reset_index(drop=True)
