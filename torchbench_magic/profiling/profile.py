"""`Profile`: time and bytes per line and per op."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd

from torchbench_magic.process.contention import Contention
from torchbench_magic.process.environment import Environment
from torchbench_magic.process.freed_memory import LARGE, give_back
from torchbench_magic.process.values_between_runs import Value
from torchbench_magic.profiling.cores.verdict import Concurrency
from torchbench_magic.profiling.efficiency.table import Efficiency
from torchbench_magic.profiling.loops.phases import empty_phases, phases_of
from torchbench_magic.profiling.memory import allocations
from torchbench_magic.result_base import Doubt, Insight, Storable, hand_on, show, with_doubts
from torchbench_magic.timing.intervals import median_interval

from .call_tree_tables import calls_of, is_tree, modules_of, write_stacks
from .device_times import device_table, idle_gaps
from .options import ProfileOptions
from .schema import (
    ARGUMENT_COLUMNS,
    COMPILATION_COLUMNS,
    FRAME_COLUMNS,
    GRAPH_BREAK_COLUMNS,
    MEMORY_COLUMNS,
    PROFILE_TABLES,
    WORKER_COLUMNS,
    frame_of,
)
from .trace import Source, Trace

NOT_ATTRIBUTED = "not attributed"
ProfilerCost = Literal["little", "noticeable", "most"]


@dataclass(frozen=True, repr=False, eq=False)
class Profile(Storable):
    """Time and bytes of one run, per line (``.lines``) and per op (``.ops``). Holds no tensors and no frames.

    Attributes:
        lines: one row per (source_id, line, thread), columns of `LINE_COLUMNS`; ``.attrs["doubts"]`` of it and of
            ``ops`` holds ``warnings`` as plain values; empty where lines cannot be had
            (``.warnings`` says why). The row "not attributed" (thread 0, cell and line NA) is the wall time of
            the run on no line: with it, ``self_cpu_time + python_time`` of thread 0 add up to ``wall_time``.
        ops: one row per (op, inputs, source_id, line, thread, module), columns of `OP_COLUMNS`. ``module`` is the
            nn.Module that the op ran in or, of a backward pass, that caused it.
        frames: the call tree (lines, functions, modules, ops and ranges, each below its caller), columns of
            `FRAME_COLUMNS`: a row per place in the tree, a caller before what it calls.
        wall_time: seconds from entering to leaving the body; profiler start and stop are outside.
        num_threads: torch's intra-op threads during the run.
        sources: source_id -> the text its lines stand in.
        source_id: the source that was profiled, a key of ``sources``; None where there is none.
        memory: with ``--memory`` the bytes over time, columns of `MEMORY_COLUMNS`; else None.
        ranges: names in ``.ops`` that are ``record_function`` ranges: their self time is what runs in the range
            outside its ops, mostly Python.
        threads: name of thread 0, 1, ... of the tables.
        options: what was asked.
        warnings: what is doubtful about the result.
        environment: torch, Python and device of the run.
        contention: what else wanted the processor while the body ran; None where that is not known.
        partial: the body did not run to its end (an exception, Ctrl-C).
        n_events: events of torch's profiler that went in.
        n_line_events: line events that went in.
        line_source: where the lines come from: ``settrace``, ``monitoring`` or ``none``.
        profiler_time: seconds spent besides the body: profiler start and stop, reading, joining.
        trace: the raw events and lines over time, from which every picture of an order in time derives; None where
            the profile was built by hand.
        steps: numbers of the steps that were recorded, with a schedule.
        cycles: with a schedule, the profile of each cycle; this one is their sum, and ``wall_time`` the recorded part.
        saved: when it was stored, UTC, of one that was read from a store; empty for others.
        calls: with ``--shapes``, what else is known of each distinct call of an op, see `arguments`.
        holders: with ``--memory``, who holds the tensors that were there after the body, a row per storage, columns of
            `HOLDER_COLUMNS`; None without it, and after an error.
        bytes_before: with ``--memory``, bytes of CPU tensors that were there before the body; NaN where not known.
        flops_coverage: with ``--flops``, share of the time in ops that is spent in ops with a formula.
        profiler_cost: what recording was of the wall time, told from the number of events: ``little``, ``noticeable``
            or ``most``; None where that is not known.
        unprofiled_time: with ``--twice``, seconds that the body took without the profiler (the median, where it was
            repeated); else None.
        repeats: with ``--twice``, (seconds with, seconds without) of each pair of runs.
        workers: where DataLoader workers that started during the run spent their time, sampled: columns of
            `WORKER_COLUMNS`; empty without any.
        compilations: one row per frame that ``torch.compile`` compiled during the run, in the order in which it did:
            columns of `COMPILATION_COLUMNS`; empty where nothing was compiled. A function that it had given up before
            the run, and that ran as it is, has a row too, of kind ``earlier`` and with no time.
        graph_breaks: the lines at which it could not go on and compiled the rest by itself: columns of
            `GRAPH_BREAK_COLUMNS`.
        phases_by_line: the phases of the steps of a training loop by the lines they were entered from, columns of
            `LOOP_COLUMNS`; empty where there was no loop. `phases` sums them up.
        python: with ``--python``, where Python time went in the cell's own thread: the tree of functions, those of
            libraries too, a row per place in it, a caller before what it calls; columns of `PYTHON_COLUMNS`. Times are
            sampled. Empty where nothing could be sampled (``.warnings`` says why); None without the option.
        concurrency: with ``--concurrency``, whether the cores were used well: verdict, evidence, threads over time.
        efficiency: with ``--efficiency``, how near the ops came to what the machine can do; None without it, and where
            the body did not run to its end.
        libraries: (source_id, line, module) of the line with most of the time, where it calls Python code of a library
            whose lines were not recorded: ``--lines-of MODULE`` records them.
        inputs, values: what the code found in variables before it ran, and what else it read there, as in
            `timing.samples.Subject`; None where it was not recorded.
    """

    lines: pd.DataFrame
    ops: pd.DataFrame
    wall_time: float
    num_threads: int
    sources: Mapping[str, Source] = field(default_factory=dict)
    source_id: str | None = None
    memory: pd.DataFrame | None = None
    ranges: tuple[str, ...] = ()
    threads: tuple[str, ...] = ("MainThread",)
    options: ProfileOptions = ProfileOptions()  # noqa: RUF009  (frozen)
    warnings: list[Doubt] = field(default_factory=list)
    environment: Environment | None = None
    contention: Contention | None = None
    partial: bool = False
    n_events: int = 0
    n_line_events: int = 0
    line_source: str = "settrace"
    profiler_time: float = 0.0
    trace: Trace | None = None
    steps: tuple[int, ...] = ()
    cycles: tuple[Profile, ...] = ()
    saved: str = ""
    calls: tuple[tuple[str, str, str, str, str, str, int], ...] = ()
    bytes_before: float = math.nan
    flops_coverage: float = math.nan
    unprofiled_time: float | None = None
    profiler_cost: ProfilerCost | None = None
    repeats: tuple[tuple[float, float], ...] = ()
    libraries: tuple[tuple[str, int, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] | None = None
    values: tuple[Value, ...] | None = None
    frames: pd.DataFrame = field(default_factory=lambda: frame_of(FRAME_COLUMNS, {}))
    workers: pd.DataFrame = field(default_factory=lambda: frame_of(WORKER_COLUMNS, {}))
    compilations: pd.DataFrame = field(default_factory=lambda: frame_of(COMPILATION_COLUMNS, {}))
    graph_breaks: pd.DataFrame = field(default_factory=lambda: frame_of(GRAPH_BREAK_COLUMNS, {}))
    phases_by_line: pd.DataFrame = field(default_factory=empty_phases)
    python: pd.DataFrame | None = None
    concurrency: Concurrency | None = None
    efficiency: Efficiency | None = None
    holders: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        for name, columns in PROFILE_TABLES.items():
            frame = getattr(self, name)
            if frame is not None and list(frame.columns) != list(columns):
                raise ValueError(f"columns of .{name} must be {' '.join(columns)}")
        if self.python is not None and not is_tree(self.python):
            raise ValueError("a function of .python comes before its caller")
        if not is_tree(self.frames):
            raise ValueError("a frame of .frames comes before its caller")
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))
        for name in ("lines", "ops"):  # a frame of its own: another profile may hold the same with other doubts
            object.__setattr__(self, name, with_doubts(getattr(self, name).copy(deep=False), self.warnings))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sources": dict(self.sources)}  # a mapping proxy does not pickle

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "sources": MappingProxyType(state["sources"])})

    @property
    def not_attributed(self) -> float:
        """Seconds of the wall time that stand on no line (all of it where there are no lines; NaN where not known)."""
        if self.lines.empty:
            return self.wall_time
        on_none = self.lines["line"].isna().to_numpy() & (self.lines["thread"].to_numpy() == 0)
        own = (self.lines["self_cpu_time"].to_numpy() + self.lines["python_time"].to_numpy())[on_none]
        return math.nan if len(own) and np.isnan(own).all() else float(np.nansum(own))

    @property
    def has_op_times(self) -> bool:
        """Whether torch's events were seen; without them it is not known what of a line was torch and what Python."""
        kinds = {doubt.kind: doubt for doubt in self.warnings}
        return "events-lost" not in kinds and not ("events-dropped" in kinds and kinds["events-dropped"].facts["ops"])

    @property
    def none_ran(self) -> str:
        """What an empty table of operators means."""
        where = " on the thread of the cell" * any(doubt.kind == "threads-unseen" for doubt in self.warnings)
        return f"no torch operation ran{where}" if self.has_op_times else "torch operations were not recorded"

    @property
    def dilation(self) -> float:
        """With ``--twice``, what recording added, as a share of the time without (0.04: 4 % slower); else NaN."""
        if self.repeats:
            return float(np.median([recorded / without for recorded, without in self.repeats])) - 1
        return self.wall_time / self.unprofiled_time - 1 if self.unprofiled_time else math.nan

    @property
    def dilation_interval(self) -> tuple[float, float]:
        """The 95 % interval of `dilation`, by the ranks of the pairs' ratios; infinite ends below six pairs."""
        ratios = np.array([recorded / without for recorded, without in self.repeats])
        found = median_interval(ratios)
        return found.low - 1, found.high - 1

    @cached_property
    def phases(self) -> pd.DataFrame:
        """``step phase seconds``: how long each step of the training loop spent in each phase (``input transfer forward
        loss backward optimizer zero_grad other``), on the thread that runs it; the phases of a step add up to it.
        Empty where no steps were seen."""
        return phases_of(self.phases_by_line)

    @property
    def arguments(self) -> pd.DataFrame:
        """With ``--shapes``, a row per distinct call of an op, columns of `ARGUMENT_COLUMNS`: its overload, its inputs
        and its scalars, and how often it was ``seen`` among the first calls with these inputs."""
        columns = zip(*self.calls, strict=True) if self.calls else ()
        return frame_of(ARGUMENT_COLUMNS, dict(zip(ARGUMENT_COLUMNS, map(list, columns), strict=False)))

    @property
    def alive_at_peak(self) -> pd.DataFrame:
        """With ``--memory``, the blocks that made up the peak of each device, by the line that allocated them:
        columns of `ALIVE_COLUMNS`, the largest first."""
        memory = self._memory_seen()
        peaks = [(device, allocations.peak_of(memory, device).row) for device in allocations.devices_of(memory)]
        return allocations.alive(memory, self.sources, peaks)

    @cached_property
    def peak_parts(self) -> pd.DataFrame:
        """With ``--memory``, what the peak of each device is made of (parameters, gradients, the optimizer's state,
        activations, temporaries ...), the largest part first: columns of `PEAK_COLUMNS`."""
        found: pd.DataFrame = hand_on(self, "peak_parts")
        return found

    @property
    def retained(self) -> pd.DataFrame:
        """The same for the blocks that were still there after the body."""
        memory = self._memory_seen()
        ends = [(device, len(memory) - 1) for device in allocations.devices_of(memory)]
        return allocations.alive(memory, self.sources, ends)

    @property
    def memory_by_line(self) -> pd.DataFrame:
        """With ``--memory``, bytes of each line on each device apart: ``device source_id line thread cell source
        allocated freed net alive_at_peak retained``. ``.lines`` adds the devices up."""
        return allocations.by_line(self._memory_seen(), self.sources)

    def _memory_seen(self) -> pd.DataFrame:
        return self.memory if self.memory is not None else frame_of(MEMORY_COLUMNS, {})

    def where(self, op: str) -> pd.DataFrame:
        """Where an op is called, and with what: its rows by line, module and shapes, the most time first.

        ``where("bmm")``: ``aten::`` may be left out. Columns ``cell line source file module input_shapes thread calls
        self_cpu_time cpu_time share``; share is ``cpu_time`` of the op's whole.

        Raises:
            InputError: no such op; the message names those near it.
        """
        return calls_of(self.ops, self.sources, op)

    @cached_property
    def device_events(self) -> pd.DataFrame:
        """Kernels, copies and fills by the op and the line that launched them, and in rows of their own the calls of
        the device's runtime: columns of `profiling.device_times.DEVICE_COLUMNS`."""
        return device_table(self.trace, self.sources)

    @cached_property
    def idle(self) -> pd.DataFrame:
        """Gaps in which nothing ran on a device, the longest first, with the line that the cell's own thread was on:
        columns of `profiling.device_times.IDLE_COLUMNS`."""
        return idle_gaps(self.trace, self.sources)

    @cached_property
    def insights(self) -> tuple[Insight, ...]:
        """Why the code takes this long and what would help, the most seconds at stake first; empty where nothing is
        found, and where a doubt voids the figures. They derive from the tables: one that was stored has them again."""
        found: tuple[Insight, ...] = hand_on(self, "insights")
        return found

    def export_trace(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a Chrome trace (JSON; gzip where the name ends in ``.gz``) for Perfetto and for torch's readers.

        Lines of cells are ranges on tracks of their own. The file is complete or not there at all; a trace of that
        name is replaced, and with ``overwrite`` any other file. ``torchbench_magic.load_trace`` reads it back as this
        profile.

        Raises:
            TraceError: it cannot be written, or this profile holds no events.
        """
        hand_on(self, "export_trace", path=path, overwrite=overwrite)

    @cached_property
    def modules(self) -> pd.DataFrame:
        """The nn.Modules that were called, as a tree: time forward and backward, bytes; columns of `MODULE_COLUMNS`."""
        return modules_of(self.frames)

    def export_stacks(
        self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total", *, overwrite: bool = False
    ) -> None:
        """Write the call stacks with their cost, for flamegraph.pl and speedscope.

        Args:
            path: the file; never an empty one. One of stacks that is there is replaced.
            overwrite: replace any other file too.
            metric: ``self_cpu_time_total``, ``self_cuda_time_total`` (or another device), ``time`` (Python's too)
                or ``bytes``. Whole nanoseconds, or bytes.

        Raises:
            OptionError: an unknown metric; those there are, are listed.
            InputError: nothing of the metric was recorded, or the file cannot be written.
        """
        write_stacks(self.frames, path, metric, overwrite=overwrite)

    def flamegraph(self, metric: str = "time") -> Any:
        """A flame graph of ``time``, ``device`` time or allocated ``bytes``; it displays itself in a notebook.

        Raises:
            OptionError: an unknown metric.
            InputError: that was not measured.
        """
        return show(self, "flamegraph", metric=metric)

    def plot(self, kind: str = "flame", *, metric: str = "time", ax: Any = None) -> Any:
        """The flame graph (``flame``, of ``time``, ``device`` or ``bytes``) or memory over time (``memory``) with
        matplotlib; its Axes are returned (``.figure.savefig("memory.svg")``).

        Raises:
            MissingTool: matplotlib is not installed.
            OptionError: an unknown kind or metric.
            InputError: that was not recorded.
        """
        return show(self, "plot", kind=kind, metric=metric, ax=ax)

    def timeline(self) -> Any:
        """What ran when, per thread and stream: a picture to zoom, and to choose spans in (``.explore()``: live).

        Raises:
            InputError: this profile holds no events over time.
        """
        return show(self, "timeline")

    def table(self, **options: Any) -> str:
        """The ops as torch's ``key_averages().table()`` prints them.

        ``sort_by=``, ``row_limit=``, ``group_by_input_shape=``, ``group_by_stack_n=``, ``header=``, ``time_unit=``.

        Raises:
            OptionError: an unknown key to sort by; those there are, are listed.
            InputError: what is grouped by was not recorded.
        """
        return str(show(self, "table", **options))


# ---- large_profiles --------------------------------------------------------------------------------------------------
# Large profiles in a long session: what making one has freed goes back to the system.


def settled(profile: Profile) -> Profile:
    """``profile``, of which all that it was made from is gone now."""
    if profile.trace is not None and profile.n_events + profile.n_line_events >= LARGE:
        give_back()
    return profile


# ---- silenced --------------------------------------------------------------------------------------------------------
# When nothing may be said about the code: what spoils the figures of a profile spoils what is built on them.

VOIDING = frozenset(
    {
        "partial",  # shares are of what ran until then
        "not-run",
        "no-steps",
        "events-lost",
        "events-dropped",
        "no-lines",
        "lines-lost",
        "lines-cut",
        "clock-set",
        "clock-offset",
        "busy",  # a line is as long as others let it be
        "oversubscribed",
        "steal",
        "throttled",
        "host-memory",  # Python's times are too long
    }
)
"""Kinds of doubts about a profile's own figures."""


def silenced_by(profile: Profile) -> str:
    """The kind of what keeps this profile from any insight; empty where nothing does.

    Besides doubts: work on a device (``device``): the host runs ahead of it, and what it saves need not be saved.
    Recording that took most of the time is a matter of each kind, see `insights.kinds.KINDS`.
    """
    for doubt in profile.warnings:
        if doubt.kind in VOIDING:
            return doubt.kind
    if profile.partial:
        return "partial"
    if profile.lines.empty or profile.frames.empty or not profile.wall_time > 0:
        return "no-lines"
    if float(profile.ops["self_device_time"].fillna(0).sum()) > 0:
        return "device"
    return ""


def has_device(profile: Profile) -> bool:
    """Whether tensors were moved to a device, or a device did work."""
    moved = profile.phases.loc[profile.phases["phase"] == "transfer", "seconds"].sum() > 0
    return bool(moved) or float(profile.ops["self_device_time"].fillna(0).sum()) > 0


_VOIDING_CORES = frozenset({"partial", "not-run", "no-steps", "clock-set"})
"""Doubts about the stretch itself. Others, such as lost events, are about lines and operations."""


def processor_silenced_by(profile: Profile) -> str:
    """The kind of what keeps insights about the cores from speaking; empty where nothing does."""
    kinds = [doubt.kind for doubt in profile.warnings if doubt.kind in _VOIDING_CORES]
    if profile.partial:
        kinds.append("partial")
    if profile.profiler_cost == "most":  # what ran was the recording, as a rule
        kinds.append("cost")
    return kinds[0] if kinds else ""
