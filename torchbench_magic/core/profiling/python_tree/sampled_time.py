"""How long each sample stands for, and how much of that was in torch.

There are two kinds of samples, see `sampler`. In a *stretch* nothing was called and nothing returned: all of it belongs
to the sample's own stack, and how much of it was in torch's ops is known exactly. Between stretches anything may have
run: what ran when a sample was *due* stands for the time since the due moment before it, as in any sampling, and it was
in torch or it was not. Time in stretches is no part of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["active_before", "idle_times", "sampled_times", "waited", "without_callers"]

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
    moments: Ints, begins: Ints, dues: Ints, spans: tuple[Ints, Ints], active: Callable[[Ints], Ints]
) -> tuple[Ints, Ints]:
    """(ns that each sample stands for, ns of that in torch).

    Args:
        moments: the start of sampling, then each sample; Unix ns.
        begins: of each sample that is a stretch its beginning, else 0.
        dues: of each of the others the moment at which it was due, else 0.
        spans: (starts, ends) of the ops that count as torch's, in any order; they may lie in one another.
        active: ns of the run before each of some moments, see `active_before`.
    """
    is_stretch = begins > 0
    whole = np.zeros(len(begins), dtype=np.int64)
    whole[is_stretch] = active(moments[1:][is_stretch]) - active(begins[is_stretch])
    stretched = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(whole)])[:-1][~is_stretch]  # before each due
    until = active(dues[~is_stretch]) - stretched
    whole[~is_stretch] = np.diff(until, prepend=active(moments[:1]))
    starts, ends = _union(*spans)
    torch = np.zeros_like(whole)
    if len(starts):
        place = np.searchsorted(starts, dues, side="right") - 1
        inside = ~is_stretch & (place >= 0) & (dues < ends[place])
        torch[inside] = whole[inside]
        exact = _within(starts, ends, moments[1:][is_stretch]) - _within(starts, ends, begins[is_stretch])
        torch[is_stretch] = np.minimum(exact, whole[is_stretch])
    return whole, torch


def _within(starts: Ints, ends: Ints, moments: Ints) -> Ints:
    """Ns of the spans, in order and without overlap, before each moment."""
    edges, lengths = np.stack((starts, ends), axis=1).ravel(), ends - starts
    level = np.stack((np.cumsum(lengths) - lengths, np.cumsum(lengths)), axis=1).ravel()
    return _interpolated(moments, edges, level)


def waited(idle: Ints, room: Ints, is_stretch: NDArray[np.bool_]) -> Ints:
    """Ns of idleness that each sample takes: a stretch what it has room for, from the sample before it to its end; what
    is left was between stretches, and the next sample there has it.

    Args:
        idle: between each two samples.
        room: ns of each sample that may have been idle.
    """
    taken, left = np.zeros_like(idle), 0
    for at, (more, most, alone) in enumerate(zip(idle.tolist(), room.tolist(), is_stretch.tolist(), strict=True)):
        there = max(more, 0) + (0 if alone else left)
        taken[at] = min(there, most)
        left = left + there - int(taken[at]) if alone else 0
    return taken


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
