"""``optimizer-loop``: an optimizer that updates parameters one after the other, where torch can do all in one call."""

from __future__ import annotations

from dataclasses import dataclass

from torchbench_magic import units

from ....insights import Cure, Insight
from ...profile import Profile
from ..line_uses import recorded_lines
from ..wording import LEAST_SECONDS, stake_text
from .loop_facts import FEWEST_STEPS, loop_facts

__all__ = ["FUSED", "optimizer_loop"]

LEAST = 0.1
"""Of the run. The step itself stays: ``fused=True`` saved 84, 65 and 85 % of AdamW's (120 parameters of 1 024 numbers,
60 of 65 536, 8 of 10**6), 73, 64 and 81 % of Adagrad's, 78, 39 and 37 % of SGD's with momentum, each alone on one core
of two (torch 2.13). ``foreach=True`` took up to 2.8 times as long as the loop there, and is no cure."""
FEWEST = 20
"""Operations of one step: with fewer there is no loop worth the name."""
SMALL = 10e-6
"""Seconds of an operation by itself up to which one pass over many parameters is dispatch. ``SGD`` without momentum
makes one pass, and on large parameters a fused one reads and writes as much: it saved 51 % with 1 024 numbers (2 us an
operation), 5 % with 65 536 (19 us)."""
FUSED = {"SGD": 1, "Adam": 8, "AdamW": 8, "Adagrad": 4}
"""Optimizers that have a fused form on the CPU too (torch.optim's documentation of ``fused``), and how many passes over
memory their loop makes at least."""
_RANGE = "Optimizer.step#"
_FEW_PASSES = 2


@dataclass
class _Step:
    name: str
    line: tuple[str, int]
    calls: int
    seconds: float
    ops: int = 0
    own: float = 0.0
    together: int = 0  # foreach or fused operations


def optimizer_loop(profile: Profile) -> list[Insight]:
    """One for each optimizer, on the line of its ``step``.

    Silent: for an optimizer that has no fused form, or runs fused or foreach; for a few large parameters under one pass
    (see `SMALL`); without operations (``--phases``). It speaks where recording took most of the time, too: then there
    were about as many operations as microseconds, which is what it says.
    Seconds at stake: the optimizer's steps, without what recording added.
    """
    facts = loop_facts(profile)
    if facts is None or facts.steps < FEWEST_STEPS or profile.frames.empty:
        return []
    recorded = recorded_lines(profile)
    found = []
    for step in _steps(profile):
        seconds = max(step.seconds - recorded.per_op * step.ops, 0.0)
        passes = FUSED.get(step.name, 0)
        if not passes or step.together or step.ops < FEWEST * step.calls:
            continue
        if passes < _FEW_PASSES and step.own / step.ops > SMALL:
            continue
        if seconds < LEAST * recorded.wall or seconds < LEAST_SECONDS:
            continue
        where = facts.line(*step.line)
        each = units.count(round(step.ops / step.calls))
        text = (
            f"`{where}` updates the parameters one by one ({step.name}, {each} operations a step): "
            f"{stake_text(seconds, recorded.wall)}."
        )
        evidence: dict[str, object] = {
            "steps": step.calls,
            "operations": step.ops,
            "seconds_per_step": seconds / step.calls,
            "seconds_per_operation": step.own / step.ops,
        }
        code = f"torch.optim.{step.name}(..., fused=True)"
        text_of_cure = "Update all parameters in one call, if the optimizer supports it for these parameters."
        cure = Cure(text_of_cure, code, "fused-optimizer")
        found.append(Insight("optimizer-loop", seconds, seconds / recorded.wall, text, evidence, (where,), (cure,)))
    return found


def _steps(profile: Profile) -> list[_Step]:
    """The ranges of optimizers' steps in the call tree, with the operations below them; a caller stands before."""
    frames = profile.frames
    names = ("parent", "kind", "name", "source_id", "line", "thread", "calls", "wall_time", "self_time")
    columns = [frames[name].astype(object).where(frames[name].notna(), None).tolist() for name in names]
    of: list[_Step | None] = []
    found: dict[tuple[str, str, int], _Step] = {}
    for parent, kind, name, source_id, line, thread, calls, wall, own in zip(*columns, strict=True):
        above = of[parent] if parent >= 0 else None
        of.append(above)
        if above is not None and kind == "op":
            above.ops += calls
            above.own += own or 0.0
            above.together += "_fused_" in name or "_foreach_" in name
        elif above is None and kind == "python" and str(name).startswith(_RANGE) and thread == 0 and line is not None:
            key = name.removeprefix(_RANGE).partition(".")[0], str(source_id), int(line)
            mine = found.setdefault(key, _Step(key[0], key[1:], 0, 0.0))
            mine.calls += calls
            mine.seconds += wall or 0.0
            of[-1] = mine
    return list(found.values())
