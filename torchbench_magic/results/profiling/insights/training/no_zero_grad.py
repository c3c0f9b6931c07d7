"""``no-zero-grad``: steps that add their gradients to those of all steps before."""

from __future__ import annotations

import re

from torchbench_magic import units

from ....insights import Cure, Insight
from ...profile import Profile
from .loop_facts import FEWEST_STEPS, loop_facts

__all__ = ["no_zero_grad"]

_ACCUMULATES = "torch::autograd::AccumulateGrad"
_ADDS = frozenset({"aten::add_", "aten::add"})
_ZEROES = frozenset({"aten::zero_", "aten::_foreach_zero_", "aten::fill_"})
_NEARLY_ALL = 0.9
_WRITES = re.compile(r"\.grad(?:\.data)?\s*(?:\.(?:mul|div|copy|lerp|zero|sub|add|set)_\(|[-+*/]?=(?!=))")
"""Code that changes gradients itself (momentum by hand) keeps them on purpose. Of the text, since `clip_grad_norm_`
calls the same operations."""


def no_zero_grad(profile: Profile) -> list[Insight]:
    """One at most, on the line of ``backward``. It is about the result, which the share of the time says nothing of.

    Speaks only where each of these is seen: an optimizer's step and one backward pass in each step, no ``zero_grad`` in
    any, and that autograd adds to gradients that are there, in all steps but the first.
    Silent: for gradients that are cleared by hand (set to None: nothing is added; set to zero: an operation does it),
    or that the code changes itself; for gradient accumulation; without operations (``--phases``).
    Seconds at stake: the steps after the first, which do not do what was meant.
    """
    facts = loop_facts(profile)
    if facts is None or facts.steps < FEWEST_STEPS or profile.frames.empty:
        return []
    counts = facts.parts.groupby(["phase", "step"])["calls"].sum()
    if "zero_grad" in counts or not {"backward", "optimizer"} <= set(counts.index.get_level_values(0)):
        return []
    if not (counts["backward"] == 1).all() or len(counts["backward"]) < facts.steps:
        return []
    if (facts.outside["phase"] == "zero_grad").any() or _zeroed_by_hand(profile) >= facts.steps - 1:
        return []
    if any(_WRITES.search(source.text) for source in profile.sources.values()):
        return []
    added, expected = _added(profile), _NEARLY_ALL * (facts.steps - 1) / facts.steps
    if not added[1] or added[0] < expected * added[1]:
        return []
    lines = facts.lines(facts.parts[facts.parts["phase"] == "backward"])
    if not lines:
        return []
    seconds = float(facts.step_seconds.iloc[1:].sum())
    where = lines[0][0]
    text = (
        f"`{where}` accumulates gradients: nothing clears them in {units.count(facts.steps)} "
        "steps, so all but the first step are wrong."
    )
    evidence: dict[str, object] = {"steps": facts.steps, "gradients_added_to": added[0], "gradients": added[1]}
    cure = Cure("Clear the gradients before each backward pass.", "optimizer.zero_grad()")
    return [Insight("no-zero-grad", seconds, seconds / facts.wall, text, evidence, (where,), (cure,))]


def _added(profile: Profile) -> tuple[int, int]:
    """(how often autograd added to a gradient that was there, how often it had one to keep)."""
    frames = profile.frames
    names = frames["name"].tolist()
    kinds = zip(frames["kind"].tolist(), names, strict=True)
    kept = {at for at, (kind, name) in enumerate(kinds) if kind == "op" and name == _ACCUMULATES}
    calls = frames["calls"].tolist()
    rows = zip(frames["parent"].tolist(), names, calls, strict=True)
    added = sum(count for parent, name, count in rows if parent in kept and name in _ADDS)
    return int(added), int(sum(calls[at] for at in kept))


def _zeroed_by_hand(profile: Profile) -> int:
    """How often code itself called an operation that sets a tensor to zero; those within others are theirs."""
    frames = profile.frames
    mine = frames[(frames["kind"] == "op") & frames["name"].isin(_ZEROES)]
    kinds = frames["kind"].to_numpy()[mine["parent"].to_numpy()]
    return int(mine["calls"][kinds != "op"].sum())
