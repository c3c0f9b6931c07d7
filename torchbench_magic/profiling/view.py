"""A profile as a document: the sentence, the tables, the annotated source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.profiling.call_tree_tables import compiled_from
from torchbench_magic.profiling.cores.view import cores_clause, cores_footer, cores_picture, cores_table, proof_footer
from torchbench_magic.profiling.efficiency.view import efficiency_clause, efficiency_footer, roofline_svg
from torchbench_magic.profiling.loops.view import loop_clause, loop_footer, phases_table, place_in_clause, step_strips
from torchbench_magic.profiling.memory.allocations import devices_of
from torchbench_magic.profiling.pictures import profile_flame, timeline
from torchbench_magic.profiling.python.view import python_clause, python_footer, python_table
from torchbench_magic.result_base import most_important_first
from torchbench_magic.show.document import Document, Drawn, Phrase, StyledText, backticked, clipped, code, of_result
from torchbench_magic.show.table import (
    Table,
    built_table,
    counted,
    float_or_none,
    frame_rows,
    measured_columns,
    share,
    texts,
)

from .device_times import host_waits, idle_share, share_of_devices, waited_for
from .lines_view import MOST_SHOWN, first_insights, inside_line, lines_table, range_in_words, unfolding
from .ops_view import (
    MOST_REST,
    STEP_RANGE,
    grouped,
    grouping_of,
    modules_table,
    numbers,
    operations,
    place_of,
    runs_text,
    sort_column,
)
from .profile import Profile
from .recording_cost import first_without_recording
from .trace import line_label

# ---- device_clauses --------------------------------------------------------------------------------------------------

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
    yield from _doing(profile, top, line_label(profile.sources, *top), "launches")
    devices = trace.devices
    whose, which = (devices[0], "which is") if len(devices) == 1 else (f"{len(devices)} devices", "one of which is")
    mine, share = float(by_line.max()), float(by_line.max()) / whole
    part, took = f"{percent_text(share)} %", units.part_text(mine, whole)
    if share >= _ALL:
        part, took = "all", units.seconds_text(mine)
    yield Phrase(f" {part} of the work of {whose} ({took}), {which} busy for")
    yield Phrase(f" {percent_text(busy)} % of the time ({units.seconds_text(profile.wall_time)})")
    waits = host_waits(trace)
    waits = waits[(waits["thread"] == 0) & (waits["node"] >= 0)]
    by_place = waits["seconds"].groupby(waits["node"].map(lambda node: _place_of_node(profile, node))).sum()
    if len(by_place) and by_place.max() >= _WORTH_SAYING * profile.wall_time:
        place: Any = by_place.idxmax()
        where = line_label(profile.sources, *place) if place is not None and place[1] else ""
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
    if profile.trace is None or (waits := host_waits(profile.trace)).empty:
        return ""
    waits = waits[(waits["thread"] == 0) & (waits["node"] >= 0)]
    mine = waits[waits["node"].map(lambda node: _place_of_node(profile, node) == where).astype(bool)]
    waited = float(mine["seconds"].sum())
    if waited < _MOST * cost or not waited:
        return ""
    part = "nearly all" if waited >= _NEARLY_ALL * cost else units.seconds_text(waited)
    launched = waited_for(profile.trace, mine)
    what = (
        f", for what {line_label(profile.sources, *launched)} launched"
        if launched is not None and launched != where
        else ""
    )
    return f", {part} of it waiting for the device{what}"


def idle_footer(profile: Profile) -> Iterator[StyledText]:
    """How long each device stood idle, and what the host was at in the longest gap."""
    for device, idle in idle_share(profile.trace).items():
        gaps = profile.idle[profile.idle["device"] == device]
        said = f"{device} runs for {percent_text(1 - idle)} % of the recorded time"
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


# ---- compilations ----------------------------------------------------------------------------------------------------

_MOST_COMPILATIONS = 30
_KINDS = {"first": "first", "recompile": "again", "resume": "rest, after a break", "earlier": "before this run"}


def compilations_table(profile: Profile) -> Table | None:
    """A row per compiled frame, in the order in which they were compiled; None where nothing was."""
    table = profile.compilations
    if table.empty:
        return None
    is_timed = bool((table["seconds"] > 0).any())  # not of what was given up before the run
    seconds = units.spread_scale(list(table["seconds"])) if is_timed else units.Scale("ms", 1e-3, 1)
    built = (
        texts("place", "compiled", 40, place_of),
        texts("function", "function", 40, lambda record: str(record["function"])),
        texts("kind", "kind", 24, _kind),
        measured_columns("seconds", "compile time", seconds),
        counted("calls", "calls"),
        texts("reason", "why compiled again", 80, _why),
    )
    shown = table.head(_MOST_COMPILATIONS)
    said = f"{units.count(len(shown))} of {units.count(len(table))} compilations."
    hidden = f"{said} All rows: {of_result('.compilations')}" if len(shown) < len(table) else ""
    key = lambda record: str(record["compile_id"])
    return built_table("compilations", built, frame_rows(shown), key, hidden=hidden)


def _kind(record: dict[str, Any]) -> str:
    """At its limit the compiler refused: nothing was compiled again."""
    is_refused = record["kind"] != "earlier" and "_limit of " in _text(record["fell_back"])
    return "refused" if is_refused else _KINDS[record["kind"]]


def _why(record: dict[str, Any]) -> str:
    said = [_text(record["reason"])]
    if fell_back := _text(record["fell_back"]):
        since = "" if record["kind"] == "earlier" else " from here on"
        said.append(f"runs uncompiled{since}: {fell_back}")
    return "; ".join(filter(None, said)).replace("`", "")


def graph_breaks_table(profile: Profile) -> Table | None:
    """A row per line and reason; None where no graph broke."""
    table = profile.graph_breaks
    if table.empty:
        return None
    built = (
        texts("place", "graph break", 40, place_of),
        texts("reason", "why", 100, lambda record: _text(record["reason"]).replace("`", "")),
        texts("hint", "what may help", 100, lambda record: _text(record["hint"]).replace("`", "")),
        counted("count", "times"),
    )
    shown = table.head(_MOST_COMPILATIONS)
    return built_table("graph breaks", built, frame_rows(shown), place_of)


def _text(value: Any) -> str:
    return "" if value is None or pd.isna(value) else str(value)


# ---- workers ---------------------------------------------------------------------------------------------------------

_MOST_WORKER_LINES = 8


def workers_table(profile: Profile) -> Table | None:
    """A row per line, over all workers, the most time first; None where no worker was seen."""
    workers = profile.workers
    if workers.empty:
        return None
    keys = ["cell", "file", "line", "function"]
    sums = workers.groupby(keys, dropna=False, sort=False)
    by_line = sums.agg(seconds=("seconds", "sum"), workers=("worker", "nunique")).reset_index()
    by_line = by_line.sort_values("seconds", ascending=False, kind="stable")
    whole, time = float(by_line["seconds"].sum()), units.spread_scale(list(by_line["seconds"]))
    built = (
        texts("place", "workers of the DataLoader", 60, _worker_place),
        texts("function", "function", 40, lambda record: str(record["function"])),
        counted("workers", "workers"),
        measured_columns("time", "time", time, "seconds"),
        share("share", lambda record: float(record["seconds"]) / whole if whole else 0.0),
    )
    shown = by_line.head(_MOST_WORKER_LINES)
    said = f"{units.count(len(shown))} of {units.count(len(by_line))} lines. All rows: {of_result('.workers')}"
    hidden = said if len(shown) < len(by_line) else ""
    key = lambda record: f"{_worker_place(record)} {record['function']}"
    return built_table("workers", built, frame_rows(shown), key, hidden=hidden)


def _worker_place(record: dict[str, Any]) -> str:
    there = place_of(record | {"file": str(record["file"]).replace("\\", "/")})
    return there or ("(start)" if str(record["function"]).startswith("starting") else "(idle)")


# ---- profile ---------------------------------------------------------------------------------------------------------

_LARGE = 0.2  # of the peak: then it is worth saying who allocated it
_BACKWARD_FRAME = "autograd::engine::evaluate_function: "


def document(
    profile: Profile,
    *,
    sort_by: str | None = None,
    row_limit: int | None = None,
    group_by: str | None = None,
    operations_first: bool | None = None,
    most_rest: int | None = MOST_REST,
) -> Document:
    """The profile, ready for any carrier: the lines, the operations by ``sort_by``, at most ``row_limit`` rows of
    them as ``group_by`` says, the modules, and a flame graph.

    Operations come before the lines where a grouping of them is asked for, or as ``operations_first`` says. Errors are
    those of `operations`.
    """
    ops = operations(profile, sort_by=sort_by, row_limit=row_limit, group_by=group_by, most_rest=most_rest)
    lines = lines_table(profile)
    tables: list[Table | None] = [lines]
    if (profile.has_op_times or lines is None) and not profile.options.phases:
        first = group_by is not None if operations_first is None else operations_first
        tables.insert(0 if first else 1, ops)
    if profile.has_op_times and not profile.options.phases:
        tables.append(modules_table(profile))
    tables.insert(len(tables) if lines is not None else 0, phases_table(profile))
    tables += [compilations_table(profile), graph_breaks_table(profile)]
    tables += [cores_table(profile), python_table(profile), workers_table(profile)]
    pictures: list[Drawn] = []
    for drawn in (profile_flame.drawn, timeline.drawn):
        if (picture := drawn(profile, len(pictures))) is not None:
            pictures.append(picture)
    return Document(
        kind="profile",
        sentence=tuple(_sentence(profile, (group_by or "").startswith("module"))),
        tables=tuple(table for table in tables if table is not None),
        insights=tuple(unfolding(each) for each in first_insights(profile.insights)),
        doubts=tuple(_doubts(profile)),
        doubts_where=of_result(".warnings"),
        footer=tuple(_footer(profile, lines)),
        where=of_result(".ops"),
        drawn=tuple(pictures),
        picture=step_strips(profile) + cores_picture(profile) + (roofline_svg(profile) or ""),
    )


def check_keys(sort_by: str | None, group_by: str | None) -> None:
    """Raise OptionError for keys that `document` would not take; to be asked before a cell is run."""
    sort_column(sort_by)
    grouping_of(group_by)


# ---- the sentence -------------------------------------------------------------------------------------------


def _sentence(profile: Profile, is_by_module: bool = False) -> Iterator[Phrase]:
    """``In[2]:10 takes 45 % of the time (1.45 of 3.22 s), forward and backward; peak 1.14 GiB; In[3]:4 allocates
    most, 954 MiB``."""
    loop = list(loop_clause(profile))
    yield from loop
    if profile.options.phases:
        if not loop:
            yield Phrase(f"no training loop steps in {units.seconds_text(profile.wall_time)}")
        return
    clause = list(_time_clause(profile, is_by_module))
    if not loop or clause[0].text != place_in_clause(profile):  # else it says the same line twice
        yield from (Phrase("; "), *clause) if loop else clause
    yield from python_clause(profile)
    yield from cores_clause(profile)
    yield from efficiency_clause(profile)
    peak = _peak(profile)
    if not peak:
        return
    yield Phrase(f"; peak {units.bytes_text(peak)}")
    by_line: dict[tuple[str, int], float] = {}  # of all its threads
    names = {}
    for record in _records(profile):
        by_line[_where(record)] = by_line.get(_where(record), 0.0) + (float_or_none(record["allocated"]) or 0.0)
        names[_where(record)] = place_of(record)
    top = max(by_line, key=by_line.__getitem__, default=None)
    on_none = float(profile.lines.loc[profile.lines["line"].isna(), "allocated"].fillna(0).sum())
    allocated = by_line[top] if top is not None else 0.0
    if on_none > allocated and on_none >= _LARGE * peak:
        yield Phrase(f"; {units.bytes_text(on_none)} are on no line, more than any single line allocates")
    elif top is not None and allocated >= _LARGE * peak:
        yield Phrase("; ")
        yield from _doing(profile, top, names[top], "allocates")
        yield Phrase(f" most, {units.bytes_text(allocated)}")


def _time_clause(profile: Profile, is_by_module: bool) -> Iterator[Phrase]:
    lines = [record for record in _records(profile) if record["thread"] == 0]
    if not lines:
        yield from _op_clause(profile)
        return
    if not profile.has_op_times:
        top = max(lines, key=lambda record: float_or_none(record["wall_time"]) or 0.0)
        wall = float_or_none(top["wall_time"]) or 0.0
        yield code(place_of(top))
        yield Phrase(
            f" takes {units.seconds_text(wall)} of {units.seconds_text(profile.wall_time)}; how much of it is torch"
        )
        yield Phrase(" is not known")
        return
    if of_device := list(device_clause(profile)):
        yield from of_device
        return
    elsewhere = _backward_elsewhere(profile)
    costs = [_own(record) + elsewhere.get(_where(record), 0.0) for record in lines]
    at, shares = costs.index(max(costs)), None
    added = [float_or_none(record["recording_time"]) or 0.0 for record in lines]
    no_line = [row for row in frame_rows(profile.lines) if row["line"] is None and row["thread"] == 0]
    on_none = sum(numbers(no_line, "recording_time"))  # it may have been added to any line
    if (found := first_without_recording(profile, costs, added, profile.wall_time, on_none)) is not None:
        at, perhaps, shares = found
        if perhaps != at:
            yield from _undecided(profile, lines[at], costs[at], lines[perhaps])
            return
    if waited := _waited_for_a_core(profile):
        second = max((n for n in range(len(costs)) if n != at), key=costs.__getitem__, default=at)
        if second != at and costs[at] - costs[second] <= waited:
            took = (units.part_text(costs[n], profile.wall_time) for n in (at, second))
            yield Phrase("which line takes the most time is not known: ")
            yield code(place_of(lines[at]))
            yield Phrase(f" ({next(took)}) and ")
            yield code(place_of(lines[second]))
            held_up = units.seconds_text(waited)
            yield Phrase(f" ({next(took)}) differ by less than a thread waited for a core, {held_up}")
            return
    top, cost = lines[at], costs[at]
    yield from _doing(profile, _where(top), place_of(top), "takes")
    yield Phrase(_share_text(profile, cost, shares))
    waits, caused = _waits(profile, top, cost), elsewhere.get(_where(top), 0.0)
    yield Phrase(waits or _split(cost, float_or_none(top["python_time"]) or 0.0, caused))
    if not waits and cost >= _MOST * profile.wall_time > 0:
        yield from _inside(profile, top, is_by_module, with_backward=caused > 0)


def _share_text(profile: Profile, cost: float, shares: tuple[float, float] | None) -> str:
    """`` 45 % of the time (1.45 of 3.22 s)``; where ``shares`` without the profiler are given, those."""
    took = units.part_text(cost, profile.wall_time)
    if shares is not None:
        return f" {units.percent_range(*shares)} % of the time without the profiler (with it: {took})"
    share = percent_text(cost / profile.wall_time if profile.wall_time else 0.0)
    slowed = " with --host-memory, which slows Python" if profile.options.host_memory else ""
    return f" {share} % of the time{slowed} ({took})"


def _waited_for_a_core(profile: Profile) -> float:
    """Seconds that a thread waited for a core, where that is told at all: any line may have been held up by them."""
    for doubt in profile.warnings:
        if doubt.kind in ("busy", "oversubscribed") and (waited := float_or_none(doubt.facts.get("waited"))):
            return waited / max(float_or_none(doubt.facts.get("threads")) or 1.0, 1.0)
    return 0.0


def _undecided(profile: Profile, top: Mapping[str, Any], cost: float, other: Mapping[str, Any]) -> Iterator[Phrase]:
    """What is said where the profiler's own work decides which line is the first."""
    less = [_own(each) - (float_or_none(each["recording_time"]) or 0.0) for each in (top, other)]
    yield Phrase("which line takes the most time is not known: with the profiler it is ")
    yield code(place_of(top))
    yield Phrase(f" ({units.part_text(cost, profile.wall_time)})")
    if less[1] > max(less[0], 0.0):
        yield Phrase(", without it probably ")
        yield code(place_of(other))


