"""The tables of a `RankProfile` from the events of its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..profiling.trace import Ints
from .stretches import Floats, common, joined_stretches, nanoseconds, within, without

__all__ = ["COLUMNS", "RankTimes", "clock_table", "op_table_of_ranks", "rank_table", "timeline_of_ranks", "wait_table"]

COLUMNS = 345
"""Of the strip of ranks, 2 px each."""
_WHAT = ("wait", "transfer", "unsplit", "compute")
RANK_COLUMNS = ("span", "compute", "communication", "overlap", "wait", "transfer", "unsplit", "other")


@dataclass(frozen=True, eq=False)
class RankTimes:
    """When a rank did what; all on one clock, ns.

    Attributes:
        rank: its number.
        begin, end: of its events.
        compute, communication, wait, unsplit: stretches; wait and unsplit lie within communication, apart from each
            other. Unsplit is what is wait or transfer: collectives without a counterpart, and those in which not all
            wait for all.
    """

    rank: int
    begin: int
    end: int
    compute: Ints
    communication: Ints
    wait: Ints
    unsplit: Ints

    @classmethod
    def of(
        cls, rank: int, window: tuple[int, int], compute: Ints, matched: tuple[Ints, Ints, Ints], others: Ints
    ) -> RankTimes:
        """Args: ``matched``, (begin, end, last) of the matched collectives on this rank, ``last`` when the last rank
        came; ``others``, [n, 2], all other communication."""
        begin, end = window
        waited = joined_stretches(matched[0], np.minimum(matched[2], matched[1]))
        known = joined_stretches(matched[0], matched[1])
        rest = joined_stretches(others[:, 0], others[:, 1])
        every = joined_stretches(*np.concatenate([known, rest]).T)
        inside = (within(each, begin, end) for each in (compute, every, waited, without(rest, known)))
        return cls(rank, begin, end, *inside)

    @property
    def transfer(self) -> Ints:
        return without(without(self.communication, self.wait), self.unsplit)

    def part(self, begin: int, end: int) -> RankTimes:
        """Between two moments."""
        inside = (within(each, begin, end) for each in (self.compute, self.communication, self.wait, self.unsplit))
        return RankTimes(self.rank, begin, end, *inside)

    def row(self) -> dict[str, float]:
        """Seconds of each of `RANK_COLUMNS`."""
        span, compute, communication = self.end - self.begin, nanoseconds(self.compute), nanoseconds(self.communication)
        overlap, wait = nanoseconds(common(self.compute, self.communication)), nanoseconds(self.wait)
        unsplit = nanoseconds(self.unsplit)
        other = span - compute - communication + overlap
        values = (span, compute, communication, overlap, wait, communication - wait - unsplit, unsplit, other)
        return {name: value / 1e9 for name, value in zip(RANK_COLUMNS, values, strict=True)}


def rank_table(times: Sequence[RankTimes], blame: Sequence[float]) -> pd.DataFrame:
    """See `RankProfile.ranks`."""
    rows = [
        {"rank": each.rank, **each.row(), "blame": float(seconds)} for each, seconds in zip(times, blame, strict=True)
    ]
    return pd.DataFrame(rows, columns=["rank", *RANK_COLUMNS, "blame"])


def clock_table(ranks: Sequence[int], low: Ints, high: Ints, unknown: int) -> pd.DataFrame:
    """See `RankProfile.clock_error`; ``unknown`` ns and more are infinite."""
    ends = (np.where(np.abs(each) >= unknown, np.copysign(np.inf, each), each / 1e9) for each in (low, high))
    return pd.DataFrame({"rank": list(ranks), **dict(zip(("low", "high"), ends, strict=True))})


def op_table_of_ranks(
    ranks: Sequence[int], ops: Sequence[Mapping[tuple[str, str], tuple[int, int]]]
) -> pd.DataFrame:
    """See `RankProfile.ops`; of each rank (op, device) -> (calls, self ns)."""
    names = sorted({name for each in ops for name in each})
    found: dict[str, list[object]] = {"op": [name for name, _ in names], "device": [device for _, device in names]}
    found["calls"] = [sum(each.get(name, (0, 0))[0] for each in ops) for name in names]
    times = np.array([[each.get(name, (0, 0))[1] / 1e9 for each in ops] for name in names]).reshape(-1, len(ops))
    made = pd.DataFrame(found)
    for at, rank in enumerate(ranks):
        made[f"rank_{rank}"] = times[:, at]
    least, most = (times.min(axis=1), times.max(axis=1)) if len(names) else (times, times)
    made["ratio"] = np.divide(most, least, out=np.full(len(names), np.nan), where=least > 0) if len(names) else []
    order = np.argsort(-times.sum(axis=1), kind="stable")
    return made.iloc[order].reset_index(drop=True)


def wait_table(begin: Ints, end: Ints, seconds: Floats, ranks: Sequence[int], zero: int) -> pd.DataFrame:
    """See `RankProfile.waits`; ``zero`` is the moment that times count from."""
    late = seconds.argmax(axis=1) if len(seconds) else np.zeros(0, dtype=np.int64)
    return pd.DataFrame(
        {
            "begin": (begin - zero) / 1e9,
            "end": (end - zero) / 1e9,
            "rank": np.array(list(ranks), dtype=np.int64)[late],
            "seconds": seconds.max(axis=1) if len(seconds) else np.zeros(0),
        }
    )


def timeline_of_ranks(times: Sequence[RankTimes], columns: int = COLUMNS) -> pd.DataFrame:
    """See `RankProfile.timeline`."""
    zero, end = min(each.begin for each in times), max(each.end for each in times)
    edges = np.linspace(0, max(end - zero, 1), columns + 1)
    parts = []
    for each in times:
        wait, transfer, unsplit = each.wait, each.transfer, each.unsplit
        compute = without(each.compute, wait)
        own = np.array([[each.begin, each.end]], dtype=np.int64)
        other = without(without(own, each.communication), compute)
        held = [_in_columns(found - zero, edges) for found in (wait, transfer, unsplit, compute, other)]
        most = np.where(np.sum(held, axis=0) > 0, np.argmax(held, axis=0), -1)
        first = np.flatnonzero(np.append(True, most[1:] != most[:-1]))
        until = np.append(first[1:], columns)
        shown = most[first] >= 0
        names = np.array([*_WHAT, "other"], dtype=object)
        parts.append(
            pd.DataFrame(
                {
                    "rank": each.rank,
                    "begin": edges[first[shown]] / 1e9,
                    "end": edges[until[shown]] / 1e9,
                    "what": names[most[first[shown]]],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _in_columns(stretches: Ints, edges: Floats) -> Floats:
    """ns of the stretches in each column: the difference of what lies before its edges."""
    lengths = np.append(0, np.cumsum(stretches[:, 1] - stretches[:, 0]))
    if not len(stretches):
        return np.zeros(len(edges) - 1)
    at = np.searchsorted(stretches[:, 0], edges, side="right")
    inside = np.minimum(edges, stretches[np.maximum(at - 1, 0), 1]) - stretches[np.maximum(at - 1, 0), 0]
    before = np.where(at > 0, lengths[np.maximum(at - 1, 0)] + inside, 0.0)
    return np.diff(before)
