"""Functions that ran as they are, told from those that ran as the compiler made them."""

from __future__ import annotations

import pandas as pd

__all__ = ["runs_as_it_is"]

_REGION = "Torch-Compiled Region"  # begins the name of the range in which compiled code runs


def runs_as_it_is(frames: pd.DataFrame, function: str) -> tuple[int, float]:
    """(calls, seconds) of a function as it is: one that is compiled runs within the range of its region.

    Args:
        frames: columns of `FRAME_COLUMNS`.
        function: its name, qualified or not.
    """
    name = function.rpartition(".")[2]
    names, kinds = frames["name"].tolist(), frames["kind"].tolist()
    calls, found = 0, 0.0
    for own, kind, parent, count, seconds in zip(
        names, kinds, frames["parent"], frames["calls"], frames["wall_time"], strict=True
    ):
        if kind == "function" and own.rpartition(".")[2] == name and not names[parent].startswith(_REGION):
            calls, found = calls + int(count), found + float(seconds)
    return calls, found
