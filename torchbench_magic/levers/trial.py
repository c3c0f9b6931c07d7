"""``--try``: levers measured on the cell itself, and from an insight (`Insight.try_`)."""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torchbench_magic.cell_body import Body, code_title
from torchbench_magic.errors import InputError, Interrupted, OptionError
from torchbench_magic.process.code import (
    Notebook,
    compile_body,
    completed,
    globals_assigned,
    globals_read,
    notebook_now,
)
from torchbench_magic.process.compile_watch import CompileWatch, why_given_up
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.frame_owner import PROFILED_CELL, users_traceback
from torchbench_magic.process.interrupts import Awaiting, TooLong, interrupts_held
from torchbench_magic.process.output import CountingSink, dropped_output
from torchbench_magic.process.require_torch import import_torch
from torchbench_magic.process.settings import ProcessState, measured_alone, outside_modes
from torchbench_magic.result_base import Doubt, Insight
from torchbench_magic.timing.blocks import BlockAround, Ended, Timeable
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.intervals import ALPHA, rounds_for_an_interval
from torchbench_magic.timing.plan import MOST_THREADS, Plan
from torchbench_magic.timing.point_run import LeftBySetup, TimedBlocks
from torchbench_magic.timing.python_bodies import PythonBodies
from torchbench_magic.timing.rounds import STRETCH_S
from torchbench_magic.timing.run import Collected
from torchbench_magic.timing.samples import AS_IT_IS, Trial
from torchbench_magic.timing.sweep import Point
from torchbench_magic.timing.task import Task, Variant
from torchbench_magic.timing.written_objects import WrittenObjects
from torchbench_magic.units import seconds_text

from .kinds import (
    ADVICE,
    LEVERS,
    Change,
    DoesNotApply,
    Lever,
    Site,
    graphs_compiled,
    has_compiled_code,
    threads,
    threads_to_try,
    with_functions,
)
from .run_variant import CellCalls, bound_to_what_is_given, first_state
from .trial_outcome import VALUE, CallOutcome, compared, differing, differs_in, is_evident, not_comparable, only_tiny

# ---- trying ----------------------------------------------------------------------------------------------------------

WHOLE_S = 16.0
"""Seconds that code is sampled for, all levers together, which is too slow for a verdict (`STRETCH_S`) and where no
maximum is asked for."""
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
    levers = {subject.description for subject in made.subjects} - {AS_IT_IS}
    kept = [d for d in made.warnings if not (d.kind in _OF_LEVERS and d.facts.get("name") in levers)]
    made = replace(made, warnings=kept)  # without what levers are there to change
    if is_interrupted:
        raise Interrupted(made)
    return made


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
        for probe in made.probes[1:]:  # the first calls; of others all output is dropped, and what drops it takes time
            probe.block = _Quiet(probe.block)
        return replace(made, doubts=[*self._seen.doubts, *made.doubts])

    def facts(self, name: str) -> Mapping[str, Any]:
        return {**super().facts(name), "trial": self._seen.trials.get(name, Trial())}


class _Quiet(BlockAround):
    """A block whose output is dropped: the body as it is has shown it."""

    def __init__(self, block: Timeable) -> None:
        self.block, self._sink = block, CountingSink()

    def start(self, replica: int, calls: int, clocks: Clocks, sync: Callable[[], object]) -> Any:
        with dropped_output(self._sink):
            return self.block.start(replica, calls, clocks, sync)


def _tried(trials: Trials, task: Task, point: Point | None) -> PythonBodies:
    """The alternatives: the body as it is, and under each lever that runs. ``trials`` are empty and taken here."""
    began = task.clocks.wall()
    try:
        bodies = PythonBodies(task, point)
        left = completed(bodies.set_up(may_await=False)).get()
        threads = task.plan.threads or (() if left.threads is None else (left.threads,))
        state = first_state(threads)
        with outside_modes():  # no decorator: its frame would stand in the user's traceback
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
    return _ReadyBodies(final, bodies.names, left, trials)


def _plan(plan: Plan, trials: Trials, alternatives: int) -> Plan:
    """The plan of the timing: state is put back where the body changes it, and code ends in good time that is too slow
    for the rounds of a verdict."""
    made = replace(plan, restore=plan.restore or trials.restores)
    if alternatives == 1:
        made = replace(made, description=AS_IT_IS)
    is_open = plan.max_run_time is None and not plan.goes_on and plan.rounds_asked is None
    rounds = rounds_for_an_interval("once", ALPHA / max(1, alternatives - 1))
    if is_open and rounds * trials.call_seconds > STRETCH_S:
        made = replace(made, max_run_time=max(plan.min_run_time, WHOLE_S / alternatives))
    return made


