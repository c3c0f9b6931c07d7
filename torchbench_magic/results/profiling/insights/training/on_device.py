"""``sync`` and ``transfer``: lines that make a device wait for the host, and copies that make the host wait."""

from __future__ import annotations

import numpy as np
import pandas as pd

from torchbench_magic import units

from ....insights import CodeLine, Cure, Insight
from ...device_times import busy_stretches, host_waits
from ...profile import Profile
from ...trace import Ints, Trace
from ..wording import LEAST_SECONDS, LEAST_SHARE, stake_text

__all__ = ["sync", "transfer"]

FEWEST = 3
"""Waits, or copies: a lone one at the end of a run is how a run ends."""
_FROM_PAGEABLE = "Pageable -> Device"
"""In the name that torch's profiler gives a copy from memory that is not pinned (``Memcpy HtoD (Pageable -> Device)``):
the driver copies it once more, and the host waits meanwhile."""
_TO_DEVICE = r"HtoD|HostToDevice|M2D"
"""The same, pinned or not, by the names of CUDA, ROCm and XPU."""
_PINNED = "x = x.pin_memory().to(device, non_blocking=True)"
_SHAPED_BY_VALUES = frozenset(
    (
        *("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"),
        *("aten::repeat_interleave", "aten::bincount"),
    )
)


def sync(profile: Profile) -> list[Insight]:
    """One for each line on which the host waits for a device that then, or later, has nothing to do.

    What waits is said at `device_times.host_waits`: ``.item()``, ``.cpu()``, ``.to(device)`` of memory that is not
    pinned, ``nonzero``, printing a tensor, ``synchronize()``. Without a wait all that follows would be launched earlier
    by as long as it took, and a device that is idle later on would be so for that much less.
    Silent: without a trace of a device; for waits after which the device goes on (another stream's work); below 5 %.
    Seconds at stake: see `_saved`.
    """
    trace, wall = profile.trace, profile.wall_time
    if trace is None or not wall > 0 or (waits := host_waits(trace)).empty:
        return []
    placed = waits.assign(stake=_saved(trace, waits))
    sources, lines = (trace.nodes[name].to_numpy() for name in ("source", "line"))
    node = placed["node"].to_numpy()
    placed = placed.assign(source=np.append(sources, -1)[node], line=np.append(lines, -1)[node])
    found, is_op = [], trace.is_kind("op")
    for place, mine in placed[placed["source"] >= 0].groupby(["source", "line"], sort=False):
        source, line = (int(str(each)) for each in place)
        seconds, counted = float(mine["stake"].sum()), mine[mine["stake"] > 0]
        parent = counted["parent"]  # a copy, and the wait for its end, are of one op
        times = parent.where(np.append(is_op, False)[parent], -1 - counted.index.to_series()).nunique()
        if times < FEWEST or seconds < LEAST_SECONDS or seconds < LEAST_SHARE * wall:
            continue
        where = _line(profile, trace.sources[source], line)
        text = (
            f"`{where}` makes the host wait for the device {units.count(times)} times, and then the device idles,"
            f" {stake_text(seconds, wall)}."
        )
        waited = float(mine["seconds"].sum())
        evidence: dict[str, object] = {"waits": times, "seconds_waited": waited}
        evidence["seconds_idle_each"] = seconds / times
        cures = _cures(profile, trace, where, mine["parent"].to_numpy())
        found.append(Insight("sync", seconds, seconds / wall, text, evidence, (where,), cures))
    return found


def _saved(trace: Trace, waits: pd.DataFrame) -> list[float]:
    """Seconds that each wait costs at most: those for which the busiest device is idle later on, no more than the wait
    took, and each given to the last wait before it that still has some."""
    busy = [busy_stretches(trace, device) for device in trace.devices]
    starts, ends = max(busy, key=lambda each: int((each[1] - each[0]).sum()))
    order = np.argsort(waits["end"].to_numpy(), kind="stable")
    ended, took = waits["end"].to_numpy()[order].tolist(), (waits["seconds"].to_numpy()[order] * 1e9).tolist()
    saved, open_waits, at = [0.0] * len(waits), [], 0
    for begin, end in zip(ends[:-1].tolist(), starts[1:].tolist(), strict=True):
        while at < len(ended) and ended[at] <= end:
            open_waits.append(at)
            at += 1
        idle = float(end - begin)
        while idle > 0 and open_waits:
            last = open_waits[-1]
            part = min(idle, took[last])
            saved[int(order[last])] += part / 1e9
            took[last] -= part
            idle -= part
            if took[last] <= 0:
                open_waits.pop()
    return saved


