"""When a device was at work, what launched it, who waited for it, and the gaps in which it idled."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from torchbench_magic.array_types import Ints

from .schema import frame_of
from .trace import KINDS, Source, Trace

DEVICE_COLUMNS: dict[str, str] = {
    "kind": "object",  # kernel, memcpy, memset; runtime: a call of the host, whose time is the host's
    "name": "object",
    "device": "object",  # None for a runtime call
    "stream": "Int64",
    "calls": "int64",
    "time": "float64",  # seconds
    "op": "object",  # the op that launched it; None: none
    "cell": "Int64",
    "line": "Int64",  # the line that launched it
    "source_id": "object",
    "thread": "Int64",  # the thread that launched it
}
"""Of ``Profile.device_events``: one row per (kind, name, device, stream, op, line)."""

IDLE_COLUMNS: dict[str, str] = {
    "device": "object",
    "start": "float64",  # seconds since the body was entered
    "duration": "float64",
    "share": "float64",  # of the device's span, from the first to the last thing that ran on it
    "cell": "Int64",
    "line": "Int64",  # the line of the cell's own thread that was active for most of the gap; NA: none
    "source": "object",
    "source_id": "object",
}
"""Of ``Profile.idle``: one row per gap in which nothing ran on any stream of the device, the longest first."""


def device_table(trace: Trace | None, text_of: Mapping[str, Source]) -> pd.DataFrame:
    """Kernels, copies and fills, and apart from them the runtime calls, summed by what launched them."""
    if trace is None or (events := trace.events[trace.is_on_device | trace.is_kind("runtime")]).empty:
        return frame_of(DEVICE_COLUMNS, {})
    op = np.append(trace.events["name"].to_numpy(), -1)[_launching_op(trace, events.index.to_numpy())]
    keyed = events.assign(op=op)[["kind", "name", "track", "op", "node", "duration"]]
    runtime = keyed["kind"] == KINDS.index("runtime")
    keyed["stream_track"] = keyed["track"].where(~runtime, -1)
    keyed["place"] = _place_numbers(trace)[keyed["node"].to_numpy()]
    by = ["kind", "name", "stream_track", "op", "place"]
    sums = keyed.groupby(by, sort=False).agg(calls=("duration", "size"), ns=("duration", "sum"), node=("node", "first"))
    sums = sums.reset_index()
    tracks = [trace.tracks[n] if n >= 0 else None for n in sums["stream_track"].tolist()]
    columns = {
        "kind": [KINDS[n] for n in sums["kind"].tolist()],
        "name": [trace.names[n] for n in sums["name"].tolist()],
        "device": [track.device if track is not None else None for track in tracks],
        "stream": [track.ident if track is not None else pd.NA for track in tracks],
        "calls": sums["calls"].to_numpy(),
        "time": sums["ns"].to_numpy() / 1e9,
        "op": [trace.names[n] if n >= 0 else None for n in sums["op"].tolist()],
        **_places(text_of, trace, sums["node"].tolist()),
    }
    frame = frame_of(DEVICE_COLUMNS, {name: column for name, column in columns.items() if name in DEVICE_COLUMNS})
    order = pd.DataFrame({"host": frame["kind"] == "runtime", "time": -frame["time"]})
    return frame.loc[order.sort_values(["host", "time"], kind="stable").index].reset_index(drop=True)


def _launching_op(trace: Trace, rows: Ints) -> Ints:
    """The op in which each event was launched (or, for a runtime call, in which it ran); -1 for none."""
    parent = np.append(trace.events["parent"].to_numpy(), -1)
    by = np.append(trace.events["launched_by"].to_numpy(), -1)
    runtime = np.append(trace.is_kind("runtime"), False)
    launch = np.where(runtime[rows], rows, by[rows])
    return np.where(runtime[launch], parent[launch], launch)


def _place_numbers(trace: Trace) -> Ints:
    """Of each node, and at the end of none, a number that nodes of one line and thread share."""
    rows = trace.nodes[["source", "line", "thread"]].to_numpy()
    if not len(rows):
        return np.array([-1], dtype=np.int64)
    _, number = np.unique(rows, axis=0, return_inverse=True)
    return np.append(number.reshape(-1), -1)


def _places(text_of: Mapping[str, Source], trace: Trace, nodes: list[int]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {name: [] for name in ("cell", "line", "source", "source_id", "thread")}
    sources, lines, threads = (trace.nodes[name].tolist() for name in ("source", "line", "thread"))
    for node in nodes:
        source_id = trace.sources[sources[node]] if node >= 0 and sources[node] >= 0 else None
        source = text_of.get(source_id) if source_id is not None else None
        known = source is not None
        found["cell"].append(source.cell if source is not None and source.cell is not None else pd.NA)
        found["line"].append(lines[node] if known else pd.NA)
        found["source"].append(source.line(lines[node]) if source is not None else None)
        found["source_id"].append(source_id)
        found["thread"].append(threads[node] if node >= 0 else pd.NA)
    return found


# ---- waiting for a device -------------------------------------------------------------------------------------------

_WAITS = re.compile(r"Synchronize|^ur(QueueFinish|EventWait)$")
"""Runtime calls that return when a device has done something: CUDA's, HIP's, Level Zero's and Unified Runtime's."""
_COPIES = re.compile(r"memcpy", re.IGNORECASE)
"""Those that do so where the host's memory is not pinned, or where they are not asynchronous at all."""


