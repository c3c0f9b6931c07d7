"""The blocks of one measurement as arrays: pandas would take a millisecond for each, too slow for long sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from .intervals import Floats

__all__ = ["Blocks", "blocks_of"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks in the order taken; every array has shape (samples,).

    Attributes:
        round, position: which round, and the place in it.
        wall, cpu: seconds of the block.
        time: those of the clock that the figures are of.
        number: calls in the block.
    """

    round: Integers
    position: Integers
    wall: Floats
    cpu: Floats
    time: Floats
    number: Integers

    def __len__(self) -> int:
        return len(self.round)

    @cached_property
    def calls(self) -> Floats:
        """Seconds of one call."""
        return self.time / self.number

    def by_round(self) -> tuple[Integers, Floats, Integers]:
        """(rounds, log of the seconds a call took in each, first place in each), by rising round.

        Where a round holds several blocks, the log of their mean: together they last as long as the one block of a
        slower alternative beside them, and hold their share of what disturbs, as that one does. The median of short
        blocks holds none of it, which made slow alternatives look up to 70 % slower yet on a busy machine. A block
        without a positive time does not count.
        """
        times = self.calls
        counts = times > 0
        rounds, logs, places = self.round[counts], np.log(times[counts]), self.position[counts]
        order = np.lexsort((places, rounds))
        rounds, logs, places = rounds[order], logs[order], places[order]
        starts = np.flatnonzero(np.diff(rounds, prepend=rounds[:1] - 1))
        if len(starts) < len(rounds):
            sizes = np.diff(starts, append=len(rounds))
            logs = np.log(np.add.reduceat(np.exp(logs), starts) / sizes)
        return rounds[starts], logs, places[starts]


def blocks_of(samples: pd.DataFrame, measurements: int, clock: str) -> list[Blocks]:
    """The blocks of each of so many measurements; see ``Comparison.samples``."""
    of = samples["measurement"].to_numpy()
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], np.arange(1, measurements))
    names = ("round", "position", "wall", "cpu", clock, "number")
    parts = [np.split(samples[name].to_numpy()[order], cuts) for name in names]
    return [Blocks(*arrays) for arrays in zip(*parts, strict=True)][:measurements]
