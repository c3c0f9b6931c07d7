"""How long each sample stands for, and how much of that was in torch.

A sample is taken at the first call or return after an interval has passed since the last one. Its stretch has two
parts. Up to the end of the interval anything may have run: what ran at its very end stands for it, as in any sampling.
From there on nothing was called and nothing returned: all of it belongs to the sample's own stack, and how much of it
was in torch's ops is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["active_before", "idle_times", "sampled_times", "without_callers"]

Ints = NDArray[np.int64]
_EDGE = 20_000
"""Ns round the ends of an op in which a sample says nothing of it: clocks differ by 2 us, and a call returns a little
after the op in it has ended."""


def without_callers(starts: Ints, ends: Ints, moments: Ints) -> NDArray[np.bool_]:
    """bool [ops]: no sample was taken inside. Samples are taken as Python calls and returns: an op with one in it runs
    Python itself (a backward function, a hook), and what is torch's of its time are the ops in it."""
    first = np.searchsorted(moments, starts + _EDGE, side="right")
    last = np.searchsorted(moments, ends - _EDGE, side="left")
    return first >= last


def active_before(moments: Ints, begin: int, end: int, left_out: Sequence[tuple[int, int]] = ()) -> Ints:
    """Ns of [begin, end), without the stretches ``left_out``, that lie before each moment."""
    edges, level, total = [begin], [0], 0
    for start, stop in sorted(left_out):
        start, stop = max(start, edges[-1]), min(stop, end)
        if stop > start:
            total += start - edges[-1]
            edges += [start, stop]
            level += [total, total]
    edges.append(max(end, edges[-1]))
    level.append(total + edges[-1] - edges[-2])
    return _interpolated(moments, np.array(edges), np.array(level))


def sampled_times(
    moments: Ints, interval: int, spans: tuple[Ints, Ints], active: Callable[[Ints], Ints]
) -> tuple[Ints, Ints]:
    """(ns that each sample stands for, ns of that in torch).

    Args:
        moments: the start of sampling, then each sample; Unix ns.
        interval: ns that lie between two samples at least.
        spans: (starts, ends) of the ops that count as torch's, in any order; they may lie in one another.
        active: ns of the run before each of some moments, see `active_before`.
    """
    before, after = moments[:-1], moments[1:]
    ends_interval = np.minimum(before + interval, after)
    at, at_interval = active(moments), active(ends_interval)
    whole = at[1:] - at[:-1]
    starts, ends = _union(*spans)
    if not len(starts):
        return whole, np.zeros_like(whole)
    place = np.searchsorted(starts, ends_interval, side="right") - 1
    inside = (place >= 0) & (ends_interval < ends[place])
    edges = np.stack((starts, ends), axis=1).ravel()
    lengths = ends - starts
    level = np.stack((np.cumsum(lengths) - lengths, np.cumsum(lengths)), axis=1).ravel()
    exact = _interpolated(after, edges, level) - _interpolated(ends_interval, edges, level)
    torch = np.where(inside, at_interval - at[:-1], 0) + np.minimum(exact, at[1:] - at_interval)
    return whole, torch


def idle_times(moments: Ints, wanted: Ints) -> Ints:
    """Ns between each two moments in which a thread surely wanted no processor.

    At each moment the wall clock is read first, and systems give the processor to others at the end of just such a
    call: that wait is in what was wanted, and not yet on the wall clock. So what one stretch has too little the next
    has too much, and idle is only what exceeds all that there was before.

    Args:
        moments: by the wall clock.
        wanted: ns that the thread had run or waited for a core until then, shape as ``moments``.
    """
    return np.diff(np.maximum.accumulate(moments - wanted))


def _union(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The stretches that spans cover, in order, with no overlap."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    is_first = np.ones(len(starts), dtype=bool)
    is_first[1:] = starts[1:] > ends[:-1]
    is_last = np.ones(len(starts), dtype=bool)
    is_last[:-1] = is_first[1:]
    return starts[is_first], ends[is_last]


def _interpolated(moments: Ints, edges: Ints, level: Ints) -> Ints:
    """`numpy.interp` of whole numbers, exactly: between two edges the level rises by one a ns, or not at all."""
    at = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, len(edges) - 1)
    beyond = np.minimum(at + 1, len(edges) - 1)
    risen = np.clip(moments - edges[at], 0, level[beyond] - level[at])
    return np.asarray(level[at] + risen, dtype=np.int64)