_WAIT_COLUMNS = {"start": "int64", "end": "int64", "seconds": "float64", "thread": "int64", "node": "int64",
    "parent": "int64"}  # fmt: skip


def host_waits(trace: Trace | None) -> pd.DataFrame:
    """Waits of the host for a device, by their start: ``start end`` in ns since the body was entered, ``seconds`` of
    waiting, ``thread``, ``node`` (-1: on no line) and ``parent`` (the op in which it waits, -1 for none).

    A copy waits where its call had not returned when it began on the device, and then for as long as a device worked
    meanwhile. A call within another one is not counted again.
    """
    if trace is None or not (is_call := trace.is_kind("runtime")).any():
        return frame_of(_WAIT_COLUMNS, {})
    calls = trace.events[is_call]
    synchronizes, copies = (
        np.isin(calls["name"].to_numpy(), [n for n, name in enumerate(trace.names) if pattern.search(name)])
        for pattern in (_WAITS, _COPIES)
    )
    start = calls["start"].to_numpy()
    end = start + calls["duration"].to_numpy()
    ran = trace.events[trace.is_on_device]
    began = ran.groupby("launched_by")["start"].min().reindex(calls.index).to_numpy(np.float64)
    blocks = copies & (began < end)  # NaN, where nothing ran, is not less
    waited = np.where(synchronizes, end - start, 0)
    if blocks.any():
        waited = np.where(blocks & ~synchronizes, overlap(start, end, *_any_busy(trace)), waited)
    found = pd.DataFrame({"start": start, "end": end, "seconds": waited / 1e9, "node": calls["node"].to_numpy()})
    found["thread"] = [trace.tracks[track].thread for track in calls["track"].tolist()]
    found["parent"] = calls["parent"].to_numpy()
    found = found[waited > 0].sort_values(["thread", "start", "end"], ascending=[True, True, False], kind="stable")
    if found.empty:
        return frame_of(_WAIT_COLUMNS, {})
    until = found.groupby("thread")["end"].cummax().groupby(found["thread"]).shift(fill_value=-1)
    found = found[found["start"] >= until].sort_values("start", kind="stable").reset_index(drop=True)
    return found[list(_WAIT_COLUMNS)].astype(_WAIT_COLUMNS)


def waited_for(trace: Trace, waits: pd.DataFrame) -> tuple[str, int] | None:
    """(source id, line) that launched most of what ran on devices during these waits; None where that is not known."""
    ran = trace.events[trace.is_on_device].sort_values("start", kind="stable")
    starts, nodes = ran["start"].to_numpy(), ran["node"].to_numpy()
    ends = starts + ran["duration"].to_numpy()
    reached = np.maximum.accumulate(ends) if len(ends) else ends
    sums = np.zeros(len(trace.nodes) + 1)
    for begin, end in waits[["start", "end"]].itertuples(index=False):
        low, high = int(np.searchsorted(reached, begin, side="right")), int(np.searchsorted(starts, end, side="left"))
        inside = np.minimum(ends[low:high], end) - np.maximum(starts[low:high], begin)
        np.add.at(sums, nodes[low:high], np.maximum(inside, 0))
    by_place: dict[tuple[int, int], float] = {}
    places = trace.nodes[["source", "line"]].to_numpy().tolist()
    for (source, line), ns in zip(places, sums.tolist(), strict=False):
        if source >= 0 and ns > 0:
            by_place[source, line] = by_place.get((source, line), 0.0) + ns
    if not by_place:
        return None
    source, line = max(by_place, key=by_place.__getitem__)
    return trace.sources[source], line


