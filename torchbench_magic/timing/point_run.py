"""One point of a timing: the alternatives in rounds, what is watched meanwhile, and the progress that is shown."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from torchbench_magic.process.compile_watch import switched_off
from torchbench_magic.process.contention import Contention, Counters, contention_between
from torchbench_magic.process.device import DeviceWait, traced_launches
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.frame_owner import is_own_error
from torchbench_magic.process.interrupts import Awaiting, MakingRoom, Watching
from torchbench_magic.process.machine import active_hooks
from torchbench_magic.process.output import CountingSink, Unclosable, dropped_output, output_to
from torchbench_magic.process.settings import ProcessState, collector, outside_modes
from torchbench_magic.result_base import Doubt
from torchbench_magic.units import seconds_text

from .blocks import BlockRequest, Ended, Steps, Timeable, driven
from .changes import MemoryGuard, in_place, prints, slowed_by
from .comparison import Comparison
from .identity import identifying_options
from .isolation import Isolation, gradients_of
from .plan import Counting, Plan
from .repeat_probe import LONG, Probe
from .repeat_warnings import OWN_ERROR, not_looked_at, why_it_failed
from .restore import StateCopies
from .rounds import BLOCK_NS, DEVICE_BLOCK_NS, Around, Entry, Rounds, planned_calls
from .samples import Samples, Subject
from .sweep import Point
from .task import Task
from .voids import SEVERAL, are_held_up
from .warmup import MIN_CALLS, TimedCompiles, overheads, warm_up
from .watched_objects import WatchedObjects

if TYPE_CHECKING:
    from torchbench_magic.counting.count import Job, LibraryJob

# One point's run: what is mutable while it lasts. `result` freezes it.
#
# It times what it is handed, a `TimedCode`, and has no subclasses: what is particular to a language stands
# there.

TURN_NS = 20_000_000
"""How long one thread count is kept at least: changing it makes OpenMP rebuild its team (12 -> 21 us at 2 threads,
67 -> 740 us at 4, when it is changed every 200 us)."""
TURN_ROUNDS = 5
PROGRESS_NS = 100_000_000
COLLECT_NS = 1_000_000_000
LOOK_NS = 50_000_000
"""How often all settings of the process are read, which takes 0.2 ms: see `isolation`."""


class PointRun:
    """State of the run of one point, from the names of its setup to the last sample.

    Args:
        code: what is timed, in whatever language.
        place: (index of the point, number of points), for the progress.
        notebook: the process as it was before ``code`` was made, which a point may run code for; None is now.

    Attributes:
        blocks: of each alternative; made by `compile`, with ``watched`` and ``wait``.
        probes: of the alternatives that have one.
        wait: for the device.
        samples, subjects, warnings: what the result is made of.
        rounds: of each thread count.
    """

    def __init__(self, code: TimedCode, place: tuple[int, int] = (0, 1), notebook: ProcessState | None = None) -> None:
        import torch

        self.notebook = notebook if notebook is not None else ProcessState()
        self._slowing = slowed_by(active_hooks())
        self.code, self.place = code, place
        self.task = task = code.task
        self.plan, self.clocks = task.plan, task.clocks
        self.environment = read_environment()
        self.threads = self.plan.threads or (torch.get_num_threads(),)
        self.seed = self.plan.seed if self.plan.seed is not None else random.SystemRandom().getrandbits(32)
        self.rng = random.Random(self.seed)
        # made ready by `compile`
        self.blocks: list[Timeable] = []
        self.probes: dict[str, Probe] = {}
        self.watched = WatchedObjects(Plan())
        self.wait = DeviceWait("cpu", set(), self.clocks.wall)
        self.isolation: Isolation | None = None
        self._trained: list[Any] = []  # tensors whose gradients are kept apart
        self._in_place: tuple[Mapping[str, int], Counter[str]] | None = None
        # what is measured
        self.samples = Samples()
        self.subjects: list[Subject] = []
        self.rounds: list[Rounds] = []
        self.warnings: list[Doubt] = []
        self.spent: dict[int, Counters] = {}
        # while it lasts
        self.sink, self._memory = CountingSink(), MemoryGuard()
        self.progress = RunProgress(task, place, self.threads)
        self.started_ns = self.ended_ns = self._told_ns = self._collected_ns = self._looked_ns = self.clocks.wall()
        self._collects = self.plan.gc
        self._turn_began = self.clocks.counters()
        self._other_calls: Counter[str] = Counter()  # alternative -> calls that no entry or subject counts
        self._repeats, self._calls_ended = False, 0
        self.compiler = TimedCompiles(task.progress)

    # ---- before the first sample --------------------------------------------------------------------------

    async def measured(self, *, may_await: bool) -> Ended[None]:
        """Run the setup, make what is timed, then measure."""
        try:
            self._compile((await self.code.set_up(may_await=may_await)).get())
            ended = await driven(self.steps(), self.clocks, self.wait.synchronize, may_await=may_await)
            self._calls_ended = ended.calls
            return ended
        except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
            return Ended(error=error)

    def why_it_failed(self, error: Exception) -> str:
        """What to say under an exception of the code: that earlier calls used up what it needs."""
        several = len(self.task.bodies) > 1
        if not (self._calls_ended or (several and self.plan.check)):
            return ""
        if is_own_error(error):
            return OWN_ERROR
        found = self.watched.supplies.used_up(error)
        if found is not None and self.plan.restore:
            found = (*found[:2], False)
        names = sorted({name for block in self.blocks for name in getattr(block, "going_on", ())})
        return why_it_failed(found, 0 if several else self._calls_ended, repeats=self._repeats, goes_on=names)

    def _compile(self, left: LeftBySetup) -> None:
        """Take what the setup set, torch's threads unless the plan names some, and make the blocks."""
        if left.threads is not None:
            self.threads = self.plan.threads or (left.threads,)
        self._collects |= left.collects
        if self.plan.restore:
            self._tell("copying what is to be put back", is_long=True)
        with outside_modes():
            made, plan = self.code.compile(), self.plan
            devices = made.watched.versions.devices
        self.blocks, self.watched = list(made.blocks), made.watched
        self.probes = dict(zip(self.task.bodies, made.probes, strict=True)) if made.probes else {}
        self.warnings += made.doubts
        self.wait = DeviceWait(plan.device, devices, self.clocks.wall, with_events=plan.clock == "device")

    def leave(self) -> None:
        """Have the notebook's own settings back; random generators go on from where they are."""
        self.notebook.put_back(without=("generator", *self.notebook.left_to_imports))

    # ---- the steps ----------------------------------------------------------------------------------------

    def steps(self) -> Steps[None]:
        """The whole measurement, as steps for `driven`."""
        self._trained = self.watched.versions.with_gradients if len(self.blocks) > 1 and not self.plan.restore else []
        more = [gradients_of(self._trained)] if self._trained else []
        self.isolation = isolation = Isolation(self.notebook, self.threads[0], more)
        self.compiler.start()
        try:
            self.watched.restore()
            if self.plan.check:
                self.warnings += self.code.check(self.watched, isolation.put_back)
            self.started_ns = self.ended_ns = self.clocks.wall()
            with output_to(Unclosable(sys.stdout), Unclosable(sys.stderr)):
                first = yield from self._first_calls(isolation)
            with dropped_output(self.sink), collector(is_on=self._collects):
                isolation.collector_is(self._collects)
                for group, threads in enumerate(self.threads):
                    entries = yield from self._prepare(group, threads, first, isolation)
                    self.rounds.append(self._rounds_of(entries))
                isolation.rewind(range(len(self.subjects)))
                self.compiler.sampling()
                yield from self._turns()
                yield from self._recorded_last(isolation)
        finally:
            self.compiler.stop()
            isolation.put_back(is_last=True)
            self.watched.restore(is_last=True)
        self.ended_ns = self.clocks.wall()
        self._finish()

    def _first_calls(self, isolation: Isolation) -> Steps[list[float]]:
        """The first call of each alternative, compiling and loading included; its output is shown as a cell's is."""
        first = []
        for name, block in zip(self.task.bodies, self.blocks, strict=True):
            isolation.put_back()
            self._tell(f"running the first call of {name}" if name else "running the first call", is_long=True)
            self.watched.shared.begin()
            mark = self.compiler.mark()
            if name in self.probes:
                wall, _ = yield from self.probes[name].recorded()
            else:
                wall, _ = yield BlockRequest(block, 0, 1)
            self.compiler.first_called(mark)
            self.watched.shared.end(name)
            isolation.note_first_call(name)
            first.append(float(wall))
            self.progress.first_calls[name if len(self.blocks) > 1 else ""] = wall / 1e9
            self.watched.restore()
        self._repeats = True  # from here on a call finds the objects as others left them
        return first

    def _prepare(self, group: int, threads: int, first: list[float], isolation: Isolation) -> Steps[list[Entry]]:
        """Warm every alternative up at this thread count and size its blocks."""
        plan, watched = self.plan, self.watched
        before = watched.before_block
        limit = plan.max_run_time / 2 if plan.max_run_time is not None else max(plan.min_run_time, 0.05)
        target = BLOCK_NS if self.wait.device == "cpu" else DEVICE_BLOCK_NS
        entries = []
        for index, (name, block) in enumerate(zip(self.task.bodies, self.blocks, strict=True)):
            began, mark = self.clocks.wall(), self.compiler.mark()
            self._tell(f"warming up {name}".rstrip())
            key = len(self.subjects)
            isolation.begin(key, index, name, threads)
            fixed, loop = overheads(block, self.clocks, self.wait.synchronize)
            made = None
            watched.shared.begin()
            if not group and name in self.probes:
                first[index], made = yield from self._recorded_again(name, block, first[index])
                began = self.clocks.wall()
                if 2 * made > limit * 1e9:  # then `warm_up` counts it
                    self.probes[name].calls -= 1
                    began -= round(made)
            # who fixes the number of calls is not to find that there were thousands more
            most = None if plan.number is None else max(MIN_CALLS, plan.number * (plan.rounds_asked or 1))
            warm = yield from warm_up(block, self.clocks, limit * 1e9, first[index], before, fixed[0], made, most)
            first[index] = max(first[index], warm.call_ns)  # which the recording may have taken too much off
            if not group:
                self._other_calls[name] += yield from watched.shared.tried(name, block, warm.call_ns)
            isolation.note_warm_up(key)
            watched.restore()
            # a second call of a block would find what the first one left
            single = plan.cold or (plan.restore and plan.number is None)
            calls = 1 if single else plan.number or planned_calls(target, warm.call_ns)
            spent = float(self.clocks.wall() - began)
            to_take = 0.0 if single or plan.number else target
            counts = name in self.probes and self.probes[name].counts
            entries.append(Entry(key, block, warm.call_ns, calls, fixed, loop, to_take, counts=counts, spent_ns=spent))
            known = {"group": group, "num_threads": threads, "device": self.wait.device, "warmup_calls": warm.calls}
            known |= {"first_call": first[index] / 1e9, "loop_overhead": loop[0] / 1e9}
            known |= self.compiler.prepared(mark, index, is_first=not group)
            self.subjects.append(self.code.subject(name, block.source, known))
        return entries

    def _recorded_again(self, name: str, block: Timeable, first_ns: float) -> Steps[tuple[float, float]]:
        """Record calls after the first. Nanoseconds of the first, with compiling, which no recorded call does, and of
        the last, which counts as one of the warm-up."""
        probe, plan = self.probes[name], self.plan
        probe.long = min(LONG, (plan.max_run_time or 5 * plan.min_run_time) / 4)
        made = yield from probe.recorded_again()
        if not probe.is_compiled:
            return first_ns, made
        self._tell(f"running the first call of {name}" if name else "running the first call", is_long=True)
        self.watched.restore()
        wall, _ = yield BlockRequest(block, 0, 1)
        self._other_calls[name] += 1
        return max(first_ns, float(wall)), made

    def _recorded_last(self, isolation: Isolation) -> Steps[None]:
        """Record a call of each alternative after the samples."""
        for name, entry in zip(self.task.bodies, self.rounds[0].entries, strict=True):
            if name in self.probes:
                isolation.enter(entry.measurement)
                without = [self._trained[n] for n in isolation.without_gradients(entry.measurement)]
                last = self.probes[name].recorded_last
                yield from last(entry.calls_made, entry.calls, entry.seen_ns / 1e9, without, self._copied)

    def _copied(self) -> Callable[[], object]:
        """Copy the state of tensors and optimizers; what puts it back."""
        self._in_place = self._in_place or self._changed()  # what is put back changes in place too
        copies = StateCopies(self.watched.versions.held.again())
        return partial(copies.restore_all, is_last=True)

    def _rounds_of(self, entries: list[Entry], replanned: int = 0, *, held_up: bool = False) -> Rounds:
        assert self.isolation is not None
        named = self.plan.baseline
        baseline = None if len(entries) == 1 else list(self.task.bodies).index(named) if named is not None else 0
        waits, events = self.wait.waits, self.wait.events
        around = Around(
            wall=self.clocks.wall,
            faults=self.clocks.faults,
            # of its own: with a given seed the order is the same however often others or this one begin again
            rng=random.Random(f"{self.seed}, {self.subjects[entries[0].measurement].num_threads} threads"),
            before=self.watched.before_block,
            empty=lambda block: block.start_empty(1, self.clocks, self.wait.synchronize),
            device_ns=None if events is None else lambda: events.elapsed_ns,
            waited_ns=None if waits is None else lambda: float(waits.waited_ns),
            enter=self.isolation.enter,
            compiled=self.compiler.until_now,
            held_up=held_up,
            exchanged=self.isolation.exchanges([entry.measurement for entry in entries]),
        )
        rounds = Rounds(entries, baseline, self.plan, self.samples, around, family=self._family)
        rounds.replanned = replanned
        for entry in entries:
            self.subjects[entry.measurement] = replace(self.subjects[entry.measurement], look=entry.look)
        return rounds

    @property
    def _family(self) -> int:
        """How many comparisons were asked for, all points and thread counts."""
        return self.place[1] * len(self.threads) * (len(self.task.bodies) - 1)

    # ---- the samples --------------------------------------------------------------------------------------

    def _turns(self) -> Steps[None]:
        """Visit the thread counts in turns, in random order, until each is done."""
        self.progress.stage = "taking the first samples"
        while active := [i for i, r in enumerate(self.rounds) if not r.done]:
            self.rng.shuffle(active)
            for i in active:
                rounds, alone = self.rounds[i], len(active) == 1
                if len(self.rounds) > 1:
                    yield from rounds.switch()
                self._turn_began = before = self.clocks.counters()
                until = max(TURN_NS, TURN_ROUNDS * sum(e.block_ns for e in rounds.entries))
                try:
                    yield from rounds.turn(float("inf") if alone else until, partial(self._between, i))
                finally:
                    turn = self.clocks.counters() - before
                    self.spent[i] = self.spent[i] + turn if i in self.spent else turn

    def _between(self, i: int) -> None:
        """Between two rounds: look at the settings, tell the progress, mind the memory, collect young garbage."""
        now = self.rounds[i].ended_ns
        if self.rounds[i].other_speeds:
            self._begin_again(i)
        elif self.rounds[i].is_asleep and self._is_held_up(i):
            self._begin_again(i, held_up=True)
        elif self.rounds[i].wanted_ns and not self._is_held_up(i):
            self._begin_again(i, block_ns=self.rounds[i].wanted_ns)
        elif self.rounds[i].done or now - self._looked_ns >= LOOK_NS:
            self._looked_ns = now
            if self.isolation is not None and self.isolation.look():
                self._begin_again(i)
        if now - self._told_ns >= PROGRESS_NS:
            self._tell(self.progress.sampled(self.threads[i]))
            self.progress.watch(self.interrupted)
            if (doubt := self._memory.check()) is not None:
                self.warnings.append(doubt)
                for rounds in self.rounds:
                    rounds.done = True
        if now - self._collected_ns >= COLLECT_NS and not self._collects:
            gc.collect(0)
            self._collected_ns = self.clocks.wall()

    def _is_held_up(self, i: int) -> bool:
        """Whether other processes keep the threads of this thread count waiting."""
        turn = self.clocks.counters() - self._turn_began
        seen = contention_between(self.spent[i] + turn if i in self.spent else turn)
        return self._holds_up(self.subjects[self.rounds[i].entries[0].measurement], seen)

    def _holds_up(self, subject: Subject, seen: Contention) -> bool:
        held_up = are_held_up(replace(subject, contention=seen), self.environment.usable_cores)
        return seen.wanted > SEVERAL and held_up

    def _begin_again(self, i: int, *, held_up: bool = False, block_ns: float = 0.0) -> None:
        """Drop the samples of this thread count: some of them were taken with other settings than is said of them, or
        in blocks of other sizes than their speeds ask for, or measured how soon threads wake up; or blocks are to be
        longer."""
        former = self.rounds[i]
        former.done = True
        for entry in former.entries:
            entry.target_ns = max(entry.target_ns, block_ns) if entry.target_ns else 0.0
        self._other_calls += self._calls_of(former.entries)
        self.samples.drop({e.measurement for e in former.entries})
        known = former.mean_ns if block_ns else former.other_speeds
        anew = [e.again(known.get(e.measurement, e.seen_ns if held_up else e.call_ns)) for e in former.entries]
        if former.other_speeds or held_up:  # a few rounds of it, which the user has waited for as for the warm-up
            for entry, old in zip(anew, former.entries, strict=True):
                entry.spent_ns = old.spent_ns
        replanned = former.replanned + bool(former.other_speeds)
        self.rounds[i] = self._rounds_of(anew, replanned, held_up=held_up or former.held_up)

    def _tell(self, what: str, is_long: bool = False) -> None:
        self._told_ns = self.clocks.wall()
        self.progress.tell(what, self.rounds, is_long=is_long)

    # ---- after the last sample ------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.code.leave()
        if not self.plan.restore:
            self.warnings += in_place(*(self._in_place or self._changed()), self.watched.readers)
        told = {label for name in self.task.bodies for _, label in self.watched.changed_for(name)}
        self.warnings += self.watched.not_restored(told)
        if self.isolation is not None:
            self.warnings += self.isolation.doubts(list(self.task.bodies))
        self.warnings += [*prints(self.sink), *self._slowing]
        self.warnings += traced_launches(self.wait.device)
        self.warnings += self._other_work()
        off = switched_off([self.task.setup_text, *(body.source for body in self.task.bodies.values())])
        self.warnings += [off] if off is not None else []

    def _changed(self) -> tuple[Mapping[str, int], Counter[str]]:
        """What calls changed in place until now, and how many there were."""
        calls = self._calls()
        return self.watched.versions.changed(min(calls.values())), calls

    def _calls(self) -> Counter[str]:
        """Alternative -> all calls that were made of it."""
        names = list(self.task.bodies)
        made = Counter(names) + self._other_calls  # its first call
        made += Counter({name: probe.calls for name, probe in self.probes.items()})
        for at, subject in enumerate(self.subjects):
            made[names[at % len(names)]] += subject.warmup_calls
        return made + self._calls_of(e for r in self.rounds for e in r.entries)

    def _calls_of(self, entries: Iterable[Entry]) -> Counter[str]:
        names, made = list(self.task.bodies), Counter[str]()
        for entry in entries:
            made[names[entry.measurement % len(names)]] += entry.calls_made + entry.untimed_calls
        return made

    def _used_up(self, name: str) -> tuple[tuple[str, str], ...]:
        """Why later calls were not the work of the first, as `Subject.used_up` has it."""
        found = self.probes[name].finding if name in self.probes else None
        by_probe = ((found.how, found.evidence),) if found is not None and found.voids else ()
        return (*self.watched.rebound.get(name, ()), *self.watched.changed_for(name), *by_probe)

    def _other_work(self) -> list[Doubt]:
        """What the probes saw that takes no verdict away."""
        probes = {name: probe for name, probe in self.probes.items() if not self._used_up(name)}
        found = [(name, one) for name, probe in probes.items() for one in (probe.finding, *probe.clauses)]
        is_restored, several = self.plan.restore, len(self.probes) > 1
        said = [one.doubt(name if several else "", restore=is_restored) for name, one in found if one is not None]
        failed = [probe.failed for probe in self.probes.values() if probe.failed is not None]
        return said + [not_looked_at(error) for error in failed[:1]]

    def interrupted(self) -> Comparison | None:
        """What was measured until now, marked partial; None when nothing was sampled."""
        if not self.samples.wall:
            return None
        self.ended_ns = self.clocks.wall()
        return self.result(is_partial=True)

    def result(self, is_partial: bool = False) -> Comparison:
        """The run as a frozen result."""
        return Comparison(
            subjects=tuple(self._finished_subjects()),
            samples=self.samples.frame(with_device=self.wait.events is not None),
            environment=self.environment,
            warnings=self.warnings,
            baseline=self.plan.baseline,
            margin=self.plan.margin,
            clock=self.plan.clock,
            elapsed=(self.ended_ns - self.started_ns) / 1e9,
            seed=self.seed,
            partial=is_partial,
            options=identifying_options(self.plan),
            family=self._family,
            sources=self.code.sources,
        )

    def _finished_subjects(self) -> list[Subject]:
        subjects, names = list(self.subjects), list(self.task.bodies)
        for i, rounds in enumerate(self.rounds):
            spent = contention_between(self.spent[i]) if i in self.spent else None
            span = (rounds.ended_ns - (rounds.started_ns or rounds.ended_ns)) / 1e9
            for e in rounds.entries:
                faults = e.faults / e.calls_made if e.calls_made else float("nan")
                waited = e.waited_ns / e.wall_ns if self.wait.waits is not None and e.wall_ns else float("nan")
                state = self.isolation.state_of(e.measurement) if self.isolation is not None else ()
                facts: dict[str, Any] = {"contention": spent, "span": span, "waited": waited, "page_faults": faults}
                name = names[e.measurement % len(names)]  # a thread count's are in their order
                facts |= self.compiler.among_samples(e.compiled, subjects[e.measurement].fell_back)
                is_held_up = spent is not None and self._holds_up(subjects[e.measurement], spent)
                rare = (("rare", e.rare),) if e.rare and not is_held_up else ()
                facts |= {"state": state, "used_up": (*self._used_up(name), *rare)}
                facts |= self.code.facts(name)
                subjects[e.measurement] = replace(subjects[e.measurement], **facts)
        return subjects


