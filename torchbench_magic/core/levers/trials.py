"""Each lever tried once before anything is timed: does it apply, does it run, does the result stay the same?"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchbench_magic.core.code.body import copied_tree
from torchbench_magic.core.compiler.compile_watch import CompileWatch
from torchbench_magic.core.compiler.given_up import why_given_up
from torchbench_magic.core.process.deadline import TooLong
from torchbench_magic.core.process.process_state import ProcessState
from torchbench_magic.core.progress import Awaiting
from torchbench_magic.core.timing.effects.restoring.written_objects import WrittenObjects
from torchbench_magic.core.timing.timing_task import Task, Variant
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.proof.trial import Trial

from .asked import levers_asked
from .cell_calls import CellCalls, bound_to_what_is_given
from .compile_lever import graphs_compiled, has_compiled_code
from .copied_names import with_functions
from .lever import Change, DoesNotApply, Lever, Site
from .outcomes import VALUE, CallOutcome, compared, differing, differs_in, is_evident, not_comparable, only_tiny

__all__ = ["DEADLINE_S", "Trials"]

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
        restores: a cthe whole cell changes what the next one finds: it is to be put back.
        doubts: what is said besides.
        call_seconds: of a warm call as it is.
        written: what the cell writes into objects, as it is and under each lever.
        rewritten: labels of what every call writes anew, and so is to be put back before each block.
        restored: labels of the tensors, gradients and arrays that it changes.
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
    restored: frozenset[str] = frozenset()
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
        self.restored = frozenset(baseline.state)
        self.call_seconds = min(baseline.seconds, again.seconds)
        self.restores = bool(baseline.state or self.rewritten) or cell.reads_streams or cell.draws_of_its_own
        repeats = compared(again, baseline)[0] != "differs"
        self._prints_the_same = again.printed == baseline.printed
        site = cell.site(again)
        self._is_evident = is_evident(baseline, bound_to_what_is_given(site.tree))
        self._say_what_was_seen([] if repeats else differing(again, baseline), site.mentioned)
        self._say_what_cannot_be_compared(not_comparable(again, baseline))
        self._say_what_is_kept(cell.written.not_put_back)
        for lever in levers_asked(task.plan.levers or (), site):
            self._told(task, f"trying {lever.name}")
            try:
                change = lever.change(site)
                variant = self._variant(lever, change, lambda changed: with_functions(site, changed), names)
                calls = CellCalls(task, names, state, variant)
                if variant.names is not None:  # it writes into copies of its own, too
                    self.written.append(calls.written)
                self._try(task, lever, change, calls, site, baseline if repeats else None)
                self.variants[lever.name] = variant
            except DoesNotApply as reason:
                self.left_out[lever.name] = str(reason)
            except TooLong:
                limit = self._limit_s
                self.left_out[lever.name] = f"it did not end within {limit:.0f} s and was stopped"
            except Exception as error:  # noqa: BLE001  # the user's code runs as it is: this is the lever's doing
                self.left_out[lever.name] = f"it raised {type(error).__name__}{_first_line(error)}"
            cell.put_back()  # a lever may hide from the search what its calls changed
        self._say_what_was_left_out(task)

    @property
    def _limit_s(self) -> float:
        return max(DEADLINE_S, DEADLINE_TIMES * self.call_seconds)

    def _variant(
        self, lever: Lever, change: Change, copied: Callable[[Mapping[str, Any]], dict[str, Any]], names: dict[str, Any]
    ) -> Variant:
        own = copied(change.names) if change.names or change.finish is not None else None
        if own is not None and change.finish is not None:
            change.finish(own)
        transform: Callable[[ast.Module], ast.Module] | None = None
        if change.around is not None:
            entered = f"__tb_lever_{len(self.shared)}"
            self.shared[entered] = names[entered] = change.around  # the run's own copy of the names

            def transform(tree: ast.Module) -> ast.Module:
                return _within(entered, tree)

        elif change.body is not None:
            body = change.body

            def transform(tree: ast.Module) -> ast.Module:
                return copied_tree(body)

        labels = {f"{name} ({lever.name})": value for name, value in change.names.items()}
        return Variant(own, transform, change.before, labels)

    def _try(
        self, task: Task, lever: Lever, change: Change, calls: CellCalls, site: Site, baseline: CallOutcome | None
    ) -> None:
        """Call the cell with a lever, twice where that compiles, and note what it comes to."""
        if not change.compiles:
            self._call_and_compare(lever, change, calls, site, baseline)
            return
        self._told(task, f"trying {lever.name}: compiling {change.compiles}")
        watch = CompileWatch()
        watch.start()
        try:
            self._call_and_compare(lever, change, calls, site, baseline)
        finally:
            compiled = watch.stop()
        if given_up := next(filter(None, map(why_given_up, compiled)), ""):
            text = f"`{lever.name}` contains code that is not compiled ({given_up}) and runs as plain Python."
            action = "Profile the compiled code with `%%tprofile`: it names the line and a cure."
            self.doubts.append(Doubt("fell-back", text, action, {"name": lever.name, "reason": given_up}))

    def _call_and_compare(
        self, lever: Lever, change: Change, calls: CellCalls, site: Site, baseline: CallOutcome | None
    ) -> None:
        before = graphs_compiled()
        first = calls.call(self._limit_s)
        compile_time, changed = float("nan"), change.changed
        if change.compiles and graphs_compiled() == before and has_compiled_code(site):
            changed = "compiled earlier in this kernel and reused: the time to compile was not measured"
            first = calls.call(self._limit_s)
        elif change.compiles:
            if graphs_compiled() == before:
                raise DoesNotApply(
                    "torch.compile compiled nothing and ran the original code (its limit of compilations may be"
                    " reached: `torch.compiler.reset()` clears them)"
                )
            first, compile_time = self._warm(calls, first)
        if baseline is not None and change.drops:
            baseline = baseline.without(change.drops)
        result = compared(first, baseline, change.precision) if baseline is not None else ("", float("nan"))
        if result[0] != "differs" and baseline is not None and not self._tells(first, baseline):
            result = ("", float("nan"))
        told_apart = change.precision if result[0] == "differs" else None  # by its numbers, if that is its dtype
        kind = "" if baseline is None else differs_in(first, baseline, told_apart)
        if result[0] == "close" and baseline is not None and not kind:
            kind = only_tiny(first, baseline)
        self.trials[lever.name] = Trial(result[0], result[1], compile_time, change.how, changed, kind)

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

    def _say_what_was_seen(self, differ: Sequence[str], mentioned: frozenset[str]) -> None:
        if differ:
            rest = f" and {len(differ) - _NAMED} more" if len(differ) > _NAMED else ""
            what = ", ".join(map(_quoted, differ[:_NAMED])) + rest
            self.doubts.append(
                Doubt(
                    "not-repeatable",
                    f"Two calls of the unchanged cell give different results from the same state ({what}): whether a"
                    " lever changes the result is unknown, so none is recommended.",
                    "Each call gets the same random numbers from torch, NumPy and Python; take clock readings, and"
                    " numbers from elsewhere, out of the cell.",
                    {"names": list(differ)},
                )
            )
        if writes := sorted(mentioned & _MAY_WRITE):
            self.doubts.append(
                Doubt(
                    "repeated-effects",
                    f"The cell may write to files (`{writes[0]}`): it runs many times here, under each lever, and"
                    " writes each time. Tensors, optimizers and random numbers are put back, files are not.",
                    "",
                    {"names": writes},
                )
            )

    def _say_what_cannot_be_compared(self, found: Mapping[str, str]) -> None:
        if not self._is_evident and not found:
            self.doubts.append(
                Doubt(
                    "not-compared",
                    "The cell keeps no number that it computes, so results were not compared: whether a lever changes"
                    " them is not known, and none is recommended.",
                    "End the cell with a tensor or a number that it computes, or keep it in a variable.",
                )
            )
        if not found:
            return
        label, kind = next(iter(found.items()))
        what = f"is an object of class `{kind}`" if kind else "is too long"
        subject = "The value of the last line" if label == VALUE else _quoted(label)
        more = "" if len(found) == 1 else f" (and {len(found) - 1} more of what the cell makes)"
        self.doubts.append(
            Doubt(
                "not-compared",
                f"{subject} {what}{more}, and was not compared: whether a lever changes it is not known, and none is"
                " recommended.",
                "End the cell with a tensor or a number, and make or delete other objects outside of it.",
                {"names": list(found)},
            )
        )

    def _say_what_is_kept(self, labels: Sequence[str]) -> None:
        if labels:
            what = ", ".join(map(_quoted, labels[:_NAMED]))
            self.doubts.append(
                Doubt(
                    "not-restored",
                    f"{what} holds too many items to be put back, and keeps what the last call wrote.",
                    "Give the cell a copy, or a smaller one.",
                    {"names": list(labels)},
                )
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
