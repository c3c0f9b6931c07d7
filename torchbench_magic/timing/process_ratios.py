"""The ratios of several processes as one, and how far processes spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.array_types import Floats

from .intervals import ALPHA, Interval, Look, median_interval, rounds_for_an_interval, without_order_effect
from .samples import Blocks, paired_rounds
from .verdict import Void
from .voids import IntervalOfRounds

# The ratio over processes: one value of each, and an interval of their median.
#
# Within a process a ratio repeats to a tenth of a per cent, and its interval says so truly. In the next one libraries,
# code and buffers lie at other addresses, and it is another by one to several per cent for calls of microseconds. So a
# process counts as one value, however many samples it took.
#
# Sources: Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013 (repeat at the level where the
# variance is); Mytkowicz et al., "Producing wrong data without doing anything obviously wrong", ASPLOS 2009; the
# interval of a median by ranks as in `timing.intervals`, which assumes nothing of how processes spread.

TABLE = ["measurement", "process", "median", "ratio", "ratio_low", "ratio_high"]
"""Columns of ``Comparison.processes``."""


class ProcessRatios:
    """The ratios of one comparison, process by process.

    Args:
        blocks: of each row.
        void: (row, process, cause) of ratios that decide nothing in their own process, and do not count.
    """

    def __init__(self, blocks: Sequence[Blocks], void: Sequence[tuple[int, int, str]]) -> None:
        self._blocks = blocks
        self._void = {(row, process) for row, process, _ in void}

    def is_of(self, row: int) -> bool:
        """Whether processes measured the row, and not this one."""
        process = self._blocks[row].process
        return bool(len(process)) and int(process[0]) > 0

    def rounds(self, row: int, base: int) -> dict[int, Floats]:
        """Process -> log ratios of its rounds, the effect of the order taken out of each process by itself."""
        both = paired_rounds(self._blocks[row], self._blocks[base])
        mine, first = np.unique(self._blocks[row].round, return_index=True)
        process = self._blocks[row].process[first[np.searchsorted(mine, both.rounds)]]
        return {
            int(one): without_order_effect(both.log_ratios[process == one], both.before[process == one])
            for one in np.unique(process)
        }

    def logs(self, row: int, base: int) -> dict[int, float]:
        """Process -> its log ratio, of the processes that count: what was void beside another baseline is void here."""
        left_out = {one for place, one in self._void if place in (row, base)}
        return {one: float(np.median(logs)) for one, logs in self.rounds(row, base).items() if one not in left_out}

    def judged(self, row: int, base: int, alpha: float) -> IntervalOfRounds:
        """As `timing.voids.interval_of_rounds`: the interval over processes, how many, whether they are too few."""
        logs = np.array([*self.logs(row, base).values()])
        half = -(-len(np.unique(self._blocks[row].process)) // 2)  # few that were not disturbed are a selection
        need = max(rounds_for_an_interval("once", alpha), half)
        void = Void("few-processes", row, len(logs), need) if len(logs) < need else None
        return IntervalOfRounds(median_interval(logs, alpha), len(logs), void)

    def table(self, bases: Mapping[int, int | None], looks: Sequence[Look]) -> pd.DataFrame:
        """See ``Comparison.processes``.

        Args:
            bases: row -> its baseline, itself where it is one; None where there is none.
            looks: of each row, how often its run looked at the samples of a process.
        """
        rows: list[dict[str, Any]] = []
        for row, base in bases.items():
            blocks = self._blocks[row]
            if not self.is_of(row):
                continue
            ratios = self.rounds(row, base) if base is not None and base != row else {}
            for one in np.unique(blocks.process):
                ratio = Interval(1.0, 1.0, 1.0) if base == row else _NOT_KNOWN
                if int(one) in ratios:
                    ratio = median_interval(ratios[int(one)], look=looks[row]).exp()
                median = float(np.median(blocks.calls[blocks.process == one]))
                values = (row, int(one), median, ratio.median, ratio.low, ratio.high)
                rows.append(dict(zip(TABLE, values, strict=True)))
        return pd.DataFrame(rows, columns=TABLE)


_NOT_KNOWN = Interval(math.nan, math.nan, math.nan)


def least_processes(comparisons: int) -> int:
    """The fewest processes with an interval, where ``comparisons`` share the error rate: 6 for one (the range of six
    values holds the median of all with 96.9 %), 7 for two, 10 for twenty."""
    return rounds_for_an_interval("once", ALPHA / max(1, comparisons))


# ---- kernel_spread ---------------------------------------------------------------------------------------------------
# How far the ratio of one kernel may lie from that of the next, and which verdicts are of one kernel therefore.

SPREAD = 0.03
"""Share by which a ratio moves from kernel to kernel. Of 387 ratios, 25 pairs of equal meaning (0.3 us to 8 ms; Python,
numpy, torch, C++; 1 and 2 threads) in up to 16 fresh processes each on a quiet machine, 99 % lay within 2.9 % of the
median of their pair, 95 % within 1.2 %; the farthest was 7.5 % away. Long calls moved as far as short ones
(tests/benchmarks/results/processes.json)."""
FEW_NS = 10e-9
"""Seconds a call by which it moves as well: some jumps that the processor predicts in one layout and not in the other.
Of 64 pairs of one statement each, 20 to 100 ns, 15 were decided by 4 to 28 %, all by less than 10 ns."""

FEW_NS_OF_BLOCK = 100e-9
"""The same, of a whole block: how long one takes to start depends on where its code lies."""


def is_of_this_kernel(ratio: float, verdict: object, method: object, seconds: float, calls: int | None = None) -> bool:
    """Whether the next kernel may well say otherwise: one kernel decided, by less than `SPREAD`, `FEW_NS` or
    `FEW_NS_OF_BLOCK`.

    Args:
        seconds: of a call of the row.
        calls: in a block, where these are few.
    """
    few = FEW_NS if calls is None else max(FEW_NS, FEW_NS_OF_BLOCK / calls)
    small = ratio > 0 and (abs(math.log(ratio)) < math.log1p(SPREAD) or abs(seconds - seconds / ratio) < few)
    return str(method) == "paired" and str(verdict) in ("faster", "slower") and small  # NA is none of these
