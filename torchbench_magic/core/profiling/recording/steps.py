"""Long jobs: the steps of a body, of which a schedule says which are recorded.

Between recorded steps nothing is traced and nothing is profiled. Each cycle of recorded steps is a `RecordedRun` of its
own, which starts and stops in the middle of the user's code, and becomes a `Profile` before the next step.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

from torchbench_magic.core.machine.devices_in_use import wait_for_devices
from torchbench_magic.core.machine.waiting_for_cores import CoreWait
from torchbench_magic.core.process.held_interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.core.progress import Progress
from torchbench_magic.errors import BodyError, Busy
from torchbench_magic.results.profiling.loops.phases import renumbered
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.profiling.profile_options import ProfileOptions
from torchbench_magic.results.profiling.schedule import Action

from ..loop_marks.current import note_step
from ..torch_events.kineto import make_ready
from ..torch_events.torch_profiler import marker
from .recorded_run import RecordedRun, torch_threads
from .streams import Callers

__all__ = ["SteppedRun", "going", "left", "loop", "loop_async", "step", "step_num"]

_current: SteppedRun | None = None
_RARELY = 1.0  # seconds
_RANGE = "ProfilerStep#"  # torch's name for the range of a step


def step() -> None:
    """Tell a scheduled profile that a step of the job ends here and the next one begins.

    Does nothing where no scheduled profile runs, so that a loop with it may run as it is.

    Raises:
        BodyError: called by another thread than the one that runs the job.
        Exception: what the function of ``--on-trace`` raises; its cycle is kept.
    """
    __tracebackhide__ = True
    if _current is not None:
        _current.step()
    note_step()


def step_num() -> int | None:
    """Number of the step that runs, counted from 0; None where no scheduled profile runs."""
    return None if _current is None or _current.number < 0 else _current.number


class SteppedRun:
    """``with SteppedRun(...) as run: run.enter(); body(); run.leave()``, then `finish`; as a `RecordedRun`, in cycles.

    Args:
        options: the schedule (number of a step -> what happens in it), torch's thread count for the whole body, and
            whether the first step begins with the body's loop, see `loop`; else with the body.
        make_run: a new cycle's run, above these callers.
        make_profile: of a run that has ended, and what ended it early.
        on_trace: given the profile of each cycle that ends between two steps.

    Attributes:
        number: of the step that runs; -1 before the first.
        num_threads: torch's threads at the beginning.
        idle_until: number of the first step that takes more to begin than to count it: between two of those before it
            nothing is to be done.
        tell_at: by ``perf_counter``, when the reader is to be told of such a step; see `tell`.
        cycles: the profile of each, as soon as it has ended.
        load: how long threads waited for a core in the cycles together; None where that is not known.
        skipped: cycles that could not be recorded, since a profiler of the code's own was running.
        stopped_leaked: as of `RecordedRun`.
    """

    def __init__(
        self,
        options: ProfileOptions,
        make_run: Callable[[Callers], RecordedRun],
        make_profile: Callable[[RecordedRun, BaseException | None], Profile],
        on_trace: Callable[[Profile], object] | None,
        progress: Progress,
    ) -> None:
        if _current is not None:
            raise Busy("a profile with a schedule is already running; a second one cannot start inside it")
        self.stopped_leaked = make_ready(progress)
        self.number, self.skipped, self.num_threads = -1, 0, 1
        self.idle_until = self.tell_at = 0.0
        self.cycles: list[Profile] = []
        self.load: CoreWait | None = None
        assert options.schedule is not None
        self._schedule, self._in_loop = options.schedule, options.in_loop
        self._make_run, self._make_profile, self._on_trace = make_run, make_profile, on_trace
        self._progress, self._threads = progress, options.threads
        self._undone = contextlib.ExitStack()
        self._thread = threading.get_ident()
        self._started = time.perf_counter()
        self._callers: Callers | None = None
        self._action = Action.NONE
        self._prepared: RecordedRun | None = None
        self._recording: RecordedRun | None = None
        self._range: Any = None
        self._ended = 0  # Unix ns at which the step before ended
        self._steps: list[int] = []
        self._is_between = False
        self._empty = 0
        self._most = ""
        self._told_of: tuple[Action | bool, int] = (False, -1)

    @property
    def made(self) -> int:
        """How many steps were begun."""
        return self.number + 1 - self._empty

    def __enter__(self) -> Self:
        global _current
        import torch

        self._undone.enter_context(torch_threads(self._threads))
        self.num_threads = torch.get_num_threads()
        _current = self
        return self

    def enter(self) -> None:
        """The body begins; the frames that called this are no part of it."""
        self._callers = Callers.of_this_call()
        if not self._in_loop:
            self.begin()

    def begin(self) -> None:
        """The first step begins."""
        self._move_to(0)

    def step(self) -> None:
        """A step ends, the next one begins."""
        __tracebackhide__ = True
        if threading.get_ident() != self._thread:
            raise BodyError("torchbench_magic.step() must be called by the thread that runs the cell")
        if self._is_between:
            raise BodyError("torchbench_magic.step() was called between two steps, by the function of --on-trace")
        if not self.count():
            self._move_to(self.number + 1)

    def count(self) -> bool:
        """Begin the next step where that takes no more than to count it. Whether it did."""
        if self.number + 1 >= self.idle_until:
            return False
        self.number += 1
        if time.perf_counter() >= self.tell_at:
            self.tell()
        return True

    def end_of_loop(self, *, is_empty: bool) -> None:
        """The body's loop has ended; ``is_empty``: the step that it began last has nothing in it."""
        with interrupts_held():
            if is_empty:
                self._empty += 1
                self._steps = [number for number in self._steps if number != self.number]
            self._close_range(self._step_ended(True))
            self._action = Action.NONE
            self._end_cycle()

    def leave(self) -> None:
        self._close_range(self._step_ended(True))
        if self._recording is not None:
            self._leave(self._recording)

    def __exit__(self, *error: object) -> None:
        global _current
        _current, self._callers = None, None
        with self._undone:
            if self._recording is not None:
                self._recording.__exit__(None, None, None)
            elif self._prepared is not None:
                self._discard()

    def finish(self, error: BaseException | None) -> Profile | None:
        """The profile of a cycle that the end of the body, or ``error``, has ended; None where none was recording."""
        run, self._recording = self._recording, None
        return self._keep(run, error) if run is not None and self._steps else None

    # ---- between two steps --------------------------------------------------------------------------------------

    def _move_to(self, number: int) -> None:
        """Close the step before, do what the schedule says lies between the two, open this one."""
        __tracebackhide__ = True
        with interrupts_held():
            self._is_between, self.idle_until = True, 0.0
            try:
                now = self._step_ended(self._action is Action.RECORD_AND_SAVE or not self._schedule(number).records)
                self._close_range(now)
                before, self.number = self._action, number
                self._action = self._schedule(number)
                if before is Action.RECORD_AND_SAVE or not self._action.records:
                    self._end_cycle()
                self.tell()
                if self._action is Action.WARMUP and self._prepared is None:
                    self._prepare()
                elif self._action.records and self._recording is None:
                    self._start_cycle()
                elif self._action is Action.NONE and self._prepared is not None:
                    self._discard()
            finally:
                self._is_between = False
            if self._action is Action.NONE:
                awake = self._schedule.awake(number + 1)
                self.idle_until = math.inf if awake is None else awake
            if self._recording is not None:
                self._steps.append(number)
                self._open_range()
        if self._recording is not None:  # last of all: what stands above is no time of the step
            self._recording.between_steps.append((max(self._ended, self._recording.begin), time.time_ns()))

    def _step_ended(self, is_last: bool) -> int:
        """Unix ns at which a step ended: the last one of a cycle ends when the device has."""
        ended = time.time_ns()
        if is_last and self._recording is not None and wait_for_devices():
            self._recording.after, ended = time.time_ns() - ended, time.time_ns()
        return ended

    def _prepare(self) -> None:
        assert self._callers is not None
        try:
            self._prepared = self._make_run(self._callers)
            self._prepared.prepare()
        except Busy:
            self._prepared = None  # counted where the recording was to start

    def _start_cycle(self) -> None:
        assert self._callers is not None
        run, self._prepared = self._prepared, None
        try:
            run = run or self._make_run(self._callers)
        except Busy:
            self.skipped += 1
            self._action = Action.NONE
            return
        run.__enter__()
        self._recording = run
        run.enter()

    def _end_cycle(self) -> None:
        __tracebackhide__ = True
        run, self._recording = self._recording, None
        if run is not None:
            self._leave(run)
            run.__exit__(None, None, None)
            if self._steps:
                made = self._keep(run, None)
                if self._on_trace is not None:
                    with interrupts_let_through():
                        self._on_trace(made)

    def _keep(self, run: RecordedRun, error: BaseException | None) -> Profile:
        made, steps = self._make_profile(run, error), tuple(self._steps)
        profile = replace(made, steps=steps, phases_by_line=renumbered(made.phases_by_line, steps))
        if run.load is not None:
            self.load = run.load if self.load is None else self.load + run.load
        self._steps = []
        self.cycles.append(profile)
        self._most = _most_time_in(profile)
        return profile

    def _discard(self) -> None:
        """Put away a profiler that was prepared and is not needed: it can only be stopped once it was started."""
        run, self._prepared = self._prepared, None
        if run is not None:
            with run:
                pass

    def _leave(self, run: RecordedRun) -> None:
        run.leave()
        run.between_steps.append((max(self._ended, run.begin), run.end))
        run.overhead += sum(end - begin for begin, end in run.between_steps) / 1e9

    def _open_range(self) -> None:
        self._range = marker(f"{_RANGE}{self.number}")
        self._range.__enter__()

    def _close_range(self, ended: int) -> None:
        """
        Args:
            ended: Unix ns at which the step did.
        """
        self._ended = ended
        opened, self._range = self._range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def tell(self) -> None:
        """What a reader sees while it runs: where the job is, and what the last cycle spent most time in.

        As recording begins or ends, and else rarely: it takes the time of a step.
        """
        now, state = time.perf_counter(), (self._action.records or self._action, len(self.cycles))
        if state == self._told_of and now < self.tell_at:
            return
        self.tell_at, self._told_of = now + _RARELY, state
        of = getattr(self._schedule, "steps", None)
        said = f"step {self.number}" + (f" of {of}" if of is not None and self.number < of else "")
        if self._action.records:
            said += f", recording cycle {len(self.cycles) + 1}"
        self._progress.update(now - self._started, None, said + self._most)


