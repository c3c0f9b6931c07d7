"""``torch.utils.benchmark.utils.timer`` with a `Timer` that counts in a second."""

from __future__ import annotations

import ast
import dataclasses
import sys
import textwrap
import time
import timeit
import warnings
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch.utils.benchmark.utils import timer as torch_timer
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.timer import Language, timer
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, CopyIfCallgrind

from torchbench_magic.cell_body import Body
from torchbench_magic.counting import client_requests
from torchbench_magic.counting.callgrind_file import Costs
from torchbench_magic.counting.client import the_server
from torchbench_magic.counting.count import Job, LibraryJob, count_instructions
from torchbench_magic.counting.counts import stats_of
from torchbench_magic.cpp.run import Snippet, compile_snippet
from torchbench_magic.errors import CountError, MissingTool, OptionError
from torchbench_magic.process.interrupts import HeardProgress, interrupts_held
from torchbench_magic.timing.plan import MOST, MOST_THREADS

__all__ = ["Timer", "timer", "Language"]


def __getattr__(name: str) -> Any:
    """What torch's module has besides."""
    return getattr(torch_timer, name)


class Timer(torch_timer.Timer):
    """torch's ``Timer``: the same arguments, defaults, methods and results; what it does more is marked below.

    Measures the time that a statement takes, with replicates, at a chosen number of threads (one, unless told
    otherwise), and counts its instructions under Callgrind. Nothing is subtracted from the times.

    Args:
        stmt: the statement, run in a loop.
        setup: runs before every block of calls. Names that it binds go on from call to call within a block.
        global_setup: C++ only: code at the top of the file.
        timer: a function that returns seconds, or the name of a clock: ``"wall"`` (the default: accelerators are
            waited for), ``"cpu"`` (processor time of the process, all its threads), ``"device"`` (time between two
            events on the accelerator). The names are ours.
        globals: names for the statement; ``torch`` is there in any case. The dict is copied.
        label, sub_label, description, env: names for `Compare` and for the printed result.
        num_threads: of torch, while the statement runs.
        language: ``"python"`` or ``"c++"``, or a `Language`.

    Raises:
        OptionError: ``num_threads`` is no whole number from 1 on; of ``timer``, no clock of that name.
        ValueError: what torch does not take either (a stmt that is no str, globals for C++, ...).
        SyntaxError: code that does not compile.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] | str = timer,
        globals: dict[str, Any] | None = None,  # noqa: A002  (torch's name for it)
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        _check_whole("num_threads", num_threads, MOST_THREADS)
        names = (label, sub_label, description, env)
        super().__init__(stmt, setup, global_setup, clock_of(timer), globals, *names, num_threads, language)
        if self._language is Language.CPP:
            spec = self._task_spec
            self._timer = CPPTimer(spec.stmt, spec.setup, spec.global_setup, timeit.default_timer, {})
            self._timer.clock = "cpu" if timer == "cpu" else "wall"

    def collect_callgrind(
        self,
        number: int = 100,
        *,
        repeats: int | None = None,
        collect_baseline: bool = True,
        retain_out_file: bool = False,
    ) -> Any:
        """Count the instructions of the statement under Callgrind, in about a second after the first count.

        ``globals`` may hold anything that can be pickled by cloudpickle, and tensors; `CopyIfCallgrind` is taken but
        not needed. The process that counts is started once for all sessions (10 to 30 seconds) and forks for each
        count, so that two counts of one statement are the same number.

        Args:
            number: calls of the statement that are counted.
            repeats: count that often, and return a tuple.
            collect_baseline: count the empty loop too (of Python).
            retain_out_file: keep callgrind's file, as text, in ``stmt_callgrind_out``.

        Returns:
            A ``CallgrindStats``, or a tuple of them with ``repeats``. Totals over ``number`` calls, as in torch.

        Raises:
            OptionError: ``number`` is no whole number from 1 on.
            ValueError: ``repeats`` below 1, or ``torch`` replaced in ``globals``.
            CollectionFailed: (an OSError) no valgrind, a variable that cannot be sent, code that fails there.
            Exception: what the statement itself raises, before anything is counted.
        """
        _check_whole("number", number, MOST)
        if repeats is not None and repeats < 1:
            raise ValueError("If specified, `repeats` must be >= 1")
        if client_requests.why_unsupported():
            warnings.warn(
                "Instructions are counted by torch's own collector, which takes almost a minute and needs globals"
                " wrapped in CopyIfCallgrind: the faster way works only on Linux on x86_64 processors.",
                stacklevel=2,
            )
            return super().collect_callgrind(
                number, repeats=repeats, collect_baseline=collect_baseline, retain_out_file=retain_out_file
            )
        self._timeit(1)  # a faulty statement is told here, not by the counting process
        spec, is_cpp = self._task_spec, isinstance(self._timer, CPPTimer)
        job: Job | LibraryJob
        if isinstance(self._timer, CPPTimer):
            job = LibraryJob(str(self._timer.compiled().library), number, spec.num_threads)
        else:
            job = _job(spec, self._globals, number)
        try:
            with interrupts_held():
                again = range(repeats or 1)
                counted = [count_instructions(job, the_server(), progress=HeardProgress())[0] for _ in again]
        except (CountError, MissingTool) as error:
            raise CollectionFailed(f"Failed to collect callgrind profile: {error}") from error
        with_baseline = collect_baseline and not is_cpp  # torch counts no empty loop of C++
        found = tuple(_stats(spec, number, *costs, with_baseline, retain_out_file) for costs in counted)
        return found[0] if repeats is None else found


def _check_whole(name: str, value: object, most: int) -> None:
    """Refuse what torch fails at later, or measures without an end."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
        raise OptionError(f"{name}: give a whole number from 1 to {most}")


