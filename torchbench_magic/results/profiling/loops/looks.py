"""How much of a time is on a line, where that is known from looks at the stack alone."""

from __future__ import annotations

from math import sqrt

__all__ = ["FEWEST_LOOKS", "is_most"]

FEWEST_LOOKS = 20
"""From which on a share is said in per cent: then it is within 22 points at 95 %; of fewer their number is said."""
_Z = 1.96  # 95 %, both sides


def is_most(some: int, of_all: int) -> bool:
    """Whether more than half of the time is where so many of all looks fell: the lower end of Wilson's 95 % interval is
    above a half, for which four looks out of four suffice, and 16 out of 22."""
    if of_all <= 0:
        return False
    share, square = some / of_all, _Z * _Z / of_all
    middle, spread = share + square / 2, _Z * sqrt(share * (1 - share) / of_all + square / 4 / of_all)
    return (middle - spread) / (1 + square) > 0.5
