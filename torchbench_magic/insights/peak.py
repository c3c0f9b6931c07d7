"""``peak``: what the highest moment of memory is made of, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic import units
from torchbench_magic.profiling.memory.allocations import alive_blocks, devices_of, older_freed, peak_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import PEAK_COLUMNS, frame_of
from torchbench_magic.profiling.steps import highest_cycle
from torchbench_magic.profiling.trace import Trace
from torchbench_magic.result_base import CodeLine, Cure, Insight

from .evidence import line_named

# ---- peak_parts ------------------------------------------------------------------------------------------------------
# What the peak of a device is made of: parameters, gradients, the optimizer's state, activations, temporaries.
#
# A block's part is told by when it was allocated and freed, and by who holds it at the end where it is there still:
#
# - held as a parameter, a buffer, a gradient or an optimizer's state: that;
# - allocated within ``Optimizer.step``: temporary if freed within it, else the optimizer's state;
# - allocated within a backward pass: temporary if freed within it, else a gradient;
# - freed within a backward pass, or held by the autograd graph as blocks of the same line and op are at the end: an
#   activation;
# - freed while its line was still active: temporary; whatever else there is, a result that the code holds.

Spans = NDArray[np.float64]

BACKWARD = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"
_ROLES = {"parameter": "parameters", "buffer": "buffers", "gradient": "gradients", "optimizer state": "optimizer state"}


def peak_parts(profile: Profile) -> pd.DataFrame:
    """Columns of `PEAK_COLUMNS`, of each device the largest part first. Empty without ``--memory``. Of a schedule,
    those of the cycle with the highest peak."""
    profile = highest_cycle(profile.cycles) if profile.cycles else profile
    memory = profile.memory
    rows: list[dict[str, object]] = []
    for device in devices_of(memory):
        assert memory is not None
        peak = peak_of(memory, device)
        if peak.row < 0:
            continue
        mine = [*_of_blocks(profile, memory, device, peak.row), *_before(profile, memory, device, peak.row)]
        rows += sorted(mine, key=lambda row: -float(str(row["bytes"])))
    return frame_of(PEAK_COLUMNS, {name: [row[name] for row in rows] for name in PEAK_COLUMNS})


def _of_blocks(profile: Profile, memory: pd.DataFrame, device: str, until: int) -> Iterator[dict[str, object]]:
    """Parts of what the body allocated, by the line with most of each."""
    held = alive_blocks(memory, device, until)
    if held.empty:
        return
    held = held.assign(part=_part_of(profile, memory, held))
    for part, blocks in held.groupby("part", sort=False):
        by_line = blocks[blocks["line"].notna()].groupby(["source_id", "line"])["change"].sum()
        top: Any = by_line.idxmax() if len(by_line) else (None, pd.NA)
        yield {
            "device": device,
            "part": part,
            "bytes": int(blocks["change"].sum()),
            "blocks": len(blocks),
            "before": False,
            "source_id": top[0],
            "line": top[1],
        }


def _part_of(profile: Profile, memory: pd.DataFrame, held: pd.DataFrame) -> list[str]:
    freed = memory[(memory["change"] < 0) & memory["block"].notna()].set_index("block")["time"]
    freed = freed[~freed.index.duplicated(keep="last")]
    made_at = np.asarray(held["time"], dtype=np.float64)
    freed_at = np.asarray(held["block"].map(freed).astype("float64").fillna(np.inf), dtype=np.float64)
    trace = profile.trace
    steps, passes = optimizer_spans(trace), backward_spans(trace)
    in_step, in_pass = spans_hold(steps, made_at), spans_hold(passes, made_at)
    same_step = in_step >= 0
    same_step &= spans_hold(steps, freed_at) == in_step
    freed_in_pass = spans_hold(passes, freed_at)
    same_line = _same_stretch(trace, held["thread"].to_numpy(), made_at, freed_at)
    roles, graph = _roles(profile), _kept_by_graph(profile, memory)
    parts = []
    for at, (block, source_id, line, op) in enumerate(
        zip(held["block"], held["source_id"], held["line"], held["op"], strict=True)
    ):
        if (role := roles.get(int(block), "")) in _ROLES:
            parts.append(_ROLES[role])
        elif in_step[at] >= 0:
            parts.append("optimizer temporaries" if same_step[at] else "optimizer state")
        elif in_pass[at] >= 0:
            parts.append("backward temporaries" if freed_in_pass[at] == in_pass[at] else "gradients")
        elif freed_in_pass[at] >= 0 or (source_id, line, op) in graph:
            parts.append("activations")
        else:
            parts.append("temporaries" if same_line[at] else "results")
    return parts


def _roles(profile: Profile) -> dict[int, str]:
    holders = profile.holders
    if holders is None:
        return {}
    rows = holders[holders["block"].notna() & holders["role"].notna()]
    return {int(block): str(role) for block, role in zip(rows["block"], rows["role"], strict=True)}


def _kept_by_graph(profile: Profile, memory: pd.DataFrame) -> set[tuple[object, object, object]]:
    """(source_id, line, op) of the allocations that an autograd graph holds at the end."""
    holders = profile.holders
    if holders is None:
        return set()
    kept = holders.loc[holders["through_graph"] & holders["block"].notna(), "block"]
    rows = memory[memory["block"].isin(kept) & (memory["change"] > 0) & memory["line"].notna()]
    return set(zip(rows["source_id"], rows["line"], rows["op"], strict=True))


def _before(profile: Profile, memory: pd.DataFrame, device: str, until: int) -> Iterator[dict[str, object]]:
    """Parts of what was there before the body; what it freed until the peak is taken off the rest."""
    holders, parts = profile.holders, dict[str, list[int]]()
    if holders is not None:
        older = holders[holders["block"].isna() & (holders["device"] == device)]
        for role, nbytes in zip(older["role"], older["bytes"], strict=True):
            part = _ROLES.get(role, "from before") if isinstance(role, str) else "from before"
            parts.setdefault(part, []).append(int(nbytes))
    whole = profile.bytes_before if device == "cpu" else float("nan")
    if whole == whole:  # what is not known by a holder
        rest = int(whole) - older_freed(memory, device, until) - sum(map(sum, parts.values()))
        if rest > 0:
            parts.setdefault("from before", []).append(rest)
    for part, sizes in parts.items():
        yield {
            "device": device,
            "part": part,
            "bytes": sum(sizes),
            "blocks": len(sizes),
            "before": True,
            "source_id": None,
            "line": pd.NA,
        }


# ---- spans ------------------------------------------------------------------------------------------------------


def backward_spans(trace: Trace | None) -> Spans:
    """float [n, 2]: seconds from the first to the last function of each backward pass. Functions that follow one
    another below the same op, and on the same thread, are of one pass."""
    if trace is None or not len(trace.events):
        return np.zeros((0, 2))
    events = trace.events
    is_of_pass = _named(trace, BACKWARD)
    order = np.lexsort((events["start"].to_numpy(), events["parent"].to_numpy(), events["track"].to_numpy()))
    order = order[trace.is_kind("op", "range")[order]]
    taken = is_of_pass[order]
    place = events[["track", "parent"]].to_numpy()[order]
    begins = taken & ~(np.append(False, taken[:-1]) & np.append([False], (place[1:] == place[:-1]).all(axis=1)))
    start, end = events["start"].to_numpy()[order], (events["start"] + events["duration"]).to_numpy()[order]
    number = np.cumsum(begins)[taken]
    if not len(number):
        return np.zeros((0, 2))
    last = np.zeros(number[-1], dtype=np.int64)
    np.maximum.at(last, number - 1, end[taken])
    spans = np.stack([start[begins], last], axis=1) / 1e9
    return spans[np.argsort(spans[:, 0], kind="stable")]


def optimizer_spans(trace: Trace | None) -> Spans:
    """float [n, 2]: seconds of each step of an optimizer."""
    if trace is None or not len(trace.events):
        return np.zeros((0, 2))
    rows = trace.events[_named(trace, OPTIMIZER)]
    spans = np.stack([rows["start"].to_numpy(), (rows["start"] + rows["duration"]).to_numpy()], axis=1) / 1e9
    return spans[np.argsort(spans[:, 0], kind="stable")]


def _named(trace: Trace, prefix: str) -> NDArray[np.bool_]:
    wanted = np.array([name.startswith(prefix) for name in trace.names], dtype=bool)
    return wanted[trace.events["name"].to_numpy()] if len(wanted) else np.zeros(len(trace.events), dtype=bool)


def spans_hold(spans: Spans, moments: NDArray[np.float64]) -> NDArray[np.int64]:
    """Of each moment the number of the last span that began before it and holds it; -1 for none."""
    if not len(spans):
        return np.full(len(moments), -1, dtype=np.int64)
    at = np.searchsorted(spans[:, 0], moments, side="right") - 1
    inside = (at >= 0) & (moments <= spans[np.maximum(at, 0), 1])
    return np.where(inside, at, -1)


def _same_stretch(
    trace: Trace | None, threads: NDArray[np.int64], made: NDArray[np.float64], freed: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether a block was freed before another line of its thread ran."""
    same = np.zeros(len(made), dtype=bool)
    if trace is None:
        return same
    for thread in np.unique(threads):
        starts = trace.segments.loc[trace.segments["thread"] == thread, "start"].to_numpy() / 1e9
        mine = threads == thread
        same[mine] = np.searchsorted(starts, made[mine], side="right") == np.searchsorted(
            starts, freed[mine], side="right"
        )
    return same & np.isfinite(freed)


