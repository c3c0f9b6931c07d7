"""Insights about optimizers: a slow loop over parameters, gradients that nobody clears."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchbench_magic import units
from torchbench_magic.profiling.loops.phases import UNCLEARED
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.statements import FUNCTIONS, bound_in, calls_in, parsed_text, place_in
from torchbench_magic.profiling.trace import Source
from torchbench_magic.result_base import CodeLine, Cure, Insight

from .evidence import LEAST_SECONDS, recorded_lines, stake_text
from .training import FEWEST_STEPS, loop_facts

# ---- optimizer_loop --------------------------------------------------------------------------------------------------
# ``optimizer-loop``: an optimizer that updates parameters one after the other, where torch can do all in one call.

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
            f"{stake_text(seconds, recorded.base, recorded.measured)}."
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
        found.append(Insight("optimizer-loop", seconds, seconds / recorded.base, text, evidence, (where,), (cure,)))
    return found


def _steps(profile: Profile) -> list[_Step]:
    """The ranges of optimizers' steps in the call tree, with the operations below them, but for those of a closure; a
    caller stands before."""
    frames = profile.frames
    names = ("parent", "kind", "name", "source_id", "line", "thread", "calls", "wall_time", "self_time")
    columns = [frames[name].astype(object).where(frames[name].notna(), None).tolist() for name in names]
    of: list[_Step | None] = []
    found: dict[tuple[str, str, int], _Step] = {}
    for parent, kind, name, source_id, line, thread, calls, wall, own in zip(*columns, strict=True):
        above = of[parent] if parent >= 0 else None
        of.append(above)
        if above is not None and kind == "function":  # a closure that the step calls: its work is no update
            above.seconds -= wall or 0.0
            of[-1] = None
        elif above is not None and kind == "op":
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


# ---- optimizer_names -------------------------------------------------------------------------------------------------
# What the line of a step calls the optimizer, and whether that name is known where the backward pass is run: a helper
# (``def step(o): o.step()``) has one of its own, and clearing the gradients there would delete them before the step.

_SCOPES = (*FUNCTIONS, ast.Lambda, ast.For, ast.AsyncFor, ast.comprehension)


def optimizer_at(profile: Profile, where: CodeLine, backward: Iterable[CodeLine]) -> tuple[str, bool]:
    """(what a line steps: of ``a.step()`` and ``scaler.step(a)`` ``a``, empty where it does not say; whether the lines
    of the loop's backward passes know it by this name)."""
    stepped = _stepped_at(profile, where)
    if stepped is None:
        return "", False
    return ast.unparse(stepped), _is_known(stepped, profile.sources[where.source_id], where.line, backward)


def _stepped_at(profile: Profile, where: CodeLine) -> ast.Name | ast.Attribute | None:
    place = place_in(profile.sources.get(where.source_id), where.line)
    calls = calls_in(place.head) if place is not None else []
    steps = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "step"]
    if len(steps) != 1 or not isinstance(steps[0].func, ast.Attribute):
        return None
    of = steps[0].func.value
    given = steps[0].args[0] if steps[0].args else None
    if isinstance(given, ast.Name | ast.Attribute) and not _is_closure(profile, given):
        of = given
    return of if isinstance(of, ast.Name | ast.Attribute) else None


def _is_closure(profile: Profile, given: ast.Name | ast.Attribute) -> bool:
    """Whether ``a.step(given)`` is given a function: one is defined by that name; else it is an optimizer."""
    name = given.id if isinstance(given, ast.Name) else given.attr
    trees = (parsed_text(source.text) for source in profile.sources.values())
    return any(
        (isinstance(each, FUNCTIONS) and each.name == name)
        or (isinstance(each, ast.Assign) and isinstance(each.value, ast.Lambda) and name in bound_in(each))
        for tree in trees
        if tree is not None
        for each in ast.walk(tree)
    )


def _is_known(name: ast.expr, source: Source, line: int, backward: Iterable[CodeLine]) -> bool:
    """Whether each function and loop around ``line`` that binds the name has a backward pass in it too; a name that
    none of them binds is a global, of all cells or of its own file."""
    while isinstance(name, ast.Attribute):
        name = name.value
    tree, above = parsed_text(source.text), source.first_line - 1
    if tree is None or not isinstance(name, ast.Name):
        return False
    mine = [each.line - above for each in backward if each.source_id == source.source_id]
    binding = [
        each
        for each in ast.walk(tree)
        if isinstance(each, _SCOPES)
        and _spans(each, line - above)
        and name.id in bound_in(each.target if isinstance(each, ast.For | ast.AsyncFor | ast.comprehension) else each)
    ]
    if not binding:
        return source.cell is not None or bool(mine)
    return all(any(_spans(each, number) for number in mine) for each in binding)


def _spans(node: ast.AST, number: int) -> bool:
    parts = [node, *ast.iter_child_nodes(node)]
    first = min((part.lineno for part in parts if hasattr(part, "lineno")), default=0)
    last = max((part.end_lineno or 0 for part in parts if hasattr(part, "end_lineno")), default=0)
    return first <= number <= last


# ---- no_zero_grad ----------------------------------------------------------------------------------------------------
# ``no-zero-grad``: steps that add their gradients to those of all steps before.

_WRITES = re.compile(r"\.grad(?:\.data)?\s*(?:\.(?:mul|div|copy|lerp|zero|sub|add|set)_\(|[-+*/]?=(?!=))")
"""Code that changes gradients itself (momentum by hand) keeps them on purpose. Of the text, since ``clip_grad_norm_``
calls the same operations."""


def no_zero_grad(profile: Profile) -> list[Insight]:
    """One for each optimizer, on the line of its ``step``. It is about the result, which the share of the time says
    nothing of.

    Said where all of its steps but the first were made on gradients that a backward pass had added to those of the step
    before (see `UNCLEARED`).
    Silent: for gradients that are cleared by hand or that the code changes itself, by whatever means; for gradient
    accumulation.
    Seconds at stake: these steps, which do not do what was meant.
    """
    facts = loop_facts(profile)
    if facts is None or facts.steps < FEWEST_STEPS:
        return []
    if any(_WRITES.search(source.text) for source in profile.sources.values()):
        return []
    found: list[Insight] = []
    backward = [line for line, _ in facts.lines(facts.parts[facts.parts["phase"] == "backward"])]
    made = facts.parts[(facts.parts["phase"] == "optimizer") & facts.parts["line"].notna()]
    for (source_id, line), mine in made.groupby(["source_id", "line"], sort=False):
        steps = mine["step"].astype("int64").unique()
        uncleared = mine.loc[mine["mode"] == UNCLEARED, "step"].astype("int64").unique()
        if len(steps) < FEWEST_STEPS or len(uncleared) < len(steps) - 1:
            continue
        where = facts.line(source_id, line)
        name, is_known = optimizer_at(profile, where, backward)
        what = f"`{name}`" if name else "an optimizer"
        seconds = float(facts.step_seconds.loc[uncleared].sum())
        text = (
            f"`{where}` steps {what} on gradients that nothing clears in "
            f"{units.count(len(steps))} steps, so every step after the first is wrong."
        )
        evidence: dict[str, object] = {"steps": len(steps), "steps_on_uncleared_gradients": len(uncleared)}
        code = f"{name}.zero_grad()" if is_known else None
        cure = Cure("Clear its gradients before each backward pass.", code)
        found.append(Insight("no-zero-grad", seconds, seconds / facts.wall, text, evidence, (where,), (cure,)))
    return found
