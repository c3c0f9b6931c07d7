"""``input-bound``: a loop that waits for its next batch, with what keeps that."""

from __future__ import annotations

from typing import Any

import pandas as pd

from torchbench_magic import units

from ....insights import CodeLine, Cure, Insight
from ...loops.looks import is_most
from ...loops.worker_shares import STARTING, WAITING
from ...profile import Profile
from ..line_uses import recorded_lines
from ..wording import LEAST_SECONDS, stake_text
from .loop_facts import FEWEST_STEPS, LoopFacts, loop_facts

__all__ = ["input_bound"]

LEAST = 0.1
"""Of the steps, and of a usual step: a loader that keeps up has the next batch ready, so that what is left is taking it
over."""
LEAST_IF_COSTLY = 0.5
LEAST_UNEXPLAINED = 0.3
"""Where no line of a data set, no busy workers and no start of workers was seen that keeps the batch, it may be ready,
and what the loop spends is taking it over from another process."""
_MOST = 0.5  # of the input: from which on the line that has it is said
_ONCE = ", or, if it gives the same each time, do it once, before the loop."
_SHARED_OUT = "An `IterableDataset` must give each worker its own part (`get_worker_info`)."
_IN_WORKERS = f"Load in workers, in parallel with the loop. {_SHARED_OUT}"
_BUSY = 0.7  # of their time: then the workers are what the loop waits for


def input_bound(profile: Profile) -> list[Insight]:
    """One at most: of the phase ``input`` of all steps.

    Silent: with fewer than `FEWEST_STEPS`; where only the first steps wait (workers start), or single ones do, except
    where workers start anew again and again; below 30 % where it was not seen what keeps the batch; on a device, where
    waiting may be hidden by work that goes on; where recording took most of the time, unless half of what is left is
    input even if all that recording added is in it.
    Seconds at stake: all input, since a loader beside the loop can have the batch ready.
    """
    facts = loop_facts(profile)
    if facts is None or facts.steps < FEWEST_STEPS or _is_on_device(profile):
        return []
    rows = facts.parts[facts.parts["phase"] == "input"]
    waited, whole = float(rows["seconds"].sum()), float(facts.step_seconds.sum())
    cost = sum(use.cost for use in recorded_lines(profile).lines)  # all of it may be in the input
    seconds, wall = max(waited - cost, 0.0), max(facts.wall - cost, 1e-9)
    share, least = seconds / wall, LEAST if profile.profiler_cost != "most" else LEAST_IF_COSTLY
    lines = facts.lines(rows)
    if not lines or seconds < LEAST_SECONDS or share < least or waited < LEAST * whole:
        return []
    usual = float((facts.each("input", but_first=True) / facts.step_seconds.iloc[1:]).median())
    work = _Workers(facts)
    restarts = work.restart(facts)
    if usual < LEAST and not restarts:
        return []
    inner, inner_share = _inner_line(facts, rows, waited)
    is_explained = restarts or inner is not None or (work.count > 0 and work.busy >= _BUSY)
    if not is_explained and share < LEAST_UNEXPLAINED:
        return []
    where = lines[0][0]
    is_outside = float(rows["loader_seconds"].fillna(rows["seconds"]).sum()) < _MOST * waited
    said, cures = _why(work, inner, inner_share, restarts=restarts, is_outside=is_outside)
    step = units.seconds_text(float(facts.step_seconds.median()), digits=2)
    text = f"`{where}` waits for input, {stake_text(seconds, wall)}; a step takes {step}{said}."
    evidence: dict[str, object] = {
        "steps": facts.steps,
        "seconds_of_input": waited,
        "seconds_of_recording": cost,
        "share_of_a_usual_step": usual,
        "workers": work.count,
        "share_busy": work.busy if work.count else 0.0,
    }
    if inner is not None:
        evidence |= {"in_it": f"{inner}", "share_in_it": inner_share}
    elif work.line:
        evidence |= {"most_in_workers": work.line, "share_of_their_time": work.share}
    places = (where,) if inner is None or inner == where else (where, inner)
    return [Insight("input-bound", seconds, share, text, evidence, places, cures)]


def _is_on_device(profile: Profile) -> bool:
    return bool(float(profile.ops["self_device_time"].fillna(0).sum()) > 0) or float(
        profile.phases.loc[profile.phases["phase"] == "transfer", "seconds"].sum()
    ) > 0


