"""Two profiles side by side: time and bytes per line and per op."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.process.contention import load_differences
from torchbench_magic.process.values_between_runs import changes_of, uncompared, words_for
from torchbench_magic.result_base import Doubt, Insight, Shown, with_doubts
from torchbench_magic.timing.identity import environment_differences, input_differences

from .profile import NOT_ATTRIBUTED, VOIDING, Profile, processor_silenced_by, silenced_by
from .schema import LINE_COLUMNS, OP_COLUMNS
from .trace import Source

_SPOILS = VOIDING - {"partial", "no-lines"}
"""Kinds of doubts about one profile that are doubts about the comparison too. Of these two it has words of its own."""
_ALIKE = 0.6  # of the characters: an edited line is taken for the same one, as `difflib.get_close_matches` does
_LINE_VALUES = ("calls", "time", "wall_time", "backward_cpu_time", "device_time", "allocated", "net", "peak")
_KINDS = {**OP_COLUMNS, **LINE_COLUMNS, "time": "float64"}
_OP_VALUES = ("calls", "self_cpu_time", "cpu_time", "self_device_time", "allocated")

SourceLine = tuple[str, int]  # (source_id, line)


def _columns(keys: Sequence[str], values: Sequence[str]) -> tuple[str, ...]:
    return (*keys, *(name for value in values for name in (f"baseline_{value}", value, f"{value}_delta")))


_LINE_KEYS = (
    *("cell", "line", "source", "source_id", "baseline_line", "baseline_source", "baseline_source_id"),
    *("thread", "match"),
)
DIFF_LINE_COLUMNS = _columns(_LINE_KEYS, _LINE_VALUES)
"""Of `ProfileDiff.lines`. ``match`` says how two rows were joined: ``same`` (one source), ``text`` (the same text in
an edited source), ``edited`` (a line much like it), ``new`` and ``gone`` (in one of the two only). ``time`` is
``self_cpu_time + python_time``: on thread 0 it adds up to the wall time of each profile."""
DIFF_OP_COLUMNS = _columns(("op",), _OP_VALUES)


@dataclass(frozen=True, repr=False, eq=False)
class ProfileDiff(Shown):
    """One profile against another, the baseline. Seconds and bytes; a delta is this minus the baseline's.

    Attributes:
        names: what they are called, the baseline first.
        doubts: what is not known of how they came to stand side by side.
    """

    baseline: Profile
    other: Profile
    names: tuple[str, str] = ("baseline", "other")
    doubts: tuple[Doubt, ...] = ()

    @property
    def wall_time_delta(self) -> float:
        return self.other.wall_time - self.baseline.wall_time

    @cached_property
    def lines(self) -> pd.DataFrame:
        """One row per line of either, columns of `DIFF_LINE_COLUMNS`, in the order of the other's sources, then what
        is gone."""
        joined = _joined_lines(self.baseline, self.other)
        before, now = _line_rows(self.baseline), _line_rows(self.other)
        rows = []
        seen = set()
        for key, record in now.items():
            source_id, line, thread = key
            found = joined.get((source_id, line)) if source_id is not None else None
            place = key if source_id is None else (*found[0], thread) if found is not None else None
            match = found[1] if found is not None else "same"
            there = before.get(place) if place is not None else None
            if there is not None:
                seen.add(place)
            rows.append(_line_row(there, record, match if there is not None else "new"))
        rows += [_line_row(record, None, "gone") for key, record in before.items() if key not in seen]
        return with_doubts(_framed(rows, DIFF_LINE_COLUMNS), self._all_doubts())

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per op of either, columns of `DIFF_OP_COLUMNS`, the largest change of self time first."""
        before, now = (_op_sums(profile) for profile in (self.baseline, self.other))
        nothing = dict.fromkeys(_OP_VALUES, 0)
        rows = [
            {"op": op} | _values(before.get(op, nothing), now.get(op, nothing), _OP_VALUES)
            for op in dict.fromkeys([*now, *before])
        ]
        frame = _framed(rows, DIFF_OP_COLUMNS)
        order = frame["self_cpu_time_delta"].abs().sort_values(ascending=False, kind="stable").index
        return with_doubts(frame.loc[order].reset_index(drop=True), self._all_doubts())

    @property
    def insights_new(self) -> tuple[Insight, ...]:
        """Insights of the other that the baseline has none of, by kind and line; empty where that is not known."""
        return self._insights_apart[0]

    @property
    def insights_gone(self) -> tuple[Insight, ...]:
        """Those of the baseline that the other has none of; empty where that is not known."""
        return self._insights_apart[1]

    @cached_property
    def _insights_apart(self) -> tuple[tuple[Insight, ...], tuple[Insight, ...]]:
        """(new, gone). A profile whose figures are doubtful has no insights, and that says nothing of its code."""
        before, now = self.baseline, self.other
        cores = _of_cores(before, now), _of_cores(now, before)
        if self._without_insights():
            return cores[1], cores[0]
        in_before = {place: found for place, (found, _) in _joined_lines(before, now).items()}
        had = {(each.kind, (at.source_id, at.line)) for each in before.insights for at in each.places}
        has = {(each.kind, in_before.get((at.source_id, at.line))) for each in now.insights for at in each.places}
        new = tuple(
            each
            for each in now.insights
            if each.places and not any((each.kind, in_before.get((at.source_id, at.line))) in had for at in each.places)
        )
        gone = tuple(
            each
            for each in before.insights
            if each.places and not any((each.kind, (at.source_id, at.line)) in has for at in each.places)
        )
        return (*cores[1], *new), (*cores[0], *gone)

    def _without_insights(self) -> list[str]:
        """Names of the profiles whose figures are too doubtful for insights."""
        both = zip(self.names, (self.baseline, self.other), strict=True)
        return [name for name, profile in both if silenced_by(profile) or profile.profiler_cost == "most"]

    @cached_property
    def differences(self) -> tuple[str, ...]:
        """What else is not alike: inputs and values that the code read, and as ``what: before -> now`` versions,
        machine, threads, options."""
        a, b = self.baseline, self.other
        found = self._other_inputs()
        if a.environment is not None and b.environment is not None:
            found += environment_differences(a.environment, b.environment)
        if a.num_threads != b.num_threads:
            found.append(f"threads: {a.num_threads} -> {b.num_threads}")
        for item in fields(a.options):
            before, now = getattr(a.options, item.name), getattr(b.options, item.name)
            if before != now and item.name != "threads":
                found.append(f"{item.name.replace('_', ' ')}: {_said(before)} -> {_said(now)}")
        return tuple(found)

    @property
    def has_same_inputs(self) -> bool:
        """Whether both runs recorded what their code read, and read the same, as far as it can be compared."""
        return not (self._without_inputs() or self._other_inputs())

    def _other_inputs(self) -> list[str]:
        a, b = self.baseline, self.other
        inputs = input_differences(a.inputs or (), b.inputs or ())
        return [*inputs.values(), *changes_of(a.values, b.values, said=inputs)]

    def _without_inputs(self) -> list[str]:
        """Names of the profiles that did not record what their code read."""
        both = zip(self.names, (self.baseline, self.other), strict=True)
        return [name for name, profile in both if profile.inputs is None or profile.values is None]

    @property
    def warnings(self) -> list[Doubt]:
        """What is doubtful about the comparison, with what spoils the figures of one of the two; other doubts about one
        are its own."""
        found = [*self.doubts]
        for name, profile in zip(self.names, (self.baseline, self.other), strict=True):
            if profile.partial:
                found.append(Doubt("partial", f"{name} stopped early: only what ran is compared."))
            if profile.lines.empty:
                found.append(Doubt("no-lines", f"{name} has no lines: only ops are compared."))
        if self.differences:
            found.append(Doubt("other-environment", f"Not alike: {'; '.join(self.differences)}."))
        if unlike := load_differences(self.baseline.contention, self.other.contention):
            text = f"From {self.names[0]} to {self.names[1]} the load of the machine changed: {'; '.join(unlike)}."
            found.append(Doubt("other-load", text))
        if unknown := self._inputs_not_known():
            found.append(Doubt("inputs-not-known", unknown))
        if (doubtful := self._without_insights()) and any(
            each.places for profile in (self.baseline, self.other) for each in profile.insights
        ):
            text = f"Which insights are new or gone is unknown: the times of {' and '.join(doubtful)} are unreliable."
            found.append(Doubt("insights-not-known", text))
        return [*found, *self._of_each(_SPOILS)]

    def _inputs_not_known(self) -> str:
        """What cannot be told of the inputs; empty where all were compared."""
        without = self._without_inputs()
        if without:
            return f"The inputs of {' and '.join(without)} were not recorded: they may differ."
        left_out = uncompared(self.baseline.values, self.other.values or ())
        return f"{words_for(left_out)}." if left_out else ""

    def _all_doubts(self) -> Iterator[Doubt]:
        """Those of the comparison, then those of each profile under its name."""
        said = self.warnings
        yield from said
        yield from (doubt for doubt in self._of_each() if doubt not in said)

    def _of_each(self, kinds: frozenset[str] | None = None) -> Iterator[Doubt]:
        """Doubts of each profile under its name: all of them, or those of some kinds."""
        for name, profile in zip(self.names, (self.baseline, self.other), strict=True):
            for doubt in profile.warnings:
                if kinds is None or doubt.kind in kinds:
                    yield replace(doubt, text=f"{name}: {doubt.text}")


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == () else str(value)


