"""``no-zero-grad``: steps that add their gradients to those of all steps before."""

from __future__ import annotations

import re

from torchbench_magic import units

from ....insights import CodeLine, Cure, Insight
from ...loops.modes import UNCLEARED
from ...profile import Profile
from .loop_facts import FEWEST_STEPS, LoopFacts, loop_facts
from .optimizer_names import optimizer_at

__all__ = ["no_zero_grad"]

_ACCUMULATES = "torch::autograd::AccumulateGrad"
_ADDS = frozenset({"aten::add_", "aten::add"})
_ZEROES = frozenset({"aten::zero_", "aten::_foreach_zero_", "aten::fill_"})
_NEARLY_ALL = 0.9
_WRITES = re.compile(r"\.grad(?:\.data)?\s*(?:\.(?:mul|div|copy|lerp|zero|sub|add|set)_\(|[-+*/]?=(?!=))")
"""Code that changes gradients itself (momentum by hand) keeps them on purpose. Of the text, since `clip_grad_norm_`
calls the same operations."""


def no_zero_grad(profile: Profile) -> list[Insight]:
    """One on the line of ``backward``, or one for each optimizer on the line of its ``step``. It is about the result,
    which the share of the time says nothing of.

    Of a loop without any ``zero_grad`` it speaks only where each of these is seen: an optimizer's step and one backward
    pass in each step, and that autograd adds to gradients that are there, in all steps but the first. Of an optimizer
    beside others, where all of its steps but the first were made on gradients that a backward pass had added to those
    of the step before (see `UNCLEARED`).
    Silent: for gradients that are cleared by hand (set to None: nothing is added; set to zero: an operation does it),
    or that the code changes itself; for gradient accumulation.
    Seconds at stake: the steps after the first, which do not do what was meant.
    """
    facts = loop_facts(profile)
    if facts is None or facts.steps < FEWEST_STEPS:
        return []
    if any(_WRITES.search(source.text) for source in profile.sources.values()):
        return []
    return _of_the_loop(profile, facts) or _of_optimizers(profile, facts)


def _of_the_loop(profile: Profile, facts: LoopFacts) -> list[Insight]:
    if profile.frames.empty:
        return []
    counts = facts.parts.groupby(["phase", "step"])["calls"].sum()
    if "zero_grad" in counts or not {"backward", "optimizer"} <= set(counts.index.get_level_values(0)):
        return []
    if not (counts["backward"] == 1).all() or len(counts["backward"]) < facts.steps:
        return []
    if (facts.outside["phase"] == "zero_grad").any() or _zeroed_by_hand(profile) >= facts.steps - 1:
        return []
    added, expected = _added(profile), _NEARLY_ALL * (facts.steps - 1) / facts.steps
    if not added[1] or added[0] < expected * added[1]:
        return []
    lines = _lines_of(facts, "backward")
    if not lines:
        return []
    seconds = float(facts.step_seconds.iloc[1:].sum())
    where = lines[0]
    wrong = "all steps are" if added[0] == added[1] else "all but the first step are"  # left by what ran before
    text = (
        f"`{where}` accumulates gradients: nothing clears them in {units.count(facts.steps)} "
        f"steps, so {wrong} wrong."
    )
    evidence: dict[str, object] = {"steps": facts.steps, "gradients_added_to": added[0], "gradients": added[1]}
    cure = Cure("Clear the gradients before each backward pass.", _clearing(profile, facts))
    return [Insight("no-zero-grad", seconds, seconds / facts.wall, text, evidence, (where,), (cure,))]


def _of_optimizers(profile: Profile, facts: LoopFacts) -> list[Insight]:
    found, backward = [], _lines_of(facts, "backward")
    made = facts.parts[(facts.parts["phase"] == "optimizer") & facts.parts["line"].notna()]
    for (source_id, line), mine in made.groupby(["source_id", "line"], sort=False):
        steps = mine["step"].astype("int64").unique()
        uncleared = mine.loc[mine["mode"] == UNCLEARED, "step"].astype("int64").unique()
        if len(steps) < FEWEST_STEPS or len(uncleared) < len(steps) - 1:
            continue
        where = facts.line(source_id, line)
        name = optimizer_at(profile, where, backward)
        seconds = float(facts.step_seconds.loc[uncleared].sum())
        text = (
            f"`{where}` steps {name} on gradients that nothing clears in "
            f"{units.count(len(steps))} steps, so every step after the first is wrong."
        )
        evidence: dict[str, object] = {"steps": len(steps), "steps_on_uncleared_gradients": len(uncleared)}
        code = f"{name.in_loop}.zero_grad()" if name.in_loop else None
        cure = Cure("Clear its gradients before each backward pass.", code)
        found.append(Insight("no-zero-grad", seconds, seconds / facts.wall, text, evidence, (where,), (cure,)))
    return found


def _lines_of(facts: LoopFacts, phase: str) -> list[CodeLine]:
    return [line for line, _ in facts.lines(facts.parts[facts.parts["phase"] == phase])]


def _clearing(profile: Profile, facts: LoopFacts) -> str | None:
    """What clears the gradients of the loop's only optimizer, by a name that its backward pass can use."""
    backward = _lines_of(facts, "backward")
    names = {optimizer_at(profile, line, backward).in_loop for line in _lines_of(facts, "optimizer")}
    name = names.pop() if len(names) == 1 else ""
    return f"{name}.zero_grad()" if name else None


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
