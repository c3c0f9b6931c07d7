"""The verdict of a ratio: from its interval, or from ranges where the times were not measured side by side.

A ratio becomes faster, slower, same or undecided here and nowhere else. `judged` takes the `Evidence` for a row and
returns its `Ruling`, the word and why: what the interval says (`verdict`), unless one of `CAUSES` speaks against it.
``Comparison.rulings`` holds one for each row; tables, sentences and doubts read it. `judged_ranges` says what times of
two occasions are evidence for.

Times of two occasions are judged by the range in which each is known to repeat. The interval of one run says where
*its* median lies, not where the next run's would: a run's 95 % interval covers the long-run median in 5-20 % of the
cases even on a quiet machine, because the machine drifts. So one window of time on either side decides nothing. What
can be compared is the range of the medians of several windows:

* windows of 33 ms of one run that spans 20 s at least (its range covered the long-run median in 80-100 % of trials),
* four or more processes of one run, which sampled for 20 s at least together, or
* four or more stored runs of one identity, source, torch and machine, spread over 20 s at least.

Where one side has neither, only a change far beyond what the machine alone has been seen to do is a verdict: the ratio
must exceed `DRIFT` (`BLIND` where the load of a run is not known), or the square of a range that is known if that is
more. Between these ends it is undecided.

The ratio of two such ranges is taken at its worst ends, ``[low / high of the baseline, high / low of the baseline]``,
and judged as any interval is (`verdict`), so it is faster or slower only where the ranges do not overlap.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from torchbench_magic.array_types import Floats

from .intervals import Interval

Verdict = Literal["faster", "slower", "same", "undecided"]
VERDICTS = get_args(Verdict)
"""Of a row that is compared with another one; the other one's is ``baseline``."""

NEAR_LOOP: Mapping[str, float] = {"python": 20e-9, "c++": 1e-9}
"""Seconds a call below which a body is near the loop's own cost (Python's is 4 ns and known to about 1 ns, C++'s is a
clock cycle or two) and gets no verdict."""
STARTED = 25
"""As many calls of that length take no more than what starting a block adds to it (Python: 0.1 to 0.5 us): the clocks
and the first call in a row find colder caches than the empty blocks whose time is taken off."""


def shortest_call(near_loop: float, calls: int | None) -> float:
    """Seconds a call below which it is near what the loop, or starting a block of so few calls, costs."""
    return near_loop if calls is None else near_loop * max(1.0, STARTED / calls)


WINDOWS = 6
"""Windows into which one run is cut at least."""
WINDOW = 0.033
"""Seconds of a window."""
RUNS = 4
"""Stored runs that make a history: the least for which disjoint ranges of two histories are below 5 % by chance."""
SPAN = 20.0
"""Seconds that windows or runs must span at least: a shorter time does not see the machine drift."""

DRIFT = 2.5
"""Factor by which two runs of equal code may differ, their own spread aside. Measured with 21 processes minutes apart
on a shared 2-core guest with up to four busy neighbours, seven bodies of 1 us to 30 ms at 1 and 2 threads, every two
compared, where runs that were held up are given no verdict: none of 2940 pairs of equal code got one (at 2.0: 0.4 %).
At one thread a true x 1.5 gets one in 3 % of the pairs, x 2 in 13 %, x 3 in 68 %, x 4 in 81 %."""
BLIND = 5.0
"""The same where the load of one run is not known (another tool's, or imported): torch's median of 0.2 s was off by
+116 % at the 90th percentile on a shared machine, and either side may be the one: 2.16 squared."""


def verdict(interval: Interval, margin: float) -> Verdict:
    """Judge an interval of log ratios against a margin (a fraction: 0.01 is 1 %).

    ``same``: the whole interval lies inside the margin. ``faster`` / ``slower``: it excludes 1, and the median
    differs by more than the margin. Else ``undecided``, as where an end is not known: a ratio without one is no
    measurement, whatever side of 1 the other end is on.
    """
    if not math.isfinite(interval.width):
        return "undecided"
    bound = math.log1p(margin)
    if interval.low >= -bound and interval.high <= bound:
        return "same"
    if interval.low > 0 and interval.median > bound:
        return "slower"
    if interval.high < 0 and interval.median < -bound:
        return "faster"
    return "undecided"


def is_open(word: object) -> bool:
    """Whether a row was compared, and that decided nothing."""
    return str(word) == "undecided"


class Cause(NamedTuple):
    """How a cause is told.

    Attributes:
        said: in a sentence; `timing.warnings` has the figures. Empty: a doubt of its own says it all.
        cure: what to do.
        has_ends: the ends of the interval stand.
    """

    said: str = ""
    cure: str = ""
    has_ends: bool = False


