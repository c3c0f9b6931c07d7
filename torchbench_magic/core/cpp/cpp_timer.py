"""Timing the alternatives of a C++ cell, by the engine that times Python: `compare_snippets`.

The setup runs once, in the scope that torch's template gives it, and stays alive while all blocks are run: each
snippet hands its loop over from within its setup, one inside another, and the measurement runs innermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from torchbench_magic.core.code.coroutines import completed
from torchbench_magic.core.counting.client import starting_meanwhile
from torchbench_magic.core.process.heard_progress import HeardProgress
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.core.process.run_settings import measured_alone, preserved_state, set_threads
from torchbench_magic.core.timing.device import choose_device
from torchbench_magic.core.timing.point_run import PointRun
from torchbench_magic.core.timing.timer import Collected, check_alternatives
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.timing.comparison import Comparison

from .muted_output import Silence
from .snippet import OpenLoop, Snippet, compile_snippets
from .snippet_bodies import SnippetBodies, refuse_what_is_for_python
from .source import Snip

__all__ = ["SnippetTask", "compare_snippets"]


@dataclass(frozen=True)
class SnippetTask(Task):
    """What is asked of a C++ cell: its texts are no Python, and it has one point.

    Attributes:
        setup: C++ in whose scope the statements stand; it runs once for each of them.
        global_setup: C++ at the level of the file.
    """

    _: KW_ONLY
    global_setup: Sequence[Body] = ()


def compare_snippets(task: SnippetTask) -> Comparison:
    """Time each C++ body against the others; as `core.timing.timer.compare_bodies` does for Python.

    The blocks' clocks are C++'s own.

    Raises:
        MissingTool: no compiler; before anything else is done.
        OptionError: what a plan asks that only Python can do.
        SnippetError: what does not compile, throws, or crashes in its first call (which a process of its own makes).
        Interrupted: on Ctrl-C, between two blocks; ``.partial`` holds what was measured.
    """
    with interrupts_held():
        return _compared(task)


def _compared(task: SnippetTask) -> Comparison:
    import torch

    plan = task.plan
    check_alternatives(task.bodies, plan)
    refuse_what_is_for_python(plan)
    choose_device(plan.device, set())  # one that is not there is said before anything is compiled
    threads = (plan.threads or (torch.get_num_threads(),))[0]
    snips = {name: Snip(body, task.setup, task.global_setup) for name, body in task.bodies.items()}
    # The process that counts starts beside the compiler, not after it: the first count of a kernel waits for both.
    counted, heard = task.counting is not None, HeardProgress(task.progress)
    meanwhile = partial(starting_meanwhile, heard) if counted else contextlib.nullcontext
    snippets = compile_snippets(snips, threads=threads, progress=task.progress, meanwhile=meanwhile)
    with measured_alone(), preserved_state(), contextlib.closing(Silence()) as silence:
        code = SnippetBodies(task, snippets, silence)
        collected = Collected(task, lambda *_: code)
        for run in collected.runs():
            with collected.taking(run):
                set_threads(run.threads[0])
                _opened(list(snippets.values()), partial(_measure, run, code))
        return collected.joined()


def _opened(snippets: Sequence[Snippet], then: Callable[[Sequence[OpenLoop]], None]) -> None:
    """Run the setups, one within another, and then ``then`` with the loops, in the innermost."""

    def rest(loops: Sequence[OpenLoop]) -> None:
        if len(loops) == len(snippets):
            then(loops)
        else:
            snippets[len(loops)].opened(lambda loop: rest([*loops, loop]))

    rest([])


def _measure(run: PointRun, code: SnippetBodies, loops: Sequence[OpenLoop]) -> None:
    code.hold(loops)
    completed(run.measured(may_await=False)).get()
