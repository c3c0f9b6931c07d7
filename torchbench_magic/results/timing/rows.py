"""The rows of a comparison's tables: pure functions of one measurement's samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .blocks import Blocks
from .intervals import Floats, median_interval
from .proof.compile_costs import calls_to_pay
from .proof.trial import Trial
from .ranges import Range
from .subject import Subject

__all__ = ["are_speeds", "are_tried", "frame_columns", "detail", "judgement", "seen", "with_trials"]

_IDENTITY = ("label", "sub_label", "description", "env", "num_threads", "device")



_TRIED = ("result", "max_difference", "compile_time", "break_even")


def are_tried(subjects: Iterable[Subject]) -> bool:
    """Whether levers were tried."""
    return any(subject.trial is not None for subject in subjects)


def are_speeds(verdicts: Iterable[str]) -> bool:
    """Whether ratios with these verdicts are told as "times as fast" (time of the baseline / time); else as "times as
    long", where something is slower and nothing faster. One direction for sentence, table and doubts."""
    words = set(verdicts)
    return "faster" in words or "slower" not in words


def frame_columns(axes: Sequence[str], subjects: Iterable[Subject] = ()) -> list[str]:
    """Names of the columns of ``Comparison.frame``, in order."""
    times = ["median", "iqr", "mean", "cpu_clock_median", "samples", "number_per_run"]
    judged = ["ratio", "ratio_low", "ratio_high", "verdict", "method", "instructions", "instructions_ratio"]
    return [*_IDENTITY, *axes, *times, *judged, *(_TRIED if are_tried(subjects) else ())]


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


def judgement(ratio: float, low: float, high: float, verdict: str | None, method: str | None) -> dict[str, Any]:
    """The ratio, verdict and method of a row; the method is missing where ratio and verdict are."""
    return {
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": pd.NA if verdict is None else verdict,
        "method": pd.NA if method is None or (verdict is None and math.isnan(ratio)) else method,
    }


def with_trials(
    records: list[dict[str, Any]], subjects: Sequence[Subject], base_row: Callable[[int], int | None]
) -> list[dict[str, Any]]:
    """The rows with what was seen of each lever: result, largest difference, compile time in seconds, calls until that
    has paid (of what is faster). As they are where none was tried."""
    if not are_tried(subjects):
        return records
    rows = []
    for at, (record, subject) in enumerate(zip(records, subjects, strict=True)):
        trial = subject.trial if subject.trial is not None else Trial()
        base = base_row(at)
        paid = math.nan
        if base is not None and record["verdict"] == "faster":
            paid = calls_to_pay(trial.compile_time, records[base]["median"], record["median"])
        values = (trial.result or pd.NA, trial.max_difference, trial.compile_time, paid)
        rows.append({**record, **dict(zip(_TRIED, values, strict=True))})
    return rows


def detail(subject: Subject, rows: Blocks, times: Floats, repeats: Range | None) -> dict[str, Any]:
    """How the figures of a row were measured, in seconds; see ``Comparison.details``."""
    precision = median_interval(times)
    known = math.isfinite(precision.width)
    cpu = float(rows.cpu.sum())
    return {
        "first_call": subject.first_call,
        "warmup_calls": subject.warmup_calls,
        "precision_low": precision.low if known else math.nan,
        "precision_high": precision.high if known else math.nan,
        "reproducibility_low": repeats.low if repeats is not None else math.nan,
        "reproducibility_high": repeats.high if repeats is not None else math.nan,
        "page_faults": subject.page_faults,
        "wall_over_cpu": float(rows.wall.sum()) / cpu if cpu > 0 else math.nan,
        "loop_overhead": subject.loop_overhead,
    }
