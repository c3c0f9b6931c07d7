"""``--try``: the body as it is against the body under each lever, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torchbench_magic.core.code.coroutines import completed
from torchbench_magic.core.code.timed_loop import BlockAround, Timeable
from torchbench_magic.core.machine.clocks import Clocks
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.core.process.run_settings import CountingSink, measured_alone, output_to
from torchbench_magic.core.timing.block_requests import Ended
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.points.sweep import Point
from torchbench_magic.core.timing.python_bodies import PythonBodies
from torchbench_magic.core.timing.timed_code import LeftBySetup, TimedBlocks
from torchbench_magic.core.timing.timer import Collected
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.errors import Interrupted, OptionError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.proof.trial import AS_IT_IS, Trial
from torchbench_magic.units import seconds_text

from .asked import check_levers
from .cell_calls import first_state
from .trials import Trials

__all__ = ["check_trial", "try_levers"]

WHOLE_S = 16.0
"""Seconds that slow code is sampled for, all levers together, where no maximum is asked for."""
SLOW_ROUNDS = 12
"""Calls of each alternative that a verdict of slow code takes."""
_OF_LEVERS = frozenset({"changes-state", "changes-threads"})


def try_levers(task: Task) -> Comparison:
    """Time the one body of ``task`` as it is and under the levers of its plan.

    Raises:
        OptionError: what cannot be tried as asked.
        BodyError: code that awaits.
        Interrupted: on Ctrl-C; ``.partial`` holds what was measured.
        Exception: whatever the setup or the body raises, untouched.
    """
    check_trial(task)
    trials = Trials()
    with measured_alone(), interrupts_held() as held:
        try:
            made = completed(Collected(task, partial(_tried, trials)).measured(may_await=False)).get()
        finally:
            for written in trials.written:
                written.put_back()
        is_interrupted = held.take()
    made = _in_words_of_trials(made, task)
    if is_interrupted:
        raise Interrupted(made)
    return made


def _in_words_of_trials(made: Comparison, task: Task) -> Comparison:
    """Without what levers are there to change, and without advice for other runs."""
    levers = {subject.description for subject in made.subjects} - {AS_IT_IS}
    kept = [d for d in made.warnings if not (d.kind in _OF_LEVERS and d.facts.get("name") in levers)]
    if not task.plan.restore:
        kept = [_not_put_back(doubt) if doubt.kind == "not-restored" else doubt for doubt in kept]
    return replace(made, warnings=kept)


def _not_put_back(doubt: Doubt) -> Doubt:
    """Nobody gave ``--restore``."""
    before, is_ours, _ = doubt.text.partition(" changed, and `--restore` does not put ")
    text = f"{before} changed and cannot be put back: it keeps what the last call wrote, and later blocks"
    text += " started from that."
    return replace(doubt, text=text) if is_ours else doubt


def check_trial(task: Task) -> None:
    """Refuse what ``--try`` does not go with (OptionError); ``task.plan.levers`` is not None."""
    plan = task.plan
    check_levers(plan.levers or ())
    if len(task.bodies) != 1:
        raise OptionError(
            "--try runs one body as it is and under levers: leave the `# ---` sections out, and give setup with --setup"
        )
    others = {"--sweep and --fuzz": bool(task.points), "--callgrind": task.counting is not None}
    others |= {"--processes": plan.processes is not None, "--engines": plan.engines is not None}
    others |= {"--description": plan.description is not None}
    others |= {"--baseline": plan.baseline is not None}
    for option, is_given in others.items():
        if is_given:
            raise OptionError(f"--try does not go with {option}")
    if plan.threads is not None and len(plan.threads) > 1:
        raise OptionError("--try measures at one thread count: give -t one number, and the lever threads:N another")


class _ReadyBodies(PythonBodies):
    """Alternatives whose setup has run, with what was seen of their levers."""

    def __init__(self, task: Task, names: dict[str, Any], left: LeftBySetup, trials: Trials) -> None:
        super().__init__(task)
        self.names, self._left_before, self._seen = names, left, trials

    async def set_up(self, *, may_await: bool) -> Ended[LeftBySetup]:
        return Ended(self._left_before)

    def compile(self) -> TimedBlocks:
        made = super().compile()
        inputs = made.watched.inputs
        if inputs is not None:
            inputs.written, inputs.rewritten = self._seen.written, self._seen.rewritten
            made.watched.once.rewritten = {*self._seen.rewritten, *self._seen.restored}
        quiet = [block if not at else _Quiet(block) for at, block in enumerate(made.blocks)]
        return replace(made, blocks=quiet, doubts=[*self._seen.doubts, *made.doubts])

    def facts(self, name: str) -> Mapping[str, Any]:
        return {**super().facts(name), "trial": self._seen.trials.get(name, Trial())}


class _Quiet(BlockAround):
    """A block whose output is dropped: the body as it is has shown it."""

    def __init__(self, block: Timeable) -> None:
        self.block, self._sink = block, CountingSink()

    def start(self, replica: int, calls: int, clocks: Clocks, sync: Callable[[], object]) -> Any:
        with output_to(self._sink, self._sink):
            return self.block.start(replica, calls, clocks, sync)


def _tried(trials: Trials, task: Task, point: Point | None) -> PythonBodies:
    """The alternatives: the body as it is, and under each lever that runs. ``trials`` are empty and taken here."""
    began = task.clocks.wall()
    try:
        bodies = PythonBodies(task, point)
        left = completed(bodies.set_up(may_await=False)).get()
        threads = task.plan.threads or (() if left.threads is None else (left.threads,))
        state = first_state(threads)
        trials.take(task, bodies.names, state)
        state.put_back()
    except Interrupted:
        raise
    except KeyboardInterrupt:
        waited = seconds_text((task.clocks.wall() - began) / 1e9)
        said = f"Nothing was measured yet: interrupted after {waited}, while {trials.stage}."
        raise Interrupted(None, said) from None
    body = next(iter(task.bodies.values()))
    names = [AS_IT_IS, *trials.variants]
    plan = _plan(task.plan, trials, len(names))
    final = replace(task, bodies=dict.fromkeys(names, body), variants=trials.variants, plan=plan)
    return _ReadyBodies(final, bodies.names, left or LeftBySetup(), trials)


def _plan(plan: Plan, trials: Trials, alternatives: int) -> Plan:
    """The plan of the timing: state is put back where the body changes it, and slow code ends in good time."""
    made = replace(plan, restore=plan.restore or trials.restores)
    if alternatives == 1:
        made = replace(made, description=AS_IT_IS)
    is_open = plan.max_run_time is None and not plan.goes_on and plan.rounds_asked is None
    each = max(plan.min_run_time, WHOLE_S / alternatives)
    if is_open and SLOW_ROUNDS * trials.call_seconds > each:
        made = replace(made, max_run_time=each)
    return made
