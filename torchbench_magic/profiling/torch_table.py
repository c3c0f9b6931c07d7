"""The operations as torch prints them: ``prof.key_averages().table()``, filled from a profile.

Stacks are counted in frames of the call tree (``In[3]:4 in forward``), where torch's are empty in a notebook.
"""

from __future__ import annotations

from inspect import signature
from numbers import Integral
from typing import Any

from torch.autograd.profiler_util import EventList, FunctionEventAvg

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.printable import printable
from torchbench_magic.profiling.memory.allocations import devices_of
from torchbench_magic.show.table import float_or_none, frame_rows

from .call_tree_tables import ops_by_stack
from .ops_view import Record, grouped, largest_first, sort_column
from .profile import Profile

_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


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
        time_unit: ``s``, ``ms`` or ``us`` for all times; each its own if None. Not with the oldest torch.

    Raises:
        OptionError: an unknown ``sort_by`` or ``time_unit``, one that this torch does not take, or a negative number
            of frames.
        InputError: what is grouped by was not recorded.
    """
    column = sort_column(sort_by)
    if time_unit is not None and time_unit not in _TIME_UNITS:
        raise OptionError(f"time_unit {time_unit!r} is unknown; use s, ms or us")
    if time_unit is not None and "time_unit" not in signature(EventList.table).parameters:
        raise OptionError("the table of this torch has no time_unit, that of torch 2.13 has: leave it out")
    if not _is_whole(group_by_stack_n) or group_by_stack_n < 0:
        raise OptionError(f"group_by_stack_n={group_by_stack_n}: give a whole number of at least 0")
    if not _is_whole(row_limit):
        raise OptionError(f"row_limit={row_limit}: give a whole number; -1 is all rows")
    if group_by_input_shape and not profile.options.shapes:
        raise InputError("shapes were not recorded: use --shapes to group by shape")
    made = _rows(profile, by_shape=group_by_input_shape, depth=group_by_stack_n)
    if not made:
        return f"{profile.none_ran}\n"
    devices = {track.device.partition(":")[0] for track in profile.trace.tracks} - {""} if profile.trace else set()
    device = devices.pop() if len(devices) == 1 else "device"
    stack = ["stack"] if group_by_stack_n else []
    events = EventList(
        [_event(record, device, by_shape=group_by_input_shape, stack=stack) for record in largest_first(made, column)],
        use_device=device,
        profile_memory=profile.options.memory,
        with_flops=profile.options.flops,
    )
    unit_of_all = {} if time_unit is None else {"time_unit": time_unit}
    text = str(events.table(row_limit=row_limit, header=header, **unit_of_all))
    if not set(devices_of(profile.memory)) <= {"cpu"}:  # .ops adds up several devices
        text = text.replace(" CPU Mem", " All Mem")
    unit = time_unit or next((unit for unit, size in _TIME_UNITS.items() if profile.wall_time >= size), "us")
    return f"{text}Wall time: {profile.wall_time / _TIME_UNITS[unit]:.3f}{unit}\n"


def _event(record: Record, device: str, *, by_shape: bool, stack: list[str]) -> Any:
    """A row as torch's tables have it: microseconds, and memory as what is kept."""
    event: Any = FunctionEventAvg()  # torch's attributes have narrower annotations
    event.key, event.count, event.node_id = printable(str(record["op"])), int(record["calls"]), -1
    event.use_device, event.is_legacy = device, True  # what ran on a device stands with the op that launched it
    for name in ("self_cpu_time", "cpu_time", "self_device_time", "device_time"):
        setattr(event, f"{name}_total", 1e6 * (float_or_none(record[name]) or 0.0))
    event.cpu_memory_usage, event.self_cpu_memory_usage = int(record["net_total"] or 0), int(record["net"] or 0)
    event.flops = float_or_none(record["flops"]) or 0
    event.input_shapes = str(record["input_shapes"]) if by_shape else None
    event.stack = [printable(frame) for name in stack for frame in str(record[name]).split("\n")]
    return event


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
