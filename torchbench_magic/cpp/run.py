"""A compiled snippet as Python calls and times it: its first call apart, its output muted, `compare_snippets`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from torchbench_magic.cell_body import Body
from torchbench_magic.counting.count import LibraryJob
from torchbench_magic.errors import OptionError, SnippetError
from torchbench_magic.process.code import completed
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.device import choose_device
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress, hear_interrupt, interrupts_held
from torchbench_magic.process.settings import measured_alone, preserved_state, set_threads
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.blocks import Ended
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Counting, Plan
from torchbench_magic.timing.point_run import LeftBySetup, PointRun, TimedBlocks
from torchbench_magic.timing.run import Collected, check_alternatives
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.sweep import Point
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.verdict import NEAR_LOOP
from torchbench_magic.timing.watched_objects import WatchedObjects

from .build import Snip, build

# ---- muted_output ----------------------------------------------------------------------------------------------------
# Where C++ prints to while it is timed: to nowhere. Thousands of calls would flood the notebook.

_STREAMS = (1, 2)  # stdout and stderr, as C++ knows them


class Silence:
    """Leads the process's output to nowhere while entered; may be entered any number of times until closed."""

    def __init__(self) -> None:
        self._nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._kept = [os.dup(stream) for stream in _STREAMS]

    def __enter__(self) -> None:
        for stream in _STREAMS:
            os.dup2(self._nowhere, stream)

    def __exit__(self, *_: object) -> None:
        self._put_back()

    def close(self) -> None:
        """Close what it holds; the streams are as they were, also where a Ctrl-C broke off entering or leaving."""
        with interrupts_held():
            self._put_back()
            for descriptor in (self._nowhere, *self._kept):
                os.close(descriptor)

    def _put_back(self) -> None:
        for stream, kept in zip(_STREAMS, self._kept, strict=True):
            os.dup2(kept, stream)


# ---- first_call ------------------------------------------------------------------------------------------------------
# The first call of a new snippet, in a process of its own.
#
# C++ that crashes takes its process along, and one that never returns cannot be interrupted. So a snippet that was not
# seen to return yet is called once where that does no harm. What it throws there is no matter: it may lack what the
# notebook has loaded, and in the notebook an exception is caught.

_RETURNED = 123
_TICK = 0.05
_CALL = f"""\
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL: it ends with the notebook, however that ends
if os.getppid() != int(sys.argv[3]):
    os._exit(1)
try:
    snippet = ctypes.CDLL(sys.argv[1])
except OSError:
    os._exit({_RETURNED})
snippet.torchbench_set_threads(int(sys.argv[2]))
snippet.torchbench_count(ctypes.c_int64(1), ctypes.c_int64(0), None, ctypes.c_int64(0))
os._exit({_RETURNED})
"""


def try_out(name: str, library: Path, threads: int, progress: Progress = NO_PROGRESS) -> None:
    """Call the snippet once, unless it was seen to return before; Ctrl-C ends the call.

    Raises:
        SnippetError: it crashed, or ended its process.
    """
    seen = library.with_name(f"{library.name}.returned")
    if seen.exists():
        return
    with interrupts_held():
        code = _status_of(name, library, threads, progress)
    if code < 0:
        raise SnippetError(
            f"{name} crashed in its first call ({signal.Signals(-code).name}): it was called in a separate process;"
            " the session is unaffected"
        )
    if code != _RETURNED:
        raise SnippetError(f"{name} ended its process (exit code {code}) in its first call; the session is unaffected")
    with contextlib.suppress(OSError):
        seen.touch(mode=0o600)


