"""The rows of a timing on engines: each says which engine it is of."""

from __future__ import annotations

from dataclasses import replace

from torchbench_magic.core.timing.points.sweep import Point
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.results.machine.engine_place import EnginePlace
from torchbench_magic.results.machine.engines import Engine
from torchbench_magic.results.machine.environment import Environment
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.identity import identifying_options
from torchbench_magic.results.timing.subject import Subject

__all__ = ["EngineRows"]


class EngineRows:
    """Rows of one task.

    Args:
        threads: torch's thread count where the plan names none.
    """

    def __init__(self, task: Task, threads: int) -> None:
        self._task, self._threads = task, threads
        self._shares = len(task.points) > 0

    def env(self, engine: Engine) -> str | None:
        """Where all engines measure the same, each is an environment; a point of a sweep is of the one asked for."""
        given = self._task.plan.env
        if self._shares:
            return given
        name = EnginePlace(engine.id, engine.host).name
        return name if given is None else f"{given}, {name}"

    def measured(self, part: Comparison, engine: Engine, family: int) -> Comparison:
        """A result with the engine in its rows, and with functions and options as this process knows them.

        Args:
            family: comparisons that share an error rate.
        """
        task, place = self._task, EnginePlace(engine.id, engine.host, part.environment)
        bodies = [*task.bodies]  # each thread count has their order
        subjects = tuple(
            replace(subject, place=place, functions=task.functions[bodies[at % len(bodies)]])
            for at, subject in enumerate(part.subjects)
        )
        options = identifying_options(task.plan)
        return replace(part, subjects=subjects, sources=task.sources, options=options, family=family)

    def missing(
        self, point: Point | None, engine: Engine | None, environment: Environment | None, why: str
    ) -> Subject:
        """One row for all alternatives that were not measured.

        Args:
            engine: that should have; None: nobody was left.
            environment: of it, where it is known.
        """
        task = self._task
        place = EnginePlace(-1, why_not=why)
        if engine is not None:
            place = EnginePlace(engine.id, engine.host, environment, why)
            task = replace(task, plan=replace(task.plan, env=self.env(engine)))
        is_lone = len(task.bodies) == 1
        name = next(iter(task.bodies))
        code = {"stmt": task.bodies[name].source, "setup": task.setup_text} if is_lone else {}
        made = task.subject(point, name, {**code, "place": place})
        threads = (task.plan.threads or (self._threads,))[0]
        return replace(made, num_threads=threads, description=made.description if is_lone else None)
