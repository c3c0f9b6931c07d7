"""Counts beside timings: every alternative of a point, after it was timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchbench_magic.cell_body import Body
from torchbench_magic.counting.callgrind_file import Costs
from torchbench_magic.counting.client import CodeFailed, NotStarted, the_server
from torchbench_magic.counting.count import count_instructions
from torchbench_magic.counting.counts import CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.errors import BodyError, CountError, MissingTool
from torchbench_magic.process.interrupts import HeardProgress
from torchbench_magic.result_base import Doubt

from .comparison import Comparison
from .plan import Counting
from .samples import Subject

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats

    from .point_run import PointRun

_SHIFTED = 2
"""Shifted heap layouts that a difference is tried in: each is one more count, about 0.3 s."""
_SLOWDOWN = 400  # valgrind's, generously: after so long there is something wrong
_PATIENCE = 120.0


def with_counts(timed: Comparison, run: PointRun, counting: Counting) -> tuple[Comparison, bool]:
    """The comparison with the counts of its alternatives; what could not be counted is among its warnings.

    Returns:
        it, and whether a Ctrl-C has ended the counting: then the counts are those until then.
    """
    task, began = run.task, time.monotonic()
    found: dict[CountKey, Counted] = {}
    said: list[Doubt] = []
    layouts = 1 + (_SHIFTED if len(task.bodies) > 1 else 0)
    jobs = [(threads, row, name) for threads in task.plan.threads or (1,) for row, name in enumerate(task.bodies)]
    uncounted: list[str] = []
    for at, (threads, row, name) in enumerate(jobs):
        subject = timed.subjects[row]
        timeout = _PATIENCE + _SLOWDOWN * counting.number * float(timed.frame["median"].iloc[row])
        try:
            job = run.code.job(name, threads, counting)
            progress = HeardProgress(task.progress)
            costs = count_instructions(job, the_server(), layouts=layouts, timeout=timeout, progress=progress)
        except (MissingTool, NotStarted) as error:
            missing = Doubt("not-counted", f"Instructions were not counted: {error}.")
            return replace(timed, warnings=[*timed.warnings, missing]), False
        except (BodyError, CountError) as error:
            said.append(_told(name, task.bodies[name], error))
            continue
        except KeyboardInterrupt:
            uncounted = list(dict.fromkeys(name for _, _, name in jobs[at:]))
            said.append(_stopped(uncounted, is_lone=len(task.bodies) == 1))
            break
        stats = [_stats(subject, threads, counting.number, pair) for pair in costs]
        statement, empty = costs[0]
        calls = CallGraph(statement.calls, empty.calls, counting.number)
        found[subject.description, subject.sub_label, threads] = Counted(stats[0], tuple(stats[1:]), calls)
    counts = Counts(found, counting.form, time.monotonic() - began)
    return replace(timed, counts=counts, warnings=[*timed.warnings, *said]), bool(uncounted)


def _stopped(names: Sequence[str], *, is_lone: bool) -> Doubt:
    """What a Ctrl-C left uncounted."""
    which = "" if is_lone else f" of {' and '.join(f'`{name}`' for name in names)}"
    text = f"Interrupted while counting instructions: times are complete, the count{which} is missing."
    return Doubt("not-counted", text, "", {"names": list(names)})


def _told(name: str, body: Body, error: BodyError | CountError) -> Doubt:
    """Which alternative was not counted, and why; an exception of its code with the line of the cell."""
    why = str(error)
    if isinstance(error, CodeFailed):
        lines = [line for file, line in error.frames if file == body.file]
        place = "" if not lines else f" at line {lines[-1]}"
        if lines and body.cell is not None:
            place = f" at In[{body.cell}]:{lines[-1]}"
        stage = "while its variables were being sent" if error.stage == "load" else "in the counting process"
        why = f"it raised {error}{place}, {stage}"
    return Doubt("not-counted", f"`{name}` was not counted: {why}.", "", {"name": name})


def _stats(subject: Subject, threads: int, number: int, pair: tuple[Costs, Costs]) -> CallgrindStats:
    statement, empty = ({"inclusive": costs.inclusive, "exclusive": costs.exclusive} for costs in pair)
    return stats_of(statement, empty, number, **subject.torch_fields | {"num_threads": threads})
