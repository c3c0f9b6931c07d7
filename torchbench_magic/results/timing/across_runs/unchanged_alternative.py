"""Comparing two runs through an alternative that did not change between them.

Two runs see two machines: a time of one and a time of the other differ by the drift as well. But each run measured its
alternatives in adjacent blocks, so ``manual / sdpa`` then and ``manual / sdpa`` now are both free of it, and where sdpa
is the same work on the same machine, their ratio is that of manual now to manual then:

    log(manual now / manual then) = log(manual / sdpa, now) - log(manual / sdpa, then)

Either term has an interval at half the error rate (Bonferroni), and the difference of the two intervals holds the
difference with the whole one. What moves a ratio from process to process (where buffers, code and libraries lie) is no
part of these intervals, and neither is what a neighbour does to one alternative and not to the other (caches, memory).
So the difference is widened by `LAYOUT`, or by `LOADED` where the machine is not known to have been quiet both times.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..comparison import Comparison
from ..identity import environment_differences, likeness
from ..intervals import Interval, verdict
from ..ranges import Unpaired
from ..timing_doubts import is_co_loaded, was_quiet

__all__ = ["LAYOUT", "LOADED", "Home", "is_unchanged", "through_yardstick", "yardstick_of"]

Home = tuple[Comparison, int]
"""A result and a row of it."""

LAYOUT = 1.15
"""Factor by which a ratio of adjacent blocks may differ from process to process on a quiet machine: that of short
bodies by up to 6.5 % with where code and libraries lie, that of longer ones by up to 11 % with other buffers."""
LOADED = 1.6
"""The same beside other processes: of 21 processes on a busy 2-core guest, five pairs of bodies at one thread, every
two compared, the ratios differed by 2.6 % in the median, 18 % at the 90th percentile, 40 % at the 99th, 58 % at most.
"""


def is_unchanged(then: Home, now: Home) -> bool:
    """Whether two rows are the same work on the same inputs, versions and machine, as far as both recorded it."""
    recorded = all(result.subjects[row].inputs is not None for result, row in (then, now))
    if not recorded or likeness(*then) != likeness(*now):
        return False
    before, here = (replace(result.environment, commit=None) for result, _ in (then, now))
    return not environment_differences(before, here)


def yardstick_of(then: Home, now: Home) -> tuple[int, int] | None:
    """(row then, row now) of the alternative through which the others of a run are compared; None: all changed.

    The baseline of this run where it will do, else the first.
    """
    before = {likeness(then[0], row): row for row in then[0].beside(then[1])}
    pairs = [(before[key], row) for row in now[0].beside(now[1]) if (key := likeness(now[0], row)) in before]
    pairs = [pair for pair in pairs if is_unchanged((then[0], pair[0]), (now[0], pair[1]))]
    named = [pair for pair in pairs if now[0].subjects[pair[1]].description == now[0].baseline]
    return next(iter(named or pairs), None)


def through_yardstick(then: Home, now: Home, baseline: int, margin: float) -> Unpaired | None:
    """How ``now`` compares with ``then``, row ``baseline`` of the whole; None without a yardstick, or for it itself."""
    found = yardstick_of(then, now)
    if found is None or now[1] == found[1] or then[1] == found[0]:
        return None
    before, here = then[0].log_ratio(then[1], found[0], 2), now[0].log_ratio(now[1], found[1], 2)
    factor = LAYOUT if was_quiet(*then) and was_quiet(*now) else LOADED
    wide = math.log(factor)
    change = Interval(here.median - before.median, here.low - before.high - wide, here.high - before.low + wide)
    name = now[0].subjects[found[1]].description or "the other"
    reason = (
        f"relative to `{name}`, which did not change: {math.exp(before.median):.3g} times its time then,"
        f" {math.exp(here.median):.3g} times now"
    )
    word = verdict(change, margin)
    if word != "undecided" and any(is_co_loaded(made.subjects[row]) for made, row in (then, now)):
        word, reason = "undecided", f"{reason}; other processes slowed down one of the runs"
    elif word == "undecided":
        reason = f"{reason}; such ratios differ by up to {100 * (factor - 1):.0f} % from run to run"
    shown = change.exp() if math.isfinite(change.width) else Interval(math.exp(change.median), 0.0, math.inf)
    return Unpaired(baseline, shown.median, shown.low, shown.high, word, reason)
