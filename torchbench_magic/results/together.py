"""Results of different occasions side by side, and what changed since the last time.

Rows of one run that were sampled side by side keep their paired ratios. Rows of different runs, environments or
occasions are unpaired: see `ranges` for what can be said of them. Nothing is merged: a repeated run is a row of its
own, marked by the axis ``result``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np

from torchbench_magic.errors import InputError

from .cell import first_code_line
from .comparison import Comparison
from .contamination import doubts_of
from .doubts import Doubt
from .environment import Environment
from .identity import differences, given_label
from .joining import distinct, join, take
from .ranges import RUNS, SPAN, Range, Unpaired, judged
from .subject import Subject

__all__ = ["AXIS", "By", "rebased", "side_by_side", "since_last"]

By = Literal["description", "env"]

AXIS = "result"
"""Axis that names the result a row is from."""
_MOST_NAMED = 3
_OURS = frozenset(("differs", "no-counterpart", "unpaired"))  # kinds of doubts that are found anew


def side_by_side(
    results: Mapping[str, Comparison], *, baseline: str | None = None, by: By = "description"
) -> Comparison:
    """Put results beside each other.

    With ``by`` "description", rows of one point (sub_label, axes, num_threads) and env are compared: within the run
    where they were measured side by side, else unpaired. ``baseline`` is the description that the others are compared
    to, or the name of a result: then each of its rows is, with the row of the same description. Without it, runs that
    repeat an earlier result's rows are compared with those, and whatever else with the first row of its point.
    With ``by`` "env", each row is compared with the one of its description and point in the ``baseline`` env (the
    first one).

    Args:
        results: name -> result, at least one.
        baseline: see above.
        by: see above.

    Raises:
        InputError: results of different clocks, a baseline that none of them has, or one env where two are asked for.
    """
    if not results:
        raise InputError("nothing to compare: name at least one result")
    whole, names = _laid_out(results)
    if by == "env" and len({subject.env for subject in whole.subjects}) < 2:
        raise InputError(f"--by env compares environments; here is only {whole.subjects[0].env or 'one, unnamed'}")
    rows = _Rows(whole, names, baseline, by)
    unpaired = rows.by_env() if by == "env" else rows.by_description()
    made = replace(whole, unpaired=unpaired, baseline=rows.paired_baseline(results) if by == "description" else None)
    doubts = [*_undecided(made), *_apart(made, results), *_alone(made), *_warnings(results), *doubts_of(made)]
    object.__setattr__(made, "warnings", distinct(doubts))  # rather than `replace`: its frame is made already
    return made


def rebased(made: Comparison, name: str) -> Comparison:
    """What `side_by_side` made, with another baseline: a description, a result or an env.

    Raises:
        InputError: there is none of that name.
    """
    rows: dict[str, list[int]] = {}
    for row, subject in enumerate(made.subjects):
        rows.setdefault(str(dict(subject.axes)[AXIS]), []).append(row)
    results = {result: replace(take(made, found), warnings=[]) for result, found in rows.items()}
    described = {*rows, *(subject.description for subject in made.subjects)}
    is_env = name not in described and any(subject.env == name for subject in made.subjects)
    again = side_by_side(results, baseline=name, by="env" if is_env else "description")
    found_anew = {"no-counterpart", "unpaired", *(doubt.kind for doubt in doubts_of(made))}
    said = [doubt for doubt in made.warnings if doubt.kind not in found_anew]  # of the results when they were whole
    return replace(again, warnings=[*again.warnings, *said])


def since_last(current: Comparison, last: Mapping[int, tuple[Comparison, int]]) -> Comparison:
    """Each row of ``current`` beside the last stored run of its identity, and what is not as it was then.

    Args:
        current: the result of now; its ``history`` is used where a store gave it one.
        last: row of ``current`` -> (stored result, row there), as `Store.last` finds them; their ``history`` too.

    Raises:
        InputError: nothing of it was stored before.
    """
    if not last:
        raise InputError("no stored run has the identity of this result: store one with --save, then measure again")
    rows = sorted(last)
    then = [replace(take(found, [row]), unpaired={}) for found, row in (last[at] for at in rows)]
    names = "last stored run", "this run"
    stored = join([replace(one, baseline=None, margin=current.margin) for one in then])
    stored = replace(stored, history={at: known for at, one in enumerate(then) for known in one.history.values()})
    made = side_by_side(dict(zip(names, (stored, take(current, rows)), strict=True)), baseline=names[0])
    changes: dict[tuple[str, ...], list[str]] = {}
    for at in rows:
        changed = tuple(differences(*last[at], current, at))
        changes.setdefault(changed, []).append(_name(current.subjects[at]))
    doubts = [_changes(changed, _listed(found, len(changes) > 1)) for changed, found in changes.items()]
    missing = [_name(s) for row, s in enumerate(current.subjects) if row not in last]
    if missing:
        doubts.append(Doubt("not-stored-before", f"No stored run of {_listed(missing)}: left out here."))
    return replace(made, warnings=[*doubts, *(d for d in made.warnings if d.kind != "differs")])


def _changes(changed: Sequence[str], names: str) -> Doubt:
    about = f" of {names}" if names else ""
    if not changed:
        return Doubt("unchanged", f"Since the last stored run{about}: source, options and environment are the same.")
    return Doubt("changed", f"Since the last stored run{about}: {'; '.join(changed)}.", "", {"changes": changed})


# ---- the rows of all results as one table -------------------------------------------------------------------


def _laid_out(results: Mapping[str, Comparison]) -> tuple[Comparison, list[str]]:
    """All rows one after the other, and the name of the result of each, which is an axis besides."""
    clocks = {name: result.clock for name, result in results.items()}
    if len(set(clocks.values())) > 1:
        listed = ", ".join(f"{name} by the {clock} clock" for name, clock in clocks.items())
        raise InputError(f"times of different clocks are not compared: {listed}; measure both with one --clock")
    margin = max(result.margin for result in results.values())  # what one of them calls the same is the same
    parts: list[Comparison] = []
    names: list[str] = []
    history: dict[int, Range] = {}
    for name, result in results.items():
        history |= {len(names) + row: known for row, known in result.history.items()}
        names += [name] * len(result.subjects)
        counts = result.counts.of_result(name)
        parts.append(replace(result, subjects=_with_axis(result, name), baseline=None, margin=margin, counts=counts))
    whole = join(parts)
    options = parts[0].options if all(part.options == parts[0].options for part in parts) else {}
    environment = _common([part.environment for part in parts])
    whole = replace(whole, environment=environment, options=options, seed=None, elapsed=math.nan, saved="")
    return replace(whole, unpaired={}, history=history, warnings=[]), names


def _with_axis(result: Comparison, name: str) -> tuple[Subject, ...]:
    return tuple(replace(s, axes=((AXIS, name), *_own_axes(s))) for s in result.subjects)


def _warnings(results: Mapping[str, Comparison]) -> Iterator[Doubt]:
    """What each result says of itself, with its name; what its numbers say is found anew."""
    for name, result in results.items():
        found_anew = {*_OURS, *(doubt.kind for doubt in doubts_of(result))} if result.warnings else set()
        for doubt in result.warnings:
            if doubt.kind not in found_anew and "rows" not in doubt.facts:
                named = {**doubt.facts, "name": f"{name} {doubt.facts.get('name', '')}".rstrip()}
                yield replace(doubt, text=f"{name}: {doubt.text}", facts=named) if len(results) > 1 else doubt


def _own_axes(subject: Subject) -> tuple[tuple[str, object], ...]:
    return tuple((name, value) for name, value in subject.axes if name != AXIS)


def _common(environments: Sequence[Environment]) -> Environment:
    """One record; texts that differ stand beside each other."""
    made: dict[str, Any] = {}
    for item in fields(Environment):
        values = [getattr(environment, item.name) for environment in environments]
        if all(value is None or isinstance(value, str) for value in values):
            absent = "CPU" if item.name == "accelerator" else "none"
            texts = list(dict.fromkeys(absent if value is None else value for value in values))
            made[item.name] = " / ".join(texts) if len(texts) > 1 else values[0]
    return replace(environments[0], **made)


class _Rows:
    """Who is compared with whom."""

    def __init__(self, whole: Comparison, names: Sequence[str], baseline: str | None, by: By) -> None:
        self._whole, self._results, self._baseline = whole, names, baseline
        times = map(whole.call_times, range(len(whole.subjects)))
        self._medians = [float(np.median(of_row)) if len(of_row) else math.nan for of_row in times]
        self.descriptions = dict.fromkeys(s.description for s in whole.subjects if s.description is not None)
        self._groups: dict[int, list[int]] = {}
        for row, subject in enumerate(whole.subjects):
            self._groups.setdefault(subject.group, []).append(row)
        self._points: dict[tuple[object, ...], list[int]] = {}
        for row, subject in enumerate(whole.subjects):
            self._points.setdefault(_point(subject), []).append(row)
        envs = list(dict.fromkeys(s.env for s in whole.subjects))
        self._env = envs[0] if baseline is None else baseline
        known = {*map(str, envs)} if by == "env" else {*self.descriptions, *names}
        if baseline is not None and baseline not in known:
            what = "env" if by == "env" else "alternative or result"
            raise InputError(f"no {what} is called {baseline!r}; there are: {', '.join(sorted(known)) or 'none'}")

    def by_env(self) -> dict[int, Unpaired]:
        """Each row against the same thing in the baseline env."""
        found: dict[int, Unpaired] = {}
        for row, subject in enumerate(self._whole.subjects):
            there = [i for i in self._points[_point(subject)] if self._whole.subjects[i].env == self._env]
            same = [i for i in there if _key(self._whole.subjects[i]) == _key(subject)]
            found[row] = self._against(row, same[0] if same else None)
        return self._marked(found)

    def by_description(self) -> dict[int, Unpaired]:
        """Paired where they were sampled side by side, else with the baseline of the same point and env."""
        found: dict[int, Unpaired] = {}
        as_result = self._baseline in self._results and self._baseline not in self.descriptions
        for rows in self._groups.values():
            if as_result:
                found |= {row: self._against(row, self._in_result(row)) for row in rows}
            elif self._baseline is not None:
                if not any(self._whole.subjects[row].description == self._baseline for row in rows):
                    found |= {row: self._against(row, self._called(row)) for row in rows}
            elif all(self._earlier(row) is not None for row in rows):
                found |= {row: self._against(row, self._earlier(row)) for row in rows}
            elif len(rows) == 1:
                (row,) = rows
                first = next(self._at(row), None)
                if first is not None and first != row:
                    found[row] = self._against(row, first)
        return self._marked(found)

    def _at(self, row: int) -> Iterator[int]:
        """Rows of the same point and env, from the first on."""
        mine = self._whole.subjects[row]
        return (i for i in self._points[_point(mine)] if self._whole.subjects[i].env == mine.env)

    def _earlier(self, row: int) -> int | None:
        """The first row of an earlier result that is of the same thing."""
        mine, result = self._whole.subjects[row], self._results[row]
        for i in self._at(row):
            if self._results[i] == result:
                return None
            if _key(self._whole.subjects[i]) == _key(mine):
                return i
        return None

    def _in_result(self, row: int) -> int | None:
        """The row of the baseline result that is of the same thing, or that is alone at the point."""
        there = [i for i in self._at(row) if self._results[i] == self._baseline]
        same = [i for i in there if _key(self._whole.subjects[i]) == _key(self._whole.subjects[row])]
        return same[0] if same else there[0] if len(there) == 1 else None

    def _called(self, row: int) -> int | None:
        return next((i for i in self._at(row) if self._whole.subjects[i].description == self._baseline), None)

    def _against(self, row: int, base: int | None) -> Unpaired:
        if base is None or base == row:
            return Unpaired(base, 1.0, 1.0, 1.0, "baseline") if base == row else Unpaired(None)
        known, base_known = self._whole.known_range(row), self._whole.known_range(base)
        mine, other = self._medians[row], self._medians[base]
        one = judged(mine, known, base, other, base_known, self._whole.margin)
        return replace(one, verdict=None) if min(mine, other) < self._whole.subjects[row].near_loop else one

    def _marked(self, found: dict[int, Unpaired]) -> dict[int, Unpaired]:
        """Mark the rows that others are compared with, but for those that are the baseline of their own run."""
        bases = {one.baseline for row, one in found.items() if one.baseline is not None and one.baseline != row}
        alone = {row: Unpaired(None) for row, one in found.items() if one.baseline == row and row not in bases}
        bases -= found.keys()
        for rows in self._groups.values():
            if len(rows) > 1:
                named = [row for row in rows if self._whole.subjects[row].description == self._baseline]
                bases -= {(named or rows)[0]}
        return found | alone | {row: Unpaired(row, 1.0, 1.0, 1.0, "baseline") for row in bases}

    def paired_baseline(self, results: Mapping[str, Comparison]) -> str | None:
        """The description that paired rows are compared with: the one asked for, else the one all results had."""
        if self._baseline is not None:
            return self._baseline if self._baseline in self.descriptions else None
        had = {result.baseline for result in results.values()}
        (name,) = had if len(had) == 1 else (None,)
        groups = [rows for rows in self._groups.values() if len(rows) > 1]
        everywhere = all(any(self._whole.subjects[row].description == name for row in rows) for rows in groups)
        return name if everywhere else None


def _point(subject: Subject) -> tuple[object, ...]:
    return subject.sub_label, _own_axes(subject), subject.num_threads


def _key(subject: Subject) -> str:
    """What the row is called, whatever the result: description, else label if given, else its code."""
    return subject.description or given_label(subject.label) or subject.stmt.strip()


# ---- what is doubtful about it ------------------------------------------------------------------------------


def _undecided(made: Comparison) -> Iterator[Doubt]:
    """Why rows of different occasions are undecided, and what would decide them."""
    reasons = Counter(one.reason for one in made.unpaired.values() if one.verdict == "undecided")
    for reason, rows in reasons.items():
        which = "The unpaired row is" if rows == 1 else f"{rows} unpaired rows are"
        action = "Compare them in one %%timer cell."
        if reason.startswith("one window"):
            windows = f"{SPAN:g} s of samples (`--min-run-time {SPAN:g}`)"
            action += f" Else give each side {windows} or {RUNS} stored runs."
        yield Doubt("unpaired", f"{which} undecided: {reason}.", action, {"reason": reason})


def _apart(made: Comparison, results: Mapping[str, Comparison]) -> Iterator[Doubt]:
    """What else differs between results whose rows are compared."""
    starts, at = {}, 0
    for name, result in results.items():
        starts[name] = range(at, at + len(result.subjects))
        at += len(result.subjects)
    home = {row: (name, row - rows[0]) for name, rows in starts.items() for row in rows}
    told: dict[tuple[str, str], dict[str, None]] = {}
    for row, one in made.unpaired.items():
        if one.baseline is None or one.baseline == row:
            continue
        (before, old), (now, new) = home[one.baseline], home[row]
        same = _key(made.subjects[row]) == _key(made.subjects[one.baseline])
        for change in differences(results[before], old, results[now], new):
            if same or not change.startswith(("source", "setup")):
                told.setdefault((before, now), {})[change] = None
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # results that differ by the same are said together
    for (before, now), changes in told.items():
        start = f"From {before} to " if before != now else "Within "
        alike.setdefault((start, tuple(changes)), []).append(now)
    for (start, found), names in alike.items():
        text = f"{start}{_listed(names)}: {'; '.join(found)}."
        yield Doubt("differs", text, "", {"changes": found, "name": f"{start}{' '.join(names)}"})


def _alone(made: Comparison) -> Iterator[Doubt]:
    """Rows that have nothing to be compared with."""
    frame = made.frame
    # A body near the loop's own cost has a ratio and no verdict.
    alone = [_name(s) for s, ratio in zip(made.subjects, frame["ratio"], strict=True) if math.isnan(ratio)]
    if alone and len(frame) > 1:
        several = frame["env"].nunique(dropna=False) > 1
        action = "`--by env` compares environments." if several else ""
        yield Doubt("no-counterpart", f"Nothing at the same point and env to compare with: {_listed(alone)}.", action)


def _name(subject: Subject) -> str:
    name = subject.description or given_label(subject.label) or first_code_line(subject.stmt) or "statement"
    threads = f", {subject.num_threads} threads" if subject.num_threads > 1 else ""
    return f"`{name}`" + (f" ({subject.sub_label}{threads})" if subject.sub_label else threads)


def _listed(names: Sequence[str], wanted: bool = True) -> str:
    if not wanted:
        return ""
    different = list(dict.fromkeys(names))
    more = len(different) - _MOST_NAMED
    return ", ".join(different[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
