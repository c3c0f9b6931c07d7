"""Counts beside timings: every alternative of a point, after it was timed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from torchbench_magic.errors import BodyError, CountError, MissingTool
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.counting.call_graph import CallGraph
from torchbench_magic.results.counting.counts import Counted, CountKey, Counts, stats_of
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.subject import Subject

from ..counting.callgrind_file import Costs
from ..counting.client import CodeFailed, NotStarted, the_server
from ..counting.count import count_instructions
from ..counting.count_options import Counting

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats

    from torchbench_magic.core.timing.point_run import PointRun

__all__ = ["with_counts"]

_SHIFTED = 2
"""Shifted heap layouts that a difference is tried in: each is one more count, about 0.3 s."""
_SLOWDOWN = 400  # valgrind's, generously: after so long there is something wrong
_PATIENCE = 120.0


def with_counts(timed: Comparison, run: PointRun, counting: Counting) -> Comparison:
    """The comparison with the counts of its alternatives; what could not be counted is among its warnings."""
    task, began = run.task, time.monotonic()
    found: dict[CountKey, Counted] = {}
    said: list[Doubt] = []
    medians = timed.frame["median"]
    layouts = 1 + (_SHIFTED if len(task.bodies) > 1 else 0)
    for threads in task.plan.threads or (1,):
        for row, (name, body) in enumerate(task.bodies.items()):
            subject = timed.subjects[row]
            job = run.code.job(name, threads, counting)
            timeout = _PATIENCE + _SLOWDOWN * counting.number * float(medians.iloc[row])
            try:
                costs = count_instructions(job, the_server(), layouts=layouts, timeout=timeout, progress=task.progress)
            except (MissingTool, NotStarted) as error:
                missing = Doubt("not-counted", f"Instructions were not counted: {error}.")
                return replace(timed, warnings=[*timed.warnings, missing])
            except (BodyError, CountError) as error:
                said.append(_told(name, body, error))
                continue
            stats = [_stats(subject, threads, counting.number, pair) for pair in costs]
            statement, empty = costs[0]
            calls = CallGraph(statement.calls, empty.calls, counting.number)
            found[subject.description, subject.sub_label, threads] = Counted(stats[0], tuple(stats[1:]), calls)
    counts = Counts(found, counting.form, time.monotonic() - began)
    return replace(timed, counts=counts, warnings=[*timed.warnings, *said])


def _told(name: str, body: Body, error: BodyError | CountError) -> Doubt:
    """Which alternative was not counted, and why; an exception of its code with the line of the cell."""
    why = str(error)
    if isinstance(error, CodeFailed):
        lines = [line for file, line in error.frames if file == body.file]
        place = "" if not lines else f" at line {lines[-1]}"
        if lines and body.cell is not None:
            place = f" at In[{body.cell}]:{lines[-1]}"
        stage = "when its variables were brought over" if error.stage == "load" else "in the process that counts"
        why = f"it raised {error}{place}, {stage}"
    return Doubt("not-counted", f"`{name}` was not counted: {why}.", "", {"name": name})


def _stats(subject: Subject, threads: int, number: int, pair: tuple[Costs, Costs]) -> CallgrindStats:
    statement, empty = ({"inclusive": costs.inclusive, "exclusive": costs.exclusive} for costs in pair)
    return stats_of(statement, empty, number, **subject.torch_fields | {"num_threads": threads})
