"""Timings of one cell: the raw samples, and everything that is derived from them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from torchbench_magic import result_base
from torchbench_magic.array_types import Floats
from torchbench_magic.counting.counts import CountKey, Counts
from torchbench_magic.counting.diff import CountsDiff, Pair
from torchbench_magic.process.environment import Environment
from torchbench_magic.result_base import Doubt, Storable, with_doubts

from . import counted_rows
from .intervals import Interval, holm_level, log_ratio_interval, without_order_effect
from .process_ratios import ProcessRatios, is_of_this_kernel
from .samples import (
    Blocks,
    Clock,
    Subject,
    blocks_of,
    detail,
    frame_columns,
    paired_rounds,
    ratio_cells,
    seen,
    with_compiling,
)
from .verdict import (
    RUNS,
    SPAN,
    Evidence,
    Range,
    Ruling,
    Unpaired,
    Void,
    judged,
    range_of_windows,
    rounds_to_decide,
    shortest_call,
)
from .voids import (
    IntervalOfRounds,
    apart_by_work,
    by_processor_time,
    held_up_alone,
    interval_of_rounds,
    row_void,
    unlike_blocks,
)

if TYPE_CHECKING:
    from torch.utils.benchmark import Measurement

_SAMPLE_TYPES = {
    "round": "int64",
    "measurement": "int64",
    "wall": "float64",
    "cpu": "float64",
    "number": "int64",
    "position": "int64",
}
_MORE_TYPES = {"device": "float64", "process": "int64"}


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Storable):
    """Timings of the alternatives of one cell, or of one statement.

    Attributes:
        subjects: one per measurement, in the order of ``frame``.
        samples: DataFrame, the raw truth, one row a block: ``round`` (per point and thread count), ``measurement``
            (position of the row in ``frame``), ``wall`` and ``cpu`` (seconds of the block, clock cost and empty
            loop taken out), ``number`` (calls in it), ``position`` (place in the round); with ``clock`` "device"
            also ``device``, seconds between two events on the accelerator; where several processes measured it
            also ``process``, from 1 on, and no round is of two of them.
        environment: where it was measured.
        warnings: what is doubtful about it, most important first.
        baseline: description that ratios refer to; None is the first of each group.
        margin: ratios inside 1 +- margin are ``same`` (a fraction).
        clock: which time ``median``, ``iqr``, ``mean`` and the ratios are of.
        elapsed: seconds of the whole run, setup not included.
        seed: of the order of blocks.
        partial: the run was interrupted.
        options: what was asked of the run, as far as it is known (see `timing.identity.identifying_options`).
        saved: when it was written to the store that it comes from, UTC, as "2025-01-31T12:00:00.000Z"; else empty.
        unpaired: row -> how it compares with one of another time, where results stand side by side: `side_by_side`.
        counts: (description, sub_label, num_threads as counted), or a description that is unique -> ``CallgrindStats``.
        family: how many comparisons share the error rate of faster and slower, as asked for; 0: those in here.
        code: the text of a ``%%timer`` cell that times the same, where the reader did not write it (`benchmark_op`).
        sources: source_id -> text of the notebook's functions that ``Subject.functions`` names, where it is known.
        void_processes: (row, process, cause) of ratios that decide nothing in their own process; see `voids`.
        history: row -> range of the medians of stored runs of the same thing, where a store knows them.
    """

    subjects: tuple[Subject, ...]
    samples: pd.DataFrame = field(repr=False)
    environment: Environment
    warnings: tuple[Doubt, ...] | list[Doubt] = ()
    baseline: str | None = None
    margin: float = 0.01
    clock: Clock = "wall"
    elapsed: float = math.nan
    seed: int | None = None
    partial: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    saved: str = ""
    unpaired: Mapping[int, Unpaired] = field(default_factory=dict)
    history: Mapping[int, Range] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    code: str = ""
    family: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    void_processes: tuple[tuple[int, int, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "warnings", list(self.warnings))
        types = _SAMPLE_TYPES | {name: kind for name, kind in _MORE_TYPES.items() if name in self.samples}
        samples = self.samples
        if [*samples.columns] != [*types] or [*map(str, samples.dtypes)] != [*types.values()]:
            samples = samples[list(types)].astype(types)
        if not (isinstance(samples.index, pd.RangeIndex) and samples.index.start == 0 and samples.index.step == 1):
            samples = samples.reset_index(drop=True)
        object.__setattr__(self, "samples", samples)

    # ---- what was seen, per measurement -------------------------------------------------------------------

    @cached_property
    def _blocks(self) -> list[Blocks]:
        return list(blocks_of(self.samples, len(self.subjects), self.clock))

    @cached_property
    def by_processor_time(self) -> frozenset[int]:
        """Rows whose ratios are of processor time, though times are by the wall clock (`voids.by_processor_time`)."""
        groups = self.groups.values() if self.clock == "wall" else ()
        told = (g for g in groups if by_processor_time([self._blocks[i] for i in g], self.subjects[g[0]]))
        return frozenset(row for group in told for row in group)

    @cached_property
    def _compared(self) -> list[Blocks]:
        """The blocks, with the times that ratios are of."""
        of = self.by_processor_time
        return [replace(one, time=one.cpu) if i in of else one for i, one in enumerate(self._blocks)]

    def call_times(self, measurement: int) -> Floats:
        """Seconds of one call, one value a block, in the order taken. Shape (samples,)."""
        return self._blocks[measurement].calls

    def few_calls(self, measurement: int) -> int | None:
        """Calls in a block of which starting it may take a part: the number was given, or state is put back before
        each call. None where a block has as many as make it long, or is to find cold caches."""
        asked, number = self.options, self._blocks[measurement].number
        is_given = (asked.get("restore") or asked.get("number")) and not asked.get("cold")
        return int(np.median(number)) if is_given and len(number) else None

    def shortest_call(self, measurement: int) -> float:
        """Seconds of a call below which a row gets no verdict."""
        return shortest_call(self.subjects[measurement].near_loop, self.few_calls(measurement))

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the sweep axes."""
        return tuple(dict.fromkeys(name for subject in self.subjects for name, _ in subject.axes))

    @cached_property
    def measurements(self) -> list[Measurement]:
        """One ``torch.utils.benchmark.Measurement`` per row of ``frame``; they unpickle in plain torch."""
        from torch.utils.benchmark import Measurement
        from torch.utils.benchmark.utils.common import TaskSpec

        made = []
        for subject, blocks in zip(self.subjects, self._blocks, strict=True):
            spec = TaskSpec(**subject.torch_fields)
            number = int(blocks.number[0]) if len(blocks) else 1  # torch knows one; processes may have chosen others
            made.append(Measurement(number, (blocks.time * (number / blocks.number)).tolist(), spec))
        return made

    # ---- compared -----------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> dict[int, list[int]]:
        """Group -> the rows that were sampled side by side."""
        groups: dict[int, list[int]] = {}
        for i, subject in enumerate(self.subjects):
            groups.setdefault(subject.group, []).append(i)
        return groups

    def cores_of(self, row: int) -> int:
        """Processors that were usable where a row was measured."""
        return self.subjects[row].environment_in(self.environment).usable_cores

    def beside(self, row: int) -> list[int]:
        """The rows that were sampled side by side with one, itself included."""
        return self.groups[self.subjects[row].group]

    def _baseline_of(self, rows: Sequence[int]) -> int | None:
        """The baseline's row in one group; None when the group has none or is a lone statement."""
        if len(rows) < 2:
            return None
        if self.baseline is None:
            return rows[0]
        return next((i for i in rows if self.subjects[i].description == self.baseline), None)

    @cached_property
    def _intervals(self) -> dict[int, IntervalOfRounds]:
        """Row -> what its rounds, or processes, say of its ratio to the baseline."""
        pairs: dict[int, Callable[[float], IntervalOfRounds]] = {}
        for rows in self.groups.values():
            base = self._baseline_of(rows)
            if base is None:
                continue
            for i in rows:
                if i == base:
                    continue
                if self.is_over_processes(i):
                    pairs[i] = partial(self._over_processes.judged, i, base)
                else:
                    rounds, one, cores = self._paired(i, base), self.subjects[i], self.cores_of(i)
                    compiled = self._compiled(i, base)
                    pairs[i] = partial(interval_of_rounds, *rounds, one, cores, self.margin, i, compiled=compiled)
        excluded = lambda level: sum(i.low > 0 or i.high < 0 for i in (one(level).interval for one in pairs.values()))
        level = holm_level(excluded, max(self.family, len(pairs)))
        return {i: self._unless_stalled(i, one(level), level) for i, one in pairs.items()}

    def _unless_stalled(self, row: int, found: IntervalOfRounds, level: float) -> IntervalOfRounds:
        """What is left of it where the typical block of a side waited for a core."""
        base = self._baseline_of(self.beside(row))
        void = self.stalled.get(row) or (self.stalled.get(base) if base is not None else None)
        if base is None or void is None or self.is_over_processes(row):
            return found
        ranges = apart_by_work(self._blocks[row], self._blocks[base], self.subjects[row], level)
        if ranges is not None and not self._compiled(row, base):
            return IntervalOfRounds(ranges, found.number, by_ranges=True)
        return IntervalOfRounds(found.interval, found.number, void)

    def _compiled(self, row: int, base: int) -> int:
        """Compilations among the samples of either."""
        return self.subjects[row].compiled_in_samples + self.subjects[base].compiled_in_samples

    def _paired(self, row: int, base: int) -> tuple[Floats, tuple[Floats, Floats]]:
        """Of each round in which both rows took part, the log ratio with the effect of the order taken out, and the
        seconds of either side. Shapes (rounds,)."""
        both = paired_rounds(self._compared[row], self._compared[base])
        return without_order_effect(both.log_ratios, both.before), both.seconds

    @cached_property
    def _over_processes(self) -> ProcessRatios:
        return ProcessRatios(self._compared, self.void_processes)

    def is_over_processes(self, row: int) -> bool:
        """Whether several processes measured a row, one after the other: then its ratio is the one over them."""
        return self._over_processes.is_of(row)

    @cached_property
    def processes(self) -> pd.DataFrame:
        """One row per measurement and process, seconds: ``measurement process median ratio ratio_low ratio_high``; the
        interval is what that process alone says. Empty where this process measured it all."""
        bases = {i: self._baseline_of(self.beside(i)) for i in range(len(self.subjects))}
        return self._over_processes.table(bases, [subject.look for subject in self.subjects])

    def ratio_by_process(self, row: int) -> Mapping[int, float]:
        """Process -> log ratio of a row to its baseline, of the processes that count; empty where there are none."""
        base = self._baseline_of(self.beside(row))
        if base is None or base == row or not self.is_over_processes(row):
            return {}
        return self._over_processes.logs(row, base)

    def log_ratio(self, row: int, base: int, comparisons: int = 1) -> Interval:
        """Log of the ratio of two rows of one group, with its interval; ``comparisons`` share the error rate."""
        return log_ratio_interval(self._paired(row, base)[0], comparisons, self.subjects[row].look)

    @cached_property
    def stalled(self) -> Mapping[int, Void]:
        """Rows whose typical block is one that waited for a core: their times and ratios are of waiting."""
        found = [row_void(i, self._blocks[i], subject, self.cores_of(i)) for i, subject in enumerate(self.subjects)]
        for rows in self.groups.values() if self.clock == "wall" else ():
            found += held_up_alone({i: self._blocks[i] for i in rows}, self.subjects[rows[0]])
        return {void.row: void for void in found if void is not None}

    @cached_property
    def voids(self) -> Mapping[int, Void]:
        """Row -> why its ratio decides nothing, of causes told in the sentence (not near-loop, used-up)."""
        return {i: one.void for i, one in enumerate(self.rulings) if one.void is not None and one.told.said}

    @cached_property
    def rulings(self) -> tuple[Ruling, ...]:
        """The word of each row and why it is that one, which is decided here once: `timing.verdict.judged`."""
        return tuple(self._ruling(i, self.base_row(i)) for i in range(len(self.subjects)))

    def _ruling(self, i: int, base: int | None) -> Ruling:
        if base is None or base == i:
            return Ruling(None if base is None else "baseline")
        subject, times = self.subjects[i], {row: self.call_times(row) for row in (i, base)}  # none, if interrupted
        near = any(len(side) > 0 and np.median(side) < self.shortest_call(row) for row, side in times.items())
        used_up = subject.used_up or self.subjects[base].used_up
        found = [Void("near-loop", i) if near else None, Void("used-up", i) if used_up else None]
        if i in self.unpaired:
            other = self.unpaired[i]
            found.append(self.stalled.get(i) or self.stalled.get(base))
            return judged(Evidence(None, self.margin, other.verdict, found, because=other.reason))
        found.append(self._intervals[i].void)
        if not self.is_over_processes(i):
            found.append(unlike_blocks(i, self._blocks[i], self._blocks[base], subject, self.cores_of(i)))
        return judged(Evidence(self._intervals[i].interval, self.margin, voids=found))

    @cached_property
    def by_ranges(self) -> Mapping[int, int]:
        """Row -> rounds, of those whose word is by the ranges of both sides, since the rounds were too few for an
        interval by ranks or the blocks waited for a core: every block of one took at least three times as long as every
        block of the other (`intervals.far_ratio`, `voids.apart_by_work`)."""
        decided = {i: one.number for i, one in self._intervals.items() if one.by_ranges and i not in self.unpaired}
        return {i: rounds for i, rounds in decided.items() if self.rulings[i].word in ("faster", "slower")}

    @cached_property
    def of_this_kernel(self) -> tuple[int, ...]:
        """Rows that one session decided by less than ratios move from session to session; see `is_of_this_kernel`."""
        is_of_it = lambda i, row: is_of_this_kernel(
            row["ratio"], row["verdict"], row["method"], row["median"], self.few_calls(i)
        )
        return tuple(i for i, row in enumerate(self._rows) if is_of_it(i, row))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per measurement: identity, axes, seconds, ratio with 95 % interval, verdict, and what
        compiling cost (`with_compiling`).

        ``frame.attrs["doubts"]`` holds ``warnings`` as plain values, entered whenever it is asked for.
        """
        return with_doubts(self._frame, self.warnings)

    @cached_property
    def _frame(self) -> pd.DataFrame:
        rows, more = self._seen
        return pd.DataFrame(rows, columns=[*frame_columns(self.axes), *more])

    @property
    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows of `frame` as mappings: who asks for a few figures need not wait for pandas."""
        return self._seen[0]

    @cached_property
    def _seen(self) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        records = []
        for i, subject in enumerate(self.subjects):
            record = seen(subject, self._blocks[i], self.call_times(i))
            counted = counted_rows.instructions(self.counts, self.subjects, i, self.base_row(i))
            records.append(record | self._ratio_cells(i) | counted)
        return with_compiling(records, self.subjects, self.base_row)

    def base_row(self, i: int) -> int | None:
        """The row that a row is compared with; its own where it is the baseline; None where there is none."""
        if i in self.unpaired:
            return self.unpaired[i].baseline
        return self._baseline_of(self.beside(i))

    @cached_property
    def count_pairs(self) -> tuple[Pair, ...]:
        """(baseline, other), keys of ``counts``: what `diff` compares, in the order of the rows."""
        return counted_rows.pairs(self.counts, self.subjects, self.base_row)

    def _ratio_cells(self, i: int) -> dict[str, Any]:
        known, how, ruling = Interval(math.nan, math.nan, math.nan), None, self.rulings[i]
        if i in self.unpaired:
            other, how = self.unpaired[i], "unpaired"
            known = Interval(other.ratio, other.low, other.high)
        elif self.base_row(i) is not None:
            how = "processes" if self.is_over_processes(i) else "paired"
            if i not in self._intervals:  # the baseline
                known = Interval(1.0, 1.0, 1.0)
            elif self._intervals[i].number:
                known = self._intervals[i].interval.exp()
        return ratio_cells(*known.ends(ruling.told.has_ends), ruling.word, how)

    @cached_property
    def undecided_seconds(self) -> Mapping[int, float]:
        """Row -> seconds more of waiting that would settle an undecided verdict; inf at the margin, nan when not known.
        Of no row with a cause: more of the same decides nothing."""
        more: dict[int, float] = {}
        for i, (interval, rounds, _, _) in self._intervals.items():
            if i not in self.unpaired and self.rulings[i].is_open and not self.rulings[i].cause:
                sampled = sum(float(self._blocks[j].wall.sum()) for j in self.beside(i))
                total = self.elapsed if self.is_over_processes(i) else self.subjects[i].waited_for(sampled)
                need = rounds_to_decide(interval, rounds, self.margin)
                more[i] = (max(need, rounds + 1) - rounds) * total / rounds  # NaN stays NaN
        return more

    @cached_property
    def details(self) -> pd.DataFrame:
        """One row per measurement, seconds: ``first_call warmup_calls precision_low precision_high
        reproducibility_low reproducibility_high page_faults wall_over_cpu loop_overhead``.

        Precision is where this run's median lies (95 %, exact). Reproducibility is `known_range`: NaN where a single
        short run does not know it.
        """
        rows = [
            detail(subject, self._blocks[i], self.call_times(i), self.known_range(i))
            for i, subject in enumerate(self.subjects)
        ]
        return pd.DataFrame(rows)

    def known_range(self, measurement: int) -> Range | None:
        """The range in which the median repeats: of several processes; else of windows of one run that spans 20 s, and
        of the stored runs of the same thing where there is a history; of both where there are both."""
        if self.is_over_processes(measurement):
            medians = self.processes.query(f"measurement == {measurement}")["median"]
            seconds = self.subjects[measurement].span * len(medians)  # one after the other
            if len(medians) < RUNS or not seconds >= SPAN:  # so few miss each other by chance; see `timing.verdict`
                return self.history.get(measurement)
            return Range(float(medians.min()), float(medians.max()), len(medians), of_processes=True)
        sampled = float(self._blocks[measurement].wall.sum())
        windows = range_of_windows(self.call_times(measurement), sampled, self.subjects[measurement].span)
        runs = self.history.get(measurement)
        if windows is None or runs is None:
            return windows or runs
        return Range(min(windows.low, runs.low), max(windows.high, runs.high), runs.windows, of_runs=True)

    # ---- the same samples, seen otherwise -------------------------------------------------------------------

    def rebase(self, name: str) -> Comparison:
        """The same samples against another baseline.

        Raises:
            InputError: no measurement has that description (of results side by side: nor is one of them called so).
        """
        rebased: Comparison = result_base.hand_on(self, "rebase", name=name)
        return rebased

    def diff(
        self, name: str | CountKey | None = None, against: str | CountKey | None = None, inclusive: bool = False
    ) -> CountsDiff:
        """What one alternative executes that another does not, per function.

        Args:
            name: an alternative, or a whole key of ``counts``; None is the first that is not the baseline.
            against: the same; None is the baseline, at the same input and thread count.
            inclusive: count each function with those it calls.

        Raises:
            InputError: one of them was not counted, or there is only one.
        """
        return counted_rows.diff_of(self.counts, self.count_pairs, name, against, inclusive)

    # ---- handed on ------------------------------------------------------------------------------------------

    def compare(self) -> Any:
        """A ``torch.utils.benchmark.Compare`` of the measurements, one that shows unlike runs as rows of their own."""
        return result_base.show(self, "compare")

    def plot(self, *, kind: str = "scaling", axis: str | None = None, ax: Any = None) -> Any:
        """Times along a sweep axis or against threads, or the samples, with matplotlib; its Axes are returned
        (``.figure.savefig("curve.svg")``).

        Args:
            kind: ``scaling`` or ``distribution``.
            axis: name of a numeric sweep axis or ``num_threads``; None is the sweep axis with the most values, else
                the thread count.
            ax: matplotlib Axes to draw into; None makes a new figure.

        Raises:
            MissingTool: matplotlib is not installed.
            InputError: there is nothing to plot along.
            OptionError: an unknown kind.
        """
        return result_base.show(self, "plot", kind=kind, axis=axis, ax=ax)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The frame as CSV: written to ``path``, or returned."""
        text: str | None = self.frame.to_csv(path, index=False)
        return text