def _cures(profile: Profile, trace: Trace, where: CodeLine, parents: Ints) -> tuple[Cure, ...]:
    """By what waits on the line: an operation whose result's shape depends on values, a copy to the device or from it,
    or the code itself."""
    ops = {trace.names[name] for name in trace.events["name"].to_numpy()[_with_callers(trace, parents)].tolist()}
    if ops & _SHAPED_BY_VALUES:
        text = "The shape of the result depends on values, which the host has to read: use a mask of a known shape."
        return (Cure(text, "torch.where(mask, x, 0)  # or x * mask; torch.nonzero_static(x, size=n)"),)
    table = profile.device_events
    mine = table[(table["kind"] == "memcpy") & (table["source_id"] == where.source_id) & (table["line"] == where.line)]
    to_device = mine["name"].str.contains(_TO_DEVICE).astype(bool)
    cures: list[Cure] = []
    if to_device.any():
        cures.append(Cure("Copy from pinned memory (`DataLoader(..., pin_memory=True)`), without waiting.", _PINNED))
    if len(mine) > int(to_device.sum()):
        cures += [
            Cure("Keep the value on the device (`loss.detach()`), and read it rarely or after the loop."),
            Cure("Copy it without waiting, and read it a step later.", 'loss.detach().to("cpu", non_blocking=True)'),
        ]
    return tuple(cures) or (Cure("Wait once, after the loop: what is launched runs in order without it."),)


def _with_callers(trace: Trace, rows: Ints) -> list[int]:
    """These events and all in which they run; -1 is none."""
    parent, found = trace.events["parent"].to_numpy(), set()
    for row in set(rows.tolist()):
        at = row
        while at >= 0 and at not in found:
            found.add(at)
            at = int(parent[at])
    return sorted(found)


def transfer(profile: Profile) -> list[Insight]:
    """One for each line that copies memory that is not pinned to a device, again and again.

    Silent: for pinned memory, for copies between devices and to the host, for fewer than `FEWEST`, and below 5 % of the
    time. Seconds at stake: the copies; from pinned memory they can run beside other work.
    """
    table, wall = profile.device_events, profile.wall_time
    if table.empty or not wall > 0:
        return []
    copies = table[(table["kind"] == "memcpy") & table["line"].notna()]
    copies = copies[copies["name"].str.contains(_FROM_PAGEABLE, regex=False).astype(bool)]
    found = []
    for place, mine in copies.groupby(["source_id", "line"], sort=False):
        source_id, line = str(place[0]), int(str(place[1]))
        seconds, calls = float(mine["time"].sum()), int(mine["calls"].sum())
        if calls < FEWEST or seconds < LEAST_SECONDS or seconds < LEAST_SHARE * wall:
            continue
        where = _line(profile, source_id, line)
        text = (
            f"`{where}` copies unpinned memory to the device, {units.count(calls)} times, "
            f"{stake_text(seconds, wall)}."
        )
        evidence: dict[str, object] = {"copies": calls, "seconds_per_copy": seconds / calls}
        cures = (
            Cure("Use pinned memory in the loader.", "DataLoader(..., pin_memory=True)"),
            Cure("Copy in parallel with other work.", "x = x.to(device, non_blocking=True)"),
        )
        found.append(Insight("transfer", seconds, seconds / wall, text, evidence, (where,), cures))
    return found


def _line(profile: Profile, source_id: str, line: int) -> CodeLine:
    source = profile.sources.get(source_id)
    return CodeLine(f"{source.label if source is not None else '?'}:{line}", source_id, line)
