"""What a device did in a profile, in clauses of the sentence and a line of the footer: where the time depends on it,
where the host waits for it, when it stood idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchbench_magic import units
from torchbench_magic.results.profiling.device_times import host_waits, idle_share, share_of_devices, waited_for
from torchbench_magic.results.profiling.profile import Profile

from ..document import Phrase, StyledText, code
from ..frame_rows import frame_rows

__all__ = ["device_clause", "idle_footer", "percent_text", "waiting_clause"]

_BOUND = 0.8  # of the wall time in which a device is busy: from there on it is what the time depends on
_WORTH_SAYING = 0.1  # of the wall time
_ALL = 0.995
_MOST = 0.5  # of a line's time
_NEARLY_ALL = 0.9


def device_clause(profile: Profile) -> Iterator[Phrase]:
    """``In[3]:2 launches 98 % of the work of cuda:0 (29.5 of 30.1 ms), which is busy for 97 % of the time (30.7 ms);
    the host waits for it at In[3]:4 (28.8 ms)``; nothing where a device is not what the time depends on."""
    trace = profile.trace
    busy = share_of_devices(trace)
    if trace is None or busy < _BOUND:
        return
    by_line = profile.lines[profile.lines["line"].notna()].groupby(["source_id", "line"])["self_device_time"].sum()
    whole = float(profile.device_events.loc[profile.device_events["kind"] != "runtime", "time"].sum())
    if not by_line.max() > 0:
        return
    top: Any = by_line.idxmax()
    yield code(_named(profile, *top))
    devices = trace.devices
    whose, which = (devices[0], "which is") if len(devices) == 1 else (f"{len(devices)} devices", "one of which is")
    mine, share = float(by_line.max()), float(by_line.max()) / whole
    part, took = f"{percent_text(share)} %", units.part_text(mine, whole)
    if share >= _ALL:
        part, took = "all", units.seconds_text(mine)
    yield Phrase(f" launches {part} of the work of {whose} ({took}), {which} busy for")
    yield Phrase(f" {percent_text(busy)} % of the time ({units.seconds_text(profile.wall_time)})")
    waits = host_waits(trace)
    waits = waits[(waits["thread"] == 0) & (waits["node"] >= 0)]
    by_place = waits["seconds"].groupby(waits["node"].map(lambda node: _place_of_node(profile, node))).sum()
    if len(by_place) and by_place.max() >= _WORTH_SAYING * profile.wall_time:
        place: Any = by_place.idxmax()
        where = _named(profile, *place) if place is not None and place[1] else ""
        if where:
            yield Phrase("; the host waits for it at ")
            yield code(where)
            yield Phrase(f" ({units.seconds_text(float(by_place.max()))})")
    for doubt in profile.warnings:
        if doubt.kind == "device-after":
            ended = max(profile.wall_time - float(str(doubt.facts["seconds"])), 0.0)
            yield Phrase(f"; the code itself ends after {units.seconds_text(ended)}")


def waiting_clause(profile: Profile, where: tuple[str, int], cost: float) -> str:
    """``, nearly all of it waiting for the device, for what In[3]:3 launched``; empty for less than half."""
    waits = host_waits(profile.trace)
    waits = waits[(waits["thread"] == 0) & (waits["node"] >= 0)]
    mine = waits[waits["node"].map(lambda node: _place_of_node(profile, node) == where).astype(bool)]
    waited = float(mine["seconds"].sum())
    if profile.trace is None or waited < _MOST * cost or not waited:
        return ""
    part = "nearly all" if waited >= _NEARLY_ALL * cost else units.seconds_text(waited)
    launched = waited_for(profile.trace, mine)
    what = f", for what {_named(profile, *launched)} launched" if launched is not None and launched != where else ""
    return f", {part} of it waiting for the device{what}"


def idle_footer(profile: Profile) -> Iterator[StyledText]:
    """How long each device stood idle, and what the host was at in the longest gap."""
    for device, share in idle_share(profile.trace).items():
        gaps = profile.idle[profile.idle["device"] == device]
        said = f"{device} runs for {percent_text(1 - share)} % of the recorded time"
        if gaps.empty:
            yield (Phrase(f"{said}."),)
            continue
        longest = frame_rows(gaps.head(1))[0]
        source = profile.sources.get(longest["source_id"])
        at = f"{source.label}:{longest['line']}" if source is not None else "no line"
        took = units.seconds_text(longest["duration"])
        yield Phrase(f"{said}; its longest gap is {took}, while the host was at "), code(at), Phrase(".")


def percent_text(share: float) -> str:
    """Two digits, without the sign."""
    return units.number(share * 100, units.Scale("%", 1.0, 0), digits=2)


def _place_of_node(profile: Profile, node: int) -> tuple[str, int]:
    """(source id, line) of a node of the trace; line 0 is none."""
    assert profile.trace is not None
    source, line = profile.trace.nodes[["source", "line"]].to_numpy()[node].tolist()
    return (profile.trace.sources[source], line) if source >= 0 else ("", 0)


def _named(profile: Profile, source_id: str, line: int) -> str:
    source = profile.sources.get(source_id)
    return f"{source.label if source is not None else '?'}:{line}"
