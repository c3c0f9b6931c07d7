"""How far the ratio of one kernel may lie from that of the next, and which verdicts are of one kernel therefore."""

from __future__ import annotations

import math

__all__ = ["SPREAD", "is_of_this_kernel"]

SPREAD = 0.03
"""Share by which a ratio moves from kernel to kernel. Of 387 ratios, 25 pairs of equal meaning (0.3 us to 8 ms; Python,
numpy, torch, C++; 1 and 2 threads) in up to 16 fresh processes each on a quiet machine, 99 % lay within 2.9 % of the
median of their pair, 95 % within 1.2 %; the farthest was 7.5 % away. Long calls moved as far as short ones
(tests/benchmarks/results/processes.json)."""


def is_of_this_kernel(ratio: float, verdict: object, method: object) -> bool:
    """Whether the next kernel may well say otherwise: one kernel decided, by less than `SPREAD`."""
    small = ratio > 0 and abs(math.log(ratio)) < math.log1p(SPREAD)
    return str(method) == "paired" and str(verdict) in ("faster", "slower") and small  # NA is none of these
