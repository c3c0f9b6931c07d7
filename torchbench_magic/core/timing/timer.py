"""Timing the alternatives of a cell: `compare_bodies` for the magics, `compare` for scripts.

The way of a run: setup in a copy of the namespace -> each text compiled as a timed loop -> at each thread count the
first call and the warm-up -> rounds of adjacent blocks -> a `Comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torchbench_magic.core.code.own_frames import users_traceback
from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.core.machine.commit import read_commit
from torchbench_magic.core.process.run_settings import preserved_state
from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.errors import BodyError, Interrupted, OptionError
from torchbench_magic.results.cell import Body
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.joined_comparisons import join
from torchbench_magic.results.timing.timing_doubts import doubts_of
from torchbench_magic.results.timing.used_up import KIND

from ..code.script_alternatives import Called
from ..machine.clocks import Clocks
from .plan import Plan
from .point_run import Run, Task
from .points.sweep import Point
from .stepping import drive, drive_async

__all__ = ["Collected", "Keep", "Skip", "check_names", "compare", "compare_bodies", "compare_bodies_async"]

_NOT_THE_FIRST = (
    "The first call worked; a later call in the timing loop failed. The loop repeats the code on the objects as the"
    " calls before it left them: make what they use up in the code itself."
)
"""Under the traceback of an exception such as the IndexError of ``numbers.pop()``, which is the user's otherwise."""

Transform = Callable[[Any], Any]
Keep = Callable[[Comparison], None]
Skip = Callable[[Task, Point | None], Comparison | None]


