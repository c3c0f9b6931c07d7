"""From the events of ranks to a `RankProfile`, its tables, and why the job takes as long as it does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.array_types import Floats, Ints
from torchbench_magic.profiling.device_times import overlap
from torchbench_magic.result_base import CodeLine, Cure, Doubt, Insight

from .job_profile import (
    FOREVER,
    KIND_SHARE,
    RankProfile,
    Straggler,
    common,
    joined_stretches,
    nanoseconds,
    within,
    without,
)
from .rank_blame import (
    LEAST_SHARE,
    Blame,
    CollectiveCalls,
    Guilty,
    MatchedCollectives,
    blame_of,
    match_collectives,
    straggler_of,
)
from .rank_clocks import ClockBounds, RankClock, bounds_of_clocks

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
        span, compute, communication = self.end - self.begin, nanoseconds(self.compute), nanoseconds(self.communication)
        overlap, wait = nanoseconds(common(self.compute, self.communication)), nanoseconds(self.wait)
        unsplit = nanoseconds(self.unsplit)
        other = span - compute - communication + overlap
        values = (span, compute, communication, overlap, wait, communication - wait - unsplit, unsplit, other)
        return {name: value / 1e9 for name, value in zip(RANK_COLUMNS, values, strict=True)}


def clock_table(ranks: Sequence[int], low: Ints, high: Ints, unknown: int) -> pd.DataFrame:
    """See `RankProfile.clock_error`; ``unknown`` ns and more are infinite."""
    ends = (np.where(np.abs(each) >= unknown, np.copysign(np.inf, each), each / 1e9) for each in (low, high))
    return pd.DataFrame({"rank": list(ranks), **dict(zip(("low", "high"), ends, strict=True))})


def op_table_of_ranks(ranks: Sequence[int], ops: Sequence[Mapping[tuple[str, str], tuple[int, int]]]) -> pd.DataFrame:
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
    moments = edges.astype(np.int64) + zero
    parts = []
    for each in times:
        wait, transfer, unsplit = each.wait, each.transfer, each.unsplit
        compute = without(each.compute, wait)
        own = np.array([[each.begin, each.end]], dtype=np.int64)
        other = without(without(own, each.communication), compute)
        held = [overlap(moments[:-1], moments[1:], *found.T) for found in (wait, transfer, unsplit, compute, other)]
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


# ---- analysis --------------------------------------------------------------------------------------------------------

LONGER = 1 / 2
"""Beyond the median of the other ranks: what a rank does longer by less may come from the core that it runs on. In jobs
of equal ranks one of them has the better core throughout, so that the other is late in 9 of 10 collectives; it computes
up to 1.2 times as long, and up to 1.45 times where other processes load the machine. Which one it is changes from run
to run, which no test within a run can see."""


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


@dataclass(frozen=True, eq=False, kw_only=True)
class RankFacts:
    """What is known of a rank besides its events.

    Attributes:
        rank: its number.
        clock: what is known of its clock.
        world_size, backend: of the job; None and empty where the trace does not tell.
        grouped: some ranks of the job have a process group of their own.
        base: ns since 1970 that the times of its events count from.
        file: the trace.
        ended: the name of the exception that ended the rank early, and when (ns since 1970); None where nothing tells
            of one.
        gave_way: the script started a profiler of its own, at which this recording ended.
    """

    rank: int
    clock: RankClock
    world_size: int | None
    backend: str
    grouped: bool = False
    base: int = 0
    file: str = ""
    ended: tuple[str, int] | None = None
    gave_way: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class RankRun(RankFacts):
    """What the trace of one rank holds; times are ns since 1970 by its own clock.

    Attributes:
        begin, end: of its events.
        steps: ranges of steps that the profiler marked.
        calls: collectives, of whatever group.
        others: stretches of all other communication.
        compute: stretches.
        ops: (op, device) -> (calls, self ns).
        places: of the user's code -> ns in it after the first collective, without what it calls that is the user's.
    """

    begin: int
    end: int
    steps: int
    calls: CollectiveCalls
    others: Ints
    compute: Ints
    ops: Mapping[tuple[str, str], tuple[int, int]]
    places: Mapping[CodePlace, int]

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
    clocks = bounds_of_clocks(raw.arrival, raw.end, [run.clock for run in runs])
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
        found = _straggler_with_cause(guilty, blame, runs, after, span) if guilty.beyond_chance else None
        unnamed = "" if found is not None else "no cause" if guilty.beyond_chance else "chance"
    late = zip(times, blame.totals.tolist(), strict=True)
    rows = [{"rank": each.rank, **each.row(), "blame": seconds} for each, seconds in late]
    return RankProfile(
        ranks=pd.DataFrame(rows, columns=["rank", *RANK_COLUMNS, "blame"]),
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
        warnings=[
            *_doubts(runs, matched, clocks, span),
            *_of_the_unsplit(runs, matched, times, guilty.threshold),
            *doubts,
        ],
        ended=_ending(runs, zero, span),
        unnamed=unnamed,
    )


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


def _straggler_with_cause(
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
    if clocks.is_contradiction:
        yield Doubt(
            "clocks-contradict",
            "The collectives contradict each other about the clocks (a clock was set during the run, or the traces are "
            "of different runs): which rank waited for which is unknown. Times of each rank are valid.",
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
    since = _first_end(matched)
    stood = [nanoseconds(without(within(each.unsplit, since, FOREVER), each.compute)) / 1e9 for each in times]
    at = int(np.argmax(stood))
    if len(runs) > 1 and len(matched) and stood[at] > threshold:
        yield Doubt(
            "wait-or-transfer",
            f"Rank {runs[at].rank} stands {units.seconds_text(stood[at])} in collectives where waiting and transfer "
            "cannot be separated (broadcast, send and receive, calls without a counterpart): a rank that is late for "
            "these is not found.",
            facts={"rank": runs[at].rank, "seconds": stood[at]},
        )


def _ending(runs: Sequence[RankRun], zero: int, span: float) -> str:
    """Of a rank whose trace says that it failed, before all others that did."""
    failed = [(run.ended[1], run.ended[0], run.rank) for run in runs if run.ended is not None]
    if not failed:
        return ""
    at, error, rank = min(failed)
    return f"Rank {rank} ended early, at {units.part_text((at - zero) / 1e9, span)}, with {error}"


# ---- rank_insights ---------------------------------------------------------------------------------------------------
# ``straggler`` is about one rank. ``waiting-for`` is about the rest of the time in which ranks stand in collectives and
# compute nothing: for data in transfer, or for each other by turns.

BY_TURNS = 0.15
"""Of the span: what ranks wait for each other by turns is not said below it. With no fault at all some rank is last in
each collective: ranks of equal work on a machine that does little else lose 2 to 10 % that way."""


def rank_insights(profile: RankProfile) -> tuple[Insight, ...]:
    """Most seconds first."""
    if profile.span <= 0 or len(profile.ranks) < 2:
        return ()
    found = [*_straggler_insight(profile), *_waiting_for(profile)]
    return tuple(sorted(found, key=lambda each: -each.seconds))


def _straggler_insight(profile: RankProfile) -> Iterator[Insight]:
    found = profile.straggler
    if found is None:
        return
    evidence: dict[str, object] = {
        "collectives_entered_last": found.last,
        "collectives": found.of,
        "seconds_threshold": profile.threshold,
        "seconds_computing_more": found.computing,
        "seconds_outside_torch_more": found.outside,
    }
    places = (CodeLine(found.place, found.file, found.line),) if found.line is not None else ()
    share = found.late / profile.span
    yield Insight("straggler", found.late, share, _why(found), evidence, places, _cures(found))


def _why(found: Straggler) -> str:
    """What makes it late, as far as it is known."""
    waited = f"the others wait {units.seconds_text(found.late)} for it"
    if found.place:
        longer = units.seconds_text(found.excess)
        return f"`{found.place}` delays rank {found.rank} by {longer} more than the median rank; {waited}."
    if max(found.computing, found.outside) < KIND_SHARE * found.late:
        return f"Rank {found.rank} is late, but its trace does not show what takes longer; {waited}."
    how = "computes" if found.computing > found.outside else "is outside torch's operations"
    longer = units.seconds_text(max(found.computing, found.outside))
    return f"Rank {found.rank} {how} {longer} longer than the median rank; {waited}."


def _cures(found: Straggler) -> tuple[Cure, ...]:
    if found.computing > found.outside:
        return (
            Cure("Give every rank the same work: as many samples, and as many tokens or nodes in them."),
            Cure("If the inputs are equal, that rank's CPU is slower or shared: check it with `%tdoctor`."),
        )
    return (
        Cure("Do work that only this rank does (logging, checkpoints, evaluation) less often, or in another process."),
        Cure("If every rank does it, give this one the same share: as many files, and equally fast storage."),
    )


def _waiting_for(profile: RankProfile) -> Iterator[Insight]:
    """Data on their way, or each other by turns: whichever is more. Silent where it is not known which: without
    collectives, with clocks that are known to less than a twentieth of the span."""
    if profile.collectives < 2 or profile.threshold > LEAST_SHARE * profile.span * 1.0001 or profile.ended:
        return
    ranks = profile.ranks
    stands = (ranks["communication"] - ranks["overlap"]).clip(lower=0)  # and computes nothing
    waits = stands.where(stands < ranks["wait"], ranks["wait"])
    transfer = float((stands - waits - ranks["unsplit"]).clip(lower=0).median())
    blame = ranks["blame"]
    if profile.straggler is not None:
        blame = blame[ranks["rank"] != profile.straggler.rank]
    turns = min(float(blame.sum()), float(waits.max()))
    last = int((ranks["blame"] > 0).sum())
    evidence: dict[str, object] = {
        "collectives": profile.collectives,
        "seconds_transfer": transfer,
        "seconds_by_turns": turns,
        "seconds_computing_at_the_same_time": float(ranks["overlap"].median()),
    }
    places = _places(profile)
    at = f" at `{places[0].label}`" if places else ""
    if transfer >= turns and transfer >= LEAST_SHARE * profile.span:
        text = (
            f"The ranks wait{at} for data in transfer, {units.part_text(transfer, profile.span)} in"
            f" {units.count(profile.collectives)} collectives, and compute nothing in that time."
        )
        cures = _FOR_DATA if _is_data_parallel(profile) else _FOR_DATA_BY_HAND
        yield Insight("waiting-for", transfer, transfer / profile.span, text, evidence, places, cures)
    elif turns > transfer and turns >= BY_TURNS * profile.span and last > 1 and math.isfinite(turns):
        text = (
            f"The ranks wait{at} for each other in turn, {units.part_text(turns, profile.span)}: a different one"
            " arrives last each time."
        )
        cures = _FOR_EACH_OTHER if _is_data_parallel(profile) else _FOR_EACH_OTHER[:1] + _FOR_EACH_OTHER[2:]
        yield Insight("waiting-for", turns, turns / profile.span, text, evidence, places, cures)


def _is_data_parallel(profile: RankProfile) -> bool:
    """Whether it trains with DistributedDataParallel, whose settings are then a cure."""
    return bool(profile.ops["op"].str.contains("DistributedDataParallel|reducer::|Reducer", regex=True).any())


_FOR_DATA_BY_HAND = (
    Cure("Send less often, or several small tensors as one: each collective has a cost of its own."),
    Cure("Send while you compute: `async_op=True`, and wait for the result where it is needed."),
)
_FOR_DATA = (
    Cure(
        "Send less often: accumulate the gradients of several steps and send them once.",
        "with model.no_sync():  # DistributedDataParallel; not for the last of the steps",
    ),
    Cure(
        "Send less: gradients in half the bytes.",
        "model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook)",
    ),
    Cure("Overlap sending and computing: larger buckets (`bucket_cap_mb`) for many small tensors, or `async_op=True`."),
)
_FOR_EACH_OTHER = (
    Cure("Give all ranks equal work in each step: sort samples by length, or fill batches by tokens, not by count."),
    Cure("Synchronize less often (`no_sync()`, fewer barriers and logged sums): chance differences then average out."),
    Cure("On one host, give each rank its own cores: torch threads = cores / ranks."),
)


def _places(profile: RankProfile) -> tuple[CodeLine, ...]:
    """The line from which most collectives are called, where the ranks' own profiles tell."""
    if not profile.profiles:
        return ()
    one = profile.profiles[0]
    rows = one.ops[one.ops["op"].str.startswith("c10d::") & one.ops["line"].notna()]
    if not len(rows):
        return ()
    calls = rows.groupby(["source_id", "line"], as_index=False)["calls"].sum()
    most = calls.loc[calls["calls"].idxmax()]
    source, line = str(most["source_id"]), int(most["line"])
    held = one.sources.get(source)
    return (CodeLine(f"{held.label}:{line}" if held is not None else f"line {line}", source, line),)
