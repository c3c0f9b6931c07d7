"""Keeping each finished point of a run, finding those that need not run again, and why one does."""

from __future__ import annotations

import contextlib
import math
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchbench_magic import units
from torchbench_magic.errors import Interrupted, StoreError
from torchbench_magic.process.environment import Environment
from torchbench_magic.process.values_between_runs import changes_of, same_values, uncompared, words_for
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.counted_rows import key_of_row
from torchbench_magic.timing.identity import (
    given_label,
    identifying_options,
    input_differences,
    short_text,
    source_id,
    task_of,
)
from torchbench_magic.timing.samples import Subject

from .records import encoded
from .store import Store

if TYPE_CHECKING:  # what has torch with it
    from torchbench_magic.timing.sweep import Point
    from torchbench_magic.timing.task import Task

# ---- not_reused ------------------------------------------------------------------------------------------------------

_PLACE = {
    "torch": "torch",
    "system": "the system",
    "cpu": "the processor",
    "accelerator": "the accelerator",
    "usable_cores": "the number of usable cores",
}
_MOST = 3


def unlike_parts(
    wanted: Sequence[Subject],
    found: Comparison,
    here: Environment,
    options: tuple[Mapping[str, object], Mapping[str, object]],
) -> Iterator[str]:
    """Each part of a stored run that is not as it is asked now; none where it can be taken over.

    Args:
        wanted: what would be measured, as far as that is known before.
        found: the stored run.
        here: this process.
        options: (those of the stored run, those of now), in their stored form.
    """
    if found.partial:
        yield "it is not complete"
    yield from _changes(_places(found.environment, here), absent="not set")
    then, asked = options
    if then:
        yield from _changes({f"option {n}": v for n, v in one.items() if n != "threads"} for one in options)
    else:
        yield "its options were not recorded"
    yield from _of_identity(wanted, found.subjects)
    if then.get("threads") != asked.get("threads") and _threads(wanted) == _threads(found.subjects):
        yield "`-t` was given in only one of the two runs"


def _changes(both: Iterable[Mapping[str, object]], absent: str | None = None) -> Iterator[str]:
    then, now = both
    for name in dict.fromkeys([*then, *now]):
        before, here = then.get(name, absent), now.get(name, absent)
        if before != here:
            yield f"{name} was {short_text(before)}, is {short_text(here)}"


def _places(then: Environment, here: Environment) -> Iterator[dict[str, object]]:
    """Versions, machine, and the variables that steer threads and allocators, of each of two environments."""
    for one in (then, here):
        facts: dict[str, object] = {"Python": ".".join(one.python.split(".")[:2])}
        facts |= {word: getattr(one, name) for name, word in _PLACE.items()}
        if then.quota is not None and here.quota is not None:  # of older runs it is not known
            quota = one.quota or math.inf
            facts["the CPU quota"] = "none" if math.isinf(quota) else f"{quota:g} cores"
        yield facts | {f"environment variable {name}": one.variables[name] for name in sorted(one.variables)}


def _of_identity(wanted: Sequence[Subject], found: Sequence[Subject]) -> Iterator[str]:
    """Names, threads, point and code, then what the code reads where these are alike."""
    named = (
        {"the list of alternatives": units.listed(_names(one)), "the list of threads": units.listed(_threads(one))}
        for one in (found, wanted)
    )
    unlike = list(_changes(named))
    if not unlike and len(wanted) != len(found):
        unlike = ["its points were grouped differently"]
    if not unlike:
        pairs = zip(found, wanted, strict=True)
        unlike = list(dict.fromkeys(said for then, now in pairs for said in _of_subject(then, now)))
    yield from unlike


def _of_subject(then: Subject, now: Subject) -> Iterator[str]:
    yield from _changes(
        {"the label": given_label(s.label), "the sub-label": s.sub_label, "the env": s.env} for s in (then, now)
    )
    if (then.description, then.num_threads) != (now.description, now.num_threads):
        yield "its rows are in a different order"
    if encoded(then.axes) != encoded(now.axes):
        yield "it is a different point of the sweep"
    if source_id(then.before, then.stmt) != source_id(now.before, now.stmt):
        which = f" of `{now.description}`" if now.description else ""
        yield f"the {'code' if then.stmt != now.stmt else 'setup'}{which} was edited"
    elif then.functions != now.functions:
        functions = dict(then.functions), dict(now.functions)
        every = sorted(functions[0].keys() | functions[1].keys())
        changed = [name for name in every if functions[0].get(name) != functions[1].get(name)]
        yield f"{units.listed([f'`{name}`' for name in changed])} {'was' if len(changed) == 1 else 'were'} edited"
    yield from _of_inputs(then, now)