def _of_cores(one: Profile, other: Profile) -> tuple[Insight, ...]:
    """What ``one`` says of its use of the cores and ``other`` does not; nothing where one of them was not asked."""
    if any(each.concurrency is None or processor_silenced_by(each) for each in (one, other)):
        return ()
    kinds = {each.kind for each in other.insights if not each.places}
    return tuple(each for each in one.insights if not each.places and each.kind not in kinds)


# ---- which line is which ----------------------------------------------------------------------------------------


def _joined_lines(before: Profile, now: Profile) -> dict[SourceLine, tuple[SourceLine, str]]:
    """Place in ``now`` -> (place in ``before``, how they were joined)."""
    joined: dict[SourceLine, tuple[SourceLine, str]] = {}
    for old, new in _source_pairs(before, now):
        same = old.source_id == new.source_id
        if same and old.text == new.text and old.first_line == new.first_line:
            lines = len(new.text.splitlines())
            pairs: Iterator[tuple[int, int, str]] = (
                (line, line, "same") for line in range(new.first_line, new.first_line + lines)
            )
        else:
            pairs = _line_pairs(old, new, same)
        for old_line, new_line, match in pairs:
            joined[new.source_id, new_line] = (old.source_id, old_line), match
    return joined


def _source_pairs(before: Profile, now: Profile) -> Iterator[tuple[Source, Source]]:
    """Sources that are one and the same, or versions of one: what was profiled, files of one name, cells alike."""
    old, new = dict(before.sources), dict(now.sources)
    for source_id in [each for each in new if each in old]:
        yield old.pop(source_id), new.pop(source_id)
    if before.source_id in old and now.source_id in new:
        yield old.pop(str(before.source_id)), new.pop(str(now.source_id))
    for source_id, source in list(new.items()):
        same_file = [key for key, each in old.items() if each.file == source.file]
        like = same_file[0] if same_file else _most_alike(source, old)
        if like is not None:
            yield old.pop(like), new.pop(source_id)