def _doing(profile: Profile, where: tuple[str, int], name: str, what: str) -> Iterator[Phrase]:
    """``In[3]:4 takes``; of a line from which on code is compiled as one piece, of that code."""
    yield code(name)
    is_piece = where in compiled_from(profile.frames)
    yield Phrase(f", with the code compiled from there on, {what}" if is_piece else f" {what}")


def _split(cost: float, python: float, backward: float) -> str:
    """What of a line's seconds is torch and what is not; ``backward`` is what it caused elsewhere."""
    if backward > 0.1 * cost:
        said = ", forward and backward"
        return said + (f", {units.seconds_text(python)} of it outside torch" if python > 0.1 * cost else "")
    if not cost:
        return ""
    if python >= _NEARLY_ALL * cost:
        return ", nearly all of it outside torch"
    if cost - python >= _NEARLY_ALL * cost:
        return ", nearly all of it in torch"
    return f", {units.seconds_text(cost - python)} in torch and {units.seconds_text(python)} outside it"


def _waits(profile: Profile, top: Mapping[str, Any], cost: float) -> str:
    """For what the line of ``cost`` seconds waits; empty where it does not."""
    if of_device := waiting_clause(profile, _where(top), cost):
        return of_device
    for doubt in profile.warnings:
        facts = doubt.facts
        if doubt.kind == "waits" and (facts.get("source_id"), facts.get("line")) == _where(top):
            waited = float(str(facts["waited"]))
            part = "nearly all" if waited >= _NEARLY_ALL * cost else f"at least {units.seconds_text(waited)}"
            beside = f", beside {facts['who']}" if "who" in facts else ""
            work = f", whose torch work is at {facts['at']}" if facts.get("at") else ""
            return f", {part} of it waiting{beside}{work}"
    return ""


