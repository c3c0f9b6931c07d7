"""`RankProfile`: the ranks of a job side by side, and which of them the others wait for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from torchbench_magic.array_types import Ints
from torchbench_magic.profiling import device_times
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Doubt, Insight, Storable, hand_on

KIND_SHARE = 1 / 3
"""Of the blame: a line, computing or idling that is longer by less is not called the reason. Blame is more than the
planted delay where a rank that comes late also finds the processors and the network busy: 1.7 times on three ranks
that share two cores."""


@dataclass(frozen=True, eq=False, repr=False)
class RankProfile(Storable):
    """What ``load_ranks`` and ``%%tprofile --engines`` return. Times are seconds; each rank's clock is corrected by the
    middle of its bounds.

    Attributes:
        ranks: a row a rank: ``rank span compute communication overlap wait transfer unsplit other blame``. Compute +
            communication - overlap + other = span. Wait is the part of communication before the last rank came,
            transfer the rest of it; unsplit is wait or transfer, where the trace does not tell which: in collectives
            in which not all wait for all, or that have no counterpart on the other ranks. Other is Python, data,
            sleep; blame what this rank made the others wait.
        ops: a row an operation and device, most time first: ``op device calls rank_0 rank_1 ... ratio``; the columns
            of ranks are self times, ``ratio`` the largest of them to the smallest (NaN where one has none of it).
        clock_error: ``rank low high``: the interval that holds this rank's clock minus the first rank's; infinite where
            nothing tells.
        timeline: ``rank begin end what``: what each rank did over time, for the strip: ``compute``, ``wait``,
            ``transfer``, ``unsplit``, ``other``; in columns of `COLUMNS` of the whole, what took most of each.
        waits: ``begin end rank seconds``: each wait in a collective, and the rank that came last.
        straggler: None unless its blame exceeds `threshold`, more than chance would have it
            (`cluster.rank_blame.straggler_of`), and something is seen that this rank does longer.
        unnamed: why the rank whose blame exceeds `threshold` is not the straggler: ``chance``, or ``no cause``; else
            empty.
        threshold: seconds: 5 % of the span, or what the clocks may be off where that is more.
        span: seconds from the first event of all ranks to the last.
        collectives: how many were matched on all ranks of their group. The first does not count for blame.
        steps: of the profiler, in the first rank's trace; 0 where none are marked.
        world_size: of the job; None where no trace tells.
        backend: of torch.distributed; empty where no trace tells.
        hosts: of each rank; empty where a trace tells none.
        files: the traces, in the order of the ranks; empty where ``profiles`` are there instead.
        profiles: of a job on engines, the `Profile` of each rank, in the order of ``ranks``.
        printed: of a job on engines, what each rank printed.
        ended: what ended the job early, in a sentence; empty where all ranks ran to their end, or nothing tells.
        sent: what was sent to the engines, with sizes.
        saved: when it was stored, UTC; empty for one that was not read from a store.
        warnings: what is doubtful, the worst first.
    """

    ranks: pd.DataFrame
    ops: pd.DataFrame
    clock_error: pd.DataFrame
    timeline: pd.DataFrame
    waits: pd.DataFrame
    straggler: Straggler | None
    threshold: float
    span: float
    collectives: int
    steps: int
    world_size: int | None
    backend: str
    hosts: tuple[str, ...]
    files: tuple[str, ...]
    warnings: list[Doubt] = field(default_factory=list)
    profiles: tuple[Profile, ...] = ()
    printed: tuple[str, ...] = ()
    ended: str = ""
    sent: str = ""
    saved: str = ""
    unnamed: str = ""

    @property
    def partial(self) -> bool:
        """A rank failed, or the job was ended before its end."""
        return bool(self.ended)

    @property
    def insights(self) -> tuple[Insight, ...]:
        """Why the job takes as long as it does, most seconds first: ``straggler``, ``waiting-for``."""
        found: tuple[Insight, ...] = hand_on(self, "insights")
        return found

    def merged_trace(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """All ranks in one Chrome trace, for Perfetto: process = rank, on the first rank's clock. Files are read again.

        Args:
            path: ``.json``, or ``.json.gz`` for gzip; whole or not at all.
            overwrite: replace a file that is no trace too.

        Raises:
            TraceError: a file is gone or has changed, or the new one cannot be written.
        """
        hand_on(self, "merged_trace", path=path, overwrite=overwrite)


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for.

    Attributes:
        rank: its number.
        late: seconds that it made the others wait.
        text: the sentence about it; ``str`` of the record.
        cell: n of the ``In[n]`` of the line at which it spends what makes it late; None for a file, or where no line
            is known.
        line: that line, 1-based; of a trace with stacks the first line of the function. None: not known.
        place: the same as it is shown, ``train.py:12 augment``; empty where it is not known.
        file: the file of the line; empty where it is not known.
        excess: seconds that it spends there beyond the median of the other ranks.
        computing: seconds that it computes beyond the median of the other ranks, negative for less.
        outside: seconds beyond the median of the other ranks in which it neither computes nor communicates: Python,
            data, sleep.
        last: how many collectives it entered last.
        of: how many collectives were looked at.
    """

    rank: int
    late: float
    text: str
    cell: int | None = None
    line: int | None = None
    place: str = ""
    file: str = ""
    excess: float = 0.0
    computing: float = 0.0
    outside: float = 0.0
    last: int = 0
    of: int = 0

    def __str__(self) -> str:
        return self.text


# ---- stretches -------------------------------------------------------------------------------------------------------
# Sets of moments: int64 [n, 2], ns, begin and end of each stretch, sorted and apart from each other.


FOREVER = 2**61
"""ns beyond any time of a trace."""


def joined_stretches(begin: Ints, end: Ints) -> Ints:
    """All that lies between a ``begin`` and its ``end``, in whatever order they come and however they overlap."""
    some = end > begin
    return np.stack(device_times.joined_stretches(begin[some], end[some]), axis=1)


def common(one: Ints, other: Ints) -> Ints:
    """What lies in both."""
    moments = np.concatenate([one[:, 0], other[:, 0], one[:, 1], other[:, 1]])
    begins = len(one) + len(other)
    change = np.where(np.arange(len(moments)) < begins, 1, -1)
    order = np.lexsort((change, moments))  # at one moment ends come first
    moments, depth = moments[order], np.cumsum(change[order])
    inside = np.flatnonzero(depth == 2)  # each set holds a moment once
    return joined_stretches(moments[inside], moments[inside + 1]) if len(inside) else np.zeros((0, 2), dtype=np.int64)


def without(one: Ints, other: Ints) -> Ints:
    """What lies in ``one`` and not in ``other``."""
    rest = np.stack([np.append(-FOREVER, other[:, 1]), np.append(other[:, 0], FOREVER)], axis=1)
    return common(one, rest)


def nanoseconds(stretches: Ints) -> int:
    """How long they are together."""
    return int((stretches[:, 1] - stretches[:, 0]).sum())


def within(stretches: Ints, begin: int, end: int) -> Ints:
    """The part between two moments."""
    return common(stretches, np.array([[begin, end]], dtype=np.int64))
