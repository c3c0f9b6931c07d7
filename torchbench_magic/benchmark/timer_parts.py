"""What stands behind `Timer`: arguments refused in one line, clocks, statements, C++, counts, `Timer.compare`."""

from __future__ import annotations

import ast
import dataclasses
import gc
import math
import sys
import textwrap
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from types import MethodType
from typing import Any, Protocol

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
from torchbench_magic.errors import CountError, Interrupted, MissingTool, OptionError
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.interrupts import HeardProgress, interrupts_held, interrupts_let_through
from torchbench_magic.process.settings import collector, preserved_state, set_threads
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import MOST, MOST_THREADS, Plan
from torchbench_magic.timing.processes import compare_in_processes
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

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


def check_seconds(**given: object) -> None:
    """Of seconds and shares by their names: NaN and infinity end no loop. None is none, and 0 is as torch has it.

    Raises:
        OptionError: the name, and what it takes.
    """
    for name, value in given.items():
        is_real = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (is_real and 0 <= float(value) < math.inf):  # type: ignore[arg-type]
            raise OptionError(f"{name}: give a number of at least 0")


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


# ---- compare_timers --------------------------------------------------------------------------------------------------
# ``Timer.compare``: several timers as the alternatives of one interleaved measurement.

_PLAIN = (str, bytes, int, float, complex, bool, type(None), MethodType)
_ABSENT = object()


class Statement(Protocol):
    """What is asked of a `Timer`, the class of ``utils/timer.py``."""

    _task_spec: TaskSpec
    _globals: dict[str, Any]
    _clock: Any


def compare_timers(timers: Sequence[Statement], kind: type[Any], **options: Any) -> Comparison:
    """See ``Timer.compare``; ``kind`` is that ``Timer``.

    Raises:
        OptionError: timers that cannot be told apart or measured together.
        Interrupted: on Ctrl-C; ``.partial`` holds what was measured, which may be all.
    """
    with interrupts_held() as held:
        made = _compared(timers, kind, options)
        if held.take():
            raise Interrupted(made)
    return made


def _compared(timers: Sequence[Statement], kind: type[Any], options: Mapping[str, Any]) -> Comparison:
    for timer in timers:
        _check(timer, kind)
    specs = [timer._task_spec for timer in timers]
    if len(specs) < 2:
        raise OptionError("Timer.compare: give two timers or more")
    if len({spec.num_threads for spec in specs}) > 1:
        raise OptionError("Timer.compare: give timers with one num_threads; thread counts are compared by %%timer -t")
    names = _names(specs)
    plan = Plan(
        threads=(specs[0].num_threads,),
        label=_common(specs, "label"),
        sub_label=_common(specs, "sub_label"),
        env=_common(specs, "env"),
        **options,
    )
    plan, clocks = _clocked(timers, plan)
    with preserved_state():
        set_threads(specs[0].num_threads)
        with collector(is_on=False):  # as timeit has it while setup runs
            namespaces = _namespaces(timers)
            plan = replace(plan, gc=gc.isenabled())
        bodies = {name: Body(spec.stmt, f"<{name}>") for name, spec in zip(names, specs, strict=True)}
        task = Task(bodies, namespace=_merged(specs, namespaces), plan=plan, clocks=clocks)
        measured = compare_bodies(task) if plan.processes is None else compare_in_processes(task)
    subjects = [
        replace(subject, stmt=spec.stmt, setup=spec.setup)
        for subject, spec in zip(measured.subjects, specs, strict=True)
    ]
    return replace(measured, subjects=tuple(subjects))


def _check(timer: Any, kind: type[Any]) -> None:
    if not isinstance(timer, kind):
        raise OptionError(f"Timer.compare: {type(timer).__name__} is not a Timer of torchbench_magic.benchmark")
    if timer._language is not torch_timer.Language.PYTHON:
        raise OptionError("Timer.compare: measures statements of Python; %%timer --cpp compares those of C++")
    if type(timer)._timer_cls is not timeit.Timer:
        raise OptionError(f"Timer.compare: {type(timer).__name__} has a _timer_cls of its own, which it cannot use")


def _names(specs: Sequence[TaskSpec]) -> list[str]:
    """One name each: by the first field that tells them all apart."""
    for field in ("description", "sub_label", "label", "env", "stmt"):
        values = [getattr(spec, field) for spec in specs]
        if all(values) and len(set(values)) == len(values):
            return values
    raise OptionError("Timer.compare: two timers have the same names and statement: give each a description")


def _common(specs: Sequence[TaskSpec], field: str) -> str | None:
    values = {getattr(spec, field) for spec in specs}
    return values.pop() if len(values) == 1 else None


def _clocked(timers: Sequence[Statement], plan: Plan) -> tuple[Plan, Clocks]:
    """The plan and clocks that measure as the timers' own clock would."""
    asked = {timer._clock for timer in timers}
    if len(asked) > 1:
        raise OptionError("Timer.compare: give timers with the same clock (their argument `timer`)")
    clock: Any = asked.pop()
    if clock in (torch_timer.timer, "wall"):
        return plan, Clocks()
    if clock in ("cpu", "device"):
        return replace(plan, clock=clock), Clocks()
    if clock in (timeit.default_timer, time.perf_counter):
        return replace(plan, device="cpu"), Clocks()  # whoever says so does not want to wait for an accelerator
    if plan.processes is not None:
        raise OptionError("Timer.compare: a custom clock cannot be read in other processes: leave out processes")
    return replace(plan, device="cpu"), Clocks(wall=lambda: round(clock() * 1e9))


# ---- names -------------------------------------------------------------------------------------------------------


def _namespaces(timers: Sequence[Statement]) -> list[dict[str, Any]]:
    """What each statement finds: its globals, and what its setup makes of them. Equal setups run once."""
    done: list[tuple[dict[str, Any], str, dict[str, Any]]] = []
    found = []
    for timer in timers:
        given = CopyIfCallgrind.unwrap_all(timer._globals)
        setup = timer._task_spec.setup
        names = next((names for other, text, names in done if text == setup and _same(other, given)), None)
        if names is None:
            names = dict(given)
            with interrupts_let_through():
                exec(compile(setup, "<setup>", "exec", dont_inherit=True), names)
            done.append((given, setup, names))
        found.append(names)
    return found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and bool(one == other))


def _merged(specs: Sequence[TaskSpec], namespaces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All names in one namespace.

    Raises:
        OptionError: a name that a statement uses is another object, or none, for another statement that uses it.
    """
    found: dict[str, Any] = {}
    for spec, names in zip(specs, namespaces, strict=True):
        for name in {node.id for node in ast.walk(ast.parse(spec.stmt)) if isinstance(node, ast.Name)}:
            value = names.get(name, _ABSENT)
            if not _equal(found.setdefault(name, value), value):
                raise OptionError(
                    f"Timer.compare: `{name}` is a different object in each timer: pass one object through globals of"
                    " all, or use two names"
                )
    shared = {name: value for names in namespaces for name, value in names.items()}  # what eval finds, too
    return {name: value for name, value in (shared | found).items() if value is not _ABSENT}