def _inside(profile: Profile, top: Mapping[str, Any], is_by_module: bool, *, with_backward: bool) -> Iterator[Phrase]:
    """What holds the time of a line that has most of it, and the option that shows more of that."""
    source_id, line = _where(top)
    found = inside_line(profile, source_id, line, with_backward=with_backward)
    if len(found) == 1 and found[0][0] in str(top["source"]):
        found = []  # `net(x)` runs `net`
    for at, (name, seconds) in enumerate(found[:3]):
        yield Phrase("; inside it " if not at else ", ")
        yield Phrase(words) if (words := range_in_words(name)) else code(clipped(name, 40))
        yield Phrase(f" {units.seconds_text(seconds)}")
    options = ["--group-by module"] * (not is_by_module and not profile.modules.empty and bool(found))
    options += [f"--lines-of {module}" for *where, module in profile.libraries if where == [source_id, line]]
    for at, option in enumerate(options):
        yield Phrase("; more with " if not at else " or ")
        yield code(option)


def _records(profile: Profile) -> list[dict[str, Any]]:
    """The rows of ``.lines`` that stand on a line."""
    return [row for row in frame_rows(profile.lines) if row["line"] is not None]


def _own(record: Mapping[str, Any]) -> float:
    """Seconds that a line takes itself, in torch and in Python."""
    return sum(float_or_none(record[name]) or 0.0 for name in ("self_cpu_time", "python_time"))


