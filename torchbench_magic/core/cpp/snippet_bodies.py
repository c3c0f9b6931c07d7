"""C++ as it is timed: the loops of compiled snippets, open within their setups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchbench_magic.core.counting.count import LibraryJob
from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.core.machine.clocks import Clocks
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.core.timing.block_requests import Ended
from torchbench_magic.core.timing.device import choose_device
from torchbench_magic.core.timing.effects.watched_objects import WatchedObjects
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.points.sweep import Point
from torchbench_magic.core.timing.timed_code import LeftBySetup, TimedBlocks
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.errors import OptionError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.timing.subject import NEAR_LOOP, Subject

from .muted_output import Silence
from .snippet import OpenLoop, Snippet

__all__ = ["SnippetBlock", "SnippetBodies", "refuse_what_is_for_python"]


def refuse_what_is_for_python(plan: Plan) -> None:
    """Raise OptionError for a plan that only Python's statements can be timed by."""
    if plan.check or plan.restore or plan.clock == "device":
        raise OptionError("C++ snippets: check, restore and the device's clock are for Python; leave them out")


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
        with interrupts_held(), self._silence:
            return self._loop.block(calls, self._device)

    def start_empty(self, calls: int, clocks: Clocks, sync: Callable[[], object]) -> tuple[int, int]:
        return self._loop.empty(0, self._device)


class SnippetBodies:
    """The snippets of a cell; see `core.timing.timed_code.TimedCode`. They read no names, and their setups run apart
    from the run: whoever measures opens the loops, `hold`s them, and runs within.

    Args:
        task: what is asked; its texts are C++.
        snippets: alternative -> what was compiled of it.
        silence: holds back what the code prints.
    """

    point: Point | None = None
    sources: Mapping[str, str] = {}

    def __init__(self, task: Task, snippets: Mapping[str, Snippet], silence: Silence) -> None:
        self.task, self._snippets, self._silence = task, snippets, silence
        self._loops: Sequence[OpenLoop] = ()

    def hold(self, loops: Sequence[OpenLoop]) -> None:
        """Take the open loops, in the order of the alternatives."""
        self._loops = loops

    async def set_up(self, *, may_await: bool) -> Ended[LeftBySetup]:
        return Ended(LeftBySetup())  # it has run: the loops are open

    def compile(self) -> TimedBlocks:
        device = _waited_for(self.task.plan)
        blocks = [SnippetBlock(loop, device, self._silence) for loop in self._loops]
        return TimedBlocks(blocks, WatchedObjects(self.task.plan), list(self._doubts()))

    def check(self, watched: WatchedObjects, put_back: Callable[[], object]) -> list[Doubt]:
        refuse_what_is_for_python(self.task.plan)
        return []

    def subject(self, name: str, source: str, known: Mapping[str, Any]) -> Subject:
        snippet = self._snippets[name]
        of_cpp = {"setup": snippet.setup, "global_setup": snippet.global_setup, "language": "c++"}
        return self.task.subject(self.point, name, {"stmt": source, **of_cpp, **known})

    def leave(self) -> None:
        pass

    def facts(self, name: str) -> Mapping[str, Any]:
        return {"inputs": (), "values": (), "given_values": ()}

    def job(self, name: str, threads: int, counting: Counting) -> LibraryJob:
        return LibraryJob(str(self._snippets[name].library), counting.number, threads)

    def _doubts(self) -> Sequence[Doubt]:
        found = []
        if private := next((s.why_private for s in self._snippets.values() if s.why_private), ""):
            text = f"Compiled snippets are kept for this kernel only: {private}."
            way = "Set XDG_CACHE_HOME to a folder that you, and nobody else, can write to."
            found.append(Doubt("private-cache", text, way))
        for name, why in [(name, snippet.why_anew) for name, snippet in self._snippets.items() if snippet.why_anew]:
            found.append(Doubt("compiled-anew", f"{name} was recompiled: {why}."))
        return found


def _waited_for(plan: Plan) -> int:
    """Index of the device that a loop itself waits for, inside its clocks; -1 for none."""
    import torch

    if plan.device == "cpu" or not torch.accelerator.is_available():
        return -1
    device = choose_device(plan.device, set())
    return torch.accelerator.current_device_index() if device == "cpu" else torch.device(device).index
