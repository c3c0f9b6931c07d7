"""What the progress of a run says: the stage, and how far it is, in seconds of all points."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from torchbench_magic.core.progress import Awaiting, MakingRoom, Watching
from torchbench_magic.units import seconds_text

from .rounds import Rounds
from .timing_task import Task

__all__ = ["RunProgress"]


class RunProgress:
    """Tells the task's progress of one point; its output goes where the notebook's does, not the timed code's.

    Args:
        task: what is asked.
        place: (index of the point, number of points).
        threads: the thread counts of the point.
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
