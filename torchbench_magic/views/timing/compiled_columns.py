"""What compiling took, and when it has paid, beside the times of a comparison."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from torchbench_magic import units

from ..built_columns import BuiltColumn
from ..frame_rows import float_or_none
from ..table import Cell, Column

__all__ = ["calls_text", "compiled_columns", "compiled_definition", "was_compiled"]


def was_compiled(frame: pd.DataFrame) -> bool:
    """Whether any alternative was compiled."""
    return "compile_time" in frame and bool(frame["compile_time"].notna().any())


def calls_text(number: float) -> str:
    """Two digits: what compiling takes differs from one time to the next."""
    return units.count(round(number, 1 - math.floor(math.log10(number))) if number >= 100 else number)


def compiled_columns(frame: pd.DataFrame) -> list[BuiltColumn]:
    """The time that compiling took; where it pays, the number of calls after which it has."""
    scale = units.smallest_scale(frame["compile_time"].dropna())

    def took(at: int, record: Any) -> Cell:
        value = float_or_none(record.compile_time)
        return Cell(units.number(value, scale, digits=2), value) if value is not None else Cell()

    def pays(at: int, record: Any) -> Cell:
        value = float_or_none(record.break_even)
        return Cell(calls_text(value), value) if value is not None else Cell()

    built = [BuiltColumn(Column("compile_time", "compile time", scale.unit, "number"), took)]
    if frame["break_even"].notna().any():
        built.append(BuiltColumn(Column("break_even", "pays off after", "calls", "number"), pays))
    return built


def compiled_definition(frame: pd.DataFrame) -> str:
    """What the columns say."""
    text = "Compile time: torch.compile before the first sample; not included elsewhere.".replace("`", "")
    if frame["break_even"].notna().any():
        text += " Pays off after: compile time / (time of the baseline - its own time)."
    return text
