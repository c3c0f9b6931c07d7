"""The class of an op: a rule of thresholds, each with its reason. Pure: figures in, a word out."""

from __future__ import annotations

import math

from torchbench_magic.results.machine.peaks import Peaks

__all__ = [
    "DISPATCHES",
    "FASTER",
    "FAULTED",
    "FAULTED_TIME",
    "LARGE_FRESH",
    "NEAR",
    "PAGE",
    "SERIAL",
    "accounts_for",
    "class_of",
]

DISPATCHES = 4.0
"""Times the call of the smallest op: what takes less is the call rather than what it computes (design notes on threads:
0.8 to 0.95 us an op; three quarters of four times that may be work, and still a faster op would not be seen)."""
NEAR = 0.5
"""Of the roof: from there on an op does what the machine can. Products of usual sizes reach 50 to 95 % of the peak of
n = 512, sums and copies as much of the bandwidth at their size (design notes on threads, 17 ops by hand)."""
IMPOSSIBLE = 2.0
"""Of the roof: what reaches more shows that the roof is wrong, so nothing is told. Some more than 1 is usual: a cache
that holds more than its size says, one tensor given twice (which counts twice)."""
LONG = 1e-4
"""Seconds of a call from which on it should have used several threads: torch starts them from 32,768 elements on, and
starting them takes some microseconds."""
SERIAL = 0.15
"""Processor time of the other threads over that of the calling one: below, an op ran on one thread (the same notes)."""
PAGE = 4096
FAULTED = 0.3
"""Of the fresh bytes that page faults account for: below, they are not what takes the time (the same notes)."""
FAULTED_TIME = 0.25
"""Of an op's time that its page faults take: from there on they hold it up. One that is far below its roof for another
reason too (a transposed input: 0.4) is held up by both, and both are told."""
FASTER = 0.67
"""Of the time in the run: an op that takes so much less where its memory is there was held up by getting it."""
LARGE_FRESH = 1 << 20
"""Bytes of a fresh output from which on page faults are looked for: a smaller one comes from memory that is kept."""


def class_of(
    seconds: float,
    roof: tuple[float, str],
    peaks: Peaks,
    *,
    is_bounded: bool,
    is_faulting: bool = False,
    is_serial: bool = False,
) -> str:
    """One of `CLASSES`, or empty where it cannot be told.

    Args:
        seconds: of a call, without what recording added.
        roof: (seconds at the peaks of all threads, which side).
        is_bounded: the roof is one for this op: its FLOPs are counted, or moving bytes is all it does. Of another one
            only is said that it is near the roof, never that it is far below.
        is_faulting: page faults account for its fresh bytes and take much of its time.
        is_serial: the other threads were seen to do nothing meanwhile.
    """
    if not seconds > 0 or math.isnan(peaks.dispatch):
        return ""
    if seconds < DISPATCHES * peaks.dispatch:
        return "overhead"
    least, side = roof
    if is_bounded and least < peaks.dispatch:  # less work than a call, however long others held it up
        return "overhead"
    fraction = least / seconds
    if fraction >= NEAR:
        return side if fraction <= IMPOSSIBLE else ""
    if is_faulting:
        return "page-fault"
    if is_serial and peaks.threads > 1 and seconds >= LONG:
        return "serial"
    return "below-roof" if is_bounded and fraction > 0 else ""


def accounts_for(faults: float, fresh: float) -> bool:
    """Whether so many minor faults of a call account for the bytes that it writes into fresh memory."""
    return fresh >= LARGE_FRESH and faults * PAGE >= FAULTED * fresh
