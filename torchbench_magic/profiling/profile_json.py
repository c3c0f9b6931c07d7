"""What a profile and two profiles side by side add to JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import pandas as pd

from torchbench_magic.process.values_between_runs import changing_variables
from torchbench_magic.profiling.loops.phases import shares_of
from torchbench_magic.profiling.memory.allocations import devices_of, peak_of
from torchbench_magic.result_base import Doubt
from torchbench_magic.show.json_output import finite_number, insights_as_json, plain_value, rows_of
from torchbench_magic.show.table import frame_rows

from .diff import ProfileDiff
from .ops_view import place_of
from .options import ProfileOptions
from .profile import Profile

# ---- compiling_and_loops ---------------------------------------------------------------------------------------------

_MOST_COMPILATIONS = 12
_LONGEST_NAME, _LONGEST_REASON = 80, 200


def loop_as_json(profile: Profile) -> dict[str, Any]:
    """``steps`` (0 without a loop), and each phase that took time, with the line that has most of it."""
    parts = profile.phases_by_line
    places = {(row["source_id"], row["line"]): place_of(row) for row in frame_rows(parts[parts["line"].notna()])}
    phases = [
        {
            "phase": each.phase,
            "seconds": finite_number(each.seconds),
            "share": finite_number(each.share),
            "median": finite_number(each.median),
            "place": plain_value(places.get((each.source_id, each.line)), _LONGEST_NAME),
        }
        for each in shares_of(parts)
    ]
    return {"steps": int(parts["step"].nunique()), "phases": [_known(phase) for phase in phases]}


def compiling_as_json(profile: Profile) -> dict[str, Any]:
    """The frames that were compiled, the most seconds first, and the lines that broke a graph, the most often first."""
    compiled = profile.compilations.sort_values("seconds", ascending=False, kind="stable", na_position="last")
    broken = profile.graph_breaks.sort_values("count", ascending=False, kind="stable")
    return {
        "compilations": [
            _known(
                {
                    "function": plain_value(row["function"], _LONGEST_NAME),
                    "place": plain_value(place_of(row), _LONGEST_NAME),
                    "kind": row["kind"],
                    "seconds": finite_number(row["seconds"]),
                    "calls": finite_number(row["calls"]),
                    **_texts(row, ("reason", "fell_back")),
                }
            )
            for row in frame_rows(compiled.head(_MOST_COMPILATIONS))
        ],
        "graph_breaks": [
            _known(
                {
                    "place": plain_value(place_of(row), _LONGEST_NAME),
                    **_texts(row, ("reason", "hint")),
                    "count": finite_number(row["count"]),
                }
            )
            for row in frame_rows(broken.head(_MOST_COMPILATIONS))
        ],
    }


def _texts(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: None if pd.isna(row[name]) else plain_value(str(row[name]), _LONGEST_REASON) for name in names}


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "")}


# ---- profiles --------------------------------------------------------------------------------------------------------
# What a profile, and the difference of two, add to the envelope: lines and operations by time, peaks by parts, phases
# of a training loop, what torch.compile did.

_MOST_ROWS = 20
_LINE = ("thread", "calls", "wall_time", "self_cpu_time", "python_time", "self_device_time", "allocated", "peak")
_OP = ("op", "calls", "self_cpu_time", "cpu_time", "self_device_time", "allocated")
_FLAGS = {name: f"--{name.replace('_', '-')}" for name in (
    "memory", "shapes", "flops", "twice", "python", "concurrency", "efficiency", "host_memory", "phases",
)}  # fmt: skip


def facts(profile: Profile) -> dict[str, Any]:
    lines = profile.lines
    own = lines[lines["line"].notna()]
    spent = own[["self_cpu_time", "python_time"]].fillna(0.0).sum(axis=1) + own["self_device_time"].fillna(0.0)
    by_time = own.loc[spent.sort_values(ascending=False, kind="stable").index]
    ops = profile.ops[~profile.ops["op"].isin(profile.ranges)]
    by_op = ops.groupby("op", sort=False)[list(_OP[1:])].sum(min_count=1).reset_index()
    by_op = by_op.sort_values("self_cpu_time", ascending=False, kind="stable")
    return {
        "wall_time": finite_number(profile.wall_time),
        "not_attributed": finite_number(_not_attributed(profile)),
        "threads": profile.num_threads,
        "profiler_cost": profile.profiler_cost,
        "lines": [_line(row) for row in by_time.head(_MOST_ROWS).to_dict("records")],
        "operations": rows_of(by_op, _OP, _MOST_ROWS),
        "memory": _memory(profile),
        **loop_as_json(profile),
        **compiling_as_json(profile),
        "repeat": _repeat(profile),
    }


def _not_attributed(profile: Profile) -> float:
    """Seconds on no line; with ``--phases``, which has no lines, in no phase."""
    if not profile.options.phases:
        return profile.not_attributed
    return max(profile.wall_time - float(profile.phases_by_line["seconds"].sum()), 0.0)


def _line(row: dict[Any, Any]) -> dict[str, Any]:
    said = {"place": plain_value(place_of(row), 80), "source": plain_value(row["source"], 120)}
    figures = {name: finite_number(row[name]) for name in _LINE}
    return said | {name: value for name, value in figures.items() if value is not None}


def _memory(profile: Profile) -> dict[str, Any] | None:
    """Bytes above the start at the peak of each device, and its parts (with what was there before)."""
    if profile.memory is None or profile.memory.empty:
        return None
    parts = profile.peak_parts
    held = {}
    for device in devices_of(profile.memory):
        of_device = parts[parts["device"] == device].groupby("part", sort=False)["bytes"].sum()
        peak = peak_of(profile.memory, device)
        held[device] = {
            "peak": peak.bytes,
            "time": finite_number(peak.time),
            "parts": {str(name): int(value) for name, value in of_device.items()},
        }
    return held


def _repeat(profile: Profile) -> dict[str, Any]:
    source = profile.sources.get(profile.source_id or "")
    text = None if source is None else source.text
    if text is not None and not text.lstrip().startswith("%"):
        options = [flag for name, flag in _FLAGS.items() if getattr(profile.options, name)]
        text = "\n".join([" ".join(["%%tprofile", *options]), text])
    usual = ProfileOptions()
    asked = {
        item.name: plain_value(getattr(profile.options, item.name))
        for item in fields(ProfileOptions)
        if getattr(profile.options, item.name) != getattr(usual, item.name)
    }
    needs = changing_variables(profile.values or ()) | dict(profile.inputs or ())
    needs = {name: plain_value(what, 80) for name, what in sorted(needs.items())}
    return {"cell": text, "source_id": profile.source_id, "options": asked, "needs": needs}


def facts_of_diff(diff: ProfileDiff) -> dict[str, Any]:
    lines = diff.lines
    lines = lines.loc[lines["time_delta"].abs().sort_values(ascending=False, kind="stable").index]
    columns = [str(name) for name in lines.columns]
    columns = [name for name in columns if name in ("cell", "line", "source", "match") or "time" in name]
    return {
        "names": [plain_value(name, 100) for name in diff.names],
        "wall_time": [finite_number(diff.baseline.wall_time), finite_number(diff.other.wall_time)],
        "wall_time_delta": finite_number(diff.wall_time_delta),
        "lines": rows_of(lines, columns, _MOST_ROWS),
        "operations": rows_of(diff.ops, diff.ops.columns, _MOST_ROWS),
        "insights_new": insights_as_json(diff.insights_new),
        "insights_gone": insights_as_json(diff.insights_gone),
        "doubts": [Doubt(each["kind"], each["text"]) for each in diff.lines.attrs["doubts"]],
        "repeat": {"command": "%tcompare " + " ".join(diff.names)},
    }