# ---- peak ------------------------------------------------------------------------------------------------------------

LEAST_PEAK = 10 << 20
"""Bytes: below it no machine that runs torch is short of memory by it."""
_NAMED = 0.05
"""Of the peak: smaller parts are not in the sentence."""
_LARGE = {
    "activations": 0.4,
    "temporaries": 0.4,
    "optimizer state": 0.3,
    "optimizer temporaries": 0.15,
    "gradients": 0.1,
}
"""Part -> the share of the peak from which on a cure is named. A cure takes at most that part away: for half of one it
must be large. Gradients in the forward pass and the temporaries of a step cost nothing to be without, so that less will
do. Parameters and results have no cure here."""


@dataclass(frozen=True)
class _Seen:
    """A device's peak.

    Attributes:
        shares: part -> share of it, the largest first.
        line: line of most of each part, where that is one of the body's.
        moment: ``backward``, ``optimizer`` or empty for the rest.
    """

    device: str
    nbytes: int
    shares: dict[str, float]
    line: dict[str, CodeLine]
    where: CodeLine | None
    moment: str
    has_backward: bool


def peak(profile: Profile) -> list[Insight]:
    """One for each device on which a part of the peak is as large as in `_LARGE`.

    Silent: below `LEAST_PEAK`; where parameters, results and what was there before make it up; gradients where the peak
    is in the backward pass or in the optimizer's step, which need them.
    """
    shown = highest_cycle(profile.cycles) if profile.cycles else profile
    found = []
    for seen in _peaks(shown):
        cures = tuple(_cures(seen))
        if seen.nbytes >= LEAST_PEAK and cures:
            found.append(_insight(seen, cures))
    return found