def _status_of(name: str, library: Path, threads: int, progress: Progress) -> int:
    """How the process ended that called it."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CALL, str(library), str(threads), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the notebook's
    )
    began = time.monotonic()
    try:
        while (code := process.poll()) is None:
            time.sleep(_TICK)
            hear_interrupt()
            progress.update(time.monotonic() - began, None, f"calling {name} once, in a separate process")
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code


# ---- snippet ---------------------------------------------------------------------------------------------------------
# A compiled snippet as Python calls it: `compile_snippet` makes one, `Snippet.timeit` times it as torch's timer does.
#
# ``compile_snippet("x * y;", "auto x = torch::ones({128}); auto y = torch::ones({128, 1});")``
#
# A snippet without an effect that the compiler can see may be compiled to nothing, as with torch's own C++ timer:
# nothing here keeps it. A call of a function in another library, as every op of torch is, stays.

T = TypeVar("T")

_OK, _RAISED, _LEFT_LOOP = 1, 2, 3  # Status of runtime.h
_TEXT = 4000
_HEARD_NS = 250_000_000  # a block of `timeit`; Python hears Ctrl-C between two of them
_SERVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Snippet:
    """A compiled snippet. Its methods raise `SnippetError` where the code throws, or leaves the loop by ``break``.

    Attributes:
        name: for messages.
        stmt, setup, global_setup: the code.
        library: the compiled file; the counting process loads it too.
    """

    name: str
    stmt: str
    setup: str
    global_setup: str
    library: Path

    def timeit(self, number: int) -> tuple[int, int]:
        """Setup, one untimed call, then ``number`` timed ones at torch's current thread count.

        Ctrl-C is heard after at most about a quarter of a second, or one call where that takes longer.

        Returns:
            (wall, cpu) nanoseconds of all timed calls; nothing is subtracted.
        """

        def timed(loop: OpenLoop) -> tuple[int, int]:
            wall, cpu, left = 0, 0, number
            passed, made = loop.block(1)[0], 1
            while left:
                made = min(left, max(1, _HEARD_NS * made // max(passed, 1)))
                left -= made
                passed, used = loop.block(made)
                wall, cpu = wall + passed, cpu + used
            return wall, cpu

        return self.opened(timed)

    def opened(self, then: Callable[[OpenLoop], T]) -> T:
        """Run the setup, call ``then`` with the loop, leave the setup's scope and return what ``then`` returned.

        The loop can be run any number of times within ``then``, on one setup. Several snippets are opened one in
        another. What ``then`` raises comes out of here.
        """
        ended: list[T] = []
        raised: list[BaseException] = []

        def serve(loop: int, closure: int | None, _context: int | None) -> None:
            try:
                ended.append(then(OpenLoop(self, loop, closure)))
            except BaseException as error:  # noqa: BLE001  (it goes on below the C++ frames)
                raised.append(error)

        text = ctypes.create_string_buffer(_TEXT)
        status = self._functions.torchbench_open(_SERVE(serve), None, text, _TEXT)
        if raised:
            raise raised[0]
        if not ended and status == _OK:  # ctypes swallowed it on the way in or out: only Ctrl-C comes there
            raise KeyboardInterrupt
        self._check(status, text)
        return ended[0]

    def _check(self, status: int, text: Any) -> None:
        if status == _OK:
            return
        if status == _RAISED:
            said = text.value.decode(errors="replace").strip().splitlines()
            raise SnippetError(f"{self.name} throws {said[0] if said else 'an exception'}")
        if status == _LEFT_LOOP:
            raise SnippetError(f"{self.name} leaves the timed loop: this `break` is not inside its own loop or switch")
        raise SnippetError(f"{self.name} was not run (status {status})")

    @cached_property
    def _functions(self) -> Any:
        try:
            library = ctypes.CDLL(str(self.library))  # lets go of the GIL during calls, as torch's template does
        except OSError as error:
            raise SnippetError(f"{self.name} cannot be loaded: {error}") from None
        out, size, text = ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_char_p
        library.torchbench_open.argtypes = [_SERVE, ctypes.c_void_p, text, size]
        library.torchbench_block.argtypes = [ctypes.c_void_p, ctypes.c_void_p, size, ctypes.c_int, out, text, size]
        return library


class OpenLoop:
    """The loop of a snippet whose setup has run; it ends with `Snippet.opened`."""

    def __init__(self, snippet: Snippet, loop: int, closure: int | None) -> None:
        self.snippet, self._loop, self._closure = snippet, loop, closure
        self._run = snippet._functions.torchbench_block
        self._out, self._text = (ctypes.c_int64 * 2)(), ctypes.create_string_buffer(_TEXT)

    def block(self, calls: int, device: int = -1) -> tuple[int, int]:
        """(wall, cpu) nanoseconds of so many calls of the statement."""
        status = self._run(self._loop, self._closure, calls, device, self._out, self._text, _TEXT)
        if status != _OK:
            self.snippet._check(status, self._text)
        return self._out[0], self._out[1]

    def empty(self, calls: int, device: int = -1) -> tuple[int, int]:
        """The same of a loop around nothing, which the compiler was kept from removing."""
        self._run(None, None, calls, device, self._out, self._text, _TEXT)
        return self._out[0], self._out[1]


def compile_snippets(
    snips: Mapping[str, Snip],
    *,
    threads: int = 1,
    progress: Progress = NO_PROGRESS,
) -> dict[str, Snippet]:
    """Compile what the cache does not hold, side by side, and call what is new once in a process of its own.

    Raises:
        MissingTool: no compiler; before anything else is done.
        SnippetError: code that does not compile (with the lines of the cell), or crashes.
    """
    made = {}
    for name, library in build(snips, progress=progress).items():
        try_out(name, library, threads, progress)
        snip = snips[name]
        code = (snip.stmt.source, snip.setup_text, snip.global_setup_text)
        made[name] = Snippet(name, *code, library)
    return made


def compile_snippet(stmt: str, setup: str = "", global_setup: str = "", *, threads: int = 1) -> Snippet:
    """One snippet, from three texts with the meaning they have in torch's ``Timer(language="c++")``.

    Raises:
        MissingTool, SnippetError: as `compile_snippets`.
    """
    name = "the statement"
    return compile_snippets({name: Snip.of(stmt, setup, global_setup)}, threads=threads)[name]


# ---- snippet_bodies --------------------------------------------------------------------------------------------------
# C++ as it is timed: the loops of compiled snippets, open within their setups.


def refuse_what_is_for_python(plan: Plan) -> None:
    """Raise OptionError for a plan that only Python's statements can be timed by."""
    if plan.check or plan.restore or plan.clock == "device":
        raise OptionError("C++ snippets: check, restore and the device's clock are for Python; leave them out")


