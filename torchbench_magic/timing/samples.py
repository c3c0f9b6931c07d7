"""What one measurement is of and its samples: the subject, the blocks, the rows of the tables."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from torchbench_magic.array_types import Floats, Ints
from torchbench_magic.process.contention import Contention
from torchbench_magic.process.environment import EnginePlace, Environment
from torchbench_magic.process.values_between_runs import Value

from .intervals import Look, median_interval
from .verdict import NEAR_LOOP, Range

# ---- trial -----------------------------------------------------------------------------------------------------------
# What was seen of a lever besides its time: whether the result stayed the same, and what compiling took.

AS_IT_IS = "as it is"
"""The alternative that levers are compared with: the body without any."""
AXIS = "result"
"""Axis that names the result a row is from."""

Outcome = Literal["", "equal", "close", "differs"]


@dataclass(frozen=True)
class Trial:
    """One lever, tried.

    Attributes:
        result: against the baseline's: "equal" in every bit, "close" by ``torch.testing.assert_close`` at the
            tolerance of the dtype, or "differs"; empty where nothing could be compared.
        max_difference: the largest absolute difference of two numbers; NaN where nothing was compared.
        differs_in: what of the result is of another kind than the baseline's: "dtype float64, not float32", "tuple, not
            list"; empty where nothing is.
        compile_time: seconds that the first call took more than the second, where the lever compiles; else NaN.
        how: what to write to have it: ``model = torch.compile(model)``.
        changed: in words, what was changed before the clock started, such as copies that were made.
    """

    result: Outcome = ""
    max_difference: float = math.nan
    compile_time: float = math.nan
    how: str = ""
    changed: str = ""
    differs_in: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the result stayed the same within the tolerance."""
        return self.result in ("equal", "close")


# ---- compile_costs ---------------------------------------------------------------------------------------------------
# What ``torch.compile`` cost an alternative, and the calls after which that has paid.

_TRIED = ("result", "max_difference")


def calls_to_pay(compile_seconds: float, baseline_seconds: float, seconds: float) -> float:
    """Calls after which compiling has paid: compile time / (call of the baseline - call of what was compiled).

    Returns:
        A whole number; NaN where a call is no faster, and where one of the three is not known.
    """
    saved = baseline_seconds - seconds
    return float(math.ceil(compile_seconds / saved)) if compile_seconds >= 0 and saved > 0 else math.nan


# ---- subject ---------------------------------------------------------------------------------------------------------
# What one measurement is of: its identity, its code, and the single facts about it.

Clock = Literal["wall", "cpu", "device"]
Language = Literal["python", "c++"]