# ---- asked -----------------------------------------------------------------------------------------------------------

_THREADS = re.compile(r"threads:([0-9]{1,9})")


def check_levers(names: Sequence[str], option: str = "--try") -> None:
    """Refuse names that are no lever.

    Args:
        option: what they were given to, as the reader writes it.

    Raises:
        OptionError: one line, with the nearest lever or all of them.
    """
    for name in names:
        number = _THREADS.fullmatch(name)
        if number is not None and 1 <= int(number[1]) <= MOST_THREADS:
            continue
        if name.startswith("threads:"):
            raise OptionError(
                f"{option}: {name!r}: give a whole number of threads from 1 to {MOST_THREADS}, as in threads:2"
            )
        lever, colon, _ = name.partition(":")
        if colon and lever in LEVERS:
            raise OptionError(f"{option}: {lever} takes no value, and {name!r} has; only threads:N does")
        if name in ADVICE:
            raise OptionError(f"{option}: {name}: {ADVICE[name]}")
        if name not in LEVERS:
            near = difflib.get_close_matches(name.replace("-", "_"), [each.replace("-", "_") for each in LEVERS], n=1)
            known = next((each for each in LEVERS if near and each.replace("-", "_") == near[0]), None)
            said = f"the nearest is {known}" if known is not None else f"use {', '.join(LEVERS)} or threads:N"
            raise OptionError(f"{option}: no lever is called {name!r}; {said}")
    if len(set(names)) != len(names):
        raise OptionError(f"{option}: a lever is given twice")


