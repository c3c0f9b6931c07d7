"""``grad-unused`` and ``eval-mode``: forward passes that no backward pass follows, and what their module was set to."""

from __future__ import annotations

import ast

import pandas as pd

from torchbench_magic import units

from ....insights import Cure, Insight
from ...loops.modes import EVALUATION, GRAPH, TRAIN_MODE, TRAINED, VARIES
from ...profile import Profile
from ..source_trees import call_name, place_in
from ..wording import LEAST_SECONDS, LEAST_SHARE, stake_text
from .loop_facts import FEWEST_STEPS, LoopFacts, loop_facts

__all__ = ["eval_mode", "grad_unused"]


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
    rows = _with(profile.phases_by_line, EVALUATION, GRAPH)
    for where, seconds in facts.lines(rows):
        share = seconds / facts.wall
        if share < LEAST_SHARE or seconds < LEAST_SECONDS:
            continue
        mine = rows[(rows["source_id"] == where.source_id) & (rows["line"] == where.line)]
        if len(_with(mine, TRAIN_MODE)) and _is_over_range(profile, where.source_id, where.line):
            continue
        count = int(mine["calls"].sum())
        text = (
            f"`{where}` evaluates with gradients on: {units.count(count)} forward passes record a graph that no "
            f"backward pass uses, {stake_text(seconds, facts.wall)}."
        )
        evidence: dict[str, object] = {"forward_passes": count, "seconds_per_pass": seconds / max(count, 1)}
        cure = Cure("Evaluate within `torch.inference_mode()`.", "with torch.inference_mode():", "inference_mode")
        found.append(Insight("grad-unused", seconds, share, text, evidence, (where,), (cure,)))
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
    rows = _with(profile.phases_by_line, EVALUATION, TRAIN_MODE, VARIES)
    for where, seconds in facts.lines(rows):
        share = seconds / facts.wall
        if share < LEAST_SHARE or seconds < LEAST_SECONDS or _is_over_range(profile, where.source_id, where.line):
            continue
        mine = rows[(rows["source_id"] == where.source_id) & (rows["line"] == where.line)]
        count = int(mine["calls"].sum())
        text = (
            f"`{where}` evaluates in training mode, {units.count(count)} times: its dropout is on, or its batch norm "
            "learns from evaluation data."
        )
        cure = Cure("Switch to evaluation mode before it, and back to training mode after it.", "model.eval()")
        found.append(Insight("eval-mode", seconds, share, text, {"forward_passes": count}, (where,), (cure,)))
    return found


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