@dataclass(frozen=True)
class Subject:
    """What one measurement is of, and the single facts that belong to it. Times in seconds.

    Attributes:
        label, sub_label, description, env, num_threads, device: its identity, as in torch's TaskSpec.
        axes: (name, value) of each sweep axis at this point.
        drawn: a fuzzer drew its inputs.
        group: measurements of one group were sampled side by side and share their round numbers.
        look: whether the run was free to stop at any time ("anytime") or looked once, at its end ("once").
        stmt, setup, global_setup: the code.
        language: of the code; ``global_setup`` is C++'s alone.
        functions: (name, source_id) of each function of the notebook that the code may call.
        inputs: (name, what it held) of each variable that setup, body and those functions read, after the setup, in
            words: shapes, dtypes, devices, lengths, plain numbers; None where it was not recorded.
        given: the same of what the notebook gave, before the setup; not what the setup, a sweep or a fuzzer made.
        values, given_values: what else it read then, and of what the notebook gave: numbers, texts and containers in
            dicts, classes, modules and instances; see `process.values_between_runs`. None where it was not recorded.
        first_call: the very first call, compiling and loading included; never a sample.
        warmup_calls: calls until the time and the page faults of a call had settled.
        loop_overhead: what the loop costs a call; it is taken out of the samples.
        page_faults: minor page faults a call, during the samples.
        waited: share of the samples' time in which the host waited for the accelerator; NaN without one.
        span: from the first to the last sample.
        contention: what else wanted the processor while its group was sampled.
        state: in words, the settings of the process that it ran with and that are not the notebook's own, such as
            "grad mode off".
        used_up: (how, name) of what later calls do not find, or do not do; see `repeat_warnings`.
        compile_time: that ``torch.compile`` took in its first calls and its warm-up; NaN where it compiled nothing.
        compiled_in_samples: how often it compiled while it was timed.
        recompiled: why, in words, each reason once.
        fell_back: why something of it was not compiled any more, in words; empty where all was, or nothing.
        place: the engine that measured it; None for this process, or its fresh interpreters.
        trial: what a lever was seen to do besides; None where none was tried.
    """

    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1
    device: str = "cpu"
    axes: tuple[tuple[str, object], ...] = ()
    group: int = 0
    look: Look = "anytime"
    stmt: str = ""
    setup: str = ""
    global_setup: str = ""
    language: Language = "python"
    functions: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] | None = None
    given: tuple[tuple[str, str], ...] = ()
    values: tuple[Value, ...] | None = None
    given_values: tuple[Value, ...] | None = None
    first_call: float = math.nan
    warmup_calls: int = 0
    loop_overhead: float = 0.0
    page_faults: float = math.nan
    waited: float = math.nan
    span: float = math.nan
    contention: Contention | None = None
    state: tuple[str, ...] = ()
    used_up: tuple[tuple[str, str], ...] = ()
    place: EnginePlace | None = None
    trial: Trial | None = None
    compile_time: float = math.nan
    compiled_in_samples: int = 0
    recompiled: tuple[str, ...] = ()
    fell_back: str = ""
    drawn: bool = False

    @property
    def before(self) -> str:
        """All that comes before the statement, by which its source is identified."""
        return self.setup if self.language == "python" else f"// c++\n{self.global_setup}\n\0\n{self.setup}"

    @property
    def torch_fields(self) -> dict[str, Any]:
        """The fields of torch's ``TaskSpec``."""
        names = ("stmt", "setup", "global_setup", "label", "sub_label", "description", "env", "num_threads")
        return {name: getattr(self, name) for name in names}

    def environment_in(self, whole: Environment) -> Environment:
        """Where it was measured: in its engine's environment, else in that of the whole result."""
        return self.place.environment if self.place is not None and self.place.environment is not None else whole

    @property
    def near_loop(self) -> float:
        """Seconds a call below which no verdict is given, where blocks are of many calls."""
        return NEAR_LOOP[self.language]

    def waited_for(self, sampled: float) -> float:
        """Wall seconds in which the rounds of its group were sampled, with all that passes between blocks.

        Args:
            sampled: seconds of the group's blocks; of a result that recorded no more (torch's), these.
        """
        turns = self.contention.wall if self.contention is not None else math.nan  # without those of other threads
        known = [seconds for seconds in (turns, self.span) if seconds > 0]  # NaN is not
        return max(sampled, min(known)) if known else sampled


