"""Stacks of a profile as text, one a line with its own cost: what flamegraph.pl and speedscope read.

The format is Brendan Gregg's "folded": ``outermost;...;innermost 123``, as torch's ``export_stacks`` writes it.
"""

from __future__ import annotations

import os

import pandas as pd

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.printable import escaped
from torchbench_magic.results.written_files import STACKS, whole_file

__all__ = ["STACK_METRICS", "folded", "metric_column", "write_stacks"]

_DEVICES = ("device", "cuda", "xpu", "privateuse1")
STACK_METRICS: dict[str, str] = {
    "self_cpu_time_total": "self_cpu_time",
    "self_cpu_time": "self_cpu_time",
    "self_time": "self_time",
    "wall_time": "self_time",
    "time": "self_time",
    **{f"self_{device}_time{end}": "self_device_time" for device in _DEVICES for end in ("_total", "")},
    "device": "self_device_time",
    "allocated": "allocated",
    "bytes": "allocated",
}
"""What ``metric`` may be, torch's names and ours -> the column of ``.frames``."""

_MEANING = {
    "self_cpu_time": "time in ops of torch",
    "self_time": "time",
    "self_device_time": "device time",
    "allocated": "bytes (profile with --memory)",
}


def metric_column(metric: str) -> str:
    """The column that ``metric`` means.

    Raises:
        OptionError: no such metric; the message lists those there are.
    """
    if metric not in STACK_METRICS:
        raise OptionError(f"metric {metric!r} is unknown; use one of {', '.join(STACK_METRICS)}")
    return STACK_METRICS[metric]


def folded(frames: pd.DataFrame, metric: str = "self_cpu_time_total") -> str:
    """The stacks with a cost, one a line: whole nanoseconds, or bytes. Never empty.

    In names ``;`` (which parts the frames) is written ``\\x3b``, a control or direction character as its escape,
    and a double quote as a single one; a line of code is its place and its text.

    Raises:
        OptionError: an unknown metric.
        InputError: nothing of it was recorded.
    """
    column = metric_column(metric)
    values = frames[column]
    cost = (values.fillna(0).astype(float) * (1 if column == "allocated" else 1e9)).round().astype("int64").tolist()
    if not any(value > 0 for value in cost):
        known = [name for name, other in STACK_METRICS.items() if frames[other].fillna(0).sum() > 0]
        there = f"metrics with values: {', '.join(known)}" if known else "nothing was"
        raise InputError(f"no {_MEANING[column]} was recorded ({metric}), so there are no stacks to write; {there}")
    stacks: list[str] = []
    lines: list[str] = []
    columns = (frames[name].tolist() for name in ("parent", "name", "source"))
    for parent, name, source, value in zip(*columns, cost, strict=True):
        own = _frame_name(f"{name} {source}" if source else str(name))
        stacks.append(f"{stacks[parent]};{own}" if parent >= 0 else own)
        if value > 0:
            lines.append(f"{stacks[-1]} {value}\n")
    return "".join(lines)


def write_stacks(
    frames: pd.DataFrame,
    path: str | os.PathLike[str],
    metric: str = "self_cpu_time_total",
    *,
    overwrite: bool = False,
) -> None:
    """Write `folded` to a file, see `Profile.export_stacks`; where there is nothing to write, no file is."""
    text = folded(frames, metric)
    with whole_file(path, STACKS, overwrite=overwrite) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def _frame_name(name: str) -> str:
    name = name.replace(";", "\\x3b").replace('"', "'")
    return escaped(name).strip() or "?"