def _peaks(profile: Profile) -> Iterator[_Seen]:
    memory = profile.memory
    parts = profile.peak_parts
    for device in devices_of(memory):
        assert memory is not None
        mine = parts[parts["device"] == device]
        at = peak_of(memory, device)
        whole = int(mine["bytes"].sum())
        if at.row < 0 or whole <= 0:
            continue
        row = memory.iloc[at.row]
        when = np.array([at.time], dtype=np.float64)
        passes = backward_spans(profile.trace)
        in_step = spans_hold(optimizer_spans(profile.trace), when)[0] >= 0
        in_pass = spans_hold(passes, when)[0] >= 0
        named = mine[mine["line"].notna()].drop_duplicates("part")
        yield _Seen(
            device,
            whole,
            {str(part): float(size) / whole for part, size in mine.groupby("part", sort=False)["bytes"].sum().items()},
            {
                str(part): line_named(profile, str(source_id), int(line))
                for part, source_id, line in zip(named["part"], named["source_id"], named["line"], strict=True)
            },
            line_named(profile, str(row["source_id"]), int(row["line"])) if pd.notna(row["line"]) else None,
            "optimizer" if in_step else "backward" if in_pass else "",
            bool(len(passes)),
        )


def _insight(seen: _Seen, cures: tuple[Cure, ...]) -> Insight:
    shares = sorted(seen.shares.items(), key=lambda item: -item[1])
    said = [f"{units.percent(share)} % {part}" for part, share in shares if share >= _NAMED]
    where = f" at `{seen.where}`" if seen.where is not None else ""
    device = "" if seen.device == "cpu" else f" of {seen.device}"
    text = f"The peak of memory{device}{where}, {units.bytes_text(seen.nbytes)}, is {units.listed(said)}."
    evidence: dict[str, object] = {"bytes_at_the_peak": seen.nbytes, "moment": seen.moment or "forward or other code"}
    evidence |= {f"share_{part.replace(' ', '_')}": share for part, share in shares}
    places = [seen.where] if seen.where is not None else []
    places += [line for part, line in seen.line.items() if _is_large(seen, part) and line not in places]
    at_stake = sum(share for part, share in shares if _is_large(seen, part)) * seen.nbytes
    return Insight("peak", 0.0, 0.0, text, evidence, tuple(places), cures, int(at_stake))