def levers_of(asked: bool | str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of an argument ``try_`` that is a list of them, a text with commas, or True for all that apply.

    Raises:
        OptionError: one of them is no lever.
    """
    if asked is None or asked is False:
        return None
    names = () if asked is True else tuple(asked.split(",")) if isinstance(asked, str) else tuple(asked)
    check_levers(names, "try_")
    return names


def levers_asked(names: Sequence[str], site: Site) -> dict[str, Lever]:
    """The levers to try at a cell, by the names of the alternatives; without names all but float16 on a CPU, where it
    is slower than float32."""
    check_levers(names)
    made: dict[str, Lever] = {}
    for name in names or [name for name in LEVERS if name != "fp16" or site.device != "cpu"]:
        number = _THREADS.fullmatch(name)
        if number is not None or name == "threads":
            count = int(number[1]) if number is not None else threads_to_try(site)
            made[f"threads:{count}"] = partial(threads, count)
        else:
            made[name] = LEVERS[name]
    return made


# ---- trials ----------------------------------------------------------------------------------------------------------
# Each lever tried once before anything is timed: does it apply, does it run, does the result stay the same?

DEADLINE_S = 120.0
"""Seconds that the first call under a lever may take, compiling included: a function of two lines took up to 31 s to
compile on two busy cores."""
DEADLINE_TIMES = 20.0
"""The same for slow code, in calls of it as it is."""
_LONGEST = 160
_NAMED = 3
_MAY_WRITE = frozenset(
    ("add_scalar", "dump", "makedirs", "mkdir", "open", "rename", "rmtree", "save", "savefig", "savetxt", "savez",
     "to_csv", "to_parquet", "to_pickle", "unlink", "write_bytes", "write_text")
)  # fmt: skip


@dataclass
class Trials:
    """The levers that run, and what is said of the others.

    Attributes:
        variants: lever -> how the cell runs with it.
        trials: lever -> what was seen of it.
        shared: names that all alternatives are to find besides.
        left_out: lever -> why it is not timed.
        restores: a call changes what the next one finds: it is to be put back.
        doubts: what is said besides.
        call_seconds: of a warm call as it is.
        written: what the cell writes into objects, as it is and under each lever.
        rewritten: labels of what every call writes anew, and so is to be put back before each block.
        stage: what is under way.
    """

    variants: dict[str, Variant] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    restores: bool = False
    doubts: list[Doubt] = field(default_factory=list)
    call_seconds: float = 0.0
    written: list[WrittenObjects] = field(default_factory=list)
    rewritten: frozenset[str] = frozenset()
    _is_evident: bool = True
    _prints_the_same: bool = True

    stage: str = "running the setup"

    def take(self, task: Task, names: dict[str, Any], state: ProcessState) -> None:
        """Try the levers that ``task.plan`` asks for.

        Raises:
            BodyError: code that awaits.
            Exception: whatever the body raises as it is.
        """
        self._told(task, "calling the cell as it is")
        cell = CellCalls(task, names, state)
        self.rewritten = frozenset(cell.parts_rewritten())  # what only the first call does is no result to compare with
        self.written.append(cell.written)
        baseline = cell.call()
        again = cell.call()
        self.call_seconds = min(baseline.seconds, again.seconds)
        self.restores = bool(baseline.state or self.rewritten) or cell.reads_streams or cell.draws_of_its_own
        repeats = compared(again, baseline)[0] != "differs"
        self._prints_the_same = again.printed == baseline.printed
        site = cell.site(again)
        self._is_evident = is_evident(baseline, bound_to_what_is_given(site.tree))
        self._say_what_was_seen([] if repeats else differing(again, baseline), site.mentioned)
        self._say_what_cannot_be_compared(not_comparable(again, baseline))
        self._say_what_is_kept(cell.written.not_put_back)
        for name, lever in levers_asked(task.plan.levers or (), site).items():
            self._told(task, f"trying {name}")
            try:
                change = lever(site)
                variant = self._variant(name, change, lambda changed: with_functions(site, changed), names)
                calls = CellCalls(task, names, state, variant)
                if variant.names is not None:  # it writes into copies of its own, too
                    self.written.append(calls.written)
                self._try(task, name, change, calls, site, baseline if repeats else None)
                self.variants[name] = variant
            except DoesNotApply as reason:
                self.left_out[name] = str(reason)
            except TooLong:
                limit = self._limit_s
                self.left_out[name] = f"it did not end within {limit:.0f} s and was stopped"
            except Exception as error:  # noqa: BLE001  # the user's code runs as it is: this is the lever's doing
                self.left_out[name] = f"it raised {type(error).__name__}{_first_line(error)}"
            cell.put_back()  # a lever may hide from the search what its calls changed
        if site.draws:
            self._say_what_was_drawn()
        self._say_what_was_left_out(task)

    @property
    def _limit_s(self) -> float:
        return max(DEADLINE_S, DEADLINE_TIMES * self.call_seconds)

    def _variant(
        self, lever: str, change: Change, copied: Callable[[Mapping[str, Any]], dict[str, Any]], names: dict[str, Any]
    ) -> Variant:
        own = copied(change.names) if change.names or change.finish is not None else None
        if own is not None and change.finish is not None:
            change.finish(own)
        transform: Callable[[ast.Module], ast.Module] | None = None
        if change.each_call:
            entered = f"__tb_lever_{len(self.shared)}"
            self.shared[entered] = names[entered] = change.around  # the run's own copy of the names

            def transform(tree: ast.Module) -> ast.Module:
                return _within(entered, tree)

        labels = {f"{name} ({lever})": value for name, value in change.names.items()}
        return Variant(own, transform, change.before, None if change.each_call else change.around, labels)

    def _try(
        self, task: Task, lever: str, change: Change, calls: CellCalls, site: Site, baseline: CallOutcome | None
    ) -> None:
        """Call the cell with a lever, twice where that compiles, and note what it comes to."""
        if not change.compiles:
            self._call_and_compare(lever, change, calls, site, baseline)
            return
        self._told(task, f"trying {lever}: compiling {change.compiles}")
        watch = CompileWatch()
        watch.start()
        try:
            self._call_and_compare(lever, change, calls, site, baseline)
        finally:
            compiled = watch.stop()
        if given_up := next(filter(None, map(why_given_up, compiled)), ""):
            text = f"`{lever}` contains code that is not compiled ({given_up}) and runs as plain Python."
            action = "Profile the compiled code with `%%tprofile`: it names the line and a cure."
            self.doubts.append(Doubt("fell-back", text, action, {"name": lever, "reason": given_up}))

    def _call_and_compare(
        self, lever: str, change: Change, calls: CellCalls, site: Site, baseline: CallOutcome | None
    ) -> None:
        before = graphs_compiled()
        first = calls.call(self._limit_s)
        compile_time, changed = float("nan"), change.changed
        if change.compiles and graphs_compiled() == before and has_compiled_code(site):
            changed = "compiled earlier in this session and reused: the time to compile was not measured"
            first = calls.call(self._limit_s)
        elif change.compiles:
            if graphs_compiled() == before:
                raise DoesNotApply(
                    "torch.compile compiled nothing and ran the original code (its limit of compilations may be"
                    " reached: `torch.compiler.reset()` clears them)"
                )
            first, compile_time = self._warm(calls, first)
        result = compared(first, baseline, change.precision) if baseline is not None else ("", float("nan"))
        if result[0] != "differs" and baseline is not None and not self._tells(first, baseline):
            result = ("", float("nan"))
        told_apart = change.precision if result[0] == "differs" else None  # by its numbers, if that is its dtype
        kind = "" if baseline is None else differs_in(first, baseline, told_apart)
        if result[0] == "close" and baseline is not None and not kind:
            kind = only_tiny(first, baseline)
        self.trials[lever] = Trial(result[0], result[1], compile_time, change.how, changed, kind)

    def _tells(self, ours: CallOutcome, baseline: CallOutcome) -> bool:
        """Whether what is compared tells of the numbers that the cell computes: what it printed may be all there is."""
        return self._is_evident and (not self._prints_the_same or ours.printed == baseline.printed)

    def _warm(self, calls: CellCalls, first: CallOutcome) -> tuple[CallOutcome, float]:
        """(a warm call, seconds that the calls before it took more): a second call may compile again, for shapes."""
        spent, warm = first.seconds, calls.call(self._limit_s)
        before = graphs_compiled()
        again = calls.call(self._limit_s)
        if graphs_compiled() != before:
            raise DoesNotApply("it compiled again in each of three calls, so it cannot be timed")
        quickest = min(warm.seconds, again.seconds)
        return again, max(spent + warm.seconds - 2 * quickest, 0.0)

    # ---- what is said ---------------------------------------------------------------------------------------

    def _say(self, *doubt: Any) -> None:
        self.doubts.append(Doubt(*doubt))

    def _say_what_was_seen(self, differ: Sequence[str], mentioned: frozenset[str]) -> None:
        if differ:
            rest = f" and {len(differ) - _NAMED} more" if len(differ) > _NAMED else ""
            what = ", ".join(map(_quoted, differ[:_NAMED])) + rest
            self._say(
                "not-repeatable",
                f"Two calls of the unchanged cell give different results from the same state ({what}): whether a"
                " lever changes the result is unknown, so none is recommended.",
                "Each call gets the same random numbers from torch, NumPy and Python; take clock readings, and"
                " numbers from elsewhere, out of the cell.",
                {"names": list(differ)},
            )
        if writes := sorted(mentioned & _MAY_WRITE):
            self._say(
                "repeated-effects",
                f"The cell may write to files (`{writes[0]}`): it runs many times here, under each lever, and"
                " writes each time. Tensors, optimizers and random numbers are put back, files are not.",
                "",
                {"names": writes},
            )

    def _say_what_cannot_be_compared(self, found: Mapping[str, str]) -> None:
        if not self._is_evident and not found:
            self._say(
                "not-compared",
                "The cell keeps no number that it computes, so results were not compared: whether a lever changes"
                " them is not known, and none is recommended.",
                "End the cell with a tensor or a number that it computes, or keep it in a variable.",
            )
        if not found:
            return
        label, kind = next(iter(found.items()))
        what = f"is an object of class `{kind}`" if kind else "is too long"
        subject = "The value of the last line" if label == VALUE else _quoted(label)
        more = "" if len(found) == 1 else f" (and {len(found) - 1} more of what the cell makes)"
        self._say(
            "not-compared",
            f"{subject} {what}{more}, and was not compared: whether a lever changes it is not known, and none is"
            " recommended.",
            "End the cell with a tensor or a number, and make or delete other objects outside of it.",
            {"names": list(found)},
        )

    def _say_what_was_drawn(self) -> None:
        """The seed is the same, and fills memory in its order: in another layout dropout drops other elements."""
        found = [name for name, one in self.trials.items() if one.result == "differs" and not one.differs_in]
        if found:
            what = ", ".join(map(_quoted, found))
            self._say(
                "not-compared",
                f"The cell draws random numbers. Under {what} the same numbers may fall on other elements, so"
                " `differs` does not say whether anything else changes.",
                "Try it without them, such as after `model.eval()`, and see whether the result still differs.",
                {"names": found},
            )

    def _say_what_is_kept(self, labels: Sequence[str]) -> None:
        if labels:
            what = ", ".join(map(_quoted, labels[:_NAMED]))
            self._say(
                "not-restored",
                f"{what} holds too many items to be put back, and keeps what the last call wrote.",
                "Give the cell a copy, or a smaller one.",
                {"names": list(labels)},
            )

    def _say_what_was_left_out(self, task: Task) -> None:
        if not self.left_out:
            return
        reasons = dict(self.left_out)
        if task.plan.levers:  # asked for by name: each is an answer of its own
            self.doubts += [
                Doubt("lever", f"`{name}` was not timed: {why}.", "", {"name": name, "reason": why})
                for name, why in reasons.items()
            ]
            return
        said = "; ".join(f"`{name}`: {why}" for name, why in reasons.items())
        self.doubts.append(Doubt("lever", f"Not timed: {said}.", "", {"reasons": reasons}))

    def _told(self, task: Task, what: str) -> None:
        self.stage = what
        task.progress.update(0.0, None, what)
        if isinstance(task.progress, Awaiting):
            task.progress.await_end(0.0, None, what)


def _quoted(label: str) -> str:
    return label if label.startswith(("`", "the value")) else f"`{label}`"


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f": {text[:_LONGEST]}".rstrip(". ") if text else ""


def _within(entered: str, tree: ast.Module) -> ast.Module:
    """The body within ``with entered():``."""
    if not tree.body:
        return tree
    call = ast.Call(ast.Name(entered, ast.Load()), [], [])
    block = ast.With([ast.withitem(call)], tree.body)
    tree.body = [ast.copy_location(block, tree.body[0])]
    return ast.fix_missing_locations(tree)


# ---- insight_trial ---------------------------------------------------------------------------------------------------


def try_insight(
    insight: Insight,
    levers: Sequence[str] = (),
    names: Mapping[str, Any] | None = None,
    min_run_time: float = 0.2,
) -> Comparison:
    """See `Insight.try_`."""
    __tracebackhide__ = True
    asked = tuple(levers) or insight.levers
    if not asked:
        raise InputError(
            f"{insight.kind}: what helps is a change of the code: write it as an alternative in a %%timer cell"
        )
    check_levers(asked, "try_")
    notebook = notebook_now()
    if not insight.body and notebook is None:
        raise InputError(
            f"{insight.kind}: its code is not from a cell, so its text was not kept; for code f(), write"
            f' torchbench_magic.compare({{"f": "f()"}}, globals=globals(), try_="{",".join(asked)}")'
        )
    if not insight.body:
        raise InputError(
            f"{insight.kind}: it is not from a whole %%tprofile cell; write `%%timer --try {','.join(asked)}` above the"
            " code"
        )
    if names is None and notebook is None:
        raise InputError(f"{insight.kind}: no notebook is open here; give the variables: try_(names=globals())")
    found: Mapping[str, Any] = names if names is not None else notebook.names  # type: ignore[union-attr]
    import_torch()
    compiling: Mapping[str, Any] = {} if notebook is None else notebook.compiling
    body = _body(insight, notebook)
    _check_names(insight, body, found, compiling)
    label = code_title(body.source)
    task = Task(
        {"profiled": body},
        namespace=found,
        plan=Plan(levers=asked, min_run_time=min_run_time, label=label or None),
        **compiling,
    )
    with interrupts_held() as held:
        try:
            made = try_levers(task)
        except Exception as error:  # the user's own: a variable may hold something else now
            error.__traceback__ = users_traceback(error, {PROFILED_CELL: insight.body})
            raise error
        if held.take():
            raise Interrupted(made)
    return replace(made, code=f"%%timer --try {','.join(asked)}\n{body.source.strip(chr(10))}")


def _body(insight: Insight, notebook: Notebook | None) -> Body:
    """The text without its magic line, at the lines that it has in its cell."""
    lines = insight.body.split("\n")
    above = next((at for at, line in enumerate(lines) if line.strip()), 0)
    above += lines[above].lstrip().startswith("%%")
    text = "\n".join(lines[above:])
    if notebook is not None:
        text = notebook.plain(text)
    return Body(text, PROFILED_CELL, above + 1)


def _check_names(insight: Insight, body: Body, names: Mapping[str, Any], compiling: Mapping[str, Any]) -> None:
    try:
        made = compile_body(body, **compiling)
    except SyntaxError as error:
        raise InputError(f"{insight.kind}: the profiled text is not valid Python by itself ({error.msg})") from None
    codes = [code for code in (made.code, made.last) if code is not None]
    assigned = {name for code in codes for name in globals_assigned(code)}
    read = {name for code in codes for name in globals_read(code)}
    gone = sorted(read - assigned - names.keys() - vars(builtins).keys())
    if gone:
        raise InputError(
            f"{insight.kind}: the code reads `{gone[0]}`, which no longer exists: run the cell that makes it first"
        )
