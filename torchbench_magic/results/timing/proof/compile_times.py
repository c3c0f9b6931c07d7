"""When compiling has paid."""

from __future__ import annotations

import math

__all__ = ["break_even"]


def break_even(compile_seconds: float, baseline_seconds: float, seconds: float) -> float:
    """Calls after which compiling has paid: compile time / (time of a call without - time of a call with).

    Args:
        compile_seconds: what compiling took; NaN where nothing was compiled.
        baseline_seconds: a call of the baseline.
        seconds: a call of what was compiled.

    Returns:
        A whole number; NaN where a call is no faster, and where one of the three is not known.
    """
    saved = baseline_seconds - seconds
    return float(math.ceil(compile_seconds / saved)) if compile_seconds >= 0 and saved > 0 else math.nan