def _where(record: Mapping[str, Any]) -> tuple[str, int]:
    return str(record["source_id"]), int(record["line"])


def _backward_elsewhere(profile: Profile) -> dict[tuple[str, int], float]:
    """Line -> seconds of the backward pass that it caused and that run on other lines.

    A line that calls ``.backward()`` itself has the pass as its own time already; what it runs is taken out.
    """
    ran: dict[tuple[str, int], float] = {}
    for op in frame_rows(profile.ops):
        if op["line"] is not None and op["op"].startswith(_BACKWARD_FRAME):
            ran[_where(op)] = ran.get(_where(op), 0.0) + float(op["cpu_time"])
    caused: dict[tuple[str, int], float] = {}
    for record in _records(profile):
        if record["thread"] == 0:
            caused[_where(record)] = float_or_none(record["backward_cpu_time"]) or 0.0
    return {where: max(0.0, seconds - ran.get(where, 0.0)) for where, seconds in caused.items()}


def _op_clause(profile: Profile) -> Iterator[Phrase]:
    ops = grouped((row for row in frame_rows(profile.ops) if row["op"] != STEP_RANGE), ["op"])
    top = max(ops, key=lambda op: float(op["self_cpu_time"]), default=None)
    if top is None and profile.options.schedule is not None and not profile.cycles:
        yield Phrase("no step was recorded")
        return
    if top is None:
        yield Phrase(f"{profile.none_ran} in {units.seconds_text(profile.wall_time)}")
        return
    yield code(clipped(str(top["op"]), 60))
    share = float(top["self_cpu_time"]) / profile.wall_time if profile.wall_time else 0.0
    if share > 1:
        took = units.seconds_text(float(top["self_cpu_time"]))
        yield Phrase(f" takes {took} on several threads, in {units.seconds_text(profile.wall_time)}")
        return
    yield Phrase(f" takes {percent_text(share)} % of {units.seconds_text(profile.wall_time)}")


