"""What a machine reaches at most: arithmetic by dtype, bandwidth by working set, and the call of the smallest op."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Peaks"]


@dataclass(frozen=True)
class Peaks:
    """Measured peaks of one processor, with one thread and with ``threads`` of them.

    Attributes:
        threads: of the run that they are for.
        flops: (dtype, threads, FLOP/s) of a matrix product; NaN where two measurements did not agree.
        bandwidth: (bytes of the working set, threads, bytes/s) of copying and adding; NaN as above.
        dispatch: seconds that calling the smallest op takes.
        caches: (name, bytes) of the data caches; empty where the system does not tell.
        contended: cores that others used meanwhile; NaN where that is not known.
        is_kept: they were read from the user's cache, not measured now.
        notes: what is not known of this machine, one line each.
    """

    threads: int
    flops: tuple[tuple[str, int, float], ...] = ()
    bandwidth: tuple[tuple[int, int, float], ...] = ()
    dispatch: float = math.nan
    caches: tuple[tuple[str, int], ...] = ()
    contended: float = math.nan
    is_kept: bool = False
    notes: tuple[str, ...] = ()

    def flops_of(self, dtype: str, threads: int | None = None) -> float:
        """FLOP/s of matrix products in ``dtype`` ("float32"); NaN where not known."""
        count = self.threads if threads is None else threads
        return _first(rate for name, at, rate in self.flops if name == dtype and at == count)

    def bandwidth_of(self, working_set: float, threads: int | None = None) -> float:
        """Bytes/s for so many bytes that are touched once; NaN where not known.

        Between two measured sizes on the straight line between them, both axes logarithmic; beyond them, the last one.
        """
        count = self.threads if threads is None else threads
        known = sorted((size, rate) for size, at, rate in self.bandwidth if at == count and rate > 0)
        if not known or not working_set > 0:
            return math.nan
        for (low, slow), (high, fast) in pairwise(known):
            if low <= working_set <= high:
                part = math.log(working_set / low) / math.log(high / low)
                return math.exp(math.log(slow) + part * math.log(fast / slow))
        return known[0][1] if working_set < known[0][0] else known[-1][1]

    def roof(self, flops: float, moved: float, dtype: str, threads: int | None = None) -> tuple[float, str]:
        """(seconds at least, ``compute`` or ``memory``) for an op of so many FLOP (NaN: not counted) and bytes.

        NaN seconds where a peak that is needed is not known.
        """
        computing = flops / self.flops_of(dtype, threads) if flops > 0 else 0.0
        moving = moved / self.bandwidth_of(moved, threads) if moved > 0 else 0.0
        if math.isnan(computing) or math.isnan(moving):
            return math.nan, ""
        if not max(computing, moving) > 0:
            return math.nan, ""
        return max(computing, moving), "compute" if computing >= moving else "memory"

    def cache(self, name: str) -> int:
        """Bytes of ``L2`` or another level; 0 where not known."""
        return dict(self.caches).get(name, 0)


def _first(rates: Iterable[float]) -> float:
    return next(iter(rates), math.nan)