# ---- timed_code ------------------------------------------------------------------------------------------------------
# What a run is handed to time: the code of one point's alternatives, in whatever language.
#
# There are two: `timing.python_bodies.PythonBodies`, statements over a copy of the notebook's names, and
# `cpp.run.SnippetBodies`, the open loops of compiled snippets. The run (`PointRun`) knows
# neither: it has blocks made, calls them in its order, and asks back what only the code's language can tell.


@dataclass(frozen=True)
class LeftBySetup:
    """What a setup set for all alternatives of its point.

    Attributes:
        threads: of torch; None where the code's setup has no say in it.
        collects: it switched Python's garbage collector on.
    """

    threads: int | None = None
    collects: bool = False


@dataclass(frozen=True)
class TimedBlocks:
    """What is timed, made ready.

    Attributes:
        blocks: of each alternative, in the order of ``task.bodies``.
        watched: the objects that they read.
        doubts: what was seen as they were made.
        probes: that record some calls of each; none where the code is no Python.
    """

    blocks: Sequence[Timeable]
    watched: WatchedObjects
    doubts: Sequence[Doubt] = ()
    probes: Sequence[Probe] = ()


class TimedCode(Protocol):
    """The code of one point's alternatives. A run asks in this order: ``set_up``, ``compile``, ``check`` where the plan
    has it, ``subject`` of each alternative and thread count, ``leave``, ``facts``; ``job`` once the run is over.
    """

    task: Task
    point: Point | None

    async def set_up(self, *, may_await: bool) -> Ended[LeftBySetup]:
        """Run the setup, where it has not run before the run began; it may await where an event loop runs. An exception
        is handed back: as a coroutine's own, a StopIteration would become another one."""

    def compile(self) -> TimedBlocks:
        """Make the blocks, over what the setup left, and see which objects they read."""

    def check(self, watched: WatchedObjects, put_back: Callable[[], object]) -> list[Doubt]:
        """Raise unless the alternatives return the same; ``put_back`` is called before each. What is to be said of what
        they return."""

    def subject(self, name: str, source: str, known: Mapping[str, Any]) -> Subject:
        """The record of an alternative, as it begins: ``source`` was compiled, ``known`` is what the run found out."""

    def leave(self) -> None:
        """The last sample is taken: see what the code changed of what it read."""

    def facts(self, name: str) -> Mapping[str, Any]:
        """Fields of an alternative's `Subject` that are known at the end: its inputs."""

    @property
    def sources(self) -> Mapping[str, str]:
        """source_id -> text of each function that the alternatives may call, where there is one."""

    def job(self, name: str, threads: int, counting: Counting) -> Job | LibraryJob:
        """What the counting process is asked, of one alternative."""