# ---- blocks ----------------------------------------------------------------------------------------------------------
# The blocks of one measurement as arrays: pandas would take a millisecond for each, too slow for long sweeps.


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks in the order taken; every array has shape (samples,).

    Attributes:
        round, position: which round, and the place in it.
        wall, cpu: seconds of the block.
        time: those of the clock that the figures are of.
        number: calls in the block.
        process: which one measured it, from 1 on; 0 where there is only the one.
    """

    round: Ints
    position: Ints
    wall: Floats
    cpu: Floats
    time: Floats
    number: Ints
    process: Ints

    def __len__(self) -> int:
        return len(self.round)

    @cached_property
    def calls(self) -> Floats:
        """Seconds of one call."""
        return self.time / self.number

    def by_round(self) -> tuple[Ints, Floats, Ints]:
        """(rounds, log of the seconds a call took in each, first place in each), by rising round.

        Where a round holds several blocks, the log of their mean: together they last as long as the one block of a
        slower alternative beside them, and hold their share of what disturbs, as that one does. The median of short
        blocks holds none of it, which made slow alternatives look up to 70 % slower yet on a busy machine. A block
        without a positive time does not count.
        """
        times = self.calls
        counts = times > 0
        rounds, logs, places = self.round[counts], np.log(times[counts]), self.position[counts]
        order = np.lexsort((places, rounds))
        rounds, logs, places = rounds[order], logs[order], places[order]
        starts = np.flatnonzero(np.diff(rounds, prepend=rounds[:1] - 1))
        if len(starts) < len(rounds):
            sizes = np.diff(starts, append=len(rounds))
            logs = np.log(np.add.reduceat(np.exp(logs), starts) / sizes)
        return rounds[starts], logs, places[starts]


@dataclass(frozen=True, eq=False)
class PairedRounds:
    """The rounds in which two measurements both took part; every array has shape (rounds,).

    Attributes:
        rounds: their numbers, rising.
        log_ratios: of the seconds a call took, the first over the second.
        before: whether the first one's block came first.
        seconds: of a call of either.
    """

    rounds: Ints
    log_ratios: Floats
    before: npt.NDArray[np.bool_]
    seconds: tuple[Floats, Floats]


def paired_rounds(one: Blocks, other: Blocks) -> PairedRounds:
    """The rounds of two measurements that were sampled side by side."""
    other_rounds, other_logs, other_places = other.by_round()
    rounds, logs, places = one.by_round()
    both, mine, theirs = np.intersect1d(rounds, other_rounds, assume_unique=True, return_indices=True)
    seconds = np.exp(logs[mine]), np.exp(other_logs[theirs])
    return PairedRounds(both, logs[mine] - other_logs[theirs], places[mine] < other_places[theirs], seconds)


def blocks_of(samples: pd.DataFrame, measurements: int, clock: str) -> list[Blocks]:
    """The blocks of each of so many measurements; see ``Comparison.samples``."""
    of = samples["measurement"].to_numpy()
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], np.arange(1, measurements))
    columns = [samples[name].to_numpy() for name in ("round", "position", "wall", "cpu", clock, "number")]
    columns.append(samples["process"].to_numpy() if "process" in samples else np.zeros(len(samples), dtype=np.int64))
    parts = [np.split(column[order], cuts) for column in columns]
    return [Blocks(*arrays) for arrays in zip(*parts, strict=True)][:measurements]


# ---- rows ------------------------------------------------------------------------------------------------------------
# The rows of a comparison's tables: pure functions of one measurement's samples.

_IDENTITY = ("label", "sub_label", "description", "env", "num_threads", "device")


def are_tried(subjects: Iterable[Subject]) -> bool:
    """Whether levers were tried."""
    return any(subject.trial is not None for subject in subjects)


def are_speeds(verdicts: Iterable[object]) -> bool:
    """Whether ratios with these verdicts are told as "times as fast" (time of the baseline / time); else as "times as
    long", where something is slower and nothing faster. One direction for sentence, table and doubts."""
    words = set(map(str, verdicts))
    return "faster" in words or "slower" not in words


def frame_columns(axes: Sequence[str]) -> list[str]:
    """Names of the columns of ``Comparison.frame``, in order."""
    times = ["median", "iqr", "mean", "cpu_clock_median", "samples", "number_per_run"]
    judged = ["ratio", "ratio_low", "ratio_high", "verdict", "method", "instructions", "instructions_ratio"]
    return [*_IDENTITY, *axes, *times, *judged]


def seen(subject: Subject, rows: Blocks, times: Floats) -> dict[str, Any]:
    """The names of a row, and its times in seconds per call.

    Args:
        rows: its blocks.
        times: seconds of one call, one value a block.
    """
    return {
        **{name: getattr(subject, name) for name in _IDENTITY},
        **dict(subject.axes),
        "median": float(np.median(times)) if len(times) else math.nan,
        "iqr": float(np.subtract(*np.percentile(times, [75, 25]))) if len(times) > 1 else math.nan,
        "mean": float(np.mean(times)) if len(times) else math.nan,
        "cpu_clock_median": float(np.median(rows.cpu / rows.number)) if len(rows) else math.nan,
        "samples": len(times),
        "number_per_run": int(rows.number[0]) if len(rows) else 0,
        "instructions": math.nan,
        "instructions_ratio": math.nan,
    }


def ratio_cells(ratio: float, low: float, high: float, verdict: str | None, method: str | None) -> dict[str, Any]:
    """The ratio, verdict and method of a row; the method is missing where ratio and verdict are."""
    return {
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": pd.NA if verdict is None else verdict,
        "method": pd.NA if method is None or (verdict is None and math.isnan(ratio)) else method,
    }


