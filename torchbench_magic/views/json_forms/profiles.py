"""What a profile, and the difference of two, add to the envelope: lines and operations by time, peaks by parts, phases
of a training loop, what torch.compile did."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.allocations import devices_of, peak_of
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.profiling.profile_diff import ProfileDiff
from torchbench_magic.results.profiling.profile_options import ProfileOptions
from torchbench_magic.results.timing.values_read import changing_variables

from ..profiling.place_names import place_of
from .compiling_and_loops import compiling_as_json, loop_as_json
from .insight_values import insights_as_json
from .plain_values import finite_number, plain_value, rows_of

__all__ = ["facts", "facts_of_diff"]

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
