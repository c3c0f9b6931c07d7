"""Values as strict JSON has them: no NaN and no infinity, no numpy, texts of others of bounded length."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import pandas as pd

from ..document import clipped

__all__ = ["LONGEST_TEXT", "finite_number", "plain_value", "rows_of", "strict_json"]

LONGEST_TEXT = 400
"""Characters of one text: names, messages and lines of code of others; a longer one ends in `…`."""
_DIGITS = 6  # of a figure: the interval of none is narrower


def finite_number(value: object) -> float | int | None:
    """A finite number of six digits; None for NaN, an infinity, NA and what is no number."""
    if value is None or value is pd.NA or isinstance(value, str):
        return None
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(f"{float(value):.{_DIGITS}g}")
    return None


def plain_value(value: object, longest: int = LONGEST_TEXT) -> Any:
    """The same as JSON can hold it; what it has no form for as its kind's name."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clipped(value, longest)
    if isinstance(value, Real) or value is pd.NA:
        return finite_number(value)
    if isinstance(value, Mapping):
        return {clipped(str(name), longest): plain_value(part, longest) for name, part in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain_value(part, longest) for part in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a scalar of numpy
        return plain_value(value.item(), longest)
    return f"<{type(value).__name__}>"


def rows_of(frame: pd.DataFrame, names: Iterable[str], most: int) -> list[dict[str, Any]]:
    """The first rows of a table, of the columns ``names``."""
    wanted = [name for name in names if name in frame]
    return [{name: plain_value(row[name]) for name in wanted} for row in frame[wanted].head(most).to_dict("records")]


def strict_json(value: object) -> str:
    """JSON in ASCII: every character of others that is not is an escape, and so is ``<``, so that it may stand in a
    page, a log or a terminal."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