def with_compiling(
    records: Sequence[Mapping[str, Any]], subjects: Sequence[Subject], base_row: Callable[[int], int | None]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The rows with what was seen of each lever and what compiling took, and the columns that they have besides: none
    where nothing was tried or compiled.

    ``compile_time`` is in seconds, NaN where nothing was compiled; ``break_even`` are the calls after which that has
    paid against the baseline, NaN where the verdict is not ``faster`` or the compiler gave it up.
    """
    tried = are_tried(subjects)
    if not tried and not any(subject.compile_time >= 0 for subject in subjects):
        return [dict(record) for record in records], ()
    rows = []
    for at, (record, subject) in enumerate(zip(records, subjects, strict=True)):
        trial = subject.trial if subject.trial is not None else Trial()
        is_trials = trial.compile_time >= 0
        took = trial.compile_time if is_trials else subject.compile_time
        base, paid = base_row(at), math.nan
        if base is not None and str(record["verdict"]) == "faster" and (is_trials or not subject.fell_back):
            paid = calls_to_pay(took, records[base]["median"], record["median"])
        known = (trial.result or pd.NA, trial.max_difference) if tried else ()
        rows.append({**record, **dict(zip(_TRIED, known, strict=False)), "compile_time": took, "break_even": paid})
    return rows, (*(_TRIED if tried else ()), "compile_time", "break_even")


def detail(subject: Subject, rows: Blocks, times: Floats, repeats: Range | None) -> dict[str, Any]:
    """How the figures of a row were measured, in seconds; see ``Comparison.details``."""
    precision = median_interval(times)
    known = math.isfinite(precision.width)
    return {
        "first_call": subject.first_call,
        "warmup_calls": subject.warmup_calls,
        "precision_low": precision.low if known else math.nan,
        "precision_high": precision.high if known else math.nan,
        "reproducibility_low": repeats.low if repeats is not None else math.nan,
        "reproducibility_high": repeats.high if repeats is not None else math.nan,
        "page_faults": subject.page_faults,
        "wall_over_cpu": wall_over_cpu(rows),
        "loop_overhead": subject.loop_overhead,
    }


def wall_over_cpu(rows: Blocks) -> float:
    """NaN where no processor time was seen."""
    cpu = float(rows.cpu.sum())
    return float(rows.wall.sum()) / cpu if cpu > 0 else math.nan


# ---- samples ---------------------------------------------------------------------------------------------------------
# The samples of a run while it lasts: blocks as flat columns.


def _integers() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("d")


@dataclass
class Samples:
    """Blocks as flat columns, nanoseconds.

    Arrays and not lists: numbers kept as objects would move the free lists of Python's allocator from block to block,
    and a body that makes small objects (a loop over a range) runs up to a quarter slower on other free blocks.
    """

    round: array[int] = field(default_factory=_integers)
    measurement: array[int] = field(default_factory=_integers)
    wall: array[float] = field(default_factory=_floats)
    cpu: array[float] = field(default_factory=_floats)
    number: array[int] = field(default_factory=_integers)
    position: array[int] = field(default_factory=_integers)
    device: array[float] = field(default_factory=_floats)

    def frame(self, with_device: bool) -> pd.DataFrame:
        """``Comparison.samples``, times in seconds."""
        columns = {
            "round": np.array(self.round),
            "measurement": np.array(self.measurement),
            "wall": np.array(self.wall) / 1e9,
            "cpu": np.array(self.cpu) / 1e9,
            "number": np.array(self.number),
            "position": np.array(self.position),
        }
        if with_device:
            columns["device"] = np.array(self.device) / 1e9
        return pd.DataFrame(columns)

    def drop(self, measurements: set[int]) -> None:
        """Forget the blocks of these measurements."""
        kept = [i for i, measurement in enumerate(self.measurement) if measurement not in measurements]
        for item in fields(self):
            column = getattr(self, item.name)
            if column:  # that of the device is empty where it is not measured
                setattr(self, item.name, type(column)(column.typecode, [column[i] for i in kept]))
