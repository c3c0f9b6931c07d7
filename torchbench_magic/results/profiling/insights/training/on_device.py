"""``sync`` and ``transfer``: lines that make a device wait for the host, and copies that make the host wait."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from torchbench_magic import units

from ....insights import CodeLine, Cure, Insight
from ...device_times import busy_stretches
from ...profile import Profile
from ...trace import Trace
from ..wording import LEAST_SECONDS, LEAST_SHARE, stake_text

__all__ = ["sync", "transfer"]

FEWEST = 3
"""Waits, or copies: a lone one at the end of a run is how a run ends."""
_FROM_PAGEABLE = "Pageable -> Device"
"""In the name that torch's profiler gives a copy from memory that is not pinned (``Memcpy HtoD (Pageable -> Device)``):
the driver copies it once more, and the host waits meanwhile."""


def sync(profile: Profile) -> list[Insight]:
    """One for each line on which the host waits for a device that then has nothing to do.

    A runtime call whose name ends in ``Synchronize`` (``.item()``, ``.cpu()``, printing a tensor, ``synchronize()``)
    waits until all is done that was launched; the device stands idle from there until the next launch reaches it.
    Silent: without a trace of a device; for waits after which the device goes on (another stream's work); below 5 %.
    Seconds at stake: these idle gaps, each counted once.
    """
    trace, wall = profile.trace, profile.wall_time
    if trace is None or not wall > 0:
        return []
    idle: dict[tuple[str, int], list[float]] = defaultdict(list)
    for device in trace.devices:
        starts, ends = (each.tolist() for each in busy_stretches(trace, device))
        seen: set[int] = set()
        for end, place in _waits(trace):
            at = bisect_right(ends, end) - 1  # the stretch that ended last before the wait did
            if at < 0 or at + 1 >= len(starts) or at in seen or starts[at + 1] < end:
                continue
            seen.add(at)
            idle[place].append((starts[at + 1] - ends[at]) / 1e9)
    found = []
    for (source_id, line), gaps in idle.items():
        seconds = sum(gaps)
        if len(gaps) < FEWEST or seconds < LEAST_SECONDS or seconds < LEAST_SHARE * wall:
            continue
        where = _line(profile, source_id, line)
        text = (
            f"`{where}` makes the host wait for the device {units.count(len(gaps))} times, and then the device "
            f"idles, {stake_text(seconds, wall)}."
        )
        evidence: dict[str, object] = {"waits": len(gaps), "seconds_idle_each": seconds / len(gaps)}
        cures = (
            Cure("Keep the value on the device (`loss.detach()`), and read it rarely or after the loop."),
            Cure("Copy it without waiting, and read it a step later.", 'loss.detach().to("cpu", non_blocking=True)'),
        )
        found.append(Insight("sync", seconds, seconds / wall, text, evidence, (where,), cures))
    return found


def _waits(trace: Trace) -> list[tuple[int, tuple[str, int]]]:
    """(when it ended, line) of each wait of the host on a line, by time."""
    events = trace.events[trace.is_kind("runtime")]
    nodes, lines = trace.nodes["source"].tolist(), trace.nodes["line"].tolist()
    found = []
    for name, start, duration, node in events[["name", "start", "duration", "node"]].itertuples(index=False):
        if trace.names[name].endswith("Synchronize") and node >= 0 and nodes[node] >= 0:
            found.append((int(start + duration), (trace.sources[nodes[node]], int(lines[node]))))
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
