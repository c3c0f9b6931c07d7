"""The operations of a profile: what torch ran, how often, how long, and on which lines of the notebook."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.errors import OptionError
from torchbench_magic.results.profiling.profile import Profile

from ..built_columns import BuiltColumn, cells_of, columns_of, counted, measured_columns, rest_of, share, texts
from ..frame_rows import float_or_none, frame_rows
from ..name_in_notebook import of_result
from ..table import Cell, Column, Group, Rest, Row, Table
from .callers import callers
from .grouping import Grouping, grouping_of
from .of_roof import efficiency_columns
from .place_names import first_and_more, op_text, place, shapes_text

__all__ = ["MOST_REST", "SORT_KEYS", "STEP_RANGE", "grouped", "is_backward", "operations", "sort_column"]

_TIMES = ("self_cpu_time", "cpu_time", "self_device_time", "device_time")
_SUMS = ("calls", *_TIMES, "allocated", "freed", "flops", "bytes")
_COLUMNS = ("op", *_SUMS, "peak")

SORT_KEYS = {
    **{name: name for name in _COLUMNS},
    "count": "calls",
    "operation": "op",
    "name": "op",
    "cpu_time_total": "cpu_time",
    "self_cpu_time_total": "self_cpu_time",
    **{
        f"{self}{device}_time{total}": f"{self}device_time"
        for self in ("", "self_")
        for device in ("device", "cuda", "xpu", "privateuse1")
        for total in ("", "_total")
    },
    **{
        f"{self}{device}_memory_usage": "allocated"
        for self in ("", "self_")
        for device in ("cpu", "device", "cuda", "xpu", "privateuse1")
    },
}
"""What ``sort_by`` may be: the columns of ``.ops``, and torch's names for them, old and new."""

_FLOP = tuple(units.Scale(f"{prefix}FLOP", size) for prefix, size in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)))
_ON_NO_LINE = 1e-9  # of the self time: below, it is rounding
_LEAST_SHARE = 1e-3
_MUCH = 0.1  # of the self time: then what is left out is not small
_DEFAULT_ROWS = 12
_MOST_MADE = 1_000  # rows of a table; the rest of all of them are columns, and nothing opens in them
MOST_REST = 4_000
"""Rows that an inline output holds beside those that it shows: about 100 KB."""
_WORDS = {
    "self_cpu_time": "self time",
    "cpu_time": "total time",
    "self_device_time": "device time",
    "device_time": "total device time",
    "op": "name",
    "allocated": "allocated bytes",
    "freed": "freed bytes",
}
STEP_RANGE = "ProfilerStep*"
"""What torch calls the range of a step: no operation, and its own time is that of the loop's Python."""
_BACKWARD = re.compile(r"^(autograd::|torch::autograd::|AccumulateGrad)|Backward\d*(: |$)")


def sort_column(key: str | None) -> str:
    """The column of ``.ops`` that ``key`` means; the self time if None.

    Raises:
        OptionError: no such key; the message lists those there are.
    """
    if key is None:
        return "self_cpu_time"
    if key not in SORT_KEYS:
        raise OptionError(f"sort_by {key!r} is unknown; use one of {', '.join(SORT_KEYS)}")
    return SORT_KEYS[key]


def is_backward(op: str) -> bool:
    """Whether this op is autograd's own frame of a backward pass, by its name."""
    return _BACKWARD.search(op) is not None