def _peak(profile: Profile) -> float:
    """Bytes held by torch at the highest, above those at the start; 0 where they were not asked for."""
    if profile.memory is not None and len(profile.memory):
        return max(0.0, float(profile.memory["bytes"].max()))
    peak = profile.lines["peak"].dropna()
    return max(0.0, float(peak.max())) if len(peak) else 0.0


# ---- doubts and footer --------------------------------------------------------------------------------------


def _doubts(profile: Profile) -> Iterator[StyledText]:
    if profile.partial and not any(doubt.kind == "partial" for doubt in profile.warnings):
        shown = units.seconds_text(profile.wall_time)
        yield (Phrase(f"Partial: the cell stopped early; this shows what ran in {shown}."),)
    for doubt in most_important_first(profile.warnings):
        yield backticked(str(doubt))


def _footer(profile: Profile, lines: Table | None) -> Iterator[StyledText]:
    definitions = []
    if lines is not None and not profile.has_op_times:
        definitions.append("“with calls” is the wall time of a line, including everything it calls.")
    elif lines is not None:
        definitions.append("torch and Python are self times and add up to the wall time.")
        if profile.profiler_cost not in (None, "little"):
            where = of_result('.lines["recording_time"]')
            definitions.append(f"They include what the profiler added to each line ({where}, estimated).")
        if any(column.name == "backward_cpu_time" for column in lines.columns):
            definitions.append(
                "“backward”: time in a backward pass that this line caused, except in code that has its own lines; it"
                " is also shown on the backward line and counted once."
            )
    if profile.options.memory:
        definitions.append("Memory: torch's allocations only, without NumPy and Python.")
        if (profile.lines["peak"] < 0).any():
            definitions.append(
                "Peaks count from the start of the cell, so they are negative when older blocks were freed."
            )
        if "cpu" in (devices := devices_of(profile.memory)) and len(devices) > 1:
            definitions.append(f"Lines and operations sum over devices; per device: {of_result('.memory_by_line')}.")
    if profile.options.host_memory:
        definitions.append("Python: memory of Python and NumPy, net change of the line and peak above the start.")
    if profile.options.flops:
        definitions.append(_flops_covered(profile))
    if profile.has_op_times and not profile.options.phases:
        definitions.append(
            "Operations: self excludes the operations it calls, total includes them; % is of the wall time."
        )
        definitions += _side_by_side(profile)
    definitions += filter(None, [python_footer(profile), efficiency_footer(profile)])
    if profile.insights:
        more = len(profile.insights) - MOST_SHOWN
        rest = f", {more} more in {of_result('.insights')}" if more > 0 else ""
        definitions.append(f"Insights: “up to” is the most a change can save{rest}.")
    if definitions:
        yield tuple(Phrase(f"{' ' if at else ''}{each}") for at, each in enumerate(definitions))
    yield from loop_footer(profile)
    yield from idle_footer(profile)
    yield from cores_footer(profile)
    yield (Phrase(" · ".join(_measured(profile))),)
    yield from proof_footer(profile)


