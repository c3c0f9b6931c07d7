"""The blocks of one measurement as arrays: pandas would take a millisecond for each, too slow for long sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from .intervals import Floats

__all__ = ["Blocks", "PairedRounds", "blocks_of", "paired_rounds"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks in the order taken; every array has shape (samples,).

    Attributes:
        round, position: which round, and the place in it.
        wall, cpu: seconds of the block.
        time: those of the clock that the figures are of.
        number: calls in the block.
        process: which one measured it, from 1 on; 0 where there is only the one.
    """

    round: Integers
    position: Integers
    wall: Floats
    cpu: Floats
    time: Floats
    number: Integers
    process: Integers

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


@dataclass(frozen=True, eq=False)
class PairedRounds:
    """The rounds in which two measurements both took part; every array has shape (rounds,).

    Attributes:
        rounds: their numbers, rising.
        log_ratios: of the seconds a call took, the first over the second.
        before: whether the first one's block came first.
        seconds: of a call of either.
    """

    rounds: Integers
    log_ratios: Floats
    before: npt.NDArray[np.bool_]
    seconds: tuple[Floats, Floats]


def paired_rounds(one: Blocks, other: Blocks) -> PairedRounds:
    """The rounds of two measurements that were sampled side by side."""
    other_rounds, other_logs, other_places = other.by_round()
    rounds, logs, places = one.by_round()
    both, mine, theirs = np.intersect1d(rounds, other_rounds, assume_unique=True, return_indices=True)
    seconds = np.exp(logs[mine]), np.exp(other_logs[theirs])
    return PairedRounds(both, logs[mine] - other_logs[theirs], places[mine] < other_places[theirs], seconds)


def blocks_of(samples: pd.DataFrame, measurements: int, clock: str) -> list[Blocks]:
    """The blocks of each of so many measurements; see ``Comparison.samples``."""
    of = samples["measurement"].to_numpy()
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], np.arange(1, measurements))
    columns = [samples[name].to_numpy() for name in ("round", "position", "wall", "cpu", clock, "number")]
    columns.append(samples["process"].to_numpy() if "process" in samples else np.zeros(len(samples), dtype=np.int64))
    parts = [np.split(column[order], cuts) for column in columns]
    return [Blocks(*arrays) for arrays in zip(*parts, strict=True)][:measurements]
