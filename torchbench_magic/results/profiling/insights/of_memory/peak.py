"""``peak``: what the highest moment of memory is made of, where something can be done about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from torchbench_magic import units

from ....insights import CodeLine, Cure, Insight
from ...allocations import devices_of, peak_of
from ...cycles import highest_cycle
from ...profile import Profile
from .growing_lines import line_named
from .peak_parts import backward_spans, optimizer_spans, spans_hold, state_by_variable, stepping_optimizers

__all__ = ["LEAST_PEAK", "peak"]

LEAST_PEAK = 10 << 20
"""Bytes: below it no machine that runs torch is short of memory by it."""
_NAMED = 0.05
"""Of the peak: smaller parts are not in the sentence."""
_STATE = "optimizer state"
_MOST_OPTIMIZERS = 3  # that are named
_LARGE = {
    "activations": 0.4,
    "temporaries": 0.4,
    _STATE: 0.3,
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
        states: variable of each optimizer -> bytes of its state.
        older: bytes of optimizers' states that were there before the body.
        newer: those that the body allocated.
        stepping: names of the classes of optimizers that step in the body.
    """

    device: str
    nbytes: int
    shares: dict[str, float]
    line: dict[str, CodeLine]
    where: CodeLine | None
    moment: str
    has_backward: bool
    states: dict[str, int]
    older: int
    newer: int
    stepping: set[str]

    @property
    def has_nameless_state(self) -> bool:
        """Whether an optimizer that was gone at the end has some of it."""
        return sum(self.states.values()) < self.older + self.newer


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
        state = mine[mine["part"] == _STATE]
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
            state_by_variable(profile, device),
            int(state.loc[state["before"].astype(bool), "bytes"].sum()),
            int(state.loc[~state["before"].astype(bool), "bytes"].sum()),
            stepping_optimizers(profile.trace),
        )


def _insight(seen: _Seen, cures: tuple[Cure, ...]) -> Insight:
    shares = sorted(seen.shares.items(), key=lambda item: -item[1])
    said = [f"{units.percent(share)} % {part}{_whose(seen, part)}" for part, share in shares if share >= _NAMED]
    where = f" at `{seen.where}`" if seen.where is not None else ""
    device = "" if seen.device == "cpu" else f" of {seen.device}"
    text = f"The peak of memory{device}{where}, {units.bytes_text(seen.nbytes)}, is {_listed(said)}."
    evidence: dict[str, object] = {"bytes_at_the_peak": seen.nbytes, "moment": seen.moment or "forward or other code"}
    evidence |= {f"share_{part.replace(' ', '_')}": share for part, share in shares}
    places = [seen.where] if seen.where is not None else []
    places += [line for part, line in seen.line.items() if _is_large(seen, part) and line not in places]
    at_stake = sum(share for part, share in shares if _is_large(seen, part)) * seen.nbytes
    return Insight("peak", 0.0, 0.0, text, evidence, tuple(places), cures, int(at_stake))


def _listed(said: list[str]) -> str:
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _whose(seen: _Seen, part: str) -> str:
    """An optimizer of an earlier cell may hold more than the one that steps here, which has no name if it is gone at
    the end."""
    if part != _STATE or (len(seen.states) < 2 and not seen.older):
        return ""
    if len(seen.states) < 2:
        size = f"{units.bytes_text(seen.older)} of it" if seen.newer else "all of it"
        holder = "".join(f" in `{name}`," for name in seen.states)
        return f" ({size}{holder} from before the cell)"
    shown = [f"`{name}` {units.bytes_text(size)}" for name, size in list(seen.states.items())[:_MOST_OPTIMIZERS]]
    more = len(seen.states) - len(shown)
    return f" ({', '.join(shown)}{f' and {more} more' if more else ''})"


def _is_large(seen: _Seen, part: str) -> bool:
    if part == "gradients" and seen.moment:
        return False
    return seen.shares.get(part, 0.0) >= _LARGE.get(part, 2.0)


def _cures(seen: _Seen) -> Iterator[Cure]:
    """Of the largest part first."""
    for part in sorted(seen.shares, key=lambda name: -seen.shares[name]):
        if not _is_large(seen, part):
            continue
        if part == _STATE:
            yield from _less_state(seen)
        else:
            yield from _CURES[part] if part != "activations" or seen.has_backward else _NO_BACKWARD


def _less_state(seen: _Seen) -> Iterator[Cure]:
    if len(seen.states) > 1 or not seen.stepping or (seen.older and seen.has_nameless_state):
        yield Cure("Delete an optimizer that is no longer used: its state is kept as long as it exists.")
    if seen.stepping == {"SGD"}:
        yield Cure("SGD stores one number per parameter for its momentum, and nothing without it.")
    else:
        yield Cure("Adam stores two numbers per parameter; `torch.optim.SGD` stores one or none, `Adafactor` a few.")


_CURES: dict[str, tuple[Cure, ...]] = {
    "activations": (
        Cure("Recompute activations in the backward pass: wrap the largest blocks of the model.",
             "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"),
        Cure("Use a smaller batch, and accumulate the gradients of several before each `step()`."),
        Cure("Store them in half the bytes:", "with torch.autocast(device, dtype=torch.bfloat16):", "bf16"),
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
