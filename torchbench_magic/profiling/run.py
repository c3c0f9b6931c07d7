"""Profile a body once: the entrance for the magics (`profile_body`) and for scripts (`profile`)."""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any

from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import BodyError, Interrupted, OptionError
from torchbench_magic.process.code import (
    CompiledBody,
    cell_of,
    check_callable,
    compile_body,
    completed,
    names_used,
    not_run,
)
from torchbench_magic.process.frame_owner import without_own_frames
from torchbench_magic.process.interrupts import (
    NO_PROGRESS,
    Awaiting,
    Progress,
    interrupt_of,
    interrupts_held,
    interrupts_let_through,
)
from torchbench_magic.process.require_torch import import_torch
from torchbench_magic.process.settings import measured_alone
from torchbench_magic.profiling.efficiency.judge import with_efficiency
from torchbench_magic.profiling.loops.run import PhasesRun, profile_of_phases
from torchbench_magic.profiling.memory.tracemalloc_record import HostMemory
from torchbench_magic.profiling.python.sampler import check_sampler

from .build_profile import InputsOfBody, Reached, report
from .file_texts import RecordedFiles, names_around, resolve_lines_of
from .line_events import Callers
from .module_calls import ModuleCalls
from .options import MAX_EVENTS, ProfileOptions, Schedule
from .profile import Profile, settled
from .recorder import SOURCE_MODULES, RecordedRun, check_counts, choose_line_source
from .recording_cost import Repeats, with_repeats
from .sources import Cells, ProfiledBody
from .statements import libraries_called
from .steps import SteppedRun, sum_of_cycles
from .warnings import did_not_begin, doubts_of_steps

no_cells: Cells = lambda file: None

_numbers = itertools.count(1)
NOT_BEGUN = "interrupted before the code began: nothing was recorded"
_LONG_MAKING = 1.0  # seconds, after which a reader is told that the profile is being made


