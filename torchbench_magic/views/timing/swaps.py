"""Where two alternatives swap places along a sweep, in words."""

from __future__ import annotations

from torchbench_magic import units
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.scaling import Crossover, crossovers

from ..document import Phrase, StyledText, clipped, code
from .comparison_facts import LONGEST_NAME
from .curves import fixed_text

__all__ = ["clause"]

_MOST = 3


def clause(comparison: Comparison) -> StyledText:
    """``bmm is faster than mul_sum below n ≈ 320, slower above``; empty where nothing swaps.

    Several are parted by semicolons, the ones beyond three counted.
    """
    found = crossovers(comparison)
    runs: list[Phrase] = []
    for nth, swap in enumerate(found[:_MOST]):
        runs += [Phrase("; ")] if nth else []
        runs += _said(swap)
    if len(found) > _MOST:
        runs.append(Phrase(f"; {len(found) - _MOST} more swaps"))
    return tuple(runs)


def _said(swap: Crossover) -> list[Phrase]:
    where = f" ({fixed_text(swap.fixed)})" if swap.fixed else ""
    return [
        code(clipped(swap.faster_below, LONGEST_NAME)),
        Phrase(" is faster than "),
        code(clipped(swap.faster_above, LONGEST_NAME)),
        Phrase(f" below {swap.axis} ≈ {units.number(swap.at, digits=2)}, slower above{where}"),
    ]
