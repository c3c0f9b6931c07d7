"""One point's run: what is mutable while it lasts. `result` freezes it."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.core.machine.caches import cache_flusher
from torchbench_magic.core.machine.contention import Counters, contention_between
from torchbench_magic.core.machine.environment import read_environment
from torchbench_magic.core.process.process_state import ProcessState
from torchbench_magic.core.process.run_settings import CountingSink, Unclosable, collector, output_to
from torchbench_magic.errors import BodyError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.identity import options_of
from torchbench_magic.results.timing.subject import Subject

from ..code.code_reads import notebook_functions
from ..code.timed_loop import Timeable, compile_block
from .device import DeviceEvents, TimedSynchronizer, choose_device, device_events, no_wait, synchronizer
from .effects.equal_results import check
from .effects.guards import Inputs, MemoryGuard, Sizes, prints
from .effects.in_place import TensorVersions, in_place, shadowed_globals
from .effects.inputs_read import InputsRead
from .effects.isolation import Isolation
from .effects.only_first_call import Once, watched
from .effects.only_made import only_made
from .effects.unused_inputs import given_names, unused_inputs
from .points.sweep import Point
from .rounds import BLOCK_NS, DEVICE_BLOCK_NS, Entry, Rounds
from .run_progress import RunProgress
from .samples import Samples
from .stepping import Call, Steps
from .subjects import subject_of
from .task import Task
from .warmup import overheads, warm_up

if TYPE_CHECKING:
    from torchbench_magic.core.counting.count import Job, LibraryJob

__all__ = ["Run", "Task"]

TURN_NS = 20_000_000
"""How long one thread count is kept at least: changing it makes OpenMP rebuild its team (12 -> 21 us at 2 threads,
67 -> 740 us at 4, when it is changed every 200 us)."""
TURN_ROUNDS = 5
PROGRESS_NS = 100_000_000
COLLECT_NS = 1_000_000_000
LOOK_NS = 50_000_000
"""How often all settings of the process are read, which takes 0.2 ms: see `isolation`."""


class Run:
    """State of the run of one point, from the names of its setup to the last sample.

    Args:
        task: what is asked.
        point: its names; None where there is no sweep.
        place: (index of the point, number of points), for the progress.
    """

    def __init__(self, task: Task, point: Point | None = None, place: tuple[int, int] = (0, 1)) -> None:
        import torch

        self.notebook = ProcessState()
        self.isolation: Isolation | None = None
        self.task, self.point, self.place = task, point, place
        self.plan, self.clocks = task.plan, task.clocks
        made = point.make() if point is not None else {}
        self.names: dict[str, Any] = {**task.implied, **task.namespace, **task.local, **made}
        self._given = given_names(point, made)
        self.environment = read_environment()
        self.threads = self.plan.threads or (torch.get_num_threads(),)
        self.seed = self.plan.seed if self.plan.seed is not None else random.SystemRandom().getrandbits(32)
        self.rng = random.Random(self.seed)
        self.samples = Samples()
        self.subjects: list[Subject] = []
        self.rounds: list[Rounds] = []
        self.warnings: list[Doubt] = []
        self.sink, self._memory = CountingSink(), MemoryGuard()
        self.progress = RunProgress(task, place, self.threads)
        self.blocks: list[Timeable] = []
        self.device = "cpu"
        self.synchronize: Callable[[], object] = no_wait
        self.events: DeviceEvents | None = None
        self.waits: TimedSynchronizer | None = None
        self.spent: dict[int, Counters] = {}
        self._read = InputsRead(task, set(made))
        self.started_ns = self.ended_ns = self._told_ns = self._collected_ns = self.clocks.wall()
        self._looked_ns, self._dropped_calls, self._collects = self.started_ns, 0, self.plan.gc
        self._once, self._tried_calls, self.repeats = Once(), 0, False
        self._inputs: Inputs | None = None
        self._flush: Callable[[], None] | None = None

    # ---- before the first sample --------------------------------------------------------------------------

    def set_up(self) -> None:
        """Run the setup in this point's names."""
        with self._setting_up():
            for part in self.task.compiled(self.task.setup):
                if part.is_coroutine:
                    raise BodyError("setup awaits: time it in a notebook cell, where an event loop runs")
                part.run(self.names)
        self._compile()

    async def set_up_async(self) -> None:
        with self._setting_up():
            for part in self.task.compiled(self.task.setup):
                await part.run_async(self.names)
        self._compile()

    @contextlib.contextmanager
    def _setting_up(self) -> Iterator[None]:
        """Take what the setup sets for all alternatives: torch's threads, unless the plan names some, and a garbage
        collector that it switches on. As in timeit, the collector is off meanwhile."""
        import torch

        with collector(is_on=False):
            yield
            self._collects |= gc.isenabled()
        self.threads = self.plan.threads or (torch.get_num_threads(),)

    def leave(self) -> None:
        """Have the notebook's own settings back; random generators go on from where they are."""
        self.notebook.put_back(without=("generator", *self.notebook.left_to_imports))

    def take_blocks(self, blocks: Sequence[Timeable]) -> None:
        """Take what is to be timed, in the order of the bodies."""
        self.blocks = list(blocks)

    def job(self, name: str, threads: int, counting: Counting) -> Job | LibraryJob:
        """What the process that counts is asked, of one alternative."""
        from torchbench_magic.core.counting.count import Job

        task, body = self.task, self.task.bodies[name]
        return Job(body, self.names, counting.number, threads, counting.form, task.flags, task.transform_ast)

    def _compile(self) -> None:
        """Compile every body over the names that setup left, and note what the code may touch."""
        task, names, home = self.task, self.names, self.task.namespace
        blocks = [
            compile_block(body, names, flags=task.flags, transform_ast=task.transform_ast)
            for body in task.bodies.values()
        ]
        used = {name for block in blocks for name in block.names}
        absent = object()
        self.take_blocks(blocks)
        given = {**home, **task.local}
        rebound = {n for n, v in names.items() if given.get(n, absent) is not v} - {"__builtins__", *task.implied}
        functions = notebook_functions(used, names, home)
        self.warnings += shadowed_globals(functions, rebound)
        self.warnings += [*unused_inputs(self._given, task, blocks, functions), *only_made(task.bodies, names)]
        self._read.note(names)
        self._watch(used, functions)
        self._once = watched(task.bodies, blocks, names, self.plan, self._inputs)

    def _watch(self, used: set[str], functions: Iterable[FunctionType]) -> None:
        """Note the state of what the code reads, and which device it may have to be waited for."""
        self._versions = TensorVersions(used, self.names, functions)
        self._sizes = Sizes(used, self.names)
        self.device = choose_device(self.plan.device, self._versions.devices)
        self.synchronize = synchronizer(self.plan.device, self.device)
        if self.device != "cpu":
            self.waits = TimedSynchronizer(self.synchronize, self.clocks.wall)
            self.synchronize = self.waits
        if self.plan.clock == "device":
            self.events = device_events(self.device, self.synchronize)
            self.synchronize = self.events.synchronize
        if self.plan.restore:
            self._inputs = Inputs(self._versions.tensors)
        if self.plan.cold:
            self._flush = cache_flusher()

    # ---- the steps ----------------------------------------------------------------------------------------

    def steps(self) -> Steps[None]:
        """The whole measurement, as steps for `drive`."""
        self.isolation = isolation = Isolation(self.notebook, self.threads[0])
        self._restore()
        if self.plan.check:
            check(self.task, self.names, self._versions, isolation.put_back)
        self.started_ns = self.ended_ns = self.clocks.wall()
        with output_to(Unclosable(sys.stdout), Unclosable(sys.stderr)):
            first = yield from self._first_calls(isolation)
        try:
            with output_to(self.sink, self.sink), collector(is_on=self._collects):
                isolation.collector_is(self._collects)
                for group, threads in enumerate(self.threads):
                    entries = yield from self._prepare(group, threads, first, isolation)
                    self.rounds.append(self._rounds_of(entries))
                isolation.rewind(range(len(self.subjects)))
                yield from self._turns()
        finally:
            isolation.put_back()
            self._restore()
        self.ended_ns = self.clocks.wall()
        self._finish()

    def _first_calls(self, isolation: Isolation) -> Steps[list[float]]:
        """The first call of each alternative, compiling and loading included; its output is shown as a cell's is."""
        first = []
        for name, block in zip(self.task.bodies, self.blocks, strict=True):
            isolation.put_back()
            self._tell(f"running the first call of {name}" if name else "running the first call", is_long=True)
            self._once.before_first(name)
            wall, _ = yield Call(block, 0, 1)
            self._once.after_first(name, float(wall))
            isolation.note_first_call(name)
            first.append(float(wall))
            self.progress.first_calls[name if len(self.blocks) > 1 else ""] = wall / 1e9
            self._restore()
        self._sizes.settle()
        self.repeats = True  # from here on a call finds the objects as others left them
        return first

    def _prepare(self, group: int, threads: int, first: list[float], isolation: Isolation) -> Steps[list[Entry]]:
        """Warm every alternative up at this thread count and size its blocks."""
        plan = self.plan
        limit = plan.max_run_time / 2 if plan.max_run_time is not None else max(plan.min_run_time, 0.05)
        target = BLOCK_NS if self.device == "cpu" else DEVICE_BLOCK_NS
        entries = []
        for index, (name, block) in enumerate(zip(self.task.bodies, self.blocks, strict=True)):
            began = self.clocks.wall()
            self._tell(f"warming up {name}".rstrip())
            key = len(self.subjects)
            isolation.begin(key, index, name, threads)
            before = self._before_block if self._inputs is not None or self._flush is not None else None
            fixed, loop = overheads(block, self.clocks, self.synchronize)
            self._once.warming(name)
            warm = yield from warm_up(block, self.clocks.wall, limit * 1e9, first[index], before, fixed[0])
            if not group:
                self._tried_calls += yield from self._once.warmed(name, block, warm.calls, warm.call_ns, fixed[0])
            isolation.note_warm_up(key)
            single = plan.cold or (self._inputs is not None and self._inputs.streams)
            calls = 1 if single else plan.number or max(1, round(target / warm.call_ns))
            spent = float(self.clocks.wall() - began)
            entries.append(Entry(key, block, warm.call_ns, calls, fixed, loop, spent_ns=spent))
            known = {"group": group, "num_threads": threads, "device": self.device, "warmup_calls": warm.calls}
            known |= {"first_call": first[index] / 1e9, "loop_overhead": loop[0] / 1e9}
            self.subjects.append(self._subject(name, block.source, known))
        return entries

    def _rounds_of(self, entries: list[Entry]) -> Rounds:
        assert self.isolation is not None
        baseline = None if len(entries) == 1 else self._baseline_index()
        before = self._before_block if self._inputs is not None or self._flush is not None else None
        waits, events = self.waits, self.events
        rounds = Rounds(
            entries,
            baseline,
            self.plan,
            self.samples,
            self.rng,
            self.clocks.wall,
            before=before,
            device_ns=None if events is None else lambda: events.elapsed_ns,
            waited_ns=None if waits is None else lambda: float(waits.waited_ns),
            family=self._family,
            enter=self.isolation.enter,
        )
        for entry in entries:
            self.subjects[entry.measurement] = replace(self.subjects[entry.measurement], look=entry.look)
        return rounds

    @property
    def _family(self) -> int:
        """How many comparisons were asked for, all points and thread counts."""
        return self.place[1] * len(self.threads) * (len(self.task.bodies) - 1)

    def _baseline_index(self) -> int:
        return list(self.task.bodies).index(self.plan.baseline) if self.plan.baseline is not None else 0

    def _before_block(self) -> None:
        self._restore()
        if self._flush is not None:
            self._flush()

    def _restore(self) -> None:
        if self._inputs is not None:
            self._inputs.restore()

    def _subject(self, name: str, source: str, known: Mapping[str, Any]) -> Subject:
        return subject_of(self.task, self.point, name, source, known)

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
                before = self.clocks.counters()
                until = max(TURN_NS, TURN_ROUNDS * sum(e.block_ns for e in rounds.entries))
                try:
                    yield from rounds.turn(float("inf") if alone else until, partial(self._between, i))
                finally:
                    turn = self.clocks.counters() - before
                    self.spent[i] = self.spent[i] + turn if i in self.spent else turn

    def _between(self, i: int) -> None:
        """Between two rounds: look at the settings, tell the progress, mind the memory, collect young garbage."""
        now = self.rounds[i].ended_ns
        if self.rounds[i].done or now - self._looked_ns >= LOOK_NS:
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

    def _begin_again(self, i: int) -> None:
        """Drop the samples of this thread count: some of them were taken with other settings than is said of them."""
        former = self.rounds[i]
        former.done = True
        self._dropped_calls += sum(e.calls_made + e.untimed_calls for e in former.entries)
        self.samples.drop({e.measurement for e in former.entries})
        anew = [Entry(e.measurement, e.block, e.call_ns, e.calls, e.fixed_ns, e.loop_ns) for e in former.entries]
        self.rounds[i] = self._rounds_of(anew)

    def _tell(self, what: str, is_long: bool = False) -> None:
        self._told_ns = self.clocks.wall()
        self.progress.tell(what, self.rounds, is_long=is_long)

    # ---- after the last sample ------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._read.drop_changed(self.names)
        calls = len(self.blocks) + self._tried_calls + sum(s.warmup_calls for s in self.subjects)
        calls += self._dropped_calls + sum(e.calls_made + e.untimed_calls for r in self.rounds for e in r.entries)
        if not self.plan.restore:
            self.warnings += in_place(self._versions.changed(), calls, len(self.task.bodies))
        self.warnings += self._sizes.grown(calls)
        if self.isolation is not None:
            self.warnings += self.isolation.doubts(list(self.task.bodies))
        self.warnings += prints(self.sink.characters)

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
            samples=self.samples.frame(with_device=self.events is not None),
            environment=self.environment,
            warnings=self.warnings,
            baseline=self.plan.baseline,
            margin=self.plan.margin,
            clock=self.plan.clock,
            elapsed=(self.ended_ns - self.started_ns) / 1e9,
            seed=self.seed,
            partial=is_partial,
            options=options_of(self.plan),
            family=self._family,
            sources=self.task.sources,
        )

    def _finished_subjects(self) -> list[Subject]:
        subjects, names = list(self.subjects), list(self.task.bodies)
        for i, rounds in enumerate(self.rounds):
            spent = contention_between(self.spent[i]) if i in self.spent else None
            span = (rounds.ended_ns - (rounds.started_ns or rounds.ended_ns)) / 1e9
            for e in rounds.entries:
                faults = e.faults / e.calls_made if e.calls_made else float("nan")
                waited = e.waited_ns / e.wall_ns if self.waits is not None and e.wall_ns else float("nan")
                state = self.isolation.state_of(e.measurement) if self.isolation is not None else ()
                facts: dict[str, Any] = {"contention": spent, "span": span, "waited": waited, "page_faults": faults}
                name = names[e.measurement % len(names)]  # a thread count's are in their order; C++ reads no names
                facts |= {"state": state, "used_up": self._once.found(name, e.times)}
                facts |= self._read.of(name)
                subjects[e.measurement] = replace(subjects[e.measurement], **facts)
        return subjects
