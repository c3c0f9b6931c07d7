"""Judging times that were not measured side by side: by the range in which each is known to repeat.

The interval of one run says where *its* median lies, not where the next run's would: a run's 95 % interval covers the
long-run median in 5-20 % of the cases even on a quiet machine, because the machine drifts. So one window of time on
either side decides nothing. What can be compared is the range of the medians of several windows:

* windows of 33 ms of one run that spans 20 s at least (its range covered the long-run median in 80-100 % of trials), or
* four or more stored runs of one identity, source, torch and machine, spread over 20 s at least.

The ratio of two such ranges is taken at its worst ends, ``[low / high of the baseline, high / low of the baseline]``,
and judged as any interval is (`inference.verdict`), so it is faster or slower only where the ranges do not overlap.
For exchangeable windows, n on one side and m on the other, that happens by chance with probability
``2 n! m! / (n + m)!``: the extreme case of Wilcoxon's rank-sum test. 2.9 % for four runs against four, 0.2 % for six
windows against six, less for more. Windows of one process share its buffers and code, so it is a lower bound for them.

Of many windows the range is that which six of them would have on average: from the 1/7 to the 6/7 quantile. Long
windows will not do: they average over what moves a time within the second, and the range of six windows of 3.5 s held
the long-run median of 12 runs in 42 % of trials only.

Sources: Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1945; the exact null distribution in
Mann and Whitney, Ann. Math. Statist. 1947. Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013,
on why repeating the run counts for more than repeating within it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .inference import Interval, verdict

__all__ = ["RUNS", "SPAN", "WINDOWS", "Range", "Unpaired", "judged", "range_of", "range_of_windows"]

Floats = npt.NDArray[np.float64]

WINDOWS = 6
"""Windows into which one run is cut at least."""
WINDOW = 0.033
"""Seconds of a window."""
RUNS = 4
"""Stored runs that make a history: the least for which disjoint ranges of two histories are below 5 % by chance."""
SPAN = 20.0
"""Seconds that windows or runs must span at least: a shorter time does not see the machine drift."""


@dataclass(frozen=True)
class Range:
    """Between which ends several medians lie, seconds a call.

    Attributes:
        low, high: the smallest and the largest; of more than six windows their 1/7 and 6/7 quantiles.
        windows: how many medians.
        of_runs: they are of whole runs (a history), not of the windows of one.
    """

    low: float
    high: float
    windows: int
    of_runs: bool = False

    def __str__(self) -> str:
        return f"{self.windows} {'stored runs' if self.of_runs else 'windows of one run'}"


@dataclass(frozen=True)
class Unpaired:
    """How a row compares to one that was measured at another time.

    Attributes:
        baseline: the other row; the row itself where it is the baseline; None where there is nothing to compare with.
        ratio, low, high: this / baseline; the ends are 0 and infinity where they are not known.
        verdict: ``baseline``, ``faster``, ``slower``, ``same``, ``undecided``; None without a baseline.
        reason: why it is undecided; how it was decided otherwise.
    """

    baseline: int | None
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    verdict: str | None = None
    reason: str = ""


def range_of_windows(times: Floats, sampled: float, span: float) -> Range | None:
    """Range of the medians of windows of one run, seconds a call; None where it is too short or has too few blocks.

    Args:
        times: of one call, one value a block, in the order taken.
        sampled: seconds that the blocks took together.
        span: seconds from the first to the last.
    """
    if not span >= SPAN or len(times) < 2 * WINDOWS:  # NaN: not known
        return None
    count = max(WINDOWS, min(round(sampled / WINDOW), len(times) // 2))
    medians = [np.median(part) for part in np.array_split(times, count)]
    low, high = np.quantile(medians, [1 / (WINDOWS + 1), WINDOWS / (WINDOWS + 1)], method="weibull")
    return Range(float(low), float(high), count)


def range_of(medians: Sequence[float], span: float) -> Range | None:
    """Range of the medians of whole runs, seconds a call, the first and the last of which are ``span`` s apart.

    None where they are too few or too close in time.
    """
    if len(medians) < RUNS or span < SPAN:
        return None
    return Range(min(medians), max(medians), len(medians), of_runs=True)


def judged(
    median: float, known: Range | None, baseline: int, base_median: float, base_known: Range | None, margin: float
) -> Unpaired:
    """Compare a time with one of another time; medians in seconds a call, ``margin`` a fraction."""
    if not (median > 0 and base_median > 0):
        return Unpaired(baseline, math.nan, 0.0, math.inf, "undecided", "one side has no sample")
    ratio = median / base_median
    if known is None or base_known is None:
        both = known is None and base_known is None
        side = "either side" if both else "this side" if known is None else "the other side"
        reason = f"one window of time on {side} does not tell a change of the code from a change of the machine"
        return Unpaired(baseline, ratio, 0.0, math.inf, "undecided", reason)
    low = min(known.low, median) / max(base_known.high, base_median)
    high = max(known.high, median) / min(base_known.low, base_median)
    if not low > 0:
        return Unpaired(baseline, ratio, 0.0, math.inf, "undecided", "a range reaches down to zero")
    word = verdict(Interval(math.log(ratio), math.log(low), math.log(high)), margin)
    overlap = "; their ranges overlap" if word == "undecided" and low < 1 < high else ""
    reason = f"{known} against {base_known}{overlap}"
    return Unpaired(baseline, ratio, low, high, word, reason)
