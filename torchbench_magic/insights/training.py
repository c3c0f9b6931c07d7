"""Insights about training loops: input, evaluation, devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.array_types import Ints
from torchbench_magic.process.contention import LOAD_KINDS
from torchbench_magic.profiling.device_times import busy_stretches, host_waits
from torchbench_magic.profiling.loops.phases import EVALUATION, GRAPH, TRAIN_MODE, TRAINED, VARIES, is_most
from torchbench_magic.profiling.profile import VOIDING, Profile, has_device
from torchbench_magic.profiling.statements import call_name, place_in
from torchbench_magic.profiling.trace import Trace
from torchbench_magic.profiling.workers.loop import STARTING, WAITING
from torchbench_magic.profiling.workers.record import starts_again
from torchbench_magic.result_base import CodeLine, Cure, Insight

from .evidence import ALIKE, LEAST_SECONDS, LEAST_SHARE, line_named, places_text, recorded_lines, stake_text

# ---- loop_facts ------------------------------------------------------------------------------------------------------
# What the kinds of a training loop share: its steps, the lines of its phases, and when nothing may be said of it.

FEWEST_STEPS = 3
"""The first step of a loop does what is done once (memory, kernels, workers); of two there is no usual one."""


@dataclass(frozen=True)
class LoopFacts:
    """
    Attributes:
        parts: rows of the steps, columns of `LOOP_COLUMNS`.
        outside: those outside of the steps.
        phases: ``step phase seconds``.
        steps: how many.
        wall: seconds of the run.
    """

    profile: Profile
    parts: pd.DataFrame
    outside: pd.DataFrame
    phases: pd.DataFrame
    steps: int
    wall: float

    def each(self, phase: str, *, but_first: bool = False) -> pd.Series[float]:
        mine = self.phases[self.phases["phase"] == phase].set_index("step")["seconds"]
        return mine.iloc[1:] if but_first else mine

    @property
    def step_seconds(self) -> pd.Series[float]:
        return self.phases.groupby("step")["seconds"].sum()

    def line(self, source_id: object, line: object) -> CodeLine:
        return line_named(self.profile, str(source_id), int(str(line)))

    def lines(self, rows: pd.DataFrame) -> list[tuple[CodeLine, float]]:
        """(line, seconds) of rows, the most first."""
        known = rows[rows["line"].notna()]
        sums = known.groupby(["source_id", "line"], sort=False)["seconds"].sum().sort_values(ascending=False)
        return [(self.line(*place), float(seconds)) for place, seconds in sums.items()]  # type: ignore[misc]


def loop_facts(profile: Profile) -> LoopFacts | None:
    """None where no phase of a loop was seen."""
    parts = profile.phases_by_line
    if parts.empty or not profile.wall_time > 0:
        return None
    inside = parts[parts["step"].notna()]
    phases = profile.phases
    steps = int(phases["step"].nunique())
    return LoopFacts(profile, inside, parts[parts["step"].isna()], phases, steps, profile.wall_time)


def loop_silenced_by(profile: Profile, *, of_facts: bool = False) -> bool:
    """Whether something keeps this profile from any insight on its loop.

    As `profiling.profile.silenced_by`, but for what is about lines and operations: phases need neither.

    Args:
        of_facts: what is asked for rests on what ran, not on how long it took.
    """
    about_lines = {"no-lines", "lines-lost", "lines-cut", "host-memory"}
    voiding = (VOIDING - about_lines - (LOAD_KINDS if of_facts else frozenset())) | {"phases-cut"}
    return profile.partial or any(doubt.kind in voiding for doubt in profile.warnings)


# ---- evaluation ------------------------------------------------------------------------------------------------------
# ``grad-unused`` and ``eval-mode``: forward passes that no backward pass follows, and what their module was set to.


def grad_unused(profile: Profile) -> list[Insight]:
    """One for each line that evaluates with gradients on: the forward pass records a graph that nobody uses.

    An evaluation is a loop none of whose iterations has a backward pass before the next one begins.
    Silent: under ``no_grad`` and ``inference_mode``; for modules without parameters that learn; for one iteration
    alone; for a loop over ``range(...)`` with a module in training mode, which may be a trial of that module. Seconds
    at stake: the forward passes; what is saved of them is the recording and the memory that it holds.
    """
    facts = loop_facts(profile)
    if facts is None:
        return []
    found = []
    for where, seconds, mine in _lines_of_passes(profile, facts, EVALUATION, GRAPH):
        if len(_with(mine, TRAIN_MODE)) and _is_over_range(profile, where.source_id, where.line):
            continue
        count = int(mine["calls"].sum())
        text = (
            f"`{where}` evaluates with gradients on: {units.count(count)} forward passes record a graph that no "
            f"backward pass in this run uses, {stake_text(seconds, facts.wall)}."
        )
        evidence: dict[str, object] = {"forward_passes": count, "seconds_per_pass": seconds / max(count, 1)}
        cure = Cure("Evaluate within `torch.inference_mode()`.", "with torch.inference_mode():", "inference_mode")
        found.append(Insight("grad-unused", seconds, seconds / facts.wall, text, evidence, (where,), (cure,)))
    return found


def eval_mode(profile: Profile) -> list[Insight]:
    """Evaluation in training mode, and training that goes on in evaluation mode after an evaluation.

    Both only for modules with dropout or batch norm. Silent: for a loop over ``range(...)``, which may be meant
    (dropout at test time, several times over); for training that never was in training mode, or left it without an
    evaluation just before (batch norm that is frozen); below 5 % of the time. Seconds at stake: the passes, or the
    steps, that do not do what was meant.
    """
    facts = loop_facts(profile)
    return [] if facts is None else [*_evaluates_in_training_mode(profile, facts), *_trains_in_evaluation_mode(facts)]


def _evaluates_in_training_mode(profile: Profile, facts: LoopFacts) -> list[Insight]:
    found = []
    for where, seconds, mine in _lines_of_passes(profile, facts, EVALUATION, TRAIN_MODE, VARIES):
        if _is_over_range(profile, where.source_id, where.line):
            continue
        count = int(mine["calls"].sum())
        text = (
            f"`{where}` evaluates in training mode, {units.count(count)} times: its dropout is on, or its batch norm "
            "learns from evaluation data."
        )
        cure = Cure("Switch to evaluation mode before it, and back to training mode after it.", "model.eval()")
        evidence: dict[str, object] = {"forward_passes": count}
        found.append(Insight("eval-mode", seconds, seconds / facts.wall, text, evidence, (where,), (cure,)))
    return found


def _lines_of_passes(profile: Profile, facts: LoopFacts, *words: str) -> Iterator[tuple[CodeLine, float, pd.DataFrame]]:
    """(line, seconds, rows) of forward passes whose mode has all of these words, where that is worth a word."""
    rows = _with(profile.phases_by_line, *words)
    for where, seconds in facts.lines(rows):
        if seconds >= max(LEAST_SHARE * facts.wall, LEAST_SECONDS):
            yield where, seconds, rows[(rows["source_id"] == where.source_id) & (rows["line"] == where.line)]


def _trains_in_evaluation_mode(facts: LoopFacts) -> list[Insight]:
    rows = _with(facts.parts, TRAINED, VARIES)
    evaluated = set(_with(facts.parts, EVALUATION)["step"].astype("int64"))
    modes = rows.assign(train=rows["mode"].str.split().map(lambda words: TRAIN_MODE in words))
    for _, mine in modes.groupby(["source_id", "line"], sort=False):
        by_step = mine.groupby("step")["train"].any()
        off = by_step[~by_step]
        if off.empty or not by_step.iloc[0]:
            continue
        first = int(off.index[0])
        after = by_step[by_step.index >= first]
        if after.any() or len(after) < FEWEST_STEPS - 1 or not evaluated & {first - 1, first}:
            continue
        seconds = float(facts.step_seconds.loc[first:].sum())
        where = facts.line(mine["source_id"].iloc[0], mine["line"].iloc[0])
        share = seconds / facts.wall
        if share < LEAST_SHARE:
            continue
        text = f"`{where}` trains in evaluation mode from step {first} on: its dropout is off, or its batch norm learns"
        text += " nothing."
        evidence: dict[str, object] = {"first_step": first, "steps": len(after)}
        cure = Cure("Switch back to training mode after the evaluation.", "model.train()")
        return [Insight("eval-mode", seconds, share, text, evidence, (where,), (cure,))]
    return []


def _with(parts: pd.DataFrame, *words: str) -> pd.DataFrame:
    """The forward passes whose mode has all of these words."""
    forward = parts[parts["mode"].notna()]
    return forward[forward["mode"].map(lambda mode: set(words) <= set(mode.split())).astype(bool)]


def _is_over_range(profile: Profile, source_id: str, line: int) -> bool:
    place = place_in(profile.sources.get(source_id), line)
    if place is None:
        return False
    own = [each for each in place.statements if isinstance(each, ast.For | ast.AsyncFor)]  # the body is on its line
    loop = own[-1] if own else place.repeated_by
    over = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    return isinstance(over, ast.Call) and call_name(over) == "range"


# ---- input_bound -----------------------------------------------------------------------------------------------------
# ``input-bound``: a loop that waits for its next batch, with what keeps that.

LEAST = 0.1
"""Of the steps, and of a usual step: a loader that keeps up has the next batch ready, so that what is left is taking it
over."""
LEAST_IF_COSTLY = 0.5
LEAST_UNEXPLAINED = 0.3
"""Where no line of a data set, no busy workers and no start of workers was seen that keeps the batch, it may be ready,
and what the loop spends is taking it over from another process."""
_MOST = 0.5  # of the input: from which on the line that has it is said
_ALL = 0.9  # from which on a line is said alone
_ONCE = ", or, if it gives the same each time, do it once, before the loop."
_SHARED_OUT = "An `IterableDataset` must give each worker its own part (`get_worker_info`)."
_IN_WORKERS = f"Load in workers, in parallel with the loop. {_SHARED_OUT}"
_KEPT = "DataLoader(..., persistent_workers=True)"
_BUSY = 0.7  # of their time: then the workers are what the loop waits for


def input_bound(profile: Profile) -> list[Insight]:
    """One at most: of the phase ``input`` of all steps.

    Silent: with fewer than `FEWEST_STEPS`; where only the first steps wait (workers start), or single ones do, except
    where workers start anew again and again; below 30 % where it was not seen what keeps the batch; on a device, where
    waiting may be hidden by work that goes on; where recording took most of the time, unless half of what is left is
    input even if all that recording added is in it.
    Seconds at stake: all input, since a loader beside the loop can have the batch ready; without what recording added,
    where that is seen.
    """
    facts = loop_facts(profile)
    if facts is None or facts.steps < FEWEST_STEPS or has_device(profile):
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
    if wall >= ALIKE * facts.wall:  # so that it adds up with what is shown of the run
        seconds, wall = waited, facts.wall
    share = seconds / wall
    where = lines[0][0]
    is_outside = float(rows["loader_seconds"].fillna(rows["seconds"]).sum()) < _MOST * waited
    said, cures = _why(work, inner, inner_share, restarts=restarts, is_outside=is_outside)
    wait = f"`{where}` waits" if lines[0][1] >= _ALL * waited else f"{places_text(tuple(at for at, _ in lines))} wait"
    text = f"{wait} for input, {stake_text(seconds, wall, facts.wall, digits=3)}{said}."
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


class _Workers:
    """What the loader's workers did, where they were seen.

    Attributes:
        count: of those that one start of a loader made.
        starting_seconds: until all of them were ready, of all starts.
        again: how often they were started once more.
    """

    def __init__(self, facts: LoopFacts) -> None:
        rows = facts.profile.workers
        start = ["loader", "start"]
        self.count = int(rows.groupby(start, dropna=False)["worker"].nunique().max()) if len(rows) else 0
        self.again = starts_again(rows)
        ready = rows[rows["function"] == STARTING].groupby(start, dropna=False)["seconds"].max()
        self.starting_seconds = float(ready.sum())
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
        """Whether what the loop waits for is the start of workers, more than once: as many waits as there were starts,
        and ends of those before, have most of the time. Those for workers that load all the time come again and again
        too, one for as many batches as there are workers."""
        if not self.again or self.busy - self.starting >= _BUSY:
            return False
        waits = facts.each("input", but_first=True)
        long = waits[waits > 5 * max(float(waits.median()), 1e-4)].nlargest(2 * self.again)
        return len(long) >= 2 and float(long.sum()) >= _MOST * float(waits.sum())


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
        return f"; `{inner}` takes {units.percent(inner_share)} % of that", (
            Cure(f"Make `{inner}` cheaper{_ONCE}"),
            Cure(f"Move what `{inner}` does into the data set of a `DataLoader`: workers run only what is in one."),
        )
    if is_outside:
        text = "Make what the loop iterates over cheaper, or move its work into the data set of a `DataLoader`."
        return "", (Cure(text),)
    is_start = work.count > 0 and work.starting >= _MOST
    if restarts or (is_start and work.again):
        keep = Cure("Keep the workers between epochs.", _KEPT)
        steps = "some steps" if work.again > 1 else "one step"
        return f"; in {steps} the workers are started again", (keep, Cure("Create the loader once, before the loop."))
    if is_start:
        whose = "worker" if work.count == 1 else f"{work.count} workers"
        said = f"; starting its {whose} takes {units.seconds_text(work.starting_seconds)}"
        return said, (
            Cure("Each loop starts its workers: loop over more batches, or use fewer workers."),
            Cure("If this code runs again and again, keep them: make the loader once, outside of it.", _KEPT),
        )
    if work.count and work.busy >= _BUSY:
        said = f"; its {_workers(work.count)} {units.percent(work.busy)} % of the time"
        said += f", most at `{work.line}` in `{work.function}`" if work.line else ""
        cheaper = f"Make `{work.line}` cheaper{_ONCE}" if work.line else "Load less data."
        code = f"DataLoader(..., num_workers={2 * work.count})"
        more = Cure(f"Use more workers, if cores are free. {_SHARED_OUT}", code)
        return said, (Cure(cheaper), more)
    if work.count:
        said = f"; its {_workers(work.count)} only {units.percent(work.busy)} % of the time"
        return said, (
            Cure("Transferring batches is slow: use smaller batches, fewer objects, or tensors."),
            Cure("Let the workers prefetch more.", "DataLoader(..., prefetch_factor=8)"),
        )
    if inner is not None:
        said = f"; `{inner}` takes {units.percent(inner_share)} % of that"
        return said, (
            Cure(f"Make `{inner}` cheaper{_ONCE}"),
            Cure(_IN_WORKERS, "DataLoader(..., num_workers=2)"),
        )
    text = f"Prepare the next batch in a `DataLoader` with workers. {_SHARED_OUT}"
    return "", (Cure(text, "DataLoader(..., num_workers=2)"),)


def _workers(count: int) -> str:
    return "worker is busy" if count == 1 else f"{count} workers are busy"


# ---- on_device -------------------------------------------------------------------------------------------------------
# ``sync`` and ``transfer``: lines that make a device wait for the host, and copies that make the host wait.

FEWEST = 3
"""Waits, or copies: a lone one at the end of a run is how a run ends."""
_FROM_PAGEABLE = "Pageable -> Device"
"""In the name that torch's profiler gives a copy from memory that is not pinned (``Memcpy HtoD (Pageable -> Device)``):
the driver copies it once more, and the host waits meanwhile."""
_TO_DEVICE = r"HtoD|HostToDevice|M2D"
"""The same, pinned or not, by the names of CUDA, ROCm and XPU."""
_PINNED = "x = x.pin_memory().to(device, non_blocking=True)"
_SHAPED_BY_VALUES = frozenset(
    (
        *("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"),
        *("aten::repeat_interleave", "aten::bincount"),
    )
)


def sync(profile: Profile) -> list[Insight]:
    """One for each line on which the host waits for a device that then, or later, has nothing to do.

    What waits is said at `profiling.device_times.host_waits`: ``.item()``, ``.cpu()``, ``.to(device)`` of memory that
    is not pinned, ``nonzero``, printing a tensor, ``synchronize()``. Without a wait all that follows would be launched
    earlier by as long as it took, and a device that is idle later on would be so for that much less.
    Silent: without a trace of a device; for waits after which the device goes on (another stream's work); below 5 %.
    Seconds at stake: see `_saved`.
    """
    trace, wall = profile.trace, profile.wall_time
    if trace is None or not wall > 0 or (waits := host_waits(trace)).empty:
        return []
    placed = waits.assign(stake=_saved(trace, waits))
    sources, lines = (trace.nodes[name].to_numpy() for name in ("source", "line"))
    node = placed["node"].to_numpy()
    placed = placed.assign(source=np.append(sources, -1)[node], line=np.append(lines, -1)[node])
    found, is_op = [], trace.is_kind("op")
    for place, mine in placed[placed["source"] >= 0].groupby(["source", "line"], sort=False):
        source, line = (int(str(each)) for each in place)
        seconds, counted = float(mine["stake"].sum()), mine[mine["stake"] > 0]
        parent = counted["parent"]  # a copy, and the wait for its end, are of one op
        times = parent.where(np.append(is_op, False)[parent], -1 - counted.index.to_series()).nunique()
        if times < FEWEST or seconds < LEAST_SECONDS or seconds < LEAST_SHARE * wall:
            continue
        where = line_named(profile, trace.sources[source], line)
        text = (
            f"`{where}` makes the host wait for the device {units.count(times)} times, and then the device idles,"
            f" {stake_text(seconds, wall)}."
        )
        waited = float(mine["seconds"].sum())
        evidence: dict[str, object] = {"waits": times, "seconds_waited": waited}
        evidence["seconds_idle_each"] = seconds / times
        cures = _cures(profile, trace, where, mine["parent"].to_numpy())
        found.append(Insight("sync", seconds, seconds / wall, text, evidence, (where,), cures))
    return found


def _saved(trace: Trace, waits: pd.DataFrame) -> list[float]:
    """Seconds that each wait costs at most: those for which the busiest device is idle later on, no more than the wait
    took, and each given to the last wait before it that still has some."""
    busy = [busy_stretches(trace, device) for device in trace.devices]
    starts, ends = max(busy, key=lambda each: int((each[1] - each[0]).sum()))
    order = np.argsort(waits["end"].to_numpy(), kind="stable")
    ended, took = waits["end"].to_numpy()[order].tolist(), (waits["seconds"].to_numpy()[order] * 1e9).tolist()
    saved, open_waits, at = [0.0] * len(waits), [], 0
    for begin, end in zip(ends[:-1].tolist(), starts[1:].tolist(), strict=True):
        while at < len(ended) and ended[at] <= end:
            open_waits.append(at)
            at += 1
        idle = float(end - begin)
        while idle > 0 and open_waits:
            last = open_waits[-1]
            part = min(idle, took[last])
            saved[int(order[last])] += part / 1e9
            took[last] -= part
            idle -= part
            if took[last] <= 0:
                open_waits.pop()
    return saved


def _cures(profile: Profile, trace: Trace, where: CodeLine, parents: Ints) -> tuple[Cure, ...]:
    """By what waits on the line: an operation whose result's shape depends on values, a copy to the device or from it,
    or the code itself."""
    ops = {trace.names[name] for name in trace.events["name"].to_numpy()[_with_callers(trace, parents)].tolist()}
    if ops & _SHAPED_BY_VALUES:
        text = "The shape of the result depends on values, which the host has to read: use a mask of a known shape."
        return (Cure(text, "torch.where(mask, x, 0)  # or x * mask; torch.nonzero_static(x, size=n)"),)
    table = profile.device_events
    mine = table[(table["kind"] == "memcpy") & (table["source_id"] == where.source_id) & (table["line"] == where.line)]
    to_device = mine["name"].str.contains(_TO_DEVICE).astype(bool)
    cures: list[Cure] = []
    if to_device.any():
        cures.append(Cure("Copy from pinned memory (`DataLoader(..., pin_memory=True)`), without waiting.", _PINNED))
    if len(mine) > int(to_device.sum()):
        cures += [
            Cure("Keep the value on the device (`loss.detach()`), and read it rarely or after the loop."),
            Cure("Copy it without waiting, and read it a step later.", 'loss.detach().to("cpu", non_blocking=True)'),
        ]
    return tuple(cures) or (Cure("Wait once, after the loop: what is launched runs in order without it."),)


def _with_callers(trace: Trace, rows: Ints) -> list[int]:
    """These events and all in which they run; -1 is none."""
    parent, found = trace.events["parent"].to_numpy(), set()
    for row in set(rows.tolist()):
        at = row
        while at >= 0 and at not in found:
            found.add(at)
            at = int(parent[at])
    return sorted(found)


def transfer(profile: Profile) -> list[Insight]:
    """One for each line that copies memory that is not pinned to a device, again and again.

    Silent: for pinned memory, for copies between devices and to the host, for fewer than `FEWEST`, and below 5 % of the
    time. Seconds at stake: the copies; from pinned memory they can run beside other work.
    """
    table, wall = profile.device_events, profile.wall_time
    if table.empty or not wall > 0:
        return []
    copies = table[(table["kind"] == "memcpy") & table["line"].notna()]
    copies = copies[copies["name"].str.contains(_FROM_PAGEABLE, regex=False).astype(bool)]
    found = []
    for place, mine in copies.groupby(["source_id", "line"], sort=False):
        source_id, line = str(place[0]), int(str(place[1]))
        seconds, calls = float(mine["time"].sum()), int(mine["calls"].sum())
        if calls < FEWEST or seconds < LEAST_SECONDS or seconds < LEAST_SHARE * wall:
            continue
        where = line_named(profile, source_id, line)
        text = (
            f"`{where}` copies unpinned memory to the device, {units.count(calls)} times, {stake_text(seconds, wall)}."
        )
        evidence: dict[str, object] = {"copies": calls, "seconds_per_copy": seconds / calls}
        cures = (
            Cure("Use pinned memory in the loader.", "DataLoader(..., pin_memory=True)"),
            Cure("Copy in parallel with other work.", "x = x.to(device, non_blocking=True)"),
        )
        found.append(Insight("transfer", seconds, seconds / wall, text, evidence, (where,), cures))
    return found
