"""Timing the alternatives of a cell: `compare_bodies`.

The way of a run: setup in a copy of the namespace -> each text compiled as a timed loop -> at each thread count the
first call and the warm-up -> rounds of adjacent blocks -> a `Comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, InputError, Interrupted, OptionError
from torchbench_magic.process.code import completed
from torchbench_magic.process.interrupts import interrupts_held
from torchbench_magic.process.settings import ProcessState, measured_alone, preserved_state
from torchbench_magic.result_base import Doubt

from .across_runs import join_comparisons
from .blocks import Ended
from .comparison import Comparison
from .plan import Counting, Plan
from .point_run import PointRun, TimedCode
from .python_bodies import PythonBodies
from .sweep import Point
from .task import Task
from .warnings import doubts_of


def compare_bodies(task: Task) -> Comparison:
    """Time each body against the others, at each point and thread count.

    Raises:
        OptionError: a plan that does not fit the bodies.
        SyntaxError, BodyError: code that cannot be compiled or timed.
        Busy: another thread is measuring.
        CheckFailed: with ``plan.check``, alternatives that return different values.
        Interrupted: on Ctrl-C; ``.partial`` holds what was measured.
        Exception: whatever setup or a body raises, as it is; one of a later call with a word on why.
    """
    return completed(Collected(task).measured(may_await=False)).get()


async def compare_bodies_async(task: Task) -> Comparison:
    """As `compare_bodies`, for code that awaits at its own level, inside a running event loop."""
    return (await Collected(task).measured(may_await=True)).get()


class Collected:
    """The comparisons of the points that are finished.

    Args:
        code_of: what is timed at a point.
    """

    def __init__(self, task: Task, code_of: Callable[[Task, Point | None], TimedCode] = PythonBodies) -> None:
        check_alternatives(task.bodies, task.plan)
        self._task, self._code_of = task, code_of
        self._parts: list[Comparison] = []

    async def measured(self, *, may_await: bool) -> Ended[Comparison]:
        """Run every point, with or without an event loop; all of them as one."""
        try:
            with interrupts_held(), measured_alone(), preserved_state():
                for run in self.runs():
                    with self.taking(run):
                        (await run.measured(may_await=may_await)).get()
                return Ended(self.joined())
        except Interrupted as error:
            return Ended(error=error)
        except KeyboardInterrupt as error:  # while a point was made, or looked for in the store
            partial = self._partial("interrupted", len(self._parts) + 1) if self._parts else None
            return Ended(error=error if partial is None else Interrupted(partial))
        except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
            return Ended(error=error)

    def runs(self) -> Iterator[PointRun]:
        """A run for each point that is not there yet."""
        points: Sequence[Point | None] = self._task.points or (None,)
        for index, point in enumerate(points):
            found = self._task.skip(self._task, point) if self._task.skip is not None else None
            if found is None:
                notebook = ProcessState()  # before a point makes its tensors, which may run the user's code
                run = PointRun(self._code_of(self._task, point), (index, len(points)), notebook)
                yield run
                run.leave()
            else:
                self._parts.append(found)

    @contextmanager
    def taking(self, run: PointRun) -> Iterator[None]:
        """Take the run's result when it ends; on Ctrl-C hand over what there is."""
        try:
            yield
        except KeyboardInterrupt:
            partial = self._until_now(run, "interrupted")
            raise Interrupted(partial, "" if partial is not None else run.progress.unsampled()) from None
        except Exception as error:
            if not isinstance(error, InputError):  # which says itself what is wrong
                _explain(error, run.why_it_failed(error))
            why = f"the code raised {type(error).__name__}"
            if self._task.failed is not None and (partial := self._until_now(run, why)) is not None:
                self._task.failed(partial)
            raise
        self._parts.append(run.result())
        stopped = False
        try:
            if self._task.counting is not None:
                stopped = self._count(run, self._task.counting)
        finally:  # the timings too of a point whose counting failed
            stopped |= not self._kept()
        if stopped:
            raise Interrupted(self._of_whole_points(run)) from None

    def _count(self, run: PointRun, counting: Counting) -> bool:
        """Add the counts of a point that is timed; whether a Ctrl-C has ended that."""
        from .counted_alternatives import with_counts

        self._parts[-1], is_interrupted = with_counts(self._parts[-1], run, counting)
        return is_interrupted

    def _kept(self) -> bool:
        """Hand the last point over to be stored; False where a Ctrl-C has ended the wait for the store."""
        try:
            if self._task.keep is not None:
                self._task.keep(self._parts[-1])
        except KeyboardInterrupt:
            return False
        return True

    def _of_whole_points(self, run: PointRun) -> Comparison:
        """All that was asked for, where ``run`` is of the last point; else the points until then, marked partial."""
        return self.joined() if run.place[0] + 1 == run.place[1] else self._partial("interrupted", run.place[0] + 1)

    def _until_now(self, run: PointRun, why: str) -> Comparison | None:
        """The finished points and what there is of this one, marked partial; None when nothing was sampled."""
        unfinished = run.interrupted()
        if unfinished is not None:
            self._parts.append(unfinished)
        return self._partial(why, run.place[0] + 1) if self._parts else None

    def _partial(self, why: str, point: int) -> Comparison:
        """What there is, with the word that it is not all; ``point``: the number of the one that was under way."""
        whole, count = self.joined(), len(self._task.points)
        where = f" at point {point} of {count}" if count else ""
        text = f"Partial: {why} after {whole.elapsed:.2g} s{where}. What was measured is kept."
        said = Doubt("partial", text, "", {"elapsed": whole.elapsed})
        return replace(whole, partial=True, warnings=[said, *whole.warnings])

    def joined(self) -> Comparison:
        """All points as one, with the doubts that the numbers raise."""
        whole = join_comparisons(self._parts)
        found = doubts_of(whole)
        return replace(whole, warnings=[*whole.warnings, *found])


def _explain(error: Exception, why: str) -> None:
    """Under the exception; as its text, where it has none, as a StopIteration has."""
    if why and not error.args and type(error).__str__ is BaseException.__str__:
        error.args = (why,)
    elif why:
        error.add_note(why)


def check_alternatives(bodies: Mapping[str, Body], plan: Plan) -> None:
    """Refuse a plan that names alternatives which are not there (OptionError), or no alternatives (BodyError)."""
    if not bodies:
        raise BodyError("nothing to time: give at least one statement")
    if len(bodies) > 1 and plan.description is not None:
        raise OptionError("--description names a single statement; sections have names already: leave it out")
    if plan.baseline is not None and plan.baseline not in bodies:
        raise OptionError(f"--baseline: no alternative is called {plan.baseline!r}; known: {', '.join(bodies)}")
