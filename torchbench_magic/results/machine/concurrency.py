"""Whether the cores were used well, as a value: the verdict, the facts behind it, the threads over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pandas as pd

from .core_verdicts import CoreUse, CoreVerdict, mean_use, verdict_of

__all__ = ["TIMELINE_COLUMNS", "Concurrency", "joined_concurrency"]

TIMELINE_COLUMNS = {
    "time": "float64",  # seconds since the code began: the end of the stretch that a row is of
    "running": "float64",  # mean number of threads that ran in it
    "waiting": "float64",  # mean number of threads that waited for a core
    "workers": "float64",  # the part of both in processes below: DataLoader workers, pools
}
"""Waiting is booked when it ends: a row may have that of rows before it."""


@dataclass(frozen=True, eq=False)
class Concurrency:
    """How one run used the cores.

    Attributes:
        verdict: ``healthy``, or what kept the cores from the code; ``not available`` where too little is known, with
            the reason in ``missing``.
        use: what was seen.
        timeline: threads over time, columns of `TIMELINE_COLUMNS`.
        torch_threads: torch's intra-op threads.
        missing: what was not available, a sentence each.
        hung: processes that hung, a sentence each.
        proof: a cell to paste: the same code at several thread counts, side by side.
    """

    verdict: CoreVerdict = "not available"
    use: CoreUse = CoreUse()  # noqa: RUF009  (frozen)
    timeline: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(TIMELINE_COLUMNS), dtype=float))
    torch_threads: int = 0
    missing: tuple[str, ...] = ()
    hung: tuple[str, ...] = ()
    proof: str = ""

    def __post_init__(self) -> None:
        if list(self.timeline.columns) != list(TIMELINE_COLUMNS):
            raise ValueError(f"columns of .timeline must be {' '.join(TIMELINE_COLUMNS)}")

    def __str__(self) -> str:
        use = self.use
        if math.isnan(use.wanted):
            return self.verdict
        return f"{self.verdict}: {use.wanted:.2f} threads wanted one of {use.cores} cores"

    @property
    def evidence(self) -> Mapping[str, float]:
        """The facts behind the verdict: what begins with ``seconds`` is in seconds, with ``share`` a share of 1; the
        others are counts of threads or cores, means over the run. What is not known is left out."""
        use = self.use
        facts = {
            "seconds_observed": use.wall,
            "usable_cores": use.cores,
            "torch_threads": self.torch_threads,
            "threads_wanted": use.wanted,
            "threads_running": use.run,
            "threads_waiting_for_a_core": use.wait,
            "threads_in_other_processes": use.below,
            "threads_active": use.threads,
            "threads_at_once_at_most": use.most,
            "processes_active": use.processes,
            "cores_used_by_others": use.ext,
            "cores_taken_by_the_hypervisor": use.steal,
            "share_throttled": use.throttled,
            "share_with_one_thread_or_none": use.alone,
            "share_with_no_thread": use.idle,
            "threads_waiting_for_the_gil": use.gil,
            "threads_waiting_for_locks": use.lock,
        }
        if use.device:
            facts["share_of_a_device"] = use.device
        return MappingProxyType({name: value for name, value in facts.items() if not math.isnan(value)})

    @property
    def proof_line(self) -> str:
        """The first line of ``proof``: the magic and the thread counts."""
        return self.proof.partition("\n")[0]


def joined_concurrency(parts: Sequence[Concurrency]) -> Concurrency | None:
    """Of several stretches one after the other, judged together; None of none."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    known = [each.use for each in parts if not math.isnan(each.use.wall)]
    use = mean_use(known) if known else CoreUse()
    timelines, began = [], 0.0
    for each in parts:
        timelines.append(each.timeline.assign(time=each.timeline["time"] + began))
        began += 0.0 if math.isnan(each.use.wall) else each.use.wall
    filled = [frame for frame in timelines if len(frame)]
    return Concurrency(
        verdict=verdict_of(use),
        use=use,
        timeline=pd.concat(filled, ignore_index=True) if filled else parts[0].timeline,
        torch_threads=max(each.torch_threads for each in parts),
        missing=_once(text for each in parts for text in each.missing),
        hung=_once(text for each in parts for text in each.hung),
        proof=parts[0].proof,
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