# ---- timer_clocks ----------------------------------------------------------------------------------------------------
# The clocks that ``Timer(timer=...)`` takes by name: "wall", "cpu" and "device".

ReadClock = Callable[[], float]


class DeviceClock:
    """Seconds on the accelerator, from an event a reading.

    The difference of two readings is the time between two events: what the host does after the device has finished is
    not in it.

    Raises:
        OptionError: there is no accelerator here.
    """

    def __init__(self) -> None:
        device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if device is None:
            raise OptionError("timer='device': no accelerator is available here; give 'wall' or 'cpu'")
        self._backend: Any = torch.get_device_module(device)
        self._last: Any = None
        self._seconds = 0.0

    def __call__(self) -> float:
        event = self._backend.Event(enable_timing=True)
        event.record()
        torch.accelerator.synchronize()
        if self._last is not None:  # from the last one only: an event tells milliseconds in single precision
            self._seconds += float(self._last.elapsed_time(event)) / 1e3
        self._last = event
        return self._seconds


def _cpu_clock() -> float:
    """Processor time of the process, all its threads; an accelerator's work is waited for, as by torch's timer."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.process_time()


_NAMED: dict[str, Callable[[], ReadClock]] = {
    "wall": lambda: timer,
    "cpu": lambda: _cpu_clock,
    "device": DeviceClock,
}


def clock_of(timer: ReadClock | str) -> ReadClock:
    """The clock of that name; a callable is one already.

    Raises:
        OptionError: no such name, or no accelerator for "device".
    """
    if callable(timer):
        return timer
    if timer not in _NAMED:
        raise OptionError(f"timer={timer!r}: give 'wall', 'cpu', 'device' or a function that returns seconds")
    return _NAMED[timer]()


# ---- cpp -------------------------------------------------------------------------------------------------------------
# C++ statements of ``Timer(language="c++")``, through the compiler and the cache that ``%%timer --cpp`` uses.
#
# With torch's meaning: ``setup`` and one untimed call before each block, nothing subtracted. What torch compiles anew
# in every process is compiled once.


class CPPTimer(torch_timer.CPPTimer):
    """torch's ``CPPTimer``: the same arguments and refusals.

    Attributes:
        clock: "wall", or "cpu" for the processor time of the process.
    """

    clock = "wall"
    _snippet: Snippet | None = None

    def timeit(self, number: int) -> float:
        """Seconds of ``number`` calls; the first call of all compiles.

        Raises:
            MissingTool: no compiler.
            SnippetError: what does not compile (with its lines), throws or crashes.
        """
        wall, cpu = self.compiled().timeit(number)
        return (cpu if self.clock == "cpu" else wall) / 1e9

    def compiled(self) -> Snippet:
        """The statement, compiled by the first call."""
        if self._snippet is None:
            code, threads = (self._stmt, self._setup, self._global_setup), torch.get_num_threads()
            self._snippet = compile_snippet(*code, threads=threads)
        return self._snippet


# ---- callgrind -------------------------------------------------------------------------------------------------------
# ``Timer.collect_callgrind`` through the process that already runs under valgrind, with torch's meaning.
#
# Kept of torch: setup runs in the counting process, the statement stands at the level of a module and is unrolled by
# 100, the counts are totals over ``number`` calls, the empty loop is counted once and kept apart, and functions that
# are nothing but the frame around the whole count are left out of the inclusive counts.


class CollectionFailed(CountError, OSError):
    """Instructions could not be counted. An OSError too, which is what torch raises."""


def _job(spec: TaskSpec, given: Mapping[str, Any], number: int) -> Job:
    """What is counted of a Python timer; ``given`` are its globals, in `CopyIfCallgrind` or not.

    Raises:
        ValueError: ``torch`` is another object among them.
    """
    if given.get("torch", torch) is not torch:
        raise ValueError("`collect_callgrind` does not support mocking out `torch`.")
    setups = [value.setup for value in given.values() if isinstance(value, CopyIfCallgrind)]
    setup, imported = _without_main(spec.setup)
    before = "\n".join([*(textwrap.dedent(text) for text in setups if text), setup])
    names = CopyIfCallgrind.unwrap_all(dict(given)) | imported
    return Job(Body(spec.stmt), names, number, spec.num_threads, "module", setup=before)


def _stats(
    spec: TaskSpec, number: int, statement: Costs, empty: Costs, with_baseline: bool, with_file: bool
) -> CallgrindStats:
    nothing: dict[str, dict[str, int]] = {"inclusive": {}, "exclusive": {}}
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    stats = stats_of(_by_kind(statement), _by_kind(empty) if with_baseline else nothing, number, **fields)
    return dataclasses.replace(stats, stmt_callgrind_out=statement.text if with_file else None)


def _by_kind(costs: Costs) -> dict[str, dict[str, int]]:
    inclusive = {name: cost for name, cost in costs.inclusive.items() if cost != costs.total}
    return {"inclusive": inclusive, "exclusive": costs.exclusive}


def _without_main(setup: str) -> tuple[str, dict[str, Any]]:
    """Setup without its ``from __main__ import ...``, and what that brings: the counting process has another main.

    Torch's tutorials hand functions to timers that way; torch's own collector cannot count them.
    """
    tree, main = ast.parse(setup), sys.modules["__main__"]
    found: dict[str, Any] = {}
    for node in [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__main__" and not n.level]:
        found |= {alias.asname or alias.name: getattr(main, alias.name) for alias in node.names}
        tree.body.remove(node)
    return (ast.unparse(tree) if found else setup), found