def _most_time_in(cycle: Profile) -> str:
    """The two ops that took most of a cycle, as the end of a sentence."""
    times = cycle.ops[~cycle.ops["op"].isin(cycle.ranges)].groupby("op")["self_cpu_time"].sum().nlargest(2)
    shares = [f"{op} {100 * seconds / cycle.wall_time:.0f} %" for op, seconds in times.items()]
    return f", most time in {', '.join(shares)}" if shares else ""


# ---- what `loop_steps.mark_loop` puts into the body's loop -----------------------------------------------------------


def loop(items: Iterable[Any]) -> Iterator[Any]:
    """``items``, each a step: what fetches an item is part of its step.

    Steps between which nothing is to be done are counted right here, as `SteppedRun.count` does: of many short ones
    the call would be most of the time.
    """
    each, clock = iter(items), time.perf_counter
    while True:
        run = _current
        if run is not None and run.number + 1 < run.idle_until:
            run.number += 1
            if clock() >= run.tell_at:
                run.tell()
        else:
            going()
        try:
            item = next(each)
        except StopIteration:
            left(is_empty=True)
            return
        yield item


def loop_async(items: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """As `loop`, for ``async for``."""
    return _AsyncLoop(aiter(items))


def going() -> bool:
    """A ``while`` is about to test its condition: a step begins. Always False."""
    run = _current
    if run is not None and not run.count():
        (run.begin if run.number < 0 else run.step)()
    return False


def left(is_empty: bool = False) -> bool:
    """The loop is left, by ``break`` or (``is_empty``) because there is no more to do. Always False."""
    if _current is not None:
        _current.end_of_loop(is_empty=is_empty)
    return False


class _AsyncLoop:
    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        going()
        try:
            return await anext(self._items)
        except StopAsyncIteration:
            left(is_empty=True)
            raise