def _is_large(seen: _Seen, part: str) -> bool:
    if part == "gradients" and seen.moment:
        return False
    return seen.shares.get(part, 0.0) >= _LARGE.get(part, 2.0)


def _cures(seen: _Seen) -> Iterator[Cure]:
    """Of the largest part first."""
    for part in sorted(seen.shares, key=lambda name: -seen.shares[name]):
        if _is_large(seen, part):
            yield from _CURES[part] if part != "activations" or seen.has_backward else _NO_BACKWARD


_CURES: dict[str, tuple[Cure, ...]] = {
    "activations": (
        Cure("Recompute activations in the backward pass: wrap the largest blocks of the model.",
             "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"),
        Cure("Use a smaller batch, and accumulate the gradients of several before each `step()`."),
        Cure("Store them in half the bytes:", "with torch.autocast(device, dtype=torch.bfloat16):", "bf16"),
    ),
    "optimizer state": (
        Cure("Adam stores two numbers per parameter; `torch.optim.SGD` stores one or none, `Adafactor` a few."),
        Cure("Delete an optimizer that is no longer used: its state is kept as long as it exists."),
    ),
    "gradients": (
        Cure("Free gradients before the forward pass, not after it:", "optimizer.zero_grad(set_to_none=True)"),
    ),
    "optimizer temporaries": (
        Cure("A fused step needs no temporaries:", "optimizer = torch.optim.AdamW(model.parameters(), fused=True)",
             "fused-optimizer"),
        Cure("Or update parameter by parameter, which is slower: `foreach=False`."),
    ),
    "temporaries": (
        Cure("Compute it in pieces (`x.split(...)`), or in place (`add_`, `out=`) if no gradient needs the old value."),
    ),
}  # fmt: skip
_NO_BACKWARD = (
    Cure("No backward pass used this graph: run without gradients.", "with torch.inference_mode():", "inference_mode"),
)