class _Workers:
    """What the loader's workers did, where they were seen."""

    def __init__(self, facts: LoopFacts) -> None:
        rows = facts.profile.workers
        self.count = int(rows["worker"].nunique())
        whole = float(rows["seconds"].sum())
        idle = float(rows.loc[rows["function"] == WAITING, "seconds"].sum())
        self.starting = float(rows.loc[rows["function"] == STARTING, "seconds"].sum()) / whole if whole else 0.0
        self.busy = 1 - idle / whole if whole else 0.0
        work = rows[~rows["function"].isin([WAITING, STARTING])]
        self.line, self.function, self.share = "", "", 0.0
        if len(work):
            sums = work.groupby(["cell", "file", "line", "function"], dropna=False, sort=False)["seconds"].sum()
            top: Any = sums.idxmax()
            cell, file, line, self.function = top
            name = f"In[{cell}]" if pd.notna(cell) else str(file).replace("\\", "/").rpartition("/")[2]
            self.line, self.share = f"{name}:{line}", float(sums.max()) / whole

    def restart(self, facts: LoopFacts) -> bool:
        """Whether what the loop waits for is the start of workers, more than once."""
        waits = facts.each("input", but_first=True)
        long = waits[waits > 5 * max(float(waits.median()), 1e-4)]
        return self.count > 0 and len(long) >= 2 and float(long.sum()) >= _MOST * float(waits.sum())


def _inner_line(facts: LoopFacts, rows: pd.DataFrame, seconds: float) -> tuple[CodeLine | None, float]:
    """The line within the input that has most of it: of the data set, where the loop itself loads."""
    known = rows[rows["inner_line"].notna()]
    if known.empty:
        return None, 0.0
    of_all = int(rows["looks"].fillna(0).sum())
    by, whole = ("inner_looks", of_all) if of_all else ("inner_seconds", seconds)
    sums = known.groupby(["inner_source_id", "inner_line"])[by].sum().astype("float64")
    share = float(sums.max()) / whole
    if share < _MOST or (of_all and not is_most(int(sums.max()), of_all)):
        return None, share
    top: Any = sums.idxmax()
    source_id, line = top
    return facts.line(source_id, line), min(share, 1.0)


def _why(
    work: _Workers, inner: CodeLine | None, inner_share: float, *, restarts: bool, is_outside: bool
) -> tuple[str, tuple[Cure, ...]]:
    """The end of the sentence, and what may help.

    Args:
        is_outside: most of the input is not within a DataLoader, whose workers therefore cannot take it over.
    """
    if is_outside and inner is not None:
        return f"; `{inner}` takes {units.percent(inner_share)} % of it", (
            Cure(f"Make `{inner}` cheaper{_ONCE}"),
            Cure(f"Move what `{inner}` does into the data set of a `DataLoader`: workers run only what is in one."),
        )
    if is_outside:
        text = "Make what the loop iterates over cheaper, or move its work into the data set of a `DataLoader`."
        return "", (Cure(text),)
    if restarts or (work.count and work.starting >= _MOST):
        keep = Cure("Keep the workers between epochs.", "DataLoader(..., persistent_workers=True)")
        return "; in some steps the workers are started again", (keep, Cure("Create the loader once, before the loop."))
    if work.count and work.busy >= _BUSY:
        said = f"; its {_workers(work.count)} {units.percent(work.busy)} % of the time"
        said += f", most at `{work.line}` in `{work.function}`" if work.line else ""
        cheaper = f"Make `{work.line}` cheaper{_ONCE}" if work.line else "Load less data."
        code = f"DataLoader(..., num_workers={2 * work.count})"
        more = Cure("Use more workers, if cores are free.", code)
        return said, (Cure(cheaper), more)
    if work.count:
        said = f"; its {_workers(work.count)} only {units.percent(work.busy)} % of the time"
        return said, (
            Cure("Transferring batches is slow: use smaller batches, fewer objects, or tensors."),
            Cure("Let the workers prefetch more.", "DataLoader(..., prefetch_factor=8)"),
        )
    if inner is not None:
        said = f"; `{inner}` takes {units.percent(inner_share)} % of it"
        return said, (
            Cure(f"Make `{inner}` cheaper{_ONCE}"),
            Cure(_IN_WORKERS, "DataLoader(..., num_workers=2)"),
        )
    text = f"Prepare the next batch in a `DataLoader` with workers. {_SHARED_OUT}"
    return "", (Cure(text, "DataLoader(..., num_workers=2)"),)


def _workers(count: int) -> str:
    return "worker is busy" if count == 1 else f"{count} workers are busy"