def share_of_devices(trace: Trace | None, *, with_waits: bool = False) -> float:
    """Share of the body's time in which a device was at work; ``with_waits``: or the cell's own thread waited for one.

    What the host does meanwhile costs no time.
    """
    if trace is None or not trace.duration:
        return 0.0
    starts, ends = _any_busy(trace)
    if with_waits and len(waits := host_waits(trace)):
        mine = waits[waits["thread"] == 0]
        starts, ends = np.append(starts, mine["start"].to_numpy()), np.append(ends, mine["end"].to_numpy())
        starts, ends = joined_stretches(starts, ends)
    return float((np.clip(ends, 0, trace.duration) - np.clip(starts, 0, trace.duration)).sum()) / trace.duration


def _any_busy(trace: Trace) -> tuple[Ints, Ints]:
    """As `busy_stretches`, of all devices together."""
    starts, took = (trace.events[name].to_numpy()[trace.is_on_device] for name in ("start", "duration"))
    return joined_stretches(starts, starts + took)


def overlap(start: Ints, end: Ints, busy_from: Ints, busy_until: Ints) -> Ints:
    """Of each stretch the ns that lie in the busy ones, which are in order and disjoint."""
    if not len(busy_from):
        return np.zeros(len(start), dtype=np.int64)
    before = np.append(0, np.cumsum(busy_until - busy_from))

    def until(moments: Ints) -> Ints:
        at = np.searchsorted(busy_from, moments, side="right")
        last = np.maximum(at - 1, 0)
        over = np.where(at > 0, np.maximum(busy_until[last] - moments, 0), 0)  # of a stretch that lasts on
        return np.asarray(before[at] - over, dtype=np.int64)

    return until(end) - until(start)


# ---- idle gaps ----------------------------------------------------------------------------------------------------


def busy_stretches(trace: Trace, device: str) -> tuple[Ints, Ints]:
    """Start and end of each stretch in which something ran on a stream of the device, in order, disjoint."""
    on = [number for number, track in enumerate(trace.tracks) if track.device == device]
    mine = trace.events[trace.is_on_device & np.isin(trace.events["track"].to_numpy(), on)]
    start = mine["start"].to_numpy()
    return joined_stretches(start, start + mine["duration"].to_numpy())


def joined_stretches(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Stretches that touch as one: start and end of each, in order."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > end[:-1])
    last = np.append(first[1:], True)
    return start[first], end[last]


def idle_share(trace: Trace | None) -> dict[str, float]:
    """Device -> share of its span, from the first to the last thing that ran on it, in which nothing did."""
    found: dict[str, float] = {}
    if trace is None:
        return found
    for device in trace.devices:
        start, end = busy_stretches(trace, device)
        span = int(end[-1] - start[0])
        found[device] = 1 - float((end - start).sum()) / span if span else 0.0
    return found


def idle_gaps(trace: Trace | None, text_of: Mapping[str, Source]) -> pd.DataFrame:
    """Every gap between what ran on a device, with what the cell's own thread was at in the meantime."""
    if trace is None:
        return frame_of(IDLE_COLUMNS, {})
    parts = []
    for device in trace.devices:
        start, end = busy_stretches(trace, device)
        begins, ends = end[:-1], start[1:]
        nodes = [_most_active(trace, a, b) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        places = _places(text_of, trace, nodes)
        del places["thread"]
        values = {
            "device": [device] * len(begins),
            "start": begins / 1e9,
            "duration": (ends - begins) / 1e9,
            "share": (ends - begins) / max(int(end[-1] - start[0]), 1),
            **places,
        }
        parts.append(frame_of(IDLE_COLUMNS, values))
    frame = pd.concat(parts, ignore_index=True) if parts else frame_of(IDLE_COLUMNS, {})
    return frame.sort_values("duration", ascending=False, kind="stable").reset_index(drop=True)


def _most_active(trace: Trace, begin: int, end: int) -> int:
    """The node on which thread 0 spent most of a stretch; -1 where it was on no line."""
    mine = trace.segments[trace.segments["thread"] == 0]
    starts, nodes = mine["start"].to_numpy(), mine["node"].to_numpy()
    low = max(int(np.searchsorted(starts, begin, side="right")) - 1, 0)
    high = int(np.searchsorted(starts, end, side="left"))
    if low >= high:
        return -1
    edges = np.clip(np.append(starts[low:high], end), begin, end)
    times = np.bincount(nodes[low:high], weights=np.diff(edges), minlength=1)
    return int(times.argmax()) if times.max() > 0 else -1
