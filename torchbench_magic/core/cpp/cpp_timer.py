"""Timing the alternatives of a C++ cell, by the engine that times Python: `compare_snippets`.

The setup runs once, in the scope that torch's template gives it, and stays alive while all blocks are run: each
snippet hands its loop over from within its setup, one inside another, and the measurement runs innermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torchbench_magic.core.counting.client import starting_meanwhile
from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.core.machine.clocks import Clocks
from torchbench_magic.core.process.run_settings import preserved_state, set_threads
from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.core.timing.device import choose_device
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.point_run import Run
from torchbench_magic.core.timing.stepping import drive
from torchbench_magic.core.timing.task import Task
from torchbench_magic.core.timing.timer import Collected, Keep, check_names
from torchbench_magic.results.cell import Body
from torchbench_magic.results.timing.comparison import Comparison

from .muted_output import Silence
from .snippet import OpenLoop, Snippet, compile_snippets
from .snippet_bodies import SnippetBodies, refuse_what_is_for_python
from .source import Snip

__all__ = ["compare_snippets"]


def compare_snippets(
    bodies: Mapping[str, Body],
    *,
    setup: Sequence[Body] = (),
    global_setup: Sequence[Body] = (),
    plan: Plan = Plan(),  # noqa: B008  (frozen)
    counting: Counting | None = None,
    keep: Keep | None = None,
    failed: Keep | None = None,
    progress: Progress = NO_PROGRESS,
    clocks: Clocks = Clocks(),  # noqa: B008  (frozen)
) -> Comparison:
    """Time each C++ body against the others; as `core.timing.timer.compare_bodies` does for Python.

    Args:
        bodies: name -> statement.
        setup: C++ in whose scope the statements stand; it runs once for each of them.
        global_setup: C++ at the level of the file.
        plan, counting, keep, failed, progress, clocks: as for Python. The blocks' clocks are C++'s own.

    Raises:
        MissingTool: no compiler; before anything else is done.
        OptionError: what a plan asks that only Python can do.
        SnippetError: what does not compile, throws, or crashes in its first call (which a process of its own makes).
        Interrupted: on Ctrl-C, between two blocks; ``.partial`` holds what was measured.
    """
    import torch

    check_names(bodies, plan)
    refuse_what_is_for_python(plan)
    choose_device(plan.device, set())  # one that is not there is said before anything is compiled
    threads = (plan.threads or (torch.get_num_threads(),))[0]
    snips = {name: Snip(body, setup, global_setup) for name, body in bodies.items()}
    # The process that counts starts beside the compiler, not after it: the first count of a kernel waits for both.
    meanwhile = contextlib.nullcontext if counting is None else partial(starting_meanwhile, progress)
    snippets = compile_snippets(snips, threads=threads, progress=progress, meanwhile=meanwhile)
    task = Task(bodies, setup, {}, {}, plan, 0, None, progress, clocks)
    with preserved_state(), contextlib.closing(Silence()) as silence:
        code = SnippetBodies(task, snippets, silence)
        collected = Collected(task, (), counting, keep, None, failed, lambda *_: code)
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


def _measure(run: Run, code: SnippetBodies, loops: Sequence[OpenLoop]) -> None:
    code.hold(loops)
    run.set_up()
    drive(run.steps(), run.clocks, run.synchronize)