def profile(
    target: Callable[[], object] | str,
    *,
    globals: Mapping[str, Any] | None = None,  # noqa: A002  # torch.utils.benchmark's name for it
    threads: int | None = None,
    memory: bool = False,
    shapes: bool = False,
    lines_of: Sequence[str] = (),
    schedule: Schedule | str | Mapping[str, int] | None = None,
    on_trace: Callable[[Profile], object] | None = None,
    max_events: int = MAX_EVENTS,
    host_memory: bool = False,
    flops: bool = False,
    twice: bool = False,
    python: bool = False,
    concurrency: bool = False,
    efficiency: bool = False,
    phases: bool = False,
    progress: Progress = NO_PROGRESS,
) -> Profile:
    """Profile a call, or a piece of code, in a script.

    Lines are those of the code itself, of ``.py`` files under the working directory, and of ``lines_of``. ::

        profile(lambda: model(x), memory=True).lines
        profile("y = model(x)\\ny.sum().backward()", globals=globals())
        profile(train, schedule="wait=1,warmup=1,active=3")  # train() calls torchbench_magic.step() in its loop

    Args:
        target: a callable without arguments, or Python text, which runs in a copy of ``globals``.
        threads: torch threads for the run.
        lines_of: names of modules or paths whose lines to record besides.
        schedule: record only some of the steps, by the numbers of ``torch.profiler.schedule``.
        on_trace: called with each cycle's profile (without a schedule: with the whole one).
        max_events: events above which detail is dropped, and said to be.
        memory, shapes, host_memory, flops, twice, python, concurrency, efficiency, phases: as in `ProfileOptions`.

    Raises:
        Busy, OptionError: as `profile_body`; a schedule that is none.
        MissingTool: torch cannot be imported, and why.
        BodyError: a target that is neither callable nor text; text that awaits; a callable that needs arguments; a
            generator or coroutine function, which would run nothing (profile ``lambda: list(f())`` or
            ``lambda: asyncio.run(f())``).
        Interrupted: Ctrl-C; its ``partial`` is the profile until then.
        Exception: the code's own exceptions, as they are.
    """
    __tracebackhide__ = True
    import_torch()
    run_body: Callable[[], object]
    names: dict[str, Any] = {}
    own: tuple[CodeType, ...]
    cells: Cells = cell_of
    body: CompiledBody | None = None
    if isinstance(target, str):
        text = CellText.of(target, f"<profile-{next(_numbers)}>")
        linecache.cache[text.file] = (len(target), None, target.splitlines(True), text.file)
        body = compiled = compile_body(Body(target, text.file))
        if compiled.is_coroutine:
            raise BodyError("this code awaits: put it into a coroutine and profile `lambda: asyncio.run(main())`")
        names = dict(globals or {})
        run_body = lambda: compiled.run(_anew(names, globals))
        own, cells = _codes(compiled), lambda file: text if file == text.file else cell_of(file)
    elif callable(target):
        check_callable(target, repr(getattr(target, "__name__", type(target).__name__)))
        code = getattr(inspect.unwrap(target), "__code__", None)
        run_body, own = target, (code,) if isinstance(code, CodeType) else ()
        names = names_around(target)
    else:
        raise BodyError(f"give a callable or Python text, not {type(target).__name__}")
    options = ProfileOptions(
        threads=threads,
        memory=memory, shapes=shapes, flops=flops, twice=twice, python=python, phases=phases, lines_of=tuple(lines_of),
        schedule=schedule if isinstance(schedule, Schedule | None) else Schedule.of(schedule),
        max_events=max_events,
        host_memory=host_memory,
        concurrency=concurrency,
        efficiency=efficiency,
    )  # fmt: skip
    asked = Asked(options=options, namespace=names, cells=cells, on_trace=on_trace, progress=progress)
    # the value goes within the run, as in any script that does not keep it
    profiling = _Profiling(asked, own, run_body, keeps_value=False)
    profiling.text = None if body is None else body.body
    outcome = completed(profiling.outcome())
    if isinstance(outcome.error, KeyboardInterrupt):
        raise Interrupted(outcome.profile) from None
    if outcome.error is not None:
        users = outcome.error.__traceback__
        try:
            raise outcome.error
        except BaseException as raised:
            raised.__traceback__ = users  # what is raised again gets no entry for this frame
            raise
    return outcome.profile