def _of_inputs(then: Subject, now: Subject) -> Iterator[str]:
    """What the notebook gave; not known of a run that did not record it."""
    if then.inputs is None:
        yield "its inputs were not recorded"
        return
    given = dict(now.given)
    changed = input_differences(then.given, [(name, given.get(name, "not set")) for name, _ in then.given])
    yield from changed.values()
    if not same_values(then.given_values, now.given_values or ()):
        words = list(changes_of(then.given_values, now.given_values, said=changed))
        yield from words or (() if changed else ("the code reads other values",))


def _names(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(subject.description or "one statement" for subject in subjects))


def _threads(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(str(subject.num_threads) for subject in subjects))


# ---- resumed_runs ----------------------------------------------------------------------------------------------------

_DTYPE = re.compile(r"\b(b?float|complex|u?int|bool)\d*\b")
_IMPATIENT = 0.1  # seconds to wait for a lock that has been held too long already


class Recording:
    """One run with a store beside it.

    A store that fails during the run stops nothing: what could not be written is tried again with every later point
    and at the end, and if it still cannot, the result says so and is there all the same.

    Args:
        store: where finished points go. That it can be written is checked here.
        environment: this process now; a stored point of another torch, Python or machine is measured again.
        resume: look for finished points.
        counting: (calls, form) that instructions are counted of; a stored point without such counts is not finished.

    Raises:
        StoreError: the store cannot be written, before anything is measured.

    Attributes:
        skipped: points that were taken over.
        is_finished: `finish` was called.
    """

    def __init__(
        self,
        store: Store,
        environment: Environment,
        *,
        resume: bool = False,
        counting: tuple[int, str] | None = None,
    ) -> None:
        store.check()
        self._store, self._environment = store, environment
        self._run, self._wrote = uuid.uuid4().hex, False
        self._pending: list[Comparison] = []
        self._error: StoreError | None = None
        self._is_interrupted, self.is_finished = False, False
        self._resume, self.skipped = resume, 0
        self._uncompared: dict[str, str] = {}
        self._has_tensors = False
        self._reasons: Counter[str] = Counter()  # why a stored point was not taken over -> points
        self._counting = counting

    def keep(self, finished: Comparison) -> None:
        """Write a finished point, and whatever waited for the store.

        Raises:
            KeyboardInterrupt: what `Store.waiting` raised while another process held the file; see there.
        """
        commit = self._environment.commit
        self._pending.append(replace(finished, environment=replace(finished.environment, commit=commit)))
        self._write(self._store.patience if self._error is None else _IMPATIENT)

    def skip(self, task: Task, point: Point | None, environments: Sequence[Environment] = ()) -> Comparison | None:
        """The stored result of a point that is finished; None where it is to be measured.

        Args:
            environments: those in which it could be measured now; none: in this process.

        The source of setup, body and the notebook's functions they call, the shapes and values of what the notebook
        gives them, the environment variables that they read, the options, the versions of torch and Python, and the
        machine must be those of now. What a setup or a sweep makes follows from these. What could not be compared is
        said with the result, and so is why a stored point was not taken over.
        """
        if not self._resume:
            return None
        here = [*environments] or [self._environment]
        wanted = list(_wanted(task, point, self._environment))
        first = wanted[0]
        names = (first.sub_label, first.description, first.env)
        key = task_of(first.setup, first.stmt, *names, first.num_threads)
        unlike = []
        for run, found in reversed(self._store.of_task(key)):
            differing = self._differences(task, wanted, found, here)
            if not differing:
                if not self._wrote:
                    self._run = run  # what is measured now completes that run
                self.skipped += 1
                for now, then in zip(wanted, found.subjects, strict=True):
                    self._uncompared |= uncompared(then.given_values, now.given_values or ())
                    self._has_tensors |= any(_DTYPE.search(text) for _, text in then.inputs or ())
                return replace(found, subjects=tuple(replace(s, label=task.plan.label) for s in found.subjects))
            unlike.append(differing)
        if unlike:
            nearest = min(unlike, key=len)  # the newest of them
            more = f" and {len(nearest) - _MOST} more" if len(nearest) > _MOST else ""
            self._reasons[f"{'; '.join(nearest[:_MOST])}{more}"] += 1
        return None

    def _differences(
        self, task: Task, wanted: Sequence[Subject], found: Comparison, here: Sequence[Environment]
    ) -> list[str]:
        """What keeps a stored run from being taken over, from the nearest of the environments; the options that it did
        not know yet have their defaults."""
        now = {name: encoded(value) for name, value in identifying_options(task.plan).items()}
        defaults = identifying_options(type(task.plan)()) if found.options else {}
        then = {name: encoded(value) for name, value in {**defaults, **found.options}.items()}
        said = min((list(unlike_parts(wanted, found, one, (then, now))) for one in here), key=len)
        return said if self._is_counted(found) else [*said, "its instructions were not counted like this"]

    def _is_counted(self, found: Comparison) -> bool:
        if self._counting is None:
            return True
        number, form = self._counting
        keys = [key_of_row(found.counts, subject) for subject in found.subjects]
        numbers = {found.counts.counted[key].stats.number_per_run for key in keys if key is not None}
        return None not in keys and numbers == {number} and found.counts.form == form

    def finish(self, result: Comparison) -> Comparison:
        """The result with what is to be said of the store, and with the history that the store knows of it.

        Raises:
            Interrupted: as `keep`; the result is its ``partial``.
        """
        self.is_finished, was_interrupted = True, self._is_interrupted
        with contextlib.suppress(KeyboardInterrupt):
            self._write(_IMPATIENT if was_interrupted else self._store.patience)
        commit = self._environment.commit
        result = replace(result, environment=replace(result.environment, commit=commit))
        found = list(result.warnings)
        if result.partial:
            text = f"{self._store.path} stores finished points only, not the interrupted one."
            found.append(Doubt("not-stored", text, "`.save(PATH)` stores the partial result."))
        if self._error is not None:
            points = f"{len(self._pending)} finished point{'s' if len(self._pending) > 1 else ''} could not be stored"
            action = "The result itself is complete: `.save(PATH)` writes it."
            found.insert(0, Doubt("not-stored", f"{points}: {self._error}.", action, {"points": len(self._pending)}))
        if self.skipped:
            points = f"{self.skipped} point{'s' if self.skipped > 1 else ''}"
            text = f"{points} taken from {self._store.path}, measured there before."
            text += f" {words_for(self._uncompared)}." if self._uncompared else ""
            text += " The contents of tensors and arrays are not compared." if self._has_tensors else ""
            found.append(Doubt("resumed", text, facts={"uncompared": dict(self._uncompared)}))
        found += self._measured_again()
        result = replace(result, warnings=found)
        with contextlib.suppress(StoreError):  # it has said above what is wrong with it
            if not self._is_interrupted:
                try:
                    result = replace(result, history=self._store.history(result))
                except KeyboardInterrupt:
                    self._is_interrupted = True
        if self._is_interrupted and not was_interrupted:
            raise Interrupted(result)
        return result

    def _measured_again(self) -> Iterator[Doubt]:
        """Why stored points were not taken over, in one line."""
        if not self._reasons:
            return
        (reason, points), *others = self._reasons.most_common()
        total = self._reasons.total()
        is_lone = total == 1 and not self.skipped
        start = "Measured again" if is_lone else f"{total} point{'s' * (total > 1)} measured again"
        more = f" {total - points} of them for other reasons." if others else ""
        text = f"{start}, since the stored run differs: {reason}.{more}"
        yield Doubt("measured-again", text, facts={"reasons": dict(self._reasons)})

    def _write(self, patience: float) -> None:
        if not self._pending:
            return
        try:
            store = Store(self._store.path, patience=patience, waiting=self._store.waiting)
            store.append(*self._pending, run=self._run)
        except StoreError as error:
            if self._error is None or not self._is_interrupted:
                self._error = error
        except KeyboardInterrupt:
            self._error = StoreError(f"{self._store.path}: interrupted while another process held it locked")
            self._is_interrupted = True
            raise
        else:
            self._error, self._wrote = None, True
            self._pending.clear()


def _wanted(task: Task, point: Point | None, environment: Environment) -> Iterator[Subject]:
    """What the subjects of a point will be, as far as that is known before it is measured."""
    plan = task.plan
    sub_label = point.sub_label if point is not None and point.sub_label is not None else plan.sub_label
    for threads in plan.threads or (environment.num_threads,):
        for name, body in task.bodies.items():
            yield Subject(
                label=plan.label,
                sub_label=sub_label,
                description=name if len(task.bodies) > 1 else plan.description,
                env=plan.env,
                num_threads=threads,
                axes=point.axes if point is not None else (),
                stmt=body.source,
                setup=task.setup_text,
                functions=task.functions[name],
                given=task.given[name].inputs,
                given_values=task.given[name].values,
            )
