"""The operations as torch prints them: the columns and headers of ``prof.key_averages().table()``.

Two things differ. Percentages are of the cell's wall time, not of the sum of all threads' op times; and stacks are
counted in frames of the call tree (``In[3]:4 in forward``), where torch's are empty in a notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.printable import printable
from torchbench_magic.profiling.memory.allocations import devices_of
from torchbench_magic.show.document import clipped
from torchbench_magic.show.table import float_or_none, frame_rows

from .call_tree_tables import ops_by_stack
from .ops_view import Record, grouped, largest_first, numbers, sort_column
from .profile import Profile

_WIDTH, _NAME, _SHAPES, _SOURCE = 12, 55, 80, 75  # characters of columns, as in torch
_TIME_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}
_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")

Written = tuple[str, int, str, Callable[[Mapping[str, Any]], str]]  # header, width, alignment, cell


def table(
    profile: Profile,
    sort_by: str | None = None,
    row_limit: int = 100,
    *,
    group_by_input_shape: bool = False,
    group_by_stack_n: int = 0,
    header: str | None = None,
    time_unit: str | None = None,
) -> str:
    """The table as text.

    Args:
        sort_by: a column of ``.ops`` or torch's name of it, old or new; the self time if None.
        row_limit: at most so many rows; -1 for all.
        group_by_input_shape: a row per operation and input shapes.
        group_by_stack_n: a row per operation and that many frames above it; 0: not by stack.
        header: a line above the table.
        time_unit: ``s``, ``ms`` or ``us`` for all times; each its own if None.

    Raises:
        OptionError: an unknown ``sort_by`` or ``time_unit``, or a negative number of frames.
        InputError: what is grouped by was not recorded.
    """
    column = sort_column(sort_by)
    if time_unit is not None and time_unit not in _TIME_UNITS:
        raise OptionError(f"time_unit {time_unit!r} is unknown; use s, ms or us")
    if not _is_whole(group_by_stack_n) or group_by_stack_n < 0:
        raise OptionError(f"group_by_stack_n={group_by_stack_n}: give a whole number of at least 0")
    if not _is_whole(row_limit):
        raise OptionError(f"row_limit={row_limit}: give a whole number; -1 is all rows")
    if group_by_input_shape and not profile.options.shapes:
        raise InputError("shapes were not recorded: use --shapes to group by shape")
    made = _rows(profile, by_shape=group_by_input_shape, depth=group_by_stack_n)
    if not made:
        return "no torch operation ran\n" if profile.has_op_times else "torch operations were not recorded\n"
    shown = largest_first(made, column)[: row_limit if row_limit >= 0 else None]
    columns = _columns(profile, made, time_unit, by_shape=group_by_input_shape, by_stack=group_by_stack_n > 0)
    rule = "  ".join("-" * width for _, width, _, _ in columns) + "  "
    lines = ["=" * (len(rule) - 2), header] if header is not None else []
    lines += [rule, _line(columns, [name for name, _, _, _ in columns]), rule]
    for record in shown:
        lines.append(_line(columns, [cell(record) for _, _, _, cell in columns]))
        for frame in str(record.get("stack", "")).split("\n")[1:]:
            lines.append(_line(columns, [*[""] * (len(columns) - 1), _source(frame)]))
        if group_by_stack_n:
            lines.append(_line(columns, [""] * len(columns)))
    total = 1e6 * sum(numbers(made, "self_cpu_time"))
    lines += [rule, f"Self CPU time total: {_time(total, time_unit)}"]
    if (device := sum(numbers(made, "self_device_time"))) > 0:
        lines.append(f"Self {_device(profile)} time total: {_time(1e6 * device, time_unit)}")
    lines.append(f"Wall time: {_time(1e6 * profile.wall_time, time_unit)}; percentages are of it")
    return "\n".join(lines) + "\n"


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral)


def _rows(profile: Profile, *, by_shape: bool, depth: int) -> list[Record]:
    """The operations summed, with ``net`` (bytes kept in it) and ``net_total`` (and in what it calls)."""
    by = ["op", *(["input_shapes"] if by_shape else []), *(["stack"] if depth else [])]
    in_tree = frame_rows(ops_by_stack(profile.frames, depth))
    made = grouped(in_tree if depth else frame_rows(profile.ops), by)
    kept: dict[tuple[str, ...], int] = {}
    for row in in_tree:
        if row["net_total"] is not None:
            key = tuple(row[name] or "" for name in by)
            kept[key] = kept.get(key, 0) + row["net_total"]
    for row in made:
        row["net_total"] = kept.get(tuple(row[name] for name in by))
        row["net"] = None if None in (row["allocated"], row["freed"]) else row["allocated"] - row["freed"]
    return made


def _columns(
    profile: Profile, made: list[Record], unit: str | None, *, by_shape: bool, by_stack: bool
) -> list[Written]:
    wall = 1e6 * profile.wall_time
    on_device = 1e6 * sum(numbers(made, "self_device_time"))
    device = _device(profile)

    def time(name: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda record: _time(1e6 * (float_or_none(record[name]) or 0.0), unit)

    def share(name: str, whole: float) -> Callable[[Mapping[str, Any]], str]:
        return lambda record: f"{1e8 * (float_or_none(record[name]) or 0.0) / whole:.2f}%" if whole else "NaN"

    def mean(name: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda record: _time(1e6 * (float_or_none(record[name]) or 0.0) / max(int(record["calls"]), 1), unit)

    def memory(name: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda record: _memory(float_or_none(record[name]))

    widest = min(max(len(printable(str(op["op"]))) for op in made) + 4, _NAME)
    cells: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("Self CPU %", share("self_cpu_time", wall)),
        ("Self CPU", time("self_cpu_time")),
        ("CPU total %", share("cpu_time", wall)),
        ("CPU total", time("cpu_time")),
        ("CPU time avg", mean("cpu_time")),
    ]
    if on_device:
        cells += [
            (f"Self {device}", time("self_device_time")),
            (f"Self {device} %", share("self_device_time", on_device)),
            (f"{device} total", time("device_time")),
            (f"{device} time avg", mean("device_time")),
        ]
    if profile.options.memory:
        held = "" if set(devices_of(profile.memory)) <= {"cpu"} else "All "  # of several devices, which .ops adds up
        cells += [(f"{held or 'CPU '}Mem", memory("net_total")), (f"Self {held or 'CPU '}Mem", memory("net"))]
    cells.append(("# of Calls", lambda record: str(int(record["calls"]))))
    columns: list[Written] = [("Name", widest, ">", lambda record: _name(str(record["op"])))]
    columns += [(name, _WIDTH, ">", cell) for name, cell in cells]
    if by_shape:
        longest = min(max(len(str(op["input_shapes"])) for op in made) + 4, _SHAPES)
        columns.append(("Input Shapes", longest, ">", lambda record: str(record["input_shapes"])[:longest]))
    if flops := numbers(made, "flops"):
        columns.append(_flops(flops))
    if by_stack:
        frames = [len(frame) for op in made for frame in str(op["stack"]).split("\n")]
        longest = min(max(frames, default=0) + 4, _SOURCE)
        columns.append(("Source Location", longest, "<", lambda record: _source(str(record["stack"]).split("\n")[0])))
    return columns


def _flops(known: Iterable[float]) -> Written:
    """In the unit of the smallest, as torch chooses it."""
    smallest = min(filter(None, known), default=1.0)
    power = 0
    while power < len(_FLOPS) - 1 and smallest >= 1e3 ** (power + 1):
        power += 1

    def cell(record: Mapping[str, Any]) -> str:
        value = float_or_none(record["flops"])
        return f"{value / 1e3**power:8.3f}" if value else "--"

    return f"Total {_FLOPS[power]}", _WIDTH, ">", cell


def _device(profile: Profile) -> str:
    """``CUDA``: torch's headers name the device; with several, ``Device``."""
    kinds = {track.device.partition(":")[0] for track in profile.trace.tracks} - {""} if profile.trace else set()
    return kinds.pop().upper() if len(kinds) == 1 else "Device"


def _line(columns: list[Written], cells: list[str]) -> str:
    written = (f"{text:{align}{width}}" for (_, width, align, _), text in zip(columns, cells, strict=True))
    return "  ".join(written) + "  "


def _name(op: str) -> str:
    op = printable(op)
    return op if len(op) < _NAME - 3 else f"{op[: _NAME - 3]}..."


def _source(frame: str) -> str:
    return clipped(printable(frame), _SOURCE)


def _time(microseconds: float, unit: str | None) -> str:
    if unit is None:
        unit = "s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us"
    return f"{microseconds / _TIME_UNITS[unit]:.3f}{unit}"


def _memory(nbytes: float | None) -> str:
    if nbytes is None:
        return "--"
    for size, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{int(nbytes)} B"