def _side_by_side(profile: Profile) -> list[str]:
    """Why shares of operations may be above 100 %, and what the column of lines says, where there is need to."""
    ops = frame_rows(profile.ops)
    threads, lines = len({op["thread"] for op in ops}), {(op["op"], op["source_id"], op["line"]) for op in ops}
    said = f"Operations ran on {threads} threads in parallel: their % can add up to more than 100."
    several = "Line: the one with most of the self time, and its share; “no line” counts as a line."
    mixed = any(line is not None for _, _, line in lines) and len({op for op, _, _ in lines}) < len(lines)
    return [said] * (threads > 1) + [several] * mixed


def _flops_covered(profile: Profile) -> str:
    known = profile.ops[profile.ops["flops"].notna()]["op"].nunique()
    if not known:
        return "FLOP: no operation here has a formula."
    share = units.number(100 * profile.flops_coverage, units.Scale("%", 1.0, 1), digits=None)
    return (
        f"FLOP by torch's formulas for {units.count(known)} of {units.count(profile.ops['op'].nunique())} operations,"
        f" which take {share or '0'} % of the time in torch."
    )


def _measured(profile: Profile) -> Iterator[str]:
    if profile.steps:
        yield f"{'step' if len(profile.steps) == 1 else 'steps'} {runs_text(profile.steps)} recorded"
    if profile.num_threads:  # a trace that was read does not say
        yield f"{profile.num_threads} thread{'' if profile.num_threads == 1 else 's'}"
    if profile.environment is not None:
        yield profile.environment.footer()
    if profile.n_events:
        yield units.counted(profile.n_events, "event")
    if profile.wall_time and profile.has_op_times and _records(profile):
        after = sum(float(str(each.facts["seconds"])) for each in profile.warnings if each.kind == "device-after")
        share = 100 * (1 - max(profile.not_attributed - after, 0.0) / profile.wall_time)
        yield f"{units.number(share, units.Scale('%', 1.0, 1), digits=None)} % attributed"
    if profile.profiler_time:
        yield f"starting and stopping the profiler {units.seconds_text(profile.profiler_time, digits=2)}, not included"
