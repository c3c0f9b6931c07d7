"""``compiling``, ``recompiles``, ``graph-break`` and ``fell-back``: what ``torch.compile`` did in this run.

They rest on the compiler's own records (`Profile.compilations`, `Profile.graph_breaks`), not on sampled or estimated
figures: of what else spoils a profile only a clock that was set spoils them. In a run that compiles nothing, as a warm
one, all are silent.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.profiling.call_tree_tables import runs_as_it_is
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import CodeLine, Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, stake_text

_MOST_NAMED = 3
_DTYPES = frozenset(
    ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64")
)
_TORCHS_OWN = "torch's own code breaks it"  # as `process.compile_watch` says it
_KEPT_OVER = "kept across the graph break"  # as `process.dynamo_internals` says it
_RUN_AGAIN = "Run the cell again before you judge its time: compiled code stays until the session ends."
_RESET = re.compile(r"\b(?:_dynamo|compiler)\.reset\(")
_VOIDING = frozenset({"clock-set", "not-run", "no-steps"})


def compile_silenced_by(profile: Profile) -> bool:
    is_compiled = len(profile.compilations) or len(profile.graph_breaks)
    return not is_compiled or any(doubt.kind in _VOIDING for doubt in profile.warnings)


def compiling_took(profile: Profile) -> list[Insight]:
    """One for the run: how much of it was compiling, and what.

    Silent: below 5 % of the wall time.
    Seconds at stake: all that compiling took. A second run of the cell saves it.
    """
    table = profile.compilations[profile.compilations["kind"] != "earlier"]
    seconds = _in_wall(profile, float(table["seconds"].sum()))
    if not _is_worth(profile, seconds):
        return []
    by_function = _seconds_by_function(table)
    names = [f"`{name}` {units.seconds_text(took, digits=2)}" for name, took in by_function[:_MOST_NAMED]]
    more = len(by_function) - _MOST_NAMED
    listed = units.listed(names) if more <= 0 else f"{', '.join(names)} and {more} more"
    frames = len(table) - int(_is_refused(table).sum())
    what = units.counted(frames, "time")
    text = f"torch.compile compiled {what}: {stake_text(seconds, profile.wall_time)}. {listed}."
    kinds = table["kind"][~_is_refused(table)].value_counts()
    evidence: dict[str, object] = {
        "compilations": frames,
        **{f"{kind}_compilations": int(kinds.get(kind, 0)) for kind in ("first", "recompile", "resume")},
        **{f"seconds_{name}": took for name, took in by_function[:_MOST_NAMED]},
        "wall_time_of_the_run": units.seconds_text(profile.wall_time),
    }
    cures = [Cure(_of_reset(profile) or _RUN_AGAIN)]
    if int(kinds.get("recompile", 0)) or int(kinds.get("resume", 0)):
        cures.append(Cure("Compile less often: see the recompiles and graph breaks."))
    places = _call_lines(profile) or _places(profile, table)
    return [_insight(profile, "compiling", seconds, text, evidence, places, cures)]


def recompiles(profile: Profile) -> list[Insight]:
    """One for each function that was compiled again, with what had changed.

    Silent: below 5 % of the wall time for all compilations of the function but its first.
    Seconds at stake: these compilations, those at a limit included, which take little.
    """
    found = []
    again = profile.compilations[profile.compilations["kind"] == "recompile"]
    for _, table in again.groupby(["function", "file"], sort=False, dropna=False):
        seconds = _in_wall(profile, float(table["seconds"].sum()))
        if not _is_worth(profile, seconds):
            continue
        function = str(table["function"].iloc[0])
        reasons = list(dict.fromkeys(table["reason"].dropna()))
        said = "; ".join(reasons[:_MOST_NAMED]) + ("; …" if len(reasons) > _MOST_NAMED else "")
        count = len(table) - int(_is_refused(table).sum())
        if not count:
            continue
        times = "" if count == 1 else f" {units.count(count)} times"
        text = f"`{function}` was compiled again{times} ({said}): {stake_text(seconds, profile.wall_time)}."
        arguments = list(dict.fromkeys(table["argument"].dropna()))
        evidence: dict[str, object] = {
            "recompiles": count,
            "arguments": ", ".join(arguments),
            **{f"reason_{number}": reason for number, reason in enumerate(reasons[:_MOST_NAMED], 1)},
            "guard": str(table["guard"].iloc[0]),
        }
        places = _places(profile, table)
        found.append(_insight(profile, "recompiles", seconds, text, evidence, places, _cures_of_change(table)))
    return found


def graph_break(profile: Profile) -> list[Insight]:
    """One for each line at which a graph broke, with torch's reason and hint.

    Silent: where compiling what is left after the breaks, or the function that was given up, took less than 5 % of the
    wall time.
    Seconds at stake: the compilations that begin at that line (`resume`), and those of what was given up there.
    """
    found = []
    table = profile.compilations
    for row in profile.graph_breaks.to_dict("records"):
        at = (table["file"] == row["file"]) & (table["line"] == row["line"])
        rest = table[at & ~table["kind"].isin(("first", "earlier"))]
        given_up = table[table["fell_back"].fillna("").str.contains(str(row["reason"]), regex=False)]
        seconds = _in_wall(profile, float(pd.concat([rest, given_up])["seconds"].sum()))
        if not _is_worth(profile, seconds):
            continue
        place = _place(profile, row)
        hint = str(row["hint"]) if pd.notna(row["hint"]) else ""
        text = f"`{place}` breaks the graph: {row['reason']}: {stake_text(seconds, profile.wall_time)}."
        evidence: dict[str, object] = {
            "breaks": int(row["count"]),
            "compilations_after_it": len(rest),
            "given_up": ", ".join(dict.fromkeys(given_up["function"])),
        }
        cures = [Cure(f"{hint.rstrip('.')}.")] if hint else []
        if not str(row["reason"]).startswith(_TORCHS_OWN):  # which no change of the user's code removes
            cures.append(Cure("Find all breaks at once: with `fullgraph=True` each is an error."))
        found.append(_insight(profile, "graph-break", seconds, text, evidence, (place,), cures))
    return found


def fell_back(profile: Profile) -> list[Insight]:
    """One for each function that the compiler gave up: from then on it runs as it is, without a word.

    Silent: where what was compiled for it, and what it ran since, are less than 5 % of the wall time; and where the
    user asked for it (``torch.compiler.disable``, a stance, the environment).
    Seconds at stake: what was compiled for nothing (at a limit, all but the first time), and the time in it as plain
    Python.
    """
    found = []
    table = profile.compilations
    for _, given_up in table[table["fell_back"].notna()].groupby(["function", "file"], sort=False, dropna=False):
        function, why = str(given_up["function"].iloc[0]), str(given_up["fell_back"].iloc[0])
        of_it = table[(table["function"] == function) & (table["file"] == given_up["file"].iloc[0])]
        _, as_it_is = runs_as_it_is(profile.frames, function)
        is_limit, is_earlier = "_limit of " in why, bool((of_it["kind"] == "earlier").all())
        lost = of_it[of_it["kind"] == "recompile"] if is_limit else of_it
        compiled = float(lost["seconds"].sum())
        seconds = _in_wall(profile, compiled + as_it_is)
        if not _is_worth(profile, seconds):
            continue
        since = "" if is_earlier else " after some calls"
        text = f"`{function}` runs uncompiled{since} ({why}): {stake_text(seconds, profile.wall_time)}."
        evidence: dict[str, object] = {
            "why": why,
            "compilations": int(((of_it["kind"] != "earlier") & ~_is_refused(of_it)).sum()),
            "seconds_compiling": compiled,
            "seconds_uncompiled": as_it_is,
        }
        places = _places(profile, of_it)
        cures = _cures_of_giving_up(of_it, why, is_limit=is_limit, is_earlier=is_earlier)
        found.append(_insight(profile, "fell-back", seconds, text, evidence, places, cures))
    return found


# ---- cures --------------------------------------------------------------------------------------------------


def _cures_of_change(table: pd.DataFrame) -> list[Cure]:
    """What keeps a function from being compiled again, by what changed: each cure names what it is for."""
    cures: dict[str, Cure] = {}
    for row in table[table["reason"].notna()].to_dict("records"):
        for cure in _cures_of_reason(str(row["reason"]), _text(row["argument"]), _text(row["before"])):
            cures.setdefault(cure.text, cure)
    if not cures:
        text = "Keep it the same in every call, or compile a function for each case."
        cures[text] = Cure(text)
    text = "Make a recompilation raise an error where it happens."
    return [*cures.values(), Cure(text, code='torch.compiler.set_stance("fail_on_recompile")')]


def _cures_of_reason(reason: str, name: str, before: str) -> list[Cure]:
    """
    Args:
        reason: of `process.dynamo_internals.change_of`.
        name: what changed, ``before`` what it was; empty where that is not known.
    """
    if _KEPT_OVER in reason:
        return [Cure("Remove the graph break before it, which hands the rest of the function a new value each time.")]
    if "training" in name:
        return [Cure("Call `train()` and `eval()` rarely: each mode is compiled once.")]
    if "gradients are recorded" in reason or "requires_grad" in reason:
        return [Cure("Always call it within `torch.no_grad()`, or never.")]
    if (found := re.search(r" had size \S+ in dimension (\d+)", reason)) is not None:
        code = f"torch._dynamo.mark_dynamic({name}, {found[1]})"
        text = "Mark the length as dynamic: one compilation then serves all."
        return [Cure(text, code=code), Cure("Or compile with `dynamic=True`.")]
    if re.search(r" had \d+ dimensions?, now ", reason):
        return [Cure(f"Give `{name}` the same number of dimensions in every call, with `unsqueeze` or `view`.")]
    if " was of length " in reason or " is not of length " in reason:
        return [Cure(f"Give `{name}` the same length in every call, or pass what it holds as one tensor.")]
    if " was of type " in reason:
        return [Cure(f"Give `{name}` the same type in every call.")]
    if before in _DTYPES or " was on " in reason:
        return [Cure(f"Convert `{name}` before the call, so that each call has the same dtype and device.")]
    if _is_number(before) and f"`{name}` was {before}" in reason:
        if "." in name:
            return [Cure(f"Set `{name}` once before the calls, or make it a tensor (in a module a buffer).")]
        text = f"Make `{name}` a tensor: its value is then not compiled in."
        dynamic = Cure("Or compile with `dynamic=True`, which treats whole numbers as unknown.")
        return [Cure(text, code=f"{name} = torch.tensor({name})"), dynamic]
    return []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _cures_of_giving_up(of_it: pd.DataFrame, why: str, *, is_limit: bool, is_earlier: bool) -> list[Cure]:
    if is_limit:
        again = of_it[of_it["kind"].isin(("recompile", "earlier"))]
        limit = why.partition(" ")[0]
        forget = "Reset the compiler: it does not retry a function that it gave up on."
        return [
            *_cures_of_change(again)[:1],
            *([Cure(forget, code="torch.compiler.reset()")] if is_earlier else []),
            Cure("Or raise the limit, if each of these cases is frequent.", code=f"torch._dynamo.config.{limit} = 64"),
        ]
    if "suppressed" in why:
        text = "Show the error, which this setting suppresses."
        return [Cure(text, code="torch._dynamo.config.suppress_errors = False")]
    return [
        Cure("Move what breaks the graph out of its loop or `with` block."),
        Cure("Find all breaks at once: with `fullgraph=True` each is an error."),
    ]


# ---- what they share ----------------------------------------------------------------------------------------


def _in_wall(profile: Profile, seconds: float) -> float:
    """No more than the run took: several threads can compile at a time."""
    return min(seconds, profile.wall_time)


def _is_worth(profile: Profile, seconds: float) -> bool:
    return profile.wall_time > 0 and seconds >= max(LEAST_SECONDS, LEAST_SHARE * profile.wall_time)


def _insight(
    profile: Profile,
    kind: str,
    seconds: float,
    text: str,
    evidence: Mapping[str, object],
    places: Iterable[CodeLine],
    cures: Iterable[Cure],
) -> Insight:
    return Insight(kind, seconds, seconds / profile.wall_time, text, evidence, tuple(places), tuple(cures))


def _seconds_by_function(table: pd.DataFrame) -> list[tuple[str, float]]:
    sums: dict[str, float] = defaultdict(float)
    for function, seconds in zip(table["function"], table["seconds"], strict=True):
        sums[str(function) or "?"] += float(seconds)
    return sorted(sums.items(), key=lambda each: -each[1])


def _is_refused(table: pd.DataFrame) -> pd.Series[bool]:
    """Of each row, whether it is an attempt that the compiler refused, at its limit: nothing was compiled."""
    return table["fell_back"].fillna("").str.contains("_limit of ", regex=False)


def _of_reset(profile: Profile) -> str:
    """The cure where the run resets the compiler; empty where nothing says that it does."""
    source = profile.sources.get(profile.source_id or "")
    first = profile.compilations[profile.compilations["kind"] == "first"]
    if source is not None and _RESET.search(source.text) is not None:
        return "Take the reset of the compiler out of the cell: everything is compiled again after each one."
    if first["compile_id"].duplicated().any():  # the compiler counts from 0 again
        return "Reset the compiler less often: everything was compiled again after each reset in this run."
    return ""


def _call_lines(profile: Profile) -> tuple[CodeLine, ...]:
    """The lines whose calls set off the compiling, the one with the most of it first."""
    frames = profile.frames
    found = frames[(frames["name"] == "compiling") & (frames["kind"] == "python") & frames["line"].notna()]
    sums: dict[tuple[str, int], float] = defaultdict(float)
    for row in found[["source_id", "line", "wall_time"]].to_dict("records"):
        sums[str(row["source_id"]), int(row["line"])] += float(row["wall_time"])
    ordered = sorted(sums, key=lambda place: -sums[place])
    return tuple(_code_line(profile, source_id, line) for source_id, line in ordered)


def _code_line(profile: Profile, source_id: str, line: int, file: str = "") -> CodeLine:
    source = profile.sources.get(source_id)
    label = source.label if source is not None else file.replace("\\", "/").rpartition("/")[2] or "?"
    return CodeLine(f"{label}:{line}", source_id, line)


def _place(profile: Profile, row: Mapping[Any, Any]) -> CodeLine:
    source_id = "" if pd.isna(row["source_id"]) else str(row["source_id"])
    line = 0 if pd.isna(row["line"]) else int(row["line"])
    return _code_line(profile, source_id, line, str(row["file"]))


def _places(profile: Profile, table: pd.DataFrame) -> tuple[CodeLine, ...]:
    rows = table.sort_values("seconds", ascending=False, kind="stable").to_dict("records")
    return tuple(dict.fromkeys(_place(profile, row) for row in rows if pd.notna(row["line"])))
