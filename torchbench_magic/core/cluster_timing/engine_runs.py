"""Timing on the engines of a cluster: `compare_on_engines`.

With points each is measured on one engine, whichever host is free; without, all engines measure the same, and each is
an environment. A host has one engine at work at a time.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from torchbench_magic.core.cpp.cpp_timer import SnippetTask
from torchbench_magic.core.engines.asking import Answer, Asking, Question
from torchbench_magic.core.engines.cluster import Cluster, connected
from torchbench_magic.core.engines.probing import probe, why_not
from torchbench_magic.core.interpreters.foreign_frames import raise_at
from torchbench_magic.core.interpreters.sent_errors import RaisedThere, raised_there
from torchbench_magic.core.process.held_interrupts import hear_interrupt, interrupts_held
from torchbench_magic.core.timing.points.sweep import Point
from torchbench_magic.core.timing.timer import check_alternatives
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.errors import BodyError, InputError, Interrupted, OptionError, TorchBenchError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.machine.engines import Engine
from torchbench_magic.results.machine.environment import Environment
from torchbench_magic.results.timing.across_engines.joined_engines import join_engines
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.subject import Subject
from torchbench_magic.units import seconds_text

from .engine_rows import EngineRows
from .host_queues import HostQueues, Share
from .sent_points import SentPoints

__all__ = ["compare_on_engines"]

_LOOK = 0.05
"""Seconds between two looks for answers: a look takes processor time of a host that may be measuring."""
_TELL = 0.2
"""Seconds after which the progress is told again what it knows."""
_EXPECTED = 3.0
"""Seconds of the first piece of work, for the progress; it imports torch."""
_ENVIRONMENT = Question("torchbench_magic.core.cluster_timing.on_engine:environment")


def compare_on_engines(task: Task, *, awaits: bool = False, ipython_dir: str | None = None) -> Comparison:
    """Time each body against the others on the engines of ``task.plan.engines``.

    Args:
        awaits: the code awaits at its own level.
        ipython_dir: where profiles are; None: as IPython has it without a configuration.

    Returns:
        The comparison. ``Subject.place`` says which engine measured a row; one that could not is a row or a doubt.

    Raises:
        OptionError: what is asked does not go with engines.
        MissingTool, InputError: no ipyparallel, no cluster, no engine that can measure.
        BodyError: a variable that cannot travel; code that ends the engines.
        Interrupted: on Ctrl-C; ``.partial`` holds the points that had finished.
        Exception: whatever setup or a body raises, on every engine where all measure the same.
    """
    check_alternatives(task.bodies, task.plan)
    _refuse(task, awaits=awaits)
    assert task.plan.engines is not None
    with interrupts_held(), connected(task.plan.engines, ipython_dir) as cluster:
        return _Run(task, cluster).whole()


def _refuse(task: Task, *, awaits: bool) -> None:
    if task.counting is not None:
        raise OptionError("--callgrind counts the same on every engine: use only one of --callgrind and --engines")
    if isinstance(task, SnippetTask):
        raise OptionError("--cpp is compiled and timed in this kernel: use only one of --cpp and --engines")
    if awaits:
        raise OptionError("code that awaits is timed in this kernel, whose event loop it needs: leave out --engines")


class _Run:
    """The work of one task.

    Attributes:
        unfit: id of an engine -> why it does not measure (any more).
        measured: number of a job -> its result.
        not_measured: number of a job -> (engine, why).
        raised: number of a job -> what its code raised.
    """

    def __init__(self, task: Task, cluster: Cluster) -> None:
        self.task, self._asking = task, Asking(cluster)
        self._sent = SentPoints(task)
        self._rows = EngineRows(task, self._sent.threads)
        self.points: Sequence[Point] = task.points
        self.shares = bool(self.points)
        first = self._sent.packed(self.points[0] if self.shares else None)  # what cannot travel is said before all else
        self.engines = {engine.id: engine for engine in probe(cluster)}
        whys = {each: why_not(engine, has_code=first.names.has_code) for each, engine in self.engines.items()}
        self.unfit = {each: why for each, why in whys.items() if why}
        self.environments: dict[int, Environment] = {}
        self.measured: dict[int, Comparison] = {}
        self.not_measured: dict[int, tuple[int, str]] = {}
        self.raised: dict[int, RaisedThere] = {}
        self.new: set[int] = set()
        self.spent: list[float] = []
        self._since: dict[int, float] = {}
        self.began = time.monotonic()
        self._last_told: tuple[list[str], float] = [], 0.0

    @property
    def fit(self) -> list[Engine]:
        return [engine for engine in self.engines.values() if engine.id not in self.unfit]

    # ---- the run ----------------------------------------------------------------------------------------------

    def whole(self) -> Comparison:
        self._check_there()
        if self.task.skip is not None:
            self._find_stored()
        jobs = [job for job in self._jobs() if job.number not in self.measured]
        self.queues = HostQueues({engine.id: engine.place for engine in self.fit}, jobs)
        self.asked = len(jobs)
        try:
            while self.queues.is_open:
                for engine, job in self.queues.due():
                    self._ask(self.engines[engine], job)
                for answer in self._asking.poll():
                    self._take(answer)
                self._tell()
                hear_interrupt()
                self._asking.wait(_LOOK)
        except KeyboardInterrupt:
            self._interrupted()
        except RaisedThere as there:
            self._raise(there)
        except BaseException as error:  # a later point that cannot travel: no engine remains at work
            self._hand_over(error)
            raise
        self._check_measured()
        return self._joined()

    def _jobs(self) -> list[Share]:
        if self.shares:
            return [Share(number) for number in range(len(self.points))]
        return [Share(engine.id, engine.id) for engine in self.fit]

    def _check_there(self) -> None:
        """
        Raises:
            InputError: nobody can measure.
        """
        if not self.engines:
            raise InputError(f"--engines {self.task.plan.engines}: the cluster has no engines (yet)")
        if not self.fit:
            raise InputError(f"--engines {self.task.plan.engines}: no engine can measure: {self._all_unfit()}")

    def _all_unfit(self) -> str:
        return "; ".join(f"{self.engines[each].title} {why}" for each, why in self.unfit.items())

    def _ask(self, engine: Engine, job: Share) -> None:
        packed = self._sent.packed(self.points[job.number] if self.shares else None)
        if why := why_not(engine, has_code=packed.names.has_code):
            self._drop(engine, why)
            return
        self._since[engine.id] = time.monotonic()
        self._asking.ask(engine, self._sent.question(packed, engine, self._rows.env(engine)))

    def _drop(self, engine: Engine, why: str, *, dies_over_it: bool = False) -> None:
        """Ask the engine nothing more."""
        self.unfit[engine.id] = why
        job = self.queues.at_work.get(engine.id)
        self.queues.lose(engine.id, dies_over_it=dies_over_it)
        if job is not None:
            self.not_measured[job.number] = engine.id, why

    # ---- answers ----------------------------------------------------------------------------------------------

    def _take(self, answer: Answer) -> None:
        """
        Raises:
            RaisedThere: the code raised, and what other engines say is not waited for.
        """
        engine, told = answer.engine, answer.value
        self.spent.append(time.monotonic() - self._since.pop(engine.id))
        if answer.kind != "value":
            self._drop(engine, answer.said, dies_over_it=answer.kind == "died")
        elif told["kind"] == "measured":
            self._show(answer)
            number = self.queues.finish(engine.id).number
            self.not_measured.pop(number, None)
            self._keep(number, self._finished(told["result"], engine))
        elif told["kind"] == "raised":
            self._take_raised(engine, raised_there(*pickle.loads(told["error"])))
        else:
            self._drop(engine, told.get("said", "was interrupted"))

    def _take_raised(self, engine: Engine, there: RaisedThere) -> None:
        """A package that is missing on one engine may be there on another; all else is the code's, where engines share
        the points. Where all measure the same, each is an environment, in which the code may well fail."""
        if not isinstance(there.error, TorchBenchError):
            there.error.add_note(f"Raised on {engine.title} (--engines).")
        text = " ".join(str(there.error).split())
        kind = type(there.error).__name__
        why = f"raised {kind}: {text}"[:200].rstrip(": ")
        job = self.queues.at_work[engine.id]
        self.raised[job.number] = there
        if self.shares and not isinstance(there.error, ModuleNotFoundError):
            raise there
        self._drop(engine, why)

    def _keep(self, number: int, part: Comparison) -> None:
        self.raised.pop(number, None)
        self.measured[number] = part
        self.new.add(number)
        if self.task.keep is not None:
            self.task.keep(part)

    def _finished(self, result: bytes, engine: Engine) -> Comparison:
        part = pickle.loads(result)
        self.environments[engine.id] = part.environment
        return self._rows.measured(part, engine, self._family())

    def _missing(self, number: int, engine: int, why: str) -> Subject:
        """A row of what was not measured."""
        point = self.points[number] if self.shares else None
        return self._rows.missing(point, self.engines.get(engine), self.environments.get(engine), why)

    def _family(self) -> int:
        """Comparisons that share an error rate: of all points, or of all engines."""
        pieces = len(self.points) if self.shares else len(self.fit)
        return max(pieces, 1) * len(self.task.plan.threads or (1,)) * (len(self.task.bodies) - 1)

    def _show(self, answer: Answer) -> None:
        """What the code printed; of points, which share it, the first time."""
        if self.shares and self.new:
            return
        start = f"{answer.engine.title}: " if not self.shares and len(self.engines) > 1 else ""
        for stream, text in ((sys.stdout, answer.stdout), (sys.stderr, answer.stderr)):
            stream.write("".join(f"{start}{line}" for line in text.splitlines(keepends=True)))

    # ---- the store --------------------------------------------------------------------------------------------

    def _find_stored(self) -> None:
        """Points that are stored, of a machine and versions as one of the engines has them."""
        for engine in self.fit:
            self._asking.ask(engine, _ENVIRONMENT)
        while self._asking.pending:
            for answer in self._asking.poll():
                if answer.kind == "value":
                    self.environments[answer.engine.id] = Environment(**answer.value)
                else:
                    self.unfit[answer.engine.id] = answer.said
            try:
                hear_interrupt()
            except KeyboardInterrupt:
                self._asking.interrupt()
                raise Interrupted(None, "Nothing was measured yet: interrupted while asking the engines.") from None
            self._asking.wait(_LOOK)
        self._check_there()
        assert self.task.skip is not None
        every = [self.environments[engine.id] for engine in self.fit]
        if self.shares:
            found = {at: self.task.skip(self.task, point, every) for at, point in enumerate(self.points)}
        else:
            found = {}
            for engine in self.fit:
                named = replace(self.task, plan=replace(self.task.plan, env=self._rows.env(engine)))
                found[engine.id] = self.task.skip(named, None, [self.environments[engine.id]])
        self.measured |= {number: stored for number, stored in found.items() if stored is not None}

    # ---- the end ----------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        names = []
        for engine in self._asking.pending:
            job = self.queues.at_work[engine.id]
            point = self.points[job.number] if self.shares else None
            where = f" at {point.sub_label} ({job.number + 1} of {len(self.points)})" if point is not None else ""
            names.append(f"{engine.title}{where}: {self._asking.told(engine).get('what', 'begins')}")
        passed = time.monotonic() - self.began
        if not names or (names == self._last_told[0] and passed < self._last_told[1] + _TELL):
            return
        self._last_told = names, passed
        one = sum(self.spent) / len(self.spent) if self.spent else _EXPECTED
        waiting = self.asked - len(self.new) - len(self.not_measured)
        hosts = len({engine.place for engine in self.fit}) or 1
        more = f"; {len(names) - 1} more at work" if len(names) > 1 else ""
        self.task.progress.update(passed, passed + one * max(waiting, 1) / hosts, names[0] + more)

    def _check_measured(self) -> None:
        """
        Raises:
            Exception: the code's, where no engine has a result.
            BodyError: it ended every engine that ran it.
        """
        for job in self.queues.left_over:
            self.not_measured.setdefault(job.number, (job.lost[-1] if job.lost else -1, "no engine remains"))
        if self.measured:
            return
        if self.raised:
            self._raise(next(iter(self.raised.values())))
        raise BodyError(f"nothing was measured: {self._all_unfit()}")

    def _interrupted(self) -> NoReturn:
        """Bring all engines back; what they have finished meanwhile counts."""
        lost, unfinished = self._bring_back()
        if not self.measured and not unfinished:
            waited = seconds_text(time.monotonic() - self.began)
            said = f"Nothing was measured yet: interrupted after {waited}, with engines at work."
            raise Interrupted(None, said + "".join(f" {engine.title} did not come back." for engine in lost)) from None
        raise Interrupted(self._partial("interrupted", unfinished, lost)) from None

    def _bring_back(self) -> tuple[list[Engine], list[Comparison]]:
        """SIGINT to all at work: (engines that did not come back, what was sampled of points that did not end)."""
        lost, unfinished = [], []
        for answer in self._asking.interrupt():
            told = answer.value if answer.kind == "value" else {}
            if answer.kind == "lost":
                lost.append(answer.engine)
            elif told.get("kind") == "measured":
                number = self.queues.finish(answer.engine.id).number
                self._keep(number, self._finished(told["result"], answer.engine))
            elif told.get("kind") == "interrupted" and told["result"]:
                unfinished.append(self._finished(told["result"], answer.engine))
        return lost, unfinished

    def _raise(self, there: RaisedThere) -> NoReturn:
        """Raise what the code raised, after the engines are back and what was measured is handed over."""
        self._hand_over(there.error)
        raise_at(there.lines, there.error)

    def _hand_over(self, error: BaseException) -> None:
        """Bring all engines back, and hand over what was measured before an exception propagates."""
        _, unfinished = self._bring_back()
        if self.task.failed is not None and (self.measured or unfinished):
            self.task.failed(self._partial(f"the code raised {type(error).__name__}", unfinished))

    def _partial(self, why: str, unfinished: Sequence[Comparison], lost: Sequence[Engine] = ()) -> Comparison:
        elapsed = time.monotonic() - self.began
        what = f"{len(self.measured)} of {len(self._jobs())} {'points' if self.shares else 'engines'}"
        text = f"Partial: {why} after {seconds_text(elapsed)}, with {what} measured. What was measured is kept."
        doubts = [Doubt("partial", text, "", {"elapsed": elapsed})]
        doubts += [Doubt("engine-lost", f"{one.title} was interrupted and did not come back.", "") for one in lost]
        return replace(self._joined(doubts, unfinished), partial=True)

    def _joined(self, doubts: Sequence[Doubt] = (), more: Sequence[Comparison] = ()) -> Comparison:
        parts = [*(self.measured[number] for number in sorted(self.measured)), *more]
        why = dict(self.not_measured)
        if not self.shares:
            why |= {each: (each, self.unfit[each]) for each in self.unfit if each not in why}
        missing = [self._missing(number, *why[number]) for number in sorted(why)]
        made = join_engines(parts, missing, [*doubts, *self._engines_left_out()])
        return replace(made, elapsed=time.monotonic() - self.began)

    def _engines_left_out(self) -> list[Doubt]:
        """Engines that did not measure, or not to the end."""
        found = []
        for each, why in self.unfit.items():
            places = [subject.place for part in self.measured.values() for subject in part.subjects]
            has_measured = any(place is not None and place.engine == each for place in places)
            then = "did not measure to the end" if has_measured else "did not measure"
            facts: dict[str, Any] = {"engine": each, "name": str(each), "why": why}
            found.append(Doubt("engine-left-out", f"{self.engines[each].title} {then}: it {why}.", "", facts))
        return found
