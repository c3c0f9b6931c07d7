"""What stands behind `Timer`: arguments refused in one line, clocks, C++, counts."""

from __future__ import annotations

import ast
import dataclasses
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch.utils.benchmark.utils import timer as torch_timer
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.timer import timer as wall_clock
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, CopyIfCallgrind

from torchbench_magic.cell_body import Body
from torchbench_magic.counting.callgrind_file import Costs
from torchbench_magic.counting.client import the_server
from torchbench_magic.counting.count import Job, LibraryJob, count_instructions
from torchbench_magic.counting.counts import stats_of
from torchbench_magic.cpp.run import Snippet, compile_snippet
from torchbench_magic.errors import CountError, MissingTool, OptionError
from torchbench_magic.process.interrupts import HeardProgress, interrupts_held
from torchbench_magic.timing.plan import MOST, MOST_THREADS

# ---- checked_arguments -----------------------------------------------------------------------------------------------
# Arguments of `Timer` that cannot be, refused in one line: torch fails at them later, or measures without an end.


def check_calls(number: object) -> None:
    """
    Raises:
        OptionError: no number of calls.
    """
    _check_whole("number", number, MOST)


def check_threads(num_threads: object) -> None:
    """
    Raises:
        OptionError: no number of threads.
    """
    _check_whole("num_threads", num_threads, MOST_THREADS)


def _check_whole(name: str, value: object, most: int) -> None:
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
    "wall": lambda: wall_clock,
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


def collect_callgrind(
    spec: TaskSpec, job: Job | LibraryJob, *, repeats: int, collect_baseline: bool, retain_out_file: bool
) -> tuple[CallgrindStats, ...]:
    """Count a statement ``repeats`` times; the options are torch's.

    Raises:
        CollectionFailed: what the counting process had to say, in one line.
    """
    try:
        with interrupts_held():
            counted = [count_instructions(job, the_server(), progress=HeardProgress())[0] for _ in range(repeats)]
    except (CountError, MissingTool) as error:
        raise CollectionFailed(f"Failed to collect callgrind profile: {error}") from error
    return tuple(_stats(spec, job.number, *costs, collect_baseline, retain_out_file) for costs in counted)


def python_job(
    spec: TaskSpec,
    globals: Mapping[str, Any],  # noqa: A002  (torch's name for it)
    number: int,
) -> Job:
    """What is counted of a Python timer.

    Args:
        spec: of the timer.
        globals: of the timer, in `CopyIfCallgrind` or not.
        number: calls.

    Raises:
        ValueError: ``torch`` is another object in ``globals``.
    """
    if globals.get("torch", torch) is not torch:
        raise ValueError("`collect_callgrind` does not support mocking out `torch`.")
    setups = [value.setup for value in globals.values() if isinstance(value, CopyIfCallgrind)]
    setup, imported = _without_main(spec.setup)
    before = "\n".join([*(textwrap.dedent(text) for text in setups if text), setup])
    given = CopyIfCallgrind.unwrap_all(dict(globals)) | imported
    return Job(Body(spec.stmt), given, number, spec.num_threads, "module", setup=before)


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