CAUSES: Mapping[str, Cause] = {
    # ``Comparison.rulings``: a call of a side takes less than `shortest_call`; told by `warnings`
    "near-loop": Cause(has_ends=True),
    # `voids.row_void`: the typical block waited for a core [its processor time over wall time, threads that waited]
    "stalled": Cause(
        "threads waited for other processes", "Measure again on a quiet machine; code of several threads at `-t 1`."
    ),
    # `voids.unlike_blocks`: blocks of the two hold unlike numbers of calls for their lengths [calls in one of each]
    "unlike-blocks": Cause(
        "the warm-up was disturbed", "Measure again, or set the same number of calls for all (`-n N -r R`)."
    ),
    # `process_ratios`: too few are left for an interval [how many, how many it needs]
    "few-processes": Cause(
        "too few processes gave a ratio",
        "Measure in more processes (`--processes N`); those that others disturbed do not count.",
    ),
    # `timing.repeat_probe` (later calls did less, or more, than the first), `timing.iterators` (used up before it),
    # `timing.watched_objects` (another alternative set a switch): not the code's work; told by `timing.repeat_warnings`
    "used-up": Cause(has_ends=True),
    # `voids.interval_of_rounds`: the ratio rose, or fell, from part to part of the run [the least, the largest]
    "one-way": Cause(
        "the ratio rose or fell all through the run, as where each call of one side does more than the one before",
        "Create or copy in the code what grows, so that every call starts from the same state.",
    ),
    # `voids.interval_of_rounds`: too few for an interval [how many, how many it needs]
    "few-rounds": Cause(
        "there are too few rounds",
        "Allow more time (`--max-run-time S`), or set `-n N -r R` with fewer calls per block.",
    ),
    # `voids.interval_of_rounds`: the ratio differed from part to part of the run [the least of a part, the largest], or
    # the rounds in which nothing waited for a core decide otherwise
    "unsteady": Cause(
        "the ratio changed during the run",
        "Measure again on a quieter machine, or longer (`--min-run-time 5`).",
        has_ends=True,
    ),
    "": Cause(has_ends=True),  # the interval alone, or ``Ruling.reason``
}
"""Cause -> how it is told; above each what finds it. Of several the first here is the reason: that which leaves least.
All leave a row undecided, but for the first, which leaves no word.

Nothing else leaves a row undecided, but for `verdict` (the interval: it reaches over 1 or the margin, or has no end)
and, of times of two occasions, what ``Ruling.reason`` says in words:

* `judged_ranges`: one side has no sample; a range reaches down to zero; the ranges overlap; one run on a side, whose
  change is within what the machine alone does, or which was delayed; one run on each engine;
* `across_runs.through_yardstick`: the two ratios to what did not change do not differ enough for 15 %, or 60 % if a
  machine was busy; the yardstick's own run was slowed down (``Evidence.is_loaded``).

Each is a row of docs/method.md, "Why a row is undecided", with what a user may do."""