def _anew(names: dict[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """``names`` with a copy of what was given and nothing else."""
    names.clear()
    names.update(given or {})
    return names


@dataclass(frozen=True)
class Outcome:
    """What one profiled run gave.

    Attributes:
        profile: of the whole body, or of what ran until ``error``.
        value: of the body's trailing expression; None without one, or after an error.
        error: the exception (Ctrl-C included) that ended the body, its traceback without frames of this
            package; None where it ran to its end. Raise it with ``raise outcome.error``.
    """

    profile: Profile
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a run besides its body.

    Attributes:
        options: what is recorded, and how; ``flops`` implies ``shapes``.
        namespace: the names that the body runs in.
        cells: file name of code -> the text of its cell, None for what is no cell.
        root: folder whose ``.py`` files get lines; None: the working directory.
        on_trace: called with each cycle's profile (without a schedule: with the whole one). What it raises ends the
            body as an exception of its own would.
        progress: told what is under way.
    """

    options: ProfileOptions = ProfileOptions()  # noqa: RUF009  (frozen)
    namespace: dict[str, Any] = field(default_factory=dict)
    cells: Cells = no_cells
    root: str | os.PathLike[str] | None = None
    on_trace: Callable[[Profile], object] | None = None
    progress: Progress = NO_PROGRESS


def profile_body(body: CompiledBody, asked: Asked) -> Outcome:
    """Run ``body`` once in ``asked.namespace`` under torch's profiler.

    Raises:
        Busy: a torch profiler runs already; it is left alone and the body is not run.
        OptionError: a ``--lines-of`` that names nothing, threads below 1; the body is not run.
        BodyError: it awaits.
    """
    __tracebackhide__ = True
    if body.is_coroutine:
        raise BodyError("a body with a top-level await needs an event loop")
    return completed(_of_body(body, asked).outcome())


async def profile_body_async(body: CompiledBody, asked: Asked) -> Outcome:
    """As `profile_body`, for a body with a top-level ``await``, within a running event loop.

    The time that the body is suspended, with what other tasks do in it, stands on the awaiting line.
    """
    __tracebackhide__ = True
    return await _of_body(body, asked).outcome()


def _of_body(body: CompiledBody, asked: Asked) -> _Profiling:
    start = body.run_async if body.is_coroutine else body.run
    made = _Profiling(asked, _codes(body), lambda: start(asked.namespace), suspends=body.is_coroutine)
    made.text = body.body
    return made


def _codes(body: CompiledBody) -> tuple[CodeType, ...]:
    return (body.code,) if body.last is None else (body.code, body.last)


class _Profiling:
    """The one way to run what is profiled.

    Args:
        own: code objects of the body.
        start: runs the body; awaited where the body ``suspends``.
        keeps_value: the body's value is wanted; else it goes within the run.

    Attributes:
        text: of the body; None for a callable.
    """

    text: Body | None = None

    def __init__(
        self,
        asked: Asked,
        own: tuple[CodeType, ...],
        start: Callable[[], Any],
        *,
        suspends: bool = False,
        keeps_value: bool = True,
    ) -> None:
        self.asked, self.own, self.start, self.suspends, self.keeps_value = asked, own, start, suspends, keeps_value
        self.options = asked.options.complete
        self.numbering: list[int] = []

    async def outcome(self) -> Outcome:
        """Run the body, make its profile, and with ``twice`` measure what recording cost.

        What the body raises is a value here (a coroutine cannot let a StopIteration of the user's through), and so is a
        Ctrl-C while the profile is made. One before the body begins is raised, and Busy where another thread measures.
        """
        __tracebackhide__ = True
        with measured_alone(), interrupts_held() as held:
            run = self.run(self.asked.progress)
            inputs = InputsOfBody(self.own, self.asked.namespace, self.text)
            held.raise_if_any(NOT_BEGUN)
            value, idle, error, has_begun = None, None, None, False
            with run:
                run.enter()
                try:
                    with interrupts_let_through(SOURCE_MODULES):
                        has_begun = True
                        value = _called(self.start)
                        if self.suspends:
                            value = await value
                        if not self.keeps_value:
                            idle, value = not_run(value), None
                except BaseException as caught:  # noqa: BLE001  # Ctrl-C too: the caller raises it
                    error = interrupt_of(caught)
                finally:
                    run.leave()
            if error is not None and not has_begun:
                raise KeyboardInterrupt(NOT_BEGUN) if isinstance(error, KeyboardInterrupt) else error
            if isinstance(progress := self.asked.progress, Awaiting):  # it may take seconds, in which a Ctrl-C waits
                progress.await_end(0.0, None, "making the profile", after=_LONG_MAKING)
            outcome = self._made(run, value, error, idle, inputs)
            if self.options.twice and outcome.error is None:
                outcome = await self._repeated(outcome)
            if self.options.efficiency and outcome.error is None:
                spent = getattr(run, "spent", None)
                outcome = replace(outcome, profile=with_efficiency(outcome.profile, spent, self.asked.progress))
            del run
            settled(outcome.profile)
            if held.take() and outcome.error is None:  # a second one is told by the first
                outcome = replace(outcome, error=KeyboardInterrupt("the code had run to its end: the profile is whole"))
        return outcome

    def run(self, progress: Progress) -> RecordedRun | SteppedRun | PhasesRun:
        options, asked = self.options, self.asked
        check_counts(options)
        check_sampler(wanted=options.python)
        if options.phases:
            return PhasesRun(options)
        if options.schedule is not None and (options.twice or options.host_memory):
            what = "--twice times" if options.twice else "--host-memory counts"
            raise OptionError(f"{what} the whole body, and a schedule records only a part of it: use one of them")
        extra = resolve_lines_of(options.lines_of)
        always = {code.co_filename for code in self.own}
        scope = RecordedFiles(asked.root if asked.root is not None else Path.cwd(), asked.cells, extra, always)
        used = frozenset(name for code in self.own for name in (*names_used(code), *code.co_freevars))
        if options.schedule is None:
            host = HostMemory() if options.host_memory else None
            source = choose_line_source(scope, options.max_events, host.clock if host is not None else time.time_ns)
            return RecordedRun(source, options, progress, host=host, modules=ModuleCalls(asked.namespace, used))

        def make_run(above: Callers) -> RecordedRun:
            source, modules = choose_line_source(scope, options.max_events), ModuleCalls(asked.namespace, used)
            return RecordedRun(source, replace(options, threads=None), NO_PROGRESS, above, modules=modules)

        return SteppedRun(options, make_run, self.report, asked.on_trace, progress)

    def report(self, run: RecordedRun | PhasesRun, error: BaseException | None, value: Any = None) -> Profile:
        """``value``: of the body's trailing expression, which whoever shows it keeps."""
        body = ProfiledBody(self.own, self.asked.cells, self.suspends)
        if isinstance(run, PhasesRun):
            return profile_of_phases(run, self.options, body, error)
        names = Reached(self.asked.namespace, value)
        made = report(run, self.options, body, error=error, numbering=self.numbering, names=names)
        return replace(made, libraries=libraries_called(made, self.asked.namespace))

    def _made(
        self,
        run: RecordedRun | SteppedRun | PhasesRun,
        value: Any,
        error: BaseException | None,
        idle: str | None,
        inputs: InputsOfBody,
    ) -> Outcome:
        """The profile of what ran.

        Args:
            idle: kind of object that the body made and did not run, where ``value`` itself was not kept.
            inputs: what the body was to read.
        """
        __tracebackhide__ = True
        error, idle = _stripped(error), idle or not_run(value)
        last = run.finish(error) if isinstance(run, SteppedRun) else inputs.noted(self.report(run, error, value))
        if self.asked.on_trace is not None and last is not None:
            try:
                with interrupts_let_through():
                    self.asked.on_trace(last)
            except BaseException as raised:  # noqa: BLE001  # the caller raises it; the profile is there all the same
                error = error if error is not None else _stripped(raised)
        if isinstance(run, SteppedRun):
            last = inputs.noted(self._sum(run, error))
        assert last is not None
        if idle is not None:
            last = replace(last, warnings=[did_not_begin(idle), *last.warnings])
        return Outcome(last, value, error)

    async def _repeated(self, outcome: Outcome) -> Outcome:
        """With what recording cost, measured by more runs; what one of them raises is the user's."""
        repeats = Repeats(self.start, self._unscheduled, self.options.threads)
        await repeats.measure(outcome.profile.wall_time)
        return Outcome(with_repeats(outcome.profile, repeats), outcome.value, _stripped(repeats.error))

    def _unscheduled(self) -> RecordedRun:
        run = self.run(NO_PROGRESS)
        assert isinstance(run, RecordedRun)
        return run

    def _sum(self, run: SteppedRun, error: BaseException | None) -> Profile:
        """The sum of the cycles, with what is to be said of the steps."""
        assert self.options.schedule is not None
        return sum_of_cycles(
            run.cycles,
            self.options,
            doubts_of_steps(run, self.options.schedule, in_loop=self.options.in_loop, error=error),
            partial=error is not None,
            num_threads=run.num_threads,
        )


def _called(start: Callable[[], Any]) -> Any:
    """What ``start()`` returns, from a frame of its own: in the one that lets interrupts through none is heard."""
    __tracebackhide__ = True
    return start()


def _stripped(error: BaseException | None) -> BaseException | None:
    return None if error is None else error.with_traceback(without_own_frames(error.__traceback__))