def grouped(ops: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Rows of ``.ops`` summed per group.

    Three columns say where they come from, largest self time first: ``places`` with (cell, file, line), ``shapes``
    with texts; ``shares`` has the parts of the self time on each of the places, 1 together with what is on no line.
    Text columns of ``by`` that are NA become empty.
    """
    names = list(by)
    if ops.empty:
        return pd.DataFrame(columns=[*names, *(c for c in _COLUMNS if c not in names), "places", "shapes", "shares"])
    text = {name: ops[name].fillna("") for name in names if ops[name].dtype == object}
    filled = ops.assign(**text)
    grouping = filled.groupby(names, sort=False, dropna=False)
    made = grouping[list(_SUMS)].sum(min_count=1)
    made["peak"] = grouping["peak"].max()
    made = made.reset_index()
    keys = list(made[names].itertuples(index=False, name=None))
    for column, parts in (("places", ["cell", "file", "line"]), ("shapes", ["input_shapes"])):
        found = _distinct(filled, names, parts)
        made[column] = pd.Series([tuple(found.get(key, {})) for key in keys], dtype=object)
        if column == "places":
            on_lines = [[*found.get(key, {}).values()] for key in keys]
            totals = [total or math.nan for total in made["self_cpu_time"]]
            shares = [tuple(t / of for t in times) for times, of in zip(on_lines, totals, strict=True)]
            made["shares"] = pd.Series(shares, dtype=object)
    return made


def _distinct(ops: pd.DataFrame, names: list[str], parts: list[str]) -> dict[tuple[Any, ...], dict[Any, float]]:
    """Group -> its distinct values of ``parts`` with their self times, the largest first; unknown ones left out."""
    known = ops[ops[parts[-1]].notna()]
    given = [known[part] for part in parts]
    times = known["self_cpu_time"].groupby([*(known[name] for name in names), *given], dropna=False).sum()
    found: dict[tuple[Any, ...], dict[Any, float]] = {}
    for key, seconds in times.sort_values(ascending=False, kind="stable").items():
        value = key[len(names) :]  # type: ignore[index]
        found.setdefault(key[: len(names)], {})[value if len(parts) > 1 else value[0]] = float(seconds)  # type: ignore[index]
    return found


def _lines_text(places: Sequence[tuple[Any, Any, Any]], shares: Sequence[float]) -> str:
    """``In[3]:4`` where all of it stands there, ``In[3]:4 (62 %) and 9 more``, ``no line (83 %) and 1 more``.

    Work on no line is one of the others. The share is that of the self time.
    """
    stands = [(place(*where), share) for where, share in zip(places, shares, strict=True)]
    left = 1 - sum(shares)
    if left > _ON_NO_LINE or not stands:
        stands = sorted([*stands, ("no line", left)], key=lambda each: -each[1])
    name, share = stands[0]
    if len(stands) == 1:
        return name
    part = f" ({round(100 * share)} %)" if share == share else ""
    return f"{name}{part} and {len(stands) - 1} more"


def operations(
    profile: Profile,
    *,
    sort_by: str | None = None,
    row_limit: int | None = None,
    group_by: str | None = None,
    most_rest: int | None = MOST_REST,
) -> Table:
    """The table of operations, largest first.

    Args:
        sort_by: one of `SORT_KEYS`; the self time if None.
        row_limit: at most so many rows; if None, the 20 first that matter. A negative one, as in torch, is no limit.
        group_by: one row per operation (``op``), and its ``shape``, ``line``, ``module`` or ``stack:N``.
        most_rest: rows that live forms have beside these, about; those with the largest of each column. None: all.

    Raises:
        OptionError: an unknown ``sort_by`` or ``group_by``.
        InputError: what is grouped by was not recorded.
    """
    column, grouping = sort_column(sort_by), grouping_of(group_by)
    ops = grouping.rows(profile)
    every = grouped(ops[ops["op"] != STEP_RANGE], grouping.columns)
    known = bool(every[column].notna().any()) or every.empty
    ordered = every.sort_values(
        column if known else "self_cpu_time", ascending=column == "op", na_position="last", kind="stable"
    )
    if row_limit is not None:
        shown = ordered.head(row_limit if row_limit >= 0 else _MOST_MADE)
    else:
        shown = (ordered if sort_by is not None and known else _mattering(ordered)).head(_DEFAULT_ROWS)
    built, rows = _rows(profile, shown, every, grouping)
    by = _WORDS.get(column, column) if known else "self time"
    hidden = _hidden(ordered, shown, "operations" if grouping.by == "op" else "rows", by)
    none = "no torch operation ran" if profile.has_op_times else "torch operations were not recorded"
    if not known:
        hidden = "; ".join(part for part in (f"{column} was not measured: sorted by self time", hidden) if part)
    return Table(
        "operations",
        columns_of(built),
        (Group(tuple(rows)),) if rows else (),
        hidden=hidden if rows else none,
        sorted_by={"self_cpu_time": "self", "cpu_time": "total", "op": "op"}.get(column, column) if known else "self",
        descending=column != "op",
        rest=_rest(built, ordered, shown, most_rest) if row_limit is None or row_limit < 0 else None,
        keyed="op",
    )


def _mattering(ordered: pd.DataFrame) -> pd.DataFrame:
    """Operations with a thousandth of the time, on the device too, or a hundredth of the largest's bytes."""
    total, bytes_top = ordered["self_cpu_time"].sum(), ordered["allocated"].max()
    matters = ordered["self_cpu_time"] >= _LEAST_SHARE * total
    if pd.notna(bytes_top) and bytes_top > 0:
        matters |= (ordered["allocated"] >= 0.01 * bytes_top).fillna(False).astype(bool)
    device = ordered["self_device_time"]
    if device.notna().any() and device.sum() > 0:
        matters |= device >= _LEAST_SHARE * device.sum()
    left = total - ordered["self_cpu_time"][matters].sum()
    if left > _MUCH * total:  # many small ones: the largest of them say more than none
        matters.iloc[:_DEFAULT_ROWS] = True
    return ordered[matters]


def _rest(built: Sequence[BuiltColumn], ordered: pd.DataFrame, shown: pd.DataFrame, most: int | None) -> Rest | None:
    """The other rows; of more than ``most`` those with the largest of each column."""
    left = ordered[~ordered.index.isin(shown.index)]
    numbers = [name for name in (*_SUMS, "peak") if name in ordered and ordered[name].notna().any()]
    top = 0
    if most is not None and len(left) > most:
        top = most // len(numbers)
        ranked = (pd.to_numeric(ordered[name]).nlargest(top, keep="first").index for name in numbers)
        left = left[left.index.isin(frozenset(at for index in ranked for at in index))]
    return rest_of(built, frame_rows(left), lambda record: str(record["op"]), len(ordered), top)


def _hidden(ordered: pd.DataFrame, shown: pd.DataFrame, what: str, by: str) -> str:
    rest = len(ordered) - len(shown)
    if not rest:
        return ""
    left = ordered["self_cpu_time"].sum() - shown["self_cpu_time"].sum()
    took = f"take{'s' if rest == 1 else ''} {units.seconds_text(max(left, 0.0), digits=2)}"
    seen = units.count(len(shown)) if len(shown) else "none"
    if len(shown) and shown.index.equals(ordered.index[: len(shown)]):
        seen = f"the {seen} {'first' if by == 'name' else 'largest'} by {by}"
    counted = f"{seen} of {units.count(len(ordered))} {what}; the other {units.count(rest)} {took}"
    return f"{counted}. All rows: {of_result('.ops')}"


def _rows(
    profile: Profile, shown: pd.DataFrame, every: pd.DataFrame, grouping: Grouping
) -> tuple[list[BuiltColumn], list[Row]]:
    shapes, by_shape = profile.options.shapes and not grouping.shown, grouping.by == "shape"
    time = units.spread_scale([*every["cpu_time"], *every["self_cpu_time"]])
    opened = [str(op) for op in shown["op"]] if grouping.by in ("op", "shape") else []
    details = callers(profile, opened, by_shape=by_shape, shapes=shapes)
    top = float(every["self_cpu_time"].max()) if len(every) else 0.0
    built = [
        texts("op", "operation", 36, lambda record: op_text(str(record["op"]))),
        counted("calls", "calls"),
        measured_columns("self", "self", time, "self_cpu_time"),
        BuiltColumn(
            Column("bar", "", kind="bar", legend=_legend(profile, every)),
            lambda record: Cell(picture=_bar(profile, record, top)),
        ),
        share("self", lambda op: op["self_cpu_time"] / profile.wall_time if profile.wall_time else math.nan),
        measured_columns("total", "total", time, "cpu_time"),
    ]
    if (every["self_device_time"] > 0).any():
        built.append(measured_columns("self_device_time", "device", units.spread_scale(every["self_device_time"])))
    if every["allocated"].notna().any():
        memory = units.bytes_scale([float_or_none(value) for value in every["allocated"]])
        built.append(measured_columns("allocated", "allocated", memory))
    if every["flops"].notna().any():
        built += _work(
            units.smallest_scale([float_or_none(value) for value in every["flops"] if float_or_none(value)], _FLOP)
        )
    built += efficiency_columns(profile, grouping.rows(profile), grouping.columns)
    if grouping.shown:
        name = grouping.shown
        built.append(texts(name, name, 60, lambda record: str(record[name]).replace("\n", " ← ")))
    else:
        has_lines = bool(profile.ops["line"].notna().any())
        built.append(texts("line", "line", 30, lambda op: _lines_text(op["places"], op["shares"]) if has_lines else ""))
    if shapes:
        built.append(texts("input_shapes", "input shapes", 40, _shapes, quiet=True))
    rows = []
    for record in frame_rows(shown):
        key = (str(record["op"]), str(record["input_shapes"]) if by_shape else "")
        rows.append(Row(cells_of(built, record), key=str(record["op"]), detail=details.get(key)))
    return built, rows


def _shapes(record: Mapping[str, Any]) -> str:
    return first_and_more([shapes_text(str(shape)) for shape in record["shapes"]])


def _work(scale: units.Scale) -> list[BuiltColumn]:
    """FLOP of an operation, and FLOP/s."""

    def work(record: Mapping[str, Any]) -> Cell:
        value = float_or_none(record["flops"])
        return Cell("" if value is None else units.number(value, scale), value)

    return [
        BuiltColumn(Column("flops", "work", scale.unit, "number"), work),
        BuiltColumn(Column("speed", "speed", "GFLOP/s", "number"), _speed),
    ]


def _speed(record: Mapping[str, Any]) -> Cell:
    """Work over the time of the operation with all that it calls, on the device where it ran there."""
    work = float_or_none(record["flops"])
    seconds = float_or_none(record["device_time"]) or float_or_none(record["cpu_time"])
    if work is None or not seconds:
        return Cell()
    return Cell(units.number(work / seconds / 1e9), work / seconds)


def _bar(profile: Profile, record: Mapping[str, Any], top: float) -> tuple[object, ...]:
    own = float(record["self_cpu_time"])
    return (((_meaning(profile, str(record["op"])), own / top),), ()) if top and own else ()


def _meaning(profile: Profile, op: str) -> str:
    return "python" if op in profile.ranges else "backward" if is_backward(op) else "torch"


def _legend(profile: Profile, ops: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """What the colours of the bars mean, where there is more than one."""
    there = {_meaning(profile, str(op)) for op in ops["op"]}
    words = (("torch", "torch"), ("backward", "autograd's backward"), ("python", "record_function, mostly Python"))
    return tuple(key for key in words if key[0] in there) if len(there) > 1 else ()
