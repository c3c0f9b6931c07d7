"""Why a job of ranks takes as long as it does: a rank that is late again and again, and what all ranks wait for.

``straggler`` is about one rank. ``waiting-for`` is about the rest of the time in which ranks stand in collectives and
compute nothing: for data in transfer, or for each other by turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchbench_magic import units

from ..insights import CodeLine, Cure, Insight
from .blame import LEAST_SHARE
from .rank_profiles import KIND_SHARE, RankProfile, Straggler

__all__ = ["rank_insights"]

BY_TURNS = 0.15
"""Of the span: what ranks wait for each other by turns is not said below it. With no fault at all some rank is last in
each collective: ranks of equal work on a machine that does little else lose 2 to 10 % that way."""


def rank_insights(profile: RankProfile) -> tuple[Insight, ...]:
    """Most seconds first."""
    if profile.span <= 0 or len(profile.ranks) < 2:
        return ()
    found = [*_straggler(profile), *_waiting_for(profile)]
    return tuple(sorted(found, key=lambda each: -each.seconds))


# ---- straggler --------------------------------------------------------------------------------------------------


def _straggler(profile: RankProfile) -> Iterator[Insight]:
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


# ---- waiting-for ------------------------------------------------------------------------------------------------


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