# ---- run_progress ----------------------------------------------------------------------------------------------------
# What the progress of a run says: the stage, and how far it is, in seconds of all points.


class RunProgress:
    """Tells the task's progress of one point; its output goes where the notebook's does, not the timed code's.

    Args:
        place: (index of the point, number of points).
    """

    def __init__(self, task: Task, place: tuple[int, int], threads: Sequence[int]) -> None:
        self._task, self._place, self._threads, self._stdout = task, place, threads, sys.stdout
        self._began_ns = task.clocks.wall()
        self.stage = "running the setup"
        self.first_calls: dict[str, float] = {}  # name -> seconds
        if isinstance(task.progress, MakingRoom):
            task.progress.expect(place[1] * len(threads) * len(task.bodies))

    def sampled(self, threads: int) -> str:
        """What is under way while samples are taken at this thread count."""
        bodies = len(self._task.bodies)
        alternatives = f"{bodies} alternatives, " if bodies > 1 else ""
        return f"{alternatives}{threads} thread{'s' if threads > 1 else ''}"

    def tell(self, what: str, rounds: Sequence[Rounds], *, is_long: bool = False) -> None:
        """Tell the stage, and the seconds of all points, first calls and setups apart.

        Args:
            rounds: those that were opened until now.
            is_long: nothing more will be told until what comes now has ended, however long it takes.
        """
        self.stage = what
        index, count = self._place
        least = len(self._task.bodies) * self._task.plan.min_run_time
        done = sum(r.time_ns for r in rounds) / 1e9
        here = sum(r.expected_ns for r in rounds) / 1e9 + (len(self._threads) - len(rounds)) * least
        one = len(self._threads) * least
        where = f"point {index + 1} of {count}, " if count > 1 else ""
        progress = self._task.progress
        say = progress.await_end if is_long and isinstance(progress, Awaiting) else progress.update
        with contextlib.redirect_stdout(self._stdout):
            say(index * one + done, index * one + here + (count - index - 1) * one, where + what)

    def unsampled(self) -> str:
        """What ran before the first sample, for a run that is interrupted there."""
        waited = seconds_text((self._task.clocks.wall() - self._began_ns) / 1e9)
        text = f"Nothing was measured yet: interrupted after {waited}, while {self.stage}."
        of = [f"{name} {seconds_text(took)}".lstrip() for name, took in self.first_calls.items()]
        return f"{text} First call{'s' if len(of) > 1 else ''}: {', '.join(of)}." if of else text

    def watch(self, until_now: Callable[[], Any]) -> None:
        """Offer what was measured until now to a progress that shows it."""
        if isinstance(self._task.progress, Watching):
            with contextlib.redirect_stdout(self._stdout):
                self._task.progress.watch(until_now)
