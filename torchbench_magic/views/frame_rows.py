"""Rows of a DataFrame as plain mappings, the form in which views read a result."""

from __future__ import annotations

from typing import Any

import pandas as pd

__all__ = ["float_or_none", "frame_rows"]


def frame_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """One mapping per row, column name -> value."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def float_or_none(value: Any) -> float | None:
    """A cell as float; NA, NaN and None are None."""
    return None if value is None or pd.isna(value) else float(value)
