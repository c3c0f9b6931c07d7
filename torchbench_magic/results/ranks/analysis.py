"""From the events of the ranks to a `RankProfile`: clocks, blame, what the straggler did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from torchbench_magic import units

from ..doubts import Doubt
from ..profiling.trace import Ints
from .blame import Blame, Guilty, blame_of, straggler_of
from .clock_bounds import ClockBounds, RankClock, bounds_of_clocks
from .collectives import CollectiveCalls, MatchedCollectives, match_collectives
from .rank_profiles import KIND_SHARE, RankProfile, Straggler
from .rank_tables import RankTimes, clock_table, op_table_of_ranks, rank_table, timeline_of_ranks, wait_table
from .stretches import FOREVER, joined_stretches, nanoseconds, within, without

__all__ = ["CodePlace", "RankRun", "profile_of_ranks"]

LONGER = 1 / 2
"""Beyond the median of the other ranks: what a rank does longer by less may come from the core that it runs on. In jobs
of equal ranks one of them has the better core throughout, so that the other is late in 9 of 10 collectives; it computes
up to 1.2 times as long, and up to 1.45 times where other processes load the machine. Which one it is changes from run
to run, which no test within a run can see."""
_MUCH = 0.05
"""Of the span."""


@dataclass(frozen=True, order=True)
class CodePlace:
    """A line or function of the user's code.

    Attributes:
        label: as it is shown.
        line: 1-based.
        file: empty where only the label is known.
        cell: n of its ``In[n]``; None for a file.
    """

    label: str
    line: int
    file: str = ""
    cell: int | None = None


@dataclass(frozen=True, eq=False)
class RankRun:
    """What the trace of one rank holds; times are ns since 1970 by its own clock.

    Attributes:
        rank: its number.
        file: the trace.
        clock: what is known of its clock.
        world_size, backend: of the job; None and empty where the trace does not tell.
        grouped: some ranks of the job have a process group of their own.
        begin, end: of its events.
        steps: ranges of steps that the profiler marked.
        calls: collectives, of whatever group.
        others: stretches of all other communication.
        compute: stretches.
        ops: (op, device) -> (calls, self ns).
        places: of the user's code -> ns in it after the first collective, without what it calls that is the user's.
        ended: the name of the exception that ended the rank early, and when (ns); None where nothing tells of one.
        gave_way: the script started a profiler of its own, at which this recording ended.
    """

    rank: int
    file: str
    clock: RankClock
    world_size: int | None
    backend: str
    grouped: bool
    begin: int
    end: int
    steps: int
    calls: CollectiveCalls
    others: Ints
    compute: Ints
    ops: Mapping[tuple[str, str], tuple[int, int]]
    places: Mapping[CodePlace, int]
    ended: tuple[str, int] | None = None
    gave_way: bool = False

    def moved(self, ns: int) -> RankRun:
        begin, end = self.begin + ns, self.end + ns
        calls, others, compute = self.calls.moved(ns), self.others + ns, self.compute + ns
        ended = None if self.ended is None else (self.ended[0], self.ended[1] + ns)
        return replace(self, begin=begin, end=end, calls=calls, others=others, compute=compute, ended=ended)


def profile_of_ranks(runs: Sequence[RankRun], doubts: Sequence[Doubt] = ()) -> RankProfile:
    """The ranks side by side; ``runs`` in the order of their ranks, ``doubts`` what reading them raised."""
    one_clock = len({run.clock.host for run in runs}) == 1 and bool(runs[0].clock.host)
    grouped = any(run.grouped for run in runs)
    raw = match_collectives([run.calls for run in runs], one_clock=one_clock, grouped=grouped)
    clocks = bounds_of_clocks(raw.arrival[:, raw.sure], raw.end[:, raw.sure], [run.clock for run in runs])
    runs = [run.moved(-int(offset)) for run, offset in zip(runs, clocks.offset, strict=True)]
    ahead = clocks.offset[:, None]
    matched = replace(raw, arrival=raw.arrival - ahead, begin=raw.begin - ahead, end=raw.end - ahead)
    times = _times(runs, matched)
    blame = blame_of(matched.arrival, clocks.error, [run.compute for run in runs])
    zero, end = min(run.begin for run in runs), max(run.end for run in runs)
    span = (end - zero) / 1e9
    error = _known_error(clocks)
    guilty = straggler_of(blame, span, error)
    ranks = [run.rank for run in runs]
    found, unnamed = None, ""
    if len(runs) > 1 and blame.totals[guilty.rank] > guilty.threshold:
        after = _after_the_first(matched, times)
        found = _straggler(guilty, blame, runs, after, span) if guilty.beyond_chance else None
        unnamed = "" if found is not None else "no cause" if guilty.beyond_chance else "chance"
    return RankProfile(
        ranks=rank_table(times, blame.totals.tolist()),
        ops=op_table_of_ranks(ranks, [run.ops for run in runs]),
        clock_error=clock_table(ranks, clocks.low, clocks.high, FOREVER // 2),
        timeline=timeline_of_ranks(times),
        waits=wait_table(blame.begin, blame.end, blame.seconds, ranks, zero),
        straggler=found,
        threshold=guilty.threshold,
        span=span,
        collectives=len(matched),
        steps=runs[0].steps,
        world_size=next((run.world_size for run in runs if run.world_size is not None), None),
        backend=next((run.backend for run in runs if run.backend), ""),
        hosts=tuple(run.clock.host for run in runs),
        files=tuple(run.file for run in runs),
        warnings=[*_of_the_ended(runs, matched, zero, span), *_doubts(runs, matched, clocks, span),
                  *_of_the_unsplit(runs, matched, times, guilty.threshold), *doubts],
        ended=_ending(runs, matched, zero, span),
        unnamed=unnamed,
    )  # fmt: skip


def _known_error(clocks: ClockBounds) -> float:
    """Seconds that any two clocks may be off, at most; 0 for a single one, and infinite where nothing tells."""
    worst = int(clocks.error.max())
    return float("inf") if worst >= FOREVER // 2 else worst / 1e9


def _times(runs: Sequence[RankRun], matched: MatchedCollectives) -> list[RankTimes]:
    last = matched.arrival.max(axis=0) if len(matched) else np.zeros(0, dtype=np.int64)
    made = []
    for at, run in enumerate(runs):
        mine = matched.index[at] >= 0
        known = (matched.begin[at][mine], matched.end[at][mine], last[mine])
        others = np.concatenate([matched.unmatched(at, run.calls), run.others])
        made.append(RankTimes.of(run.rank, (run.begin, run.end), run.compute, known, others))
    return made


def _first_end(matched: MatchedCollectives) -> int:
    """ns: when the first collective of all ranks was over everywhere, else the first of a group; the start of the job
    ends there."""
    if not len(matched):
        return -FOREVER
    ends = matched.end[:, 0]
    return int(ends[matched.index[:, 0] >= 0].max())


def _after_the_first(matched: MatchedCollectives, times: Sequence[RankTimes]) -> list[RankTimes]:
    """What the ranks do while they can make each other wait."""
    begin, end = _first_end(matched), int(matched.arrival.max())
    return [each.part(begin, max(begin, end)) for each in times]


def _straggler(
    guilty: Guilty, blame: Blame, runs: Sequence[RankRun], times: Sequence[RankTimes], span: float
) -> Straggler | None:
    """None where nothing is seen that the rank does longer. Args: ``times``, see `_after_the_first`."""
    at, run = guilty.rank, runs[guilty.rank]
    late = float(blame.totals[at])
    rows = [each.row() for each in times]
    values = {name: [row[name] for row in rows] for name in ("compute", "other")}
    computing, outside = (_excess(each, at) for each in values.values())
    much = {name: _is_longer(each, at) and _excess(each, at) >= KIND_SHARE * late for name, each in values.items()}
    held, of = int(blame.last[at]), blame.of
    text = (
        f"Rank {run.rank} delays the others by {units.part_text(late, span)} ({units.percent(late / span)} %): it "
        f"arrives last in collectives, {units.count(held)} of {units.count(of)} times"
    )
    made = Straggler(run.rank, late, text, computing=computing, outside=outside, last=held, of=of)
    place, excess = _place_of(at, runs)
    if place is not None and excess >= KIND_SHARE * late:
        said = f"{text}. `{place.label}` takes {units.seconds_text(excess)} longer there than on the median rank."
        return replace(
            made, text=said, cell=place.cell, line=place.line, place=place.label, file=place.file, excess=excess
        )
    if not any(much.values()):
        return None
    computes = much["compute"] and (computing > outside or not much["other"])
    how = "computes" if computes else "is outside torch's operations (Python, data, sleep)"
    longer = units.seconds_text(computing if computes else outside)
    return replace(made, text=f"{text}. It {how} {longer} longer than the median rank.")


def _excess(values: Sequence[float], at: int) -> float:
    """Beyond the median of the others."""
    return values[at] - float(np.median([value for n, value in enumerate(values) if n != at]))


def _is_longer(values: Sequence[float], at: int) -> bool:
    """By more than cores differ."""
    return _excess(values, at) >= LONGER * (values[at] - _excess(values, at)) and _excess(values, at) > 0


def _place_of(at: int, runs: Sequence[RankRun]) -> tuple[CodePlace | None, float]:
    """Where a rank spends the most beyond the median of the others, and how many seconds; of `_is_longer` ones."""
    places = sorted({place for run in runs for place in run.places})
    spent = [([run.places.get(place, 0) / 1e9 for run in runs], place) for place in places]
    beyond = [(_excess(each, at), place) for each, place in spent if _is_longer(each, at)]
    if not beyond or any(not run.places for run in runs):
        return None, 0.0
    excess, place = max(beyond, key=lambda each: each[0])
    return place, excess


def _doubts(runs: Sequence[RankRun], matched: MatchedCollectives, clocks: ClockBounds, span: float) -> Iterator[Doubt]:
    world = next((run.world_size for run in runs if run.world_size is not None), None)
    if len(runs) == 1:
        yield Doubt(
            "one-rank",
            "This is a single rank: its times are valid, but which rank it waited for is unknown.",
            "Give the traces of all ranks: `load_ranks('traces/*.json*')`.",
        )
    elif world is not None and world > len(runs):
        missing = sorted(set(range(world)) - {run.rank for run in runs})
        names = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        yield Doubt(
            "missing-ranks",
            f"The job had {world} ranks, and {len(missing)} have no trace here ({names}): the others may have waited "
            "for them. Times of the ranks shown are valid.",
            facts={"missing": tuple(missing)},
        )
    if gave_way := [run.rank for run in runs if run.gave_way]:
        yield Doubt(
            "gave-way",
            f"The script started a torch profiler of its own on rank{'s' if len(gave_way) > 1 else ''}"
            f" {', '.join(map(str, gave_way))}: the recording ends there.",
            "Give the traces that the script itself writes to `load_ranks`, or leave its profiler out.",
            facts={"ranks": tuple(gave_way)},
        )
    if any(run.grouped for run in runs):
        yield Doubt(
            "several-groups",
            "Some ranks of this job have their own process group: only collectives that name their group (NCCL's), or "
            "that only some ranks call, count for blame. Times of each rank are valid.",
        )
    if len(runs) > 1 and not len(matched):
        yield Doubt(
            "no-collectives",
            "No collective in which all ranks wait for each other (all_reduce, all_gather, barrier) is in these "
            "traces: which rank waits for which is unknown. Broadcasts, sends and receives do not show it. Times of "
            "each rank are valid.",
            "Record some whole steps on every rank, on GPUs with `ProfilerActivity.CUDA`.",
        )
    elif matched.left_out:
        yield Doubt(
            "unmatched-collectives",
            f"Calls of collectives without a counterpart on some rank: {units.count(matched.left_out)}. They do "
            f"not count for blame; {units.count(len(matched))} collectives were matched.",
            facts={"left_out": matched.left_out, "matched": len(matched)},
        )
    if "collectives" in clocks.refused:
        yield Doubt(
            "clocks-contradict",
            "The collectives contradict each other about the clocks (a clock was set during the run, or the traces are "
            "of different runs): which rank waited for which is unknown. Times of each rank are valid.",
        )
    elif clocks.refused:
        known = "the same host name" if "host" in clocks.refused else "the recorded clocks"
        yield Doubt(
            "clocks-differ",
            f"Ranks with {known} have clocks that disagree: collectives would end before all ranks arrive. The clocks "
            "are aligned by the collectives instead.",
        )
    error = _known_error(clocks)
    if np.isfinite(error) and len(matched) and error > 0.05 * span:
        yield Doubt(
            "clocks-unsure",
            f"The clocks of the ranks are known to {units.seconds_text(error, digits=2)} only: shorter waits are "
            "not counted, and a rank that is late by less is not found.",
            "Record with `torchbench_magic.rank_profile()`, which measures the clocks.",
            facts={"error": error},
        )


# ---- what is not known, and who ended early -----------------------------------------------------------------------


def _of_the_unsplit(
    runs: Sequence[RankRun], matched: MatchedCollectives, times: Sequence[RankTimes], threshold: float
) -> Iterator[Doubt]:
    """Where so much is wait or transfer that a rank may hold the others up there."""
    since, ended = _first_end(matched), _ended_at(runs, matched)
    until = ended[1] if ended is not None else FOREVER
    stood = [nanoseconds(without(within(each.unsplit, since, until), each.compute)) / 1e9 for each in times]
    at = int(np.argmax(stood))
    if len(runs) > 1 and len(matched) and stood[at] > threshold:
        yield Doubt(
            "wait-or-transfer",
            f"Rank {runs[at].rank} stands {units.seconds_text(stood[at])} in collectives where waiting and transfer "
            "cannot be separated (broadcast, send and receive, calls without a counterpart): a rank that is late for "
            "these is not found.",
            facts={"rank": runs[at].rank, "seconds": stood[at]},
        )


def _ended_at(runs: Sequence[RankRun], matched: MatchedCollectives) -> tuple[int, int, float] | None:
    """(place, ns, seconds) of a rank whose events end while others stand in a collective that it never comes to, and
    how long one of these stands there; None for no such rank. Where there are groups, the collective may be of one that
    the rank is not in: then only an error tells."""
    if any(run.gave_way for run in runs) or (any(run.grouped for run in runs) and not any(run.ended for run in runs)):
        return None
    at = min(range(len(runs)), key=lambda each: runs[each].end)
    end = runs[at].end
    stood = [0]
    for other, run in enumerate(runs):
        if other != at:
            calls = np.concatenate([matched.unmatched(other, run.calls), run.others])
            stood.append(nanoseconds(within(joined_stretches(calls[:, 0], calls[:, 1]), end, FOREVER)))
    span = max(run.end for run in runs) - min(run.begin for run in runs)
    return (at, end, max(stood) / 1e9) if max(stood) > _MUCH * span else None


def _ending(runs: Sequence[RankRun], matched: MatchedCollectives, zero: int, span: float) -> str:
    """Of a rank whose trace says that it failed, before all others that did."""
    failed = [(run.ended[1], run.ended[0], run.rank) for run in runs if run.ended is not None]
    if not failed:
        return ""
    at, error, rank = min(failed)
    ended = _ended_at(runs, matched)
    waited = ""
    if ended is not None and ended[1] < at and runs[ended[0]].ended is None:
        first, when = runs[ended[0]].rank, units.part_text((ended[1] - zero) / 1e9, span)
        return (
            f"Rank {first} ended first, at {when}, without an error; rank {rank} then failed with {error}, at"
            f" {units.part_text((at - zero) / 1e9, span)}"
        )
    if ended is not None and runs[ended[0]].rank == rank:
        waited = f"; the others waited {units.seconds_text(ended[2])} in collectives that it never reached"
    return f"Rank {rank} ended early, at {units.part_text((at - zero) / 1e9, span)}, with {error}{waited}"


def _of_the_ended(runs: Sequence[RankRun], matched: MatchedCollectives, zero: int, span: float) -> Iterator[Doubt]:
    ended = _ended_at(runs, matched) if len(runs) > 1 else None
    if ended is None:
        return
    at, end, stood = ended
    yield Doubt(
        "rank-ended-early",
        f"The trace of rank {runs[at].rank} ends at {units.part_text((end - zero) / 1e9, span)}, and another rank "
        f"then stands {units.seconds_text(stood)} in collectives without a counterpart, as for a rank that has ended.",
        facts={"rank": runs[at].rank, "seconds": (end - zero) / 1e9, "waited": stood},
    )
