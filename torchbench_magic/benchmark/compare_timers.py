"""``Timer.compare``: several timers as the alternatives of one interleaved measurement."""

from __future__ import annotations

import ast
import gc
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from torch.utils.benchmark.utils import timer as torch_timer
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CopyIfCallgrind

from torchbench_magic.core.interpreters.process_runs import compare_in_processes
from torchbench_magic.core.machine.clocks import Clocks
from torchbench_magic.core.process.held_interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.core.process.run_settings import collector, preserved_state, set_threads
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.timer import compare_bodies
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.errors import Interrupted, OptionError
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.comparison import Comparison

from .statement import parsed_statement, source_of

__all__ = ["compare_timers"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Statement(Protocol):
    """What is asked of a `Timer`, the class of ``utils/timer.py``."""

    _task_spec: TaskSpec
    _globals: dict[str, Any]
    _written: tuple[Any, Any]
    _clock: Any


def compare_timers(timers: Sequence[Statement], kind: type[Any], **options: Any) -> Comparison:
    """See ``Timer.compare``; ``kind`` is that ``Timer``.

    Raises:
        OptionError: timers that cannot be told apart or measured together.
        Interrupted: on Ctrl-C; ``.partial`` holds what was measured, which may be all.
    """
    with interrupts_held() as held:
        made = _compared(timers, kind, options)
        if held.take():
            raise Interrupted(made)
    return made


def _compared(timers: Sequence[Statement], kind: type[Any], options: Mapping[str, Any]) -> Comparison:
    for timer in timers:
        _check(timer, kind)
    specs = [timer._task_spec for timer in timers]
    if len(specs) < 2:
        raise OptionError("Timer.compare: give two timers or more")
    if len({spec.num_threads for spec in specs}) > 1:
        raise OptionError("Timer.compare: give timers with one num_threads; thread counts are compared by %%timer -t")
    names = _names(specs)
    plan = Plan(
        threads=(specs[0].num_threads,),
        label=_common(specs, "label"),
        sub_label=_common(specs, "sub_label"),
        env=_common(specs, "env"),
        **options,
    )
    plan, clocks = _clocked(timers, plan)
    with preserved_state():
        set_threads(specs[0].num_threads)
        with collector(is_on=False):  # as timeit has it while setup runs
            namespaces = _namespaces(timers)
            plan = replace(plan, gc=gc.isenabled())
        shared, sources, apart = _merged(timers, namespaces)
        bodies = {name: Body(text, f"<{name}>") for name, text in zip(names, sources, strict=True)}
        task = Task(bodies, namespace=shared, plan=plan, clocks=clocks)
        measured = compare_bodies(task) if plan.processes is None else compare_in_processes(task)
    subjects = [
        replace(subject, stmt=spec.stmt, setup=spec.setup)
        for subject, spec in zip(measured.subjects, specs, strict=True)
    ]
    return replace(measured, subjects=tuple(subjects), warnings=[*measured.warnings, *_said(apart)])


def _check(timer: Any, kind: type[Any]) -> None:
    if not isinstance(timer, kind):
        raise OptionError(f"Timer.compare: {type(timer).__name__} is not a Timer of torchbench_magic.benchmark")
    if timer._language is not torch_timer.Language.PYTHON:
        raise OptionError("Timer.compare: measures statements of Python; %%timer --cpp compares those of C++")
    if type(timer)._timer_cls is not timeit.Timer:
        raise OptionError(f"Timer.compare: {type(timer).__name__} has a _timer_cls of its own, which it cannot use")


def _names(specs: Sequence[TaskSpec]) -> list[str]:
    """One name each: by the first field that tells them all apart."""
    for field in ("description", "sub_label", "label", "env", "stmt"):
        values = [getattr(spec, field) for spec in specs]
        if all(values) and len(set(values)) == len(values):
            return values
    raise OptionError("Timer.compare: two timers have the same names and statement: give each a description")


def _common(specs: Sequence[TaskSpec], field: str) -> str | None:
    values = {getattr(spec, field) for spec in specs}
    return values.pop() if len(values) == 1 else None


def _clocked(timers: Sequence[Statement], plan: Plan) -> tuple[Plan, Clocks]:
    """The plan and clocks that measure as the timers' own clock would."""
    asked = {timer._clock for timer in timers}
    if len(asked) > 1:
        raise OptionError("Timer.compare: give timers with the same clock (their argument `timer`)")
    clock: Any = asked.pop()
    if clock in (torch_timer.timer, "wall"):
        return plan, Clocks()
    if clock in ("cpu", "device"):
        return replace(plan, clock=clock), Clocks()
    if clock in (timeit.default_timer, time.perf_counter):
        return replace(plan, device="cpu"), Clocks()  # whoever says so does not want to wait for an accelerator
    if plan.processes is not None:
        raise OptionError("Timer.compare: a custom clock cannot be read in other processes: leave out processes")
    return replace(plan, device="cpu"), Clocks(wall=lambda: round(clock() * 1e9))


# ---- names -------------------------------------------------------------------------------------------------------


def _namespaces(timers: Sequence[Statement]) -> list[dict[str, Any]]:
    """What each statement finds: its globals, and what its setup makes of them. Equal setups run once."""
    done: list[tuple[dict[str, Any], str, dict[str, Any]]] = []
    found = []
    for timer in timers:
        given = CopyIfCallgrind.unwrap_all(timer._globals)
        setup = source_of(timer._written[1])
        names = next((names for other, text, names in done if text == setup and _same(other, given)), None)
        if names is None:
            names = dict(given)
            with interrupts_let_through():
                exec(compile(setup, "<setup>", "exec", dont_inherit=True), names)
            done.append((given, setup, names))
        found.append(names)
    return found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and bool(one == other))


