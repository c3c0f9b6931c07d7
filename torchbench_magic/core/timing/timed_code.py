"""What a run is handed to time: the code of one point's alternatives, in whatever language.

There are two: `python_bodies.PythonBodies`, statements over a copy of the notebook's names, and
`core.cpp.snippet_bodies.SnippetBodies`, the open loops of compiled snippets. The run (`point_run.PointRun`) knows
neither: it has blocks made, calls them in its order, and asks back what only the code's language can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.subject import Subject

from ..code.timed_loop import Timeable
from .block_requests import Ended
from .effects.watched_objects import WatchedObjects
from .points.sweep import Point
from .timing_task import Task

if TYPE_CHECKING:
    from torchbench_magic.core.counting.count import Job, LibraryJob

__all__ = ["TimedBlocks", "LeftBySetup", "TimedCode"]


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
    """

    blocks: Sequence[Timeable]
    watched: WatchedObjects
    doubts: Sequence[Doubt] = ()


class TimedCode(Protocol):
    """The code of one point's alternatives. A run asks in this order: ``set_up``, ``compile``, ``check`` where the plan
    has it, ``subject`` of each alternative and thread count, ``leave``, ``facts``; ``job`` once the run is over.

    Attributes:
        task: what is asked.
        point: of the sweep; None where there is none.
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