@dataclass(frozen=True)
class Void:
    """Why a ratio decides nothing.

    Attributes:
        cause: one of `CAUSES`.
        row: whose blocks it is about.
        low, high: what it is known by, the figures in the brackets of `CAUSES`.
    """

    cause: str
    row: int
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on, and what speaks against any.

    Attributes:
        interval: of the log ratio; infinite, or NaN, where its ends are not known. None of a row that was not measured
            beside its baseline: then ``said`` is what `judged_ranges` made of the two.
        margin: a fraction.
        voids: what was found of `CAUSES`.
        is_loaded: other processes slowed down one of two runs.
        because: what the interval is of, in words; ``if_open`` is added where that decides nothing.
    """

    interval: Interval | None
    margin: float
    said: str | None = None
    voids: Sequence[Void | None] = ()
    is_loaded: bool = False
    because: str = ""
    if_open: str = ""


class Ruling(NamedTuple):
    """The word for a row, and why it is that one.

    Attributes:
        word: None where none is given.
        void: what took the verdict away.
        reason: of times of two occasions: why they decide nothing, or how it was decided.
    """

    word: str | None
    void: Void | None = None
    reason: str = ""

    @property
    def is_open(self) -> bool:
        return is_open(self.word)

    @property
    def cause(self) -> str:
        return self.void.cause if self.void else ""

    @property
    def told(self) -> Cause:
        return CAUSES[self.cause]


def judged(found: Evidence) -> Ruling:
    """The verdict of a row, and why it is that one; what speaks against a verdict comes first."""
    word = found.said if found.interval is None else verdict(found.interval, found.margin)
    reason = found.because + (found.if_open if is_open(word) else "")
    if voids := [void for void in found.voids if void is not None]:
        first = min(voids, key=lambda void: [*CAUSES].index(void.cause))
        return Ruling(None if first.cause == "near-loop" else "undecided", first, reason if is_open(word) else "")
    if found.is_loaded and not is_open(word):
        return Ruling("undecided", None, f"{reason}; other processes slowed down one of the runs")
    return Ruling(word, None, reason)


def rounds_to_decide(interval: Interval, rounds: int, margin: float) -> float:
    """Estimate how many rounds in all would settle an undecided verdict; inf when the ratio sits at the margin.

    The distances of the ends from the median are taken to shrink as 1 / sqrt(rounds), and the median to stay.
    """
    if not math.isfinite(interval.width):
        return math.nan
    bound, middle = math.log1p(margin), interval.median
    above, below = interval.high - middle, middle - interval.low
    if abs(middle) > bound:  # the end on the side of 1 has to pass it
        shares = [(below if middle > 0 else above) / abs(middle)]
    elif abs(middle) == bound:
        return math.inf
    else:  # both ends have to lie within the margin
        shares = [above / (bound - middle), below / (bound + middle)]
    return rounds * max(shares) ** 2


@dataclass(frozen=True)
class Range:
    """Between which ends several medians lie, seconds a call.

    Attributes:
        low, high: the smallest and the largest; of more than six windows their 1/7 and 6/7 quantiles.
        windows: how many medians.
        of_runs: they are of whole runs (a history), not of the windows of one.
        of_processes: they are of the processes of one run.
    """

    low: float
    high: float
    windows: int
    of_runs: bool = False
    of_processes: bool = False

    def __str__(self) -> str:
        kind = "processes" if self.of_processes else "stored runs" if self.of_runs else "windows of one run"
        return f"{self.windows} {kind}"


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


@dataclass(frozen=True)
class Single:
    """One run's time of a call, seconds.

    Attributes:
        median, low, high: with the interval of the median in this run; 0 and infinity where it has too few samples.
        known: the range in which it repeats; None where one window of time is all there is.
        load_known: the run recorded what else the machine did.
        held_up: other processes held it up: the time can be many times too long.
    """

    median: float
    low: float
    high: float
    known: Range | None = None
    load_known: bool = True
    held_up: bool = False


ONE_WINDOW = "one run on each engine cannot tell a difference between environments from one between machines"


def judged_ranges(this: Single, base: Single, baseline: int, margin: float, *, on_engines: bool = False) -> Unpaired:
    """Compare a time with one of another time, row ``baseline``.

    Args:
        margin: a fraction.
        on_engines: each was measured on an engine of its own; there one window of time decides nothing, however far the
            times lie apart.
    """
    if not (this.median > 0 and base.median > 0):
        return Unpaired(baseline, math.nan, 0.0, math.inf, "undecided", "one side has no sample")
    ratio = this.median / base.median
    known, base_known = this.known, base.known
    if known is None or base_known is None:
        if on_engines:
            return Unpaired(baseline, ratio, 0.0, math.inf, "undecided", ONE_WINDOW)
        return _far(this, base, baseline, ratio)
    low = min(known.low, this.median) / max(base_known.high, base.median)
    high = max(known.high, this.median) / min(base_known.low, base.median)
    if not low > 0:
        return Unpaired(baseline, ratio, 0.0, math.inf, "undecided", "a range reaches down to zero")
    interval = Interval(math.log(ratio), math.log(low), math.log(high))
    overlap = "; their ranges overlap" if low < 1 < high else ""
    found = judged(Evidence(interval, margin, because=f"{known} against {base_known}", if_open=overlap))
    return Unpaired(baseline, ratio, low, high, found.word, found.reason)


def _far(this: Single, base: Single, baseline: int, ratio: float) -> Unpaired:
    """The verdict where one run on a side is all there is: only a change that no drift explains is one."""
    ranges = [side.known for side in (this, base) if side.known is not None and side.known.low > 0]
    seen = max((known.high / known.low for known in ranges), default=1.0)
    both_known = this.load_known and base.load_known
    bound = max(DRIFT if both_known else BLIND, seen**2)
    # what disturbs a run only ever adds time, so one that was held up can still be the shorter one
    low = 0.0 if this.held_up else this.low / base.high / bound
    high = math.inf if base.held_up or not base.low > 0 else this.high / base.low * bound
    if low > 1 or high < 1:
        word = "slower" if low > 1 else "faster"
        reason = f"the change exceeds {bound:.3g} times, the most that machine drift alone does"
        return Unpaired(baseline, ratio, low, high, word, reason)
    side = "each side" if this.known is None and base.known is None else "one side"
    if this.held_up or base.held_up:
        reason = "other processes delayed one run, which can make a time many times too long"
        return Unpaired(baseline, ratio, 0.0, math.inf, "undecided", reason)
    reason = (
        f"one run on {side} cannot separate a code change from machine drift, which alone can change a time up to"
        f" {bound:.3g} times"
    )
    return Unpaired(baseline, ratio, 0.0, math.inf, "undecided", reason)