def _most_alike(source: Source, among: Mapping[str, Source]) -> str | None:
    """Key of the source that shares most lines with this one; None where none shares half of them."""
    texts = _texts(source)
    shares = {
        key: difflib.SequenceMatcher(None, _texts(other), texts, autojunk=False).ratio() for key, other in among.items()
    }
    best = max(shares, key=lambda key: shares[key], default=None)
    return best if best is not None and shares[best] >= 0.5 else None


def _texts(source: Source) -> list[str]:
    """Lines without what an edit of the layout changes. A magic line is none of the code."""
    lines = [line.strip() for line in source.text.splitlines()]
    return ["%%" if line.startswith("%%") else line for line in lines]


def _line_pairs(old: Source, new: Source, same: bool) -> Iterator[tuple[int, int, str]]:
    """(old line, new line, how): equal texts in their order, then lines of a changed stretch that are much alike."""
    a, b = _texts(old), _texts(new)
    for tag, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            for i, j in zip(range(a0, a1), range(b0, b1), strict=True):
                yield i + old.first_line, j + new.first_line, "same" if same else "text"
        elif tag == "replace":
            at = a0
            for j in range(b0, b1):
                alike = [difflib.SequenceMatcher(None, a[i], b[j]).ratio() for i in range(at, a1)]
                if alike and max(alike) >= _ALIKE:
                    at += int(np.argmax(alike)) + 1  # the order of lines is kept
                    yield at - 1 + old.first_line, j + new.first_line, "edited"


