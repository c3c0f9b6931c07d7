"""What ``torch.compile`` cost an alternative, and the calls after which that has paid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["COMPILE_COLUMNS", "calls_to_pay", "with_compile_times"]

COMPILE_COLUMNS = ("compile_time", "break_even")


class _Compiled(Protocol):
    """What a `Subject` knows of compiling."""

    @property
    def compile_time(self) -> float: ...
    @property
    def fell_back(self) -> str: ...


def calls_to_pay(compile_seconds: float, baseline_seconds: float, seconds: float) -> float:
    """Calls after which compiling has paid: compile time / (call of the baseline - call of what was compiled).

    Returns:
        A whole number; NaN where a call is no faster, and where one of the three is not known.
    """
    saved = baseline_seconds - seconds
    return float(math.ceil(compile_seconds / saved)) if compile_seconds >= 0 and saved > 0 else math.nan


def with_compile_times(
    records: Sequence[Mapping[str, Any]], subjects: Sequence[_Compiled], base_row: Callable[[int], int | None]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The rows with what compiling took, and the columns that they have besides: none where nothing was compiled.

    ``compile_time`` is in seconds, NaN where nothing was compiled; ``break_even`` are the calls after which that has
    paid against the baseline, NaN where the verdict is not ``faster`` or the compiler gave it up. What a row has
    already stays.
    """
    if not any(subject.compile_time >= 0 for subject in subjects):
        return [dict(record) for record in records], ()
    rows = []
    for at, (record, subject) in enumerate(zip(records, subjects, strict=True)):
        base, paid = base_row(at), math.nan
        if base is not None and str(record["verdict"]) == "faster" and not subject.fell_back:
            paid = calls_to_pay(subject.compile_time, records[base]["median"], record["median"])
        made = {"compile_time": subject.compile_time, "break_even": paid}
        known = {name: record[name] for name in made if name in record and not math.isnan(record[name])}
        rows.append({**record, **made, **known})
    return rows, COMPILE_COLUMNS