def _merged(
    timers: Sequence[Statement], namespaces: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str], set[str]]:
    """All names in one namespace, the statements over it, and the names that are another object in each timer.

    A statement whose own object has a name that another timer gives to something else reads it by a new name.
    """
    trees = [parsed_statement(timer._written[0]) for timer in timers]
    used = [{node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} for tree in trees]
    lacking = {n for asked, names in zip(used, namespaces, strict=True) for n in asked - names.keys()}
    shared: dict[str, Any] = {}
    sources, apart = [], set()
    for nth, (tree, names) in enumerate(zip(trees, namespaces, strict=True)):
        own = used[nth] & names.keys()
        others = {n for n in own if n in lacking or (n in shared and not _equal(names[n], shared[n]))}
        renamed = {name: f"{name}__{nth + 1}" for name in others}
        shared |= {renamed.get(name, name): names[name] for name in own}
        apart |= others - lacking
        sources.append(_renamed(tree, renamed) if renamed else source_of(timers[nth]._written[0]))
    for names in namespaces:  # what only eval or exec would find
        shared |= {name: value for name, value in names.items() if name not in shared.keys() | lacking}
    return shared, sources, apart


def _renamed(tree: ast.Module, names: Mapping[str, str]) -> str:
    """The code with other names for its globals.

    Raises:
        OptionError: it binds one of them where a Name node does not stand (an argument, an import, ...).
    """
    for node in ast.walk(tree):
        bound = {getattr(node, field, None) or "" for field in ("name", "arg", "rest")}
        bound |= set(getattr(node, "names", ()) if isinstance(node, ast.Global | ast.Nonlocal) else ())
        if isinstance(node, ast.alias):
            bound |= {node.asname or node.name.partition(".")[0]}
        if not isinstance(node, ast.keyword) and (clash := sorted(bound & names.keys())):
            raise OptionError(
                f"Timer.compare: `{clash[0]}` is a different object in each timer, and a statement assigns to it: use"
                " two names, or pass the same object through globals"
            )
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


def _said(apart: set[str]) -> list[Doubt]:
    if not apart:
        return []
    listed = ", ".join(f"`{name}`" for name in sorted(apart))
    return [
        Doubt(
            "own-objects",
            f"{listed}: a different object in each timer. Two buffers of one size can differ in speed by up to 11 %.",
            "Give all timers the same object through globals.",
            {"names": sorted(apart)},
        )
    ]
