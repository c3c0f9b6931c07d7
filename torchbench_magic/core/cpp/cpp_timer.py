"""Timing the alternatives of a C++ cell, by the engine that times Python: `compare_snippets`.

The setup runs once, in the scope that torch's template gives it, and stays alive while all blocks are run: each
snippet hands its loop over from within its setup, one inside another, and the measurement runs innermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from typing import Any

from torchbench_magic.core.code.coroutines import completed
from torchbench_magic.core.code.values_read import Values
from torchbench_magic.core.counting.client import starting_meanwhile
from torchbench_magic.core.counting.count import LibraryJob
from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.core.machine.clocks import Clocks
from torchbench_magic.core.process.run_settings import set_threads
from torchbench_magic.core.timing.device import choose_device
from torchbench_magic.core.timing.point_run import Run
from torchbench_magic.core.timing.stepping import Ended, driven
from torchbench_magic.core.timing.task import Task
from torchbench_magic.core.timing.timer import Collected, check_names
from torchbench_magic.errors import OptionError
from torchbench_magic.results.cell import Body
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.subject import NEAR_LOOP, Subject

from .muted_output import Silence
from .snippet import OpenLoop, Snippet, compile_snippets
from .source import Snip

__all__ = ["SnippetBlock", "SnippetTask", "compare_snippets"]


class SnippetBlock:
    """A loop of a snippet as the engine runs it; see `core.code.timed_loop.Block`.

    There is one replica: another compilation of the same text is the same machine code. Nothing but the clocks is
    taken out of a block: the loop's own cycle a call runs beside the statement. What it prints is shown of the first
    block, a single call.
    """

    replicas = (None,)
    is_async = False
    near_loop = NEAR_LOOP["c++"]

    def __init__(self, loop: OpenLoop, device: int, silence: Silence) -> None:
        self._loop, self._device, self._silence = loop, device, silence
        self._has_run = False
        self.source = loop.snippet.stmt

    def start(self, replica: int, calls: int, clocks: Clocks, sync: Callable[[], object]) -> tuple[int, int]:
        if self._device >= 0:
            sync()
        if not self._has_run:
            self._has_run = True
            return self._loop.block(calls, self._device)
        with self._silence:
            return self._loop.block(calls, self._device)

    def start_empty(self, calls: int, clocks: Clocks, sync: Callable[[], object]) -> tuple[int, int]:
        return self._loop.empty(0, self._device)


@dataclass(frozen=True)
class SnippetTask(Task):
    """The task of a C++ cell: its texts are no Python, and it has one point.

    Attributes:
        setup: C++ in whose scope the statements stand; it runs once for each of them.
        global_setup: C++ at the level of the file.
    """

    _: KW_ONLY
    global_setup: Sequence[Body] = ()

    @property
    def setup_text(self) -> str:
        return "\n".join(part.source.strip("\n") for part in self.setup)

    @cached_property
    def functions(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        return dict.fromkeys(self.bodies, ())

    @cached_property
    def given(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        return dict.fromkeys(self.bodies, ())

    @cached_property
    def given_values(self) -> Mapping[str, Values]:
        return dict.fromkeys(self.bodies, ())

    @cached_property
    def sources(self) -> Mapping[str, str]:
        return {}


class _SnippetRun(Run):
    """A run over loops that are open."""

    def __init__(self, snippets: Mapping[str, Snippet], *of: Any) -> None:
        super().__init__(*of)
        self._snippets = snippets
        private = next((s.why_private for s in snippets.values() if s.why_private), "")
        if private:
            text = f"Compiled snippets are kept for this kernel only: {private}."
            self.warnings.append(Doubt("private-cache", text, "Set XDG_CACHE_HOME to a folder that can be written."))

    async def measured(self, *, may_await: bool) -> Ended[None]:
        """Run the setups and, within them, the whole measurement."""
        try:
            set_threads(self.threads[0])
            self._open(list(self._snippets.values()), [])
            return Ended()
        except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
            return Ended(error=error)

    def _open(self, waiting: Sequence[Snippet], loops: Sequence[OpenLoop]) -> None:
        """Open the snippets one in another; the innermost measures."""
        if waiting:
            waiting[0].opened(lambda loop: self._open(waiting[1:], [*loops, loop]))
            return
        self._watch(set(), ())
        with contextlib.closing(Silence()) as silence:
            self.take_blocks([SnippetBlock(loop, self._waited_for(), silence) for loop in loops])
            completed(driven(self.steps(), self.clocks, self.synchronize, may_await=False)).get()

    def _waited_for(self) -> int:
        """Index of the device that the loop itself waits for, inside its clocks; -1 for none."""
        import torch

        if self.plan.device == "cpu" or not torch.accelerator.is_available():
            return -1
        on_device = self.device != "cpu"
        return torch.device(self.device).index if on_device else torch.accelerator.current_device_index()

    def job(self, name: str, threads: int, counting: Counting) -> LibraryJob:
        return LibraryJob(str(self._snippets[name].library), counting.number, threads)

    def _subject(self, name: str, source: str, known: Mapping[str, Any]) -> Subject:
        snippet = self._snippets[name]
        return replace(super()._subject(name, source, known), global_setup=snippet.global_setup, language="c++")


def compare_snippets(task: SnippetTask) -> Comparison:
    """Time each C++ body against the others; as `core.timing.timer.compare_bodies` does for Python.

    The blocks' clocks are C++'s own.

    Raises:
        MissingTool: no compiler; before anything else is done.
        OptionError: what a plan asks that only Python can do.
        SnippetError: what does not compile, throws, or crashes in its first call (which a process of its own makes).
        Interrupted: on Ctrl-C, between two blocks; ``.partial`` holds what was measured.
    """
    import torch

    plan = task.plan
    check_names(task.bodies, plan)
    if plan.check or plan.restore or plan.clock == "device":
        raise OptionError("C++ snippets: check, restore and the device's clock are for Python; leave them out")
    choose_device(plan.device, set())  # one that is not there is said before anything is compiled
    threads = (plan.threads or (torch.get_num_threads(),))[0]
    snips = {name: Snip(body, task.setup, task.global_setup) for name, body in task.bodies.items()}
    # The process that counts starts beside the compiler, not after it: the first count of a kernel waits for both.
    meanwhile = contextlib.nullcontext if task.counting is None else partial(starting_meanwhile, task.progress)
    snippets = compile_snippets(snips, threads=threads, progress=task.progress, meanwhile=meanwhile)

    def make(*of: Any) -> Run:
        return _SnippetRun(snippets, *of)

    return completed(Collected(task, make).measured(may_await=False)).get()