def compare_bodies(
    bodies: Mapping[str, Body],
    *,
    setup: Sequence[Body] = (),
    namespace: Mapping[str, Any],
    implied: Mapping[str, Any] | None = None,
    plan: Plan = Plan(),  # noqa: B008  (frozen)
    points: Sequence[Point] = (),
    counting: Counting | None = None,
    keep: Keep | None = None,
    skip: Skip | None = None,
    failed: Keep | None = None,
    flags: int = 0,
    transform_ast: Transform | None = None,
    progress: Progress = NO_PROGRESS,
    clocks: Clocks = Clocks(),  # noqa: B008  (frozen)
    local: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Time each body against the others, at each point.

    Args:
        bodies: name -> code. A lone statement is one entry, whatever its name; the name becomes ``description`` only
            where there are two or more.
        setup: code that runs once a point before, in order, not timed.
        namespace: the caller's names. They are copied; nothing is written there.
        implied: names that are there besides, where the caller has none of that name.
        plan: thread counts, run times, labels.
        points: of a sweep or a fuzzer; none is a single run without axes.
        counting: count instructions too, after each point's timings; what cannot be counted is a warning.
        keep: given the comparison of each point as soon as it is finished.
        skip: given (task, point), the stored comparison of a point that need not be run again, or None.
        failed: given what was measured until then, marked partial, before an exception of the code propagates.
        flags, transform_ast: how the caller's shell compiles its cells.
        progress: told between rounds what is under way.
        clocks: wall and CPU clock in integer nanoseconds.
        local: names of the function that calls, which stand before those of ``namespace``; not written to either.

    Returns:
        The comparison, one measurement per point, thread count and body.

    Raises:
        OptionError: a plan that does not fit the bodies.
        SyntaxError, BodyError: code that cannot be compiled or timed.
        CheckFailed: with ``plan.check``, alternatives that return different values.
        Interrupted: on Ctrl-C; ``.partial`` holds what was measured.
        Exception: whatever setup or a body raises, untouched.
    """
    check_names(bodies, plan)
    task = Task(bodies, setup, namespace, implied or {}, plan, flags, transform_ast, progress, clocks, local)
    collected = Collected(task, points, counting, keep, skip, failed)
    with preserved_state():
        for run in collected.runs():
            with collected.taking(run):
                run.set_up()
                drive(run.steps(), clocks, run.synchronize)
        return collected.joined()


async def compare_bodies_async(
    bodies: Mapping[str, Body],
    *,
    setup: Sequence[Body] = (),
    namespace: Mapping[str, Any],
    implied: Mapping[str, Any] | None = None,
    plan: Plan = Plan(),  # noqa: B008  (frozen)
    points: Sequence[Point] = (),
    counting: Counting | None = None,
    keep: Keep | None = None,
    skip: Skip | None = None,
    failed: Keep | None = None,
    flags: int = 0,
    transform_ast: Transform | None = None,
    progress: Progress = NO_PROGRESS,
    clocks: Clocks = Clocks(),  # noqa: B008  (frozen)
    local: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """As `compare_bodies`, for code that awaits at its own level, inside a running event loop."""
    check_names(bodies, plan)
    task = Task(bodies, setup, namespace, implied or {}, plan, flags, transform_ast, progress, clocks, local)
    collected = Collected(task, points, counting, keep, skip, failed)
    with preserved_state():
        for run in collected.runs():
            with collected.taking(run):
                await run.set_up_async()
                await drive_async(run.steps(), clocks, run.synchronize)
        return collected.joined()


class Collected:
    """The comparisons of the points that are finished."""

    def __init__(
        self,
        task: Task,
        points: Sequence[Point],
        counting: Counting | None,
        keep: Keep | None,
        skip: Skip | None,
        failed: Keep | None,
        make: Callable[[Task, Point | None, tuple[int, int]], Run] = Run,
    ) -> None:
        self._make = make
        self._task, self._points, self._counting = task, points, counting
        self._keep, self._skip, self._failed = keep, skip, failed
        self._parts: list[Comparison] = []

    def runs(self) -> Iterator[Run]:
        """A run for each point that is not there yet."""
        points: Sequence[Point | None] = self._points or (None,)
        for index, point in enumerate(points):
            found = self._skip(self._task, point) if self._skip is not None else None
            if found is None:
                run = self._make(self._task, point, (index, len(points)))
                yield run
                run.leave()
            else:
                self._parts.append(found)

    @contextmanager
    def taking(self, run: Run) -> Iterator[None]:
        """Take the run's result when it ends; on Ctrl-C hand over what there is."""
        try:
            yield
        except KeyboardInterrupt:
            partial = self._until_now(run, "interrupted")
            raise Interrupted(partial, "" if partial is not None else run.progress.unsampled()) from None
        except Exception as error:
            if run.repeats:
                error.add_note(_NOT_THE_FIRST)
            why = f"the code raised {type(error).__name__}"
            if self._failed is not None and (partial := self._until_now(run, why)) is not None:
                self._failed(partial)
            raise
        self._parts.append(run.result())
        try:
            if self._counting is not None:
                self._count(run, self._counting)
        finally:  # the timings too of a point whose counting was interrupted
            if self._keep is not None:
                self._keep(self._parts[-1])

    def _count(self, run: Run, counting: Counting) -> None:
        """Add the counts of a point that is timed; on Ctrl-C hand over its timings."""
        from torchbench_magic.core.timing.counted_alternatives import counted

        try:
            self._parts[-1] = counted(self._parts[-1], run, counting)
        except KeyboardInterrupt:
            raise Interrupted(replace(self.joined(), partial=True)) from None

    def _until_now(self, run: Run, why: str) -> Comparison | None:
        """The finished points and what there is of this one, marked partial; None when nothing was sampled."""
        unfinished = run.interrupted()
        if unfinished is not None:
            self._parts.append(unfinished)
        if not self._parts:
            return None
        whole, count = self.joined(), len(self._points)
        where = f" at point {run.place[0] + 1} of {count}" if count else ""
        text = f"Partial: {why} after {whole.elapsed:.2g} s{where}. What was measured until then is kept."
        said = Doubt("partial", text, "", {"elapsed": whole.elapsed})
        return replace(whole, partial=True, warnings=[said, *whole.warnings])

    def joined(self) -> Comparison:
        """All points as one, with the doubts that the numbers raise."""
        whole = join(self._parts)
        found = doubts_of(whole)
        used_up = {doubt.facts["name"] for doubt in found if doubt.kind == KIND}
        told = [doubt for doubt in whole.warnings if doubt.kind != "grows" or doubt.facts["name"] not in used_up]
        return replace(whole, warnings=[*told, *found])


def compare(
    stmts: Mapping[str, str | Callable[[], object]],
    *,
    setup: str = "",
    globals: Mapping[str, Any] | None = None,  # noqa: A002  (torch's name for it)
    threads: int | Sequence[int] | None = None,
    min_run_time: float = 0.2,
    max_run_time: float | None = None,
    baseline: str | None = None,
    label: str | None = None,
    sub_label: str | None = None,
    env: str | None = None,
    seed: int | None = None,
    gc: bool = False,
    progress: Progress = NO_PROGRESS,
) -> Comparison:
    """Compare statements or calls from a script. ::

        compare({"mul_sum": "f(x, x)", "bmm": "g(x, x)"}, globals=globals())
        compare({"mul_sum": lambda: f(x, x), "bmm": lambda: g(x, x)})

    A callable is timed as the statement ``fn()``, so its time holds what calling it costs (20 to 50 ns for a function
    of Python); between callables of one kind that cost is the same. For less, give text.

    Args:
        stmts: name -> statement (several lines are fine), or a callable without arguments; both kinds may be mixed.
        setup: code that runs once before.
        globals: names the statements use; ``torch`` is there in any case.
        threads: torch thread counts to visit; None is the current one.
        min_run_time, max_run_time: seconds, per statement and thread count; see `Plan`.
        baseline: the name that the others are compared to; None is the first.
        label, sub_label, env: as in ``torch.utils.benchmark.Timer``.
        seed: of the order of blocks.
        gc: leave the garbage collector on in timed code.
        progress: told what is under way.

    Raises:
        OptionError, BodyError: what cannot be run as asked; a callable that needs arguments, a generator function or a
            coroutine function (``lambda: list(f())``, ``lambda: asyncio.run(f())``); a name that a statement uses and
            nobody gave.
        Exception: whatever a statement or callable raises, without the frames between `compare` and it.
    """
    __tracebackhide__ = True
    import torch

    lone = next(iter(stmts), None) if len(stmts) == 1 and not isinstance(next(iter(stmts.values())), str) else None
    plan = Plan(
        threads=(threads,) if isinstance(threads, int) else None if threads is None else tuple(threads),
        min_run_time=min_run_time,
        max_run_time=max_run_time,
        baseline=baseline,
        label=label,
        sub_label=sub_label,
        description=lone,
        env=env,
        seed=seed,
        gc=gc,
    )
    called = Called.of(stmts, globals, setup)
    bodies = {name: Body(text, f"<{name}>") for name, text in called.texts.items()}
    try:
        with called.names_explained(bodies, setup):
            made = compare_bodies(
                bodies,
                setup=[Body(setup, "<setup>")] if setup.strip() else [],
                namespace=called.namespace,
                implied={"torch": torch, **called.bound},
                plan=plan,
                progress=progress,
            )
    except BaseException as error:  # Ctrl-C too
        texts = {"<setup>": setup} | {body.file: body.source for body in bodies.values()}
        calls = {bodies[name].file for name, stmt in stmts.items() if not isinstance(stmt, str)}
        error.__traceback__ = users_traceback(error, texts, calls)  # what is raised again gets no entry for this frame
        raise
    return replace(made, environment=replace(made.environment, commit=read_commit()))  # a script may well store it


def check_names(bodies: Mapping[str, Body], plan: Plan) -> None:
    """Refuse a plan that names alternatives which are not there (OptionError), or no alternatives (BodyError)."""
    if not bodies:
        raise BodyError("nothing to time: give at least one statement")
    if len(bodies) > 1 and plan.description is not None:
        raise OptionError("--description names a lone statement; here the section names do: leave it out")
    if plan.baseline is not None and plan.baseline not in bodies:
        raise OptionError(f"--baseline: no alternative is called {plan.baseline!r}; there are: {', '.join(bodies)}")
