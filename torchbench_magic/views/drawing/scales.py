"""Axes of a drawn curve: where a value lies between the ends, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AxisScale", "round_ticks", "scale_of"]

_MOST_TICKS = 6
_PAD = 0.06  # of the axis, beyond its outermost values
_MANTISSAS = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


@dataclass(frozen=True)
class AxisScale:
    """``place`` takes ``low`` to 0 and ``high`` to 1; ``ticks`` lie between."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = True

    def place(self, value: float) -> float:
        low, high, value = (math.log(max(v, 1e-300)) if self.log else v for v in (self.low, self.high, value))
        return (value - low) / (high - low)


def scale_of(values: Sequence[float], *, at_values: bool = False) -> AxisScale:
    """The axis that holds ``values``: logarithmic where all are above 0, with a little room at both ends.

    ``at_values``: the values themselves are its ticks.
    """
    low, high = min(values), max(values)
    log = low > 0
    if low == high:
        low, high = (low / 1.5, high * 1.5) if log else (low - 1, high + 1)
    if log:
        room = (high / low) ** _PAD
        low, high = low / room, high * room
    else:
        low, high = low - (high - low) * _PAD, high + (high - low) * _PAD
    if at_values:
        ticks = tuple(sorted(set(values)))
    else:
        ticks = _log_ticks(low, high) if log else round_ticks(low, high)
    return AxisScale(low, high, ticks, log)


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Round values of each decade, as dense as six allow; every so many decades on a long axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for mantissas in _MANTISSAS:
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in mantissas if low <= m * 10.0**e <= high]
        if len(ticks) <= _MOST_TICKS:
            return tuple(ticks) if len(ticks) > 1 else round_ticks(low, high)
    step = math.ceil(len(ticks) / _MOST_TICKS)
    return tuple(ticks[::step])


def round_ticks(low: float, high: float) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return tuple(step * k for k in range(first, math.floor(high / step) + 1))