class SnippetBlock:
    """A loop of a snippet as the engine runs it; see `timing.blocks.Block`.

    There is one replica: another compilation of the same text is the same machine code. Nothing but the clocks is
    taken out of a block: the loop's own cycle a call runs beside the statement. What it prints is shown of the first
    block, a single call.
    """

    replicas = (None,)
    is_async = False
    within = None
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
    """The snippets of a cell; see `timing.point_run.TimedCode`. They read no names, and their setups run apart
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
        return TimedBlocks(blocks, WatchedObjects(self.task.plan))

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


def _waited_for(plan: Plan) -> int:
    """Index of the device that a loop itself waits for, inside its clocks; -1 for none."""
    import torch

    if plan.device == "cpu" or not torch.accelerator.is_available():
        return -1
    device = choose_device(plan.device, set())
    return torch.accelerator.current_device_index() if device == "cpu" else torch.device(device).index


# ---- cpp_timer -------------------------------------------------------------------------------------------------------
# Timing the alternatives of a C++ cell, by the engine that times Python: `compare_snippets`.
#
# The setup runs once, in the scope that torch's template gives it, and stays alive while all blocks are run: each
# snippet hands its loop over from within its setup, one inside another, and the measurement runs innermost.


@dataclass(frozen=True)
class SnippetTask(Task):
    """What is asked of a C++ cell: its texts are no Python, and it has one point.

    Attributes:
        setup: C++ in whose scope the statements stand; it runs once for each of them.
        global_setup: C++ at the level of the file.
    """

    _: KW_ONLY
    global_setup: Sequence[Body] = ()

    @property
    def python(self) -> list[Body]:
        return []

    @property
    def of_its_kind(self) -> dict[str, Any]:
        return {"global_setup": list(self.global_setup)}

    def measured(self) -> Comparison:
        return compare_snippets(self)


def compare_snippets(task: SnippetTask) -> Comparison:
    """Time each C++ body against the others; as `timing.run.compare_bodies` does for Python.

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
    snippets = compile_snippets(snips, threads=threads, progress=task.progress)
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
