"""Timing the alternatives in fresh interpreters, one after the other: `compare_in_processes`.

One process measures at a time. Where the code is timed at fewer threads than there are cores, the next interpreter
starts meanwhile; else it would take a core from a measurement (`tests/benchmarks/process_verdicts.py ahead`: on two
cores the distance of ratios and the width of their intervals stay as they are at one thread, and at two 8 of 20
comparisons lost their verdict, or all).
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import replace
from typing import NoReturn

from torchbench_magic.core.cpp.cpp_timer import SnippetTask
from torchbench_magic.core.machine.environment import read_environment, usable_cores
from torchbench_magic.core.process.held_interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.core.progress import Progress
from torchbench_magic.core.timing.points.sweep import Point
from torchbench_magic.core.timing.timer import check_alternatives
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.errors import BodyError, Interrupted, TorchBenchError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.across_processes.process_ratios import least_processes
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.identity import identifying_options
from torchbench_magic.results.timing.joined_comparisons import join_comparisons, join_processes
from torchbench_magic.results.timing.timing_doubts import doubts_of
from torchbench_magic.units import seconds_text

from .foreign_frames import raise_at
from .interpreter import Died, fixed_addresses
from .relay import Interpreters
from .sent_errors import RaisedThere
from .sent_task import SentTask, packed

__all__ = ["compare_in_processes"]

_EXPECTED = 3.0
"""Seconds of the first process, for the progress."""
MORE = 2
"""Processes that are measured besides, in the place of those that died or whose ratios decide nothing."""


def compare_in_processes(task: Task, *, awaits: bool = False) -> Comparison:
    """Time each body against the others in ``task.plan.processes`` interpreters; setup runs in each of them.

    Args:
        awaits: the code awaits at its own level.

    Returns:
        The comparison, whose ratios are those over the processes.

    Raises:
        BodyError: a variable that cannot travel; an interpreter that cannot be started, or that the code ends.
        OptionError, CheckFailed, SnippetError: as without processes.
        Interrupted: on Ctrl-C; ``.partial`` holds the processes that had finished.
        Exception: whatever setup or a body raises.
    """
    check_alternatives(task.bodies, task.plan)
    with interrupts_held():
        return _Run(task, awaits).whole()


class _Run:
    """The processes of one task.

    Attributes:
        found: index of a point -> its stored result, which is not measured again.
        finished: number of a process -> what it measured of each other point.
    """

    def __init__(self, task: Task, awaits: bool) -> None:
        self.task, self.awaits = task, awaits
        points: list[Point | None] = [*task.points] or [None]
        skip = task.skip if task.skip is not None else lambda *_: None
        self.found = {at: stored for at, point in enumerate(points) if (stored := skip(task, point)) is not None}
        self.points = len(points)
        self.open = [point for at, point in enumerate(points) if at not in self.found and point is not None]
        self.family = self.points * len(task.plan.threads or (1,)) * (len(task.bodies) - 1)
        asked = task.plan.processes
        self.asked = asked if isinstance(asked, int) else least_processes(self.family)
        self.began = time.monotonic()
        self.finished: dict[int, list[Comparison]] = {}
        self.spent: list[float] = []
        self.doubts: list[Doubt] = []

    def whole(self) -> Comparison:
        if len(self.found) < self.points:
            sent, parcel = packed(self.task, self.open, awaits=self.awaits)
            with parcel:
                try:
                    self._measure(sent, parcel.storages)
                except KeyboardInterrupt:
                    self._interrupted()
        made = self._joined()
        if self.task.keep is not None:
            for part in self._new_points():
                self.task.keep(part)
        return made

    def _measure(self, sent: SentTask, storages: int | None) -> None:
        number = 0
        with Interpreters(ahead=_may_start_ahead(self.task)) as those:
            while (missing := self.asked - sum(map(self._counts, self.finished))) > 0 and number < self.asked + MORE:
                number += 1
                began = time.monotonic()
                interpreter = those.next(more=missing > 1 and number < self.asked + MORE)
                try:
                    with interrupts_let_through():
                        parts = interpreter.measured(sent, storages, _Progress(self, number))
                    self.finished[number] = parts
                except Died as died:
                    self._note_death(number, str(died))
                except RaisedThere as there:
                    self._raise(there, number)
                if number == 1 and (text := interpreter.printed()):
                    sys.stdout.write(text)
                self.spent.append(time.monotonic() - began)

    def _counts(self, number: int) -> bool:
        """Whether all ratios of a process hold in themselves."""
        return not any(part.voids for part in self.finished[number])

    def _note_death(self, number: int, how: str) -> None:
        """
        Raises:
            BodyError: two of the first two have died: it is the code.
        """
        if number > 1 and not self.finished:
            raise BodyError(f"the code ends its interpreter: each {how}")
        text = f"Process {number} {how}; its ratio is left out."
        self.doubts.append(Doubt("process-died", text, "", {"process": number}))

    def _raise(self, there: RaisedThere, number: int) -> NoReturn:
        """Raise what the code raised, after what other processes have measured was handed over."""
        error = there.error
        if not isinstance(error, TorchBenchError):
            error.add_note(f"Raised in process {number} of {self.asked} (--processes).")
        if self.finished and self.task.failed is not None:
            self.task.failed(self._partial(f"the code raised {type(error).__name__}"))
        raise_at(there.lines, error)

    def _interrupted(self) -> NoReturn:
        if self.finished:
            raise Interrupted(self._partial("interrupted")) from None
        waited = seconds_text(time.monotonic() - self.began)
        said = f"Nothing was measured yet: interrupted after {waited}, in process 1 of {self.asked}."
        raise Interrupted(None, said) from None

    def _partial(self, why: str) -> Comparison:
        made = self._joined()
        count = len(self.finished)
        text = f"Partial: {why} after {count} of {self.asked} processes. Their results are kept."
        said = Doubt("partial", text, "", {"processes": count, "elapsed": made.elapsed})
        return replace(made, partial=True, warnings=[said, *made.warnings])

    def _new_points(self) -> list[Comparison]:
        """What the processes measured of each point that was not stored."""
        of_points = [*zip(*self.finished.values(), strict=True)]
        environment, options = read_environment(), identifying_options(self.task.plan)
        return [
            replace(
                self._named(join_processes(dict(zip(self.finished, parts, strict=True)))),
                environment=environment,
                family=self.family,
                elapsed=sum(self.spent) / len(of_points),
                options=options,
            )
            for parts in of_points
        ]

    def _named(self, made: Comparison) -> Comparison:
        """With the functions that the code may call as this process knows them: the others have no text of them."""
        if isinstance(self.task, SnippetTask):
            return made
        named = zip(made.subjects, itertools.cycle(self.task.bodies), strict=False)  # each thread count has their order
        subjects = tuple(replace(subject, functions=self.task.functions[name]) for subject, name in named)
        return replace(made, subjects=subjects, sources=self.task.sources)

    def _joined(self) -> Comparison:
        new = iter(self._new_points())
        parts = [self.found[at] if at in self.found else next(new) for at in range(self.points)]
        whole = join_comparisons(parts)
        doubts = [*self.doubts, *whole.warnings, *doubts_of(whole)]
        if fixed_addresses():
            text = (
                "Every process gets the same addresses on this system, so processes differ less here than on"
                " other systems or on other days."
            )
            doubts.insert(0, Doubt("fixed-addresses", text, "Run without `setarch -R` and `randomize_va_space=0`."))
        return replace(whole, warnings=doubts)


def _may_start_ahead(task: Task) -> bool:
    """Whether a core is left beside what is timed; a device's work may be disturbed by what starts beside it."""
    import torch

    most = max(task.plan.threads or (torch.get_num_threads(),))
    return most < usable_cores() and (task.plan.device == "cpu" or not torch.accelerator.is_available())


class _Progress:
    """What one process tells, as part of all of them."""

    def __init__(self, run: _Run, number: int) -> None:
        self._run, self._number = run, number

    def update(self, done: float, total: float | None, what: str) -> None:
        run = self._run
        before = sum(run.spent)
        one = before / len(run.spent) if run.spent else _EXPECTED
        told: Progress = run.task.progress
        after = one * max(run.asked - self._number, 0)
        where = f"process {self._number} of {run.asked}: {what}"
        with interrupts_held():
            told.update(before + done, before + max(one, done) + after, where)
