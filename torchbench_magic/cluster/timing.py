"""Timing on the engines of a cluster: who measures what next, points as questions, one result of several.

The way of a run: `compare_on_engines` -> `HostQueues` (who measures what next) -> `packed` (one point as a
question) -> on the engine `cluster.on_engine.time_point` -> one result of several (`join_engines`).
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from torchbench_magic.cpp.run import SnippetTask
from torchbench_magic.errors import BodyError, InputError, Interrupted, OptionError, TorchBenchError
from torchbench_magic.process.environment import EnginePlace, Environment
from torchbench_magic.process.interrupts import hear_interrupt, interrupts_held
from torchbench_magic.process.send import Parcel
from torchbench_magic.process.sent_errors import RaisedThere, raise_at, raised_there
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.across_runs import distinct, join_comparisons
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import identifying_options
from torchbench_magic.timing.intervals import ALPHA, median_interval
from torchbench_magic.timing.run import check_alternatives
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.sent_task import SentTask, packed
from torchbench_magic.timing.sweep import Point
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.verdict import ONE_WINDOW, RUNS, SPAN, Single, Unpaired, judged_ranges
from torchbench_magic.timing.warnings import doubts_of, is_held_up, is_load_known
from torchbench_magic.units import seconds_text

from .engines import Answer, Asking, Cluster, Engine, connected, for_engines, is_here, own_folders, probe, why_not

# ---- joined_engines --------------------------------------------------------------------------------------------------
# Alternatives are paired on the engine that measured them, where they were sampled side by side. What two engines
# measured is of two machines, or of two times of one: so a statement that stood alone is compared between them
# unpaired, and one window of time on either side decides nothing, however far the times lie apart.

_DECIDES = (
    f"`--min-run-time {SPAN:g}` can decide it; so can `%tcompare FILE --by env` after {RUNS} stored runs (`--save"
    f" FILE`) over at least {SPAN:g} s."
)


def join_engines(
    parts: Sequence[Comparison], missing: Sequence[Subject] = (), doubts: Iterable[Doubt] = ()
) -> Comparison:
    """The points of a sweep that engines shared, or what each of them measured of the same.

    Args:
        parts: of one point and one engine each, which ``Subject.place`` names.
        missing: rows that nothing was measured of; their ``place.why_not`` says why.
        doubts: what is to be said besides, first.

    Raises:
        InputError: nothing was measured.
    """
    if not parts:
        raise InputError("nothing was measured on any engine")
    whole = join_comparisons(parts)
    group = 1 + max(subject.group for subject in whole.subjects)
    added = tuple(replace(subject, group=group + at) for at, subject in enumerate(missing))
    whole = replace(whole, subjects=(*whole.subjects, *added))
    whole = replace(whole, unpaired=_between_envs(whole))
    told = [*doubts, *_several_hosts(whole), *_undecided(whole), *whole.warnings, *doubts_of(whole)]
    return replace(whole, warnings=distinct(told))


def _between_envs(whole: Comparison) -> Mapping[int, Unpaired]:
    """Each statement that stood alone on its engine, against the same on the first engine that measured it."""
    found: dict[int, Unpaired] = {}
    first: dict[tuple[object, ...], int] = {}
    if len({subject.env for subject in whole.subjects}) < 2:
        return found
    for row, subject in enumerate(whole.subjects):
        if len(whole.beside(row)) > 1 or not len(whole.call_times(row)):
            continue
        base = first.setdefault((subject.description, subject.sub_label, subject.axes, subject.num_threads), row)
        if base != row:
            found.setdefault(base, Unpaired(base, 1.0, 1.0, 1.0, "baseline"))
            this, other = _single(whole, row), _single(whole, base)
            found[row] = judged_ranges(this, other, base, whole.margin, on_engines=True)
    return found


def _single(whole: Comparison, row: int) -> Single:
    inner = median_interval(whole.call_times(row), ALPHA / 2)
    known, load_known = whole.known_range(row), is_load_known(whole, row)
    return Single(inner.median, max(inner.low, 0.0), inner.high, known, load_known, is_held_up(whole, row))


def _undecided(whole: Comparison) -> Iterator[Doubt]:
    """Why rows of several engines have no verdict."""
    rulings = [whole.rulings[row] for row in whole.unpaired]
    for reason in dict.fromkeys(one.reason for one in rulings if one.is_open and one.reason):
        action = _DECIDES if reason == ONE_WINDOW else ""
        yield Doubt("unpaired", f"No verdict between engines: {reason}.", action, {"name": reason})


def _several_hosts(whole: Comparison) -> Iterator[Doubt]:
    """That points of one sweep come from several machines or versions: their times make no curve."""
    there = {}
    for place in (subject.place for subject in whole.subjects):
        if place is not None and place.environment is not None and not place.why_not:
            there[f"{place.host}: {_kind(place.environment)}"] = place.host
    inputs = {*whole.axes, *(subject.sub_label for subject in whole.subjects)}
    if len(there) < 2 or len(inputs) < 2 or len({subject.env for subject in whole.subjects}) > 1:
        return
    names = "; ".join(there)
    text = f"The points were measured on hosts that differ ({names}): do not compare times of different points."
    action = "Ratios at a point are within one host and still valid."
    yield Doubt("several-hosts", text, action, {"hosts": sorted(set(there.values()))})


def _kind(e: Environment) -> str:
    """What makes times of two hosts no curve: processor, cores, accelerator, torch and Python."""
    shown = (e.cpu, f"{e.usable_cores} cores", e.accelerator, f"torch {e.torch}", f"Python {e.python}")
    return ", ".join(part for part in shown if part)


# ---- host_queues -----------------------------------------------------------------------------------------------------
# Which engine measures what next. No clock, no cluster.
#
# Two engines of one host that time at once make products on two threads two to three times slower, so a host has one
# engine at work at a time. The others of it take over where that one dies.


@dataclass(frozen=True)
class Share:
    """A piece of work.

    Attributes:
        number: of the point; where all engines measure the same, of the engine.
        engine: the only one that may do it; None: any.
    """

    number: int
    engine: int | None = None


class HostQueues:
    """Work for the engines of several hosts.

    Args:
        hosts: engine -> what is the same for all engines of its host.
        jobs: in the order in which they are to be done.

    Attributes:
        at_work: engine -> what it is doing.
        left_over: what nobody can do.
    """

    def __init__(self, hosts: Mapping[int, Hashable], jobs: Iterable[Share]) -> None:
        self._hosts, self._waiting = dict(hosts), [*jobs]
        self.at_work: dict[int, Share] = {}
        self.left_over: list[Share] = []

    @property
    def is_open(self) -> bool:
        """Whether there is work, or some is being done."""
        return bool(self._waiting or self.at_work)

    def due(self) -> list[tuple[int, Share]]:
        """Begin what can be begun now: (engine, job), at most one for each host without one at work."""
        begun = []
        busy = {self._hosts[engine] for engine in self.at_work}
        for engine, host in self._hosts.items():
            job = next((job for job in self._waiting if job.engine in (None, engine)), None)
            if host not in busy and job is not None:
                self._waiting.remove(job)
                self.at_work[engine] = job
                busy.add(host)
                begun.append((engine, job))
        if not self.at_work:  # nobody is left who could do the rest
            self.left_over += self._waiting
            self._waiting.clear()
        return begun

    def finish(self, engine: int) -> Share:
        """The engine is free again."""
        return self.at_work.pop(engine)

    def lose(self, engine: int, *, dies_over_it: bool = True) -> None:
        """The engine is gone.

        Args:
            dies_over_it: its work may have ended it, and is not given to another one, which it would end as well.
        """
        job = self.at_work.pop(engine, None)
        self._hosts.pop(engine, None)
        if job is not None:
            if dies_over_it or job.engine is not None:
                self.left_over.append(job)
            else:
                self._waiting.insert(0, job)


# ---- engine_runs -----------------------------------------------------------------------------------------------------
# With points each is measured on one engine, whichever host is free; without, all engines measure the same, and each is
# an environment. A host has one engine at work at a time.

_LOOK = 0.05
"""Seconds between two looks for answers: a look takes processor time of a host that may be measuring."""
_TELL = 0.2
"""Seconds after which the progress is told again what it knows."""
_MODULE = "torchbench_magic.cluster.on_engine"


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
        raise OptionError("--cpp is compiled and timed in this session: use only one of --cpp and --engines")
    if awaits:
        raise OptionError("code that awaits is timed in this session, whose event loop it needs: leave out --engines")


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
        self.points: Sequence[Point] = task.points
        self.shares = bool(self.points)
        self._first, names = self._packed(0)  # what cannot travel is said before all
        self.engines = {engine.id: engine for engine in probe(cluster)}
        whys = {each: why_not(engine, has_code=names.has_code) for each, engine in self.engines.items()}
        self.unfit = {each: why for each, why in whys.items() if why}
        self.environments: dict[int, Environment] = {}
        self.measured: dict[int, Comparison] = {}
        self.not_measured: dict[int, tuple[int, str]] = {}
        self.raised: dict[int, RaisedThere] = {}
        self.new: set[int] = set()
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
        sent, names = self._packed(job.number)
        if why := why_not(engine, has_code=names.has_code):
            self._drop(engine, why)
            return
        question = {
            "sent": pickle.dumps(replace(sent, plan=replace(sent.plan, env=self._env(engine)), texts={}), protocol=5),
            "texts": sent.texts,
            "folders": own_folders() if is_here(engine) else [],
        }
        self._asking.ask(engine, f"{_MODULE}:time_point", question)

    def _packed(self, number: int) -> tuple[SentTask, Parcel]:
        """The task with one point as a question to whichever engine.

        Raises:
            BodyError: in one line: a variable that cannot travel, or all that are too large.
        """
        points = [self.points[number]] if self.shares else []
        return packed(self.task, points, awaits=False, purpose=for_engines("setup"))

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

    def _env(self, engine: Engine) -> str | None:
        """Where all engines measure the same, each is an environment; a point of a sweep is of the one asked for."""
        given = self.task.plan.env
        if self.shares:
            return given
        name = EnginePlace(engine.id, engine.host).name
        return name if given is None else f"{given}, {name}"

    def _finished(self, result: bytes, engine: Engine) -> Comparison:
        """A result with the engine in its rows, and with functions and options as this process knows them."""
        part: Comparison = pickle.loads(result)
        self.environments[engine.id] = part.environment
        task, place = self.task, EnginePlace(engine.id, engine.host, part.environment)
        bodies = [*task.bodies]  # each thread count has their order
        subjects = tuple(
            replace(subject, place=place, functions=task.functions[bodies[at % len(bodies)]])
            for at, subject in enumerate(part.subjects)
        )
        options = identifying_options(task.plan)
        return replace(part, subjects=subjects, sources=task.sources, options=options, family=self._family())

    def _missing(self, number: int, engine: int, why: str) -> Subject:
        """One row for all alternatives of what was not measured, by this engine or, with -1, by any."""
        task, found = self.task, self.engines.get(engine)
        place = EnginePlace(-1, why_not=why)
        if found is not None:
            place = EnginePlace(found.id, found.host, self.environments.get(engine), why)
            task = replace(task, plan=replace(task.plan, env=self._env(found)))
        is_lone = len(task.bodies) == 1
        name = next(iter(task.bodies))
        code = {"stmt": task.bodies[name].source, "setup": task.setup_text} if is_lone else {}
        made = task.subject(self.points[number] if self.shares else None, name, {**code, "place": place})
        threads = (task.plan.threads or (self._first.threads,))[0]
        return replace(made, num_threads=threads, description=made.description if is_lone else None)

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
            self._asking.ask(engine, f"{_MODULE}:environment")
        try:
            answers = self._asking.answers()
        except KeyboardInterrupt:
            raise Interrupted(None, "Nothing was measured yet: interrupted while asking the engines.") from None
        for answer in answers:
            if answer.kind == "value":
                self.environments[answer.engine.id] = Environment(**answer.value)
            else:
                self.unfit[answer.engine.id] = answer.said
        self._check_there()
        assert self.task.skip is not None
        every = [self.environments[engine.id] for engine in self.fit]
        if self.shares:
            found = {at: self.task.skip(self.task, point, every) for at, point in enumerate(self.points)}
        else:
            found = {}
            for engine in self.fit:
                named = replace(self.task, plan=replace(self.task.plan, env=self._env(engine)))
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
        more = f"; {len(names) - 1} more at work" if len(names) > 1 else ""
        self.task.progress.update(passed, None, names[0] + more)

    def _check_measured(self) -> None:
        """
        Raises:
            Exception: the code's, where no engine has a result.
            BodyError: it ended every engine that ran it.
        """
        for job in self.queues.left_over:
            self.not_measured.setdefault(job.number, (-1, "no engine remains"))
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
        found = []
        for each, why in self.unfit.items():
            places = [subject.place for part in self.measured.values() for subject in part.subjects]
            has_measured = any(place is not None and place.engine == each for place in places)
            then = "did not measure to the end" if has_measured else "did not measure"
            facts: dict[str, Any] = {"engine": each, "name": str(each), "why": why}
            found.append(Doubt("engine-left-out", f"{self.engines[each].title} {then}: it {why}.", "", facts))
        return found