# ---- rows -------------------------------------------------------------------------------------------------------


def _line_rows(profile: Profile) -> dict[tuple[str | None, int, int], dict[str, Any]]:
    """(source_id, line, thread) -> row; source_id None and line 0 for what stands on no line."""
    lines = profile.lines.assign(time=profile.lines["self_cpu_time"] + profile.lines["python_time"])
    rows = {}
    for record in lines.to_dict("records"):
        on_line = not pd.isna(record["line"])
        key = (record["source_id"], int(record["line"]), record["thread"]) if on_line else (None, 0, record["thread"])
        rows[key] = record
    return rows  # type: ignore[return-value]


def _line_row(before: dict[str, Any] | None, now: dict[str, Any] | None, match: str) -> dict[str, Any]:
    one = now if now is not None else before
    assert one is not None  # a row is of one of the two
    nothing: dict[str, Any] = {"line": pd.NA, "source": None, "source_id": None, "cell": pd.NA}
    zero = {name: pd.NA if pd.isna(one[name]) else 0 for name in _LINE_VALUES}
    a, b = before or nothing, now or nothing
    is_rest = one["source"] == NOT_ATTRIBUTED and pd.isna(one["line"])
    return {
        "cell": b["cell"],
        "line": b["line"],
        "source": NOT_ATTRIBUTED if is_rest else b["source"],
        "source_id": b["source_id"],
        "baseline_line": a["line"],
        "baseline_source": NOT_ATTRIBUTED if is_rest else a["source"],
        "baseline_source_id": a["source_id"],
        "thread": one["thread"],
        "match": match,
        **_values(before or zero, now or zero, _LINE_VALUES),
    }


def _values(before: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        key: value
        for name in names
        for key, value in (
            (f"baseline_{name}", before[name]),
            (name, now[name]),
            (f"{name}_delta", pd.NA if pd.isna(now[name]) or pd.isna(before[name]) else now[name] - before[name]),
        )
    }


def _op_sums(profile: Profile) -> dict[str, dict[str, Any]]:
    names = list(_OP_VALUES)
    return profile.ops.groupby("op", sort=False)[names].sum(min_count=1).to_dict("index")  # type: ignore[return-value]


def _framed(rows: list[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    made = {}
    for name in columns:
        kind = _KINDS.get(name.removeprefix("baseline_").removesuffix("_delta"), "object")
        dtype = {"int64": "Int64", "float64": "Float64"}.get(kind, str(kind))  # these two may be NA here
        values = pd.Series([row[name] for row in rows], dtype=dtype)
        made[name] = values.astype("float64") if dtype == "Float64" else values
    return pd.DataFrame(made, columns=list(columns))
