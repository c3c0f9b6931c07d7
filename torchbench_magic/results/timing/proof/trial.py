"""What was seen of a lever besides its time: whether the result stayed the same, and what compiling took."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["AS_IT_IS", "Outcome", "Trial"]

AS_IT_IS = "as it is"
"""The alternative that levers are compared with: the body without any."""

Outcome = Literal["", "equal", "close", "differs"]


@dataclass(frozen=True)
class Trial:
    """One lever, tried.

    Attributes:
        result: against the baseline's: "equal" in every bit, "close" by ``torch.testing.assert_close`` at the
            tolerance of the dtype, or "differs"; empty where nothing could be compared.
        max_difference: the largest absolute difference of two numbers; NaN where nothing was compared.
        differs_in: what of the result is of another kind than the baseline's: "dtype float64, not float32", "tuple, not
            list"; empty where nothing is.
        compile_time: seconds that the first call took more than the second, where the lever compiles; else NaN.
        how: what to write to have it: ``model = torch.compile(model)``.
        changed: in words, what was changed before the clock started, such as copies that were made.
    """

    result: Outcome = ""
    max_difference: float = math.nan
    compile_time: float = math.nan
    how: str = ""
    changed: str = ""
    differs_in: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the result stayed the same within the tolerance."""
        return self.result in ("equal", "close")
