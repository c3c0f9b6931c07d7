"""Results of different occasions side by side, and what changed since the last time.

Rows of one run that were sampled side by side keep their paired ratios. Rows of different runs, environments or
occasions are unpaired: see `ranges` for what can be said of them. Nothing is merged: a repeated run is a row of its
own, marked by the axis ``result``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from torchbench_magic.errors import InputError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.machine.environment import common_environment

from ..comparison import Comparison
from ..identity import identity_differences
from ..intervals import ALPHA, median_interval
from ..joined_comparisons import distinct, join_comparisons, take
from ..ranges import Range, Single, Unpaired, judged_ranges
from ..subject import Subject
from ..timing_doubts import doubts_of, is_held_up, is_load_known, with_doubts_of_its_own
from ..values_read import uncompared, words_for
from .load_between import unlike_load
from .several_kernels import of_several_kernels, with_kernels
from .source_changes import source_diffs
from .unchanged_alternative import Home, through_yardstick
from .unpaired_doubts import alone, apart, listed, name_in_doubt, reasons, thing_of

__all__ = ["AXIS", "SideBy", "rebase", "side_by_side", "since_last"]

SideBy = Literal["description", "env"]

AXIS = "result"
"""Axis that names the result a row is from."""
_RELABEL = "Code without a `--label` is identified by its text; with one, an edited alternative is still recognised."
_SHOWS_ALL = "Without `--by env`, every run is a row."
_OURS = frozenset(("differs", "no-counterpart", "not-compared", "other-load", "unpaired", "unpaired-verdict"))
"""Kinds of doubts that are found anew."""


def side_by_side(
    results: Mapping[str, Comparison], *, baseline: str | None = None, by: SideBy = "description"
) -> Comparison:
    """Put results beside each other.

    With ``by`` "description", rows of one point (sub_label, axes, num_threads) and env are compared: within the run
    where they were measured side by side, else unpaired. ``baseline`` is the description that the others are compared
    to, or the name of a result: then each of its rows is, with the row of the same description. Without it, runs that
    repeat an earlier result's rows are compared with those, and whatever else with the first row of its point.
    With ``by`` "env", environments are compared, not runs: of each thing in each env the latest run is shown, beside
    that of the ``baseline`` env (the first one). What a store knows of the earlier runs is the range of the latest.

    Args:
        results: name -> result, at least one.

    Raises:
        InputError: results of different clocks, a baseline that none of them has, or one env where two are asked for.
    """
    return with_kernels(_compared(results, baseline, by), of_several_kernels(results.values()))


def _compared(
    results: Mapping[str, Comparison], baseline: str | None, by: SideBy, *, yardsticks: bool = True
) -> Comparison:
    if by != "env" or not results:
        return _side_by_side(results, _homes(results), baseline, by, yardsticks=yardsticks)
    latest = _latest_of_env(results)
    homes = [(results[name], row) for name, rows in latest.items() for row in rows]
    shown = {name: take(results[name], rows) for name, rows in latest.items()}
    made = _side_by_side(shown, homes, baseline, by, yardsticks=False)  # an env may change every alternative
    earlier = sum(len(result.subjects) for result in results.values()) - len(homes)
    if not earlier:
        return made
    said = f"The latest run of each environment is compared; {earlier} earlier row{'s are' if earlier > 1 else ' is'}"
    return replace(made, warnings=[*made.warnings, Doubt("earlier-runs", f"{said} not shown.", _SHOWS_ALL)])


def _side_by_side(
    results: Mapping[str, Comparison],
    homes: Sequence[Home],
    baseline: str | None,
    by: SideBy,
    *,
    yardsticks: bool = True,
) -> Comparison:
    """`side_by_side`, with the ``homes`` of the rows: the whole result that each was measured in, its row there."""
    if not results:
        raise InputError("nothing to compare: give at least one result")
    whole, names = _laid_out(results)
    if by == "env" and len({subject.env for subject in whole.subjects}) < 2:
        raise InputError(f"--by env compares environments, but there is only {whole.subjects[0].env or 'one, unnamed'}")
    rows = _Rows(whole, names, homes, baseline, by, yardsticks)
    unpaired = rows.by_env() if by == "env" else rows.by_description()
    made = replace(whole, unpaired=unpaired, baseline=rows.paired_baseline(results) if by == "description" else None)
    doubts = [*reasons(made), *apart(made, names, homes), *unlike_load(made, names, homes), *alone(made)]
    doubts += [*_warnings(results), *doubts_of(made)]
    object.__setattr__(made, "warnings", distinct(doubts))  # rather than `replace`: its frame is made already
    return made


def rebase(made: Comparison, name: str) -> Comparison:
    """See `Comparison.rebase`."""
    if AXIS in made.axes:
        return _rebased(made, name)
    names = list(dict.fromkeys(s.description for s in made.subjects if s.description is not None))
    if name not in names:
        raise InputError(f"no alternative is called {name!r}; known: {', '.join(names) or 'none'}")
    return with_doubts_of_its_own(replace(made, baseline=name), made)


def _rebased(made: Comparison, name: str) -> Comparison:
    """What `side_by_side` made, with another baseline: a description, a result or an env."""
    rows: dict[str, list[int]] = {}
    for row, subject in enumerate(made.subjects):
        rows.setdefault(str(dict(subject.axes)[AXIS]), []).append(row)
    results = {result: replace(take(made, found), warnings=[]) for result, found in rows.items()}
    described = {*rows, *(subject.description for subject in made.subjects)}
    is_env = name not in described and any(subject.env == name for subject in made.subjects)
    # what each was measured in is not known any more, so nothing can be said to be unchanged
    again = _compared(results, name, "env" if is_env else "description", yardsticks=False)
    found_anew = {"no-counterpart", "unpaired", "unpaired-verdict", *(doubt.kind for doubt in doubts_of(made))}
    said = [doubt for doubt in made.warnings if doubt.kind not in found_anew]  # of the results when they were whole
    return replace(again, warnings=[*again.warnings, *said])


def since_last(
    current: Comparison,
    last: Mapping[int, tuple[Comparison, int]],
    nearest: Mapping[int, str] = MappingProxyType({}),
    alike: Sequence[Comparison] = (),
) -> Comparison:
    """Each row of ``current`` beside the last stored run of its identity, and what is not as it was then.

    Args:
        current: the result of now; its ``history`` is used where a store gave it one.
        last: row of ``current`` -> (stored result, row there), as `Store.last` finds them; their ``history`` too.
        nearest: row that ``last`` lacks -> what tells it from the nearest stored run; see `nearest_words`.
        alike: stored runs that repeat rows of ``current``, oldest first.

    Raises:
        InputError: nothing of it was stored before.
    """
    if not last:
        why = next((words for _, words in sorted(nearest.items()) if words), "")
        way = f"{why}" if why else "measure it once more, with --save each time"
        raise InputError(f"no stored run matches this result: {way}")
    rows = sorted(last)
    then = [take(found, [row]) for found, row in (last[at] for at in rows)]
    names = "last stored run", "this run"
    homes = [*(last[at] for at in rows), *((current, at) for at in rows)]
    stored = join_comparisons([replace(one, baseline=None, margin=current.margin) for one in then])
    stored = replace(stored, history={at: known for at, one in enumerate(then) for known in one.history.values()})
    results = dict(zip(names, (stored, take(current, rows)), strict=True))
    made = _side_by_side(results, homes, names[0], "description")
    by_change: dict[tuple[str, ...], list[int]] = {}
    for at in rows:
        by_change.setdefault(tuple(identity_differences(*last[at], current, at)), []).append(at)
    doubts, several = [], len(by_change) > 1
    for changed, found in by_change.items():
        names_of = listed([name_in_doubt(current.subjects[at]) for at in found]) if several else ""
        doubts.append(_changes(changed, names_of, last, current, found))
    missing = [name_in_doubt(s) for row, s in enumerate(current.subjects) if row not in last]
    if missing:
        known = [(name_in_doubt(current.subjects[row]), words) for row, words in sorted(nearest.items()) if words]
        why = "".join(f" Of {name} {words}." for name, words in known)
        text = f"No stored run of {listed(missing)}: left out here.{why}"
        doubts.append(Doubt("not-stored-before", text, _RELABEL))
    told = {"differs", *(["not-compared"] if any(doubt.kind == "unchanged" for doubt in doubts) else [])}
    made = replace(made, warnings=[*doubts, *(d for d in made.warnings if d.kind not in told)])
    return with_kernels(made, of_several_kernels([*alike, current], [current]))


def _changes(
    changed: Sequence[str],
    names: str,
    last: Mapping[int, Home],
    current: Comparison,
    rows: Sequence[int],
) -> Doubt:
    """What is not as it was for ``rows`` of ``current``, which changed alike."""
    about = f" of {names}" if names else ""
    recorded = all(result.subjects[at].inputs is not None for row in rows for result, at in (last[row], (current, row)))
    if not changed:
        alike = "source, inputs, options" if recorded else "source, options"
        unknown = "" if recorded else "; the shapes of its inputs were not recorded"
        pairs = [(last[row][0].subjects[last[row][1]], current.subjects[row]) for row in rows]
        left_out = {k: why for then, now in pairs for k, why in uncompared(then.values, now.values or ()).items()}
        unknown += f". {words_for(left_out)}" if left_out else ""
        text = f"Since the last stored run{about}: {alike} and environment are the same{unknown}."
        return Doubt("unchanged", text, "", {"name": names})
    text = f"Since the last stored run{about}: {'; '.join(changed)}."
    diffs = {name: diff for row in rows for name, diff in source_diffs(*last[row], current, row).items()}
    return Doubt("changed", text, "", {"changes": changed, "diffs": diffs})


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
    whole = join_comparisons(parts)
    options = parts[0].options if all(part.options == parts[0].options for part in parts) else {}
    environment = common_environment([part.environment for part in parts])
    whole = replace(whole, environment=environment, options=options, seed=None, elapsed=math.nan, saved="")
    return replace(whole, unpaired={}, history=history, warnings=[]), names


def _homes(results: Mapping[str, Comparison]) -> list[Home]:
    """For each row of all, the result that it is of and its row there."""
    return [(result, row) for result in results.values() for row in range(len(result.subjects))]


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


def _latest_of_env(results: Mapping[str, Comparison]) -> dict[str, list[int]]:
    """Result -> its rows that are the latest of their thing, point and env; in the order given where it is not known
    when each was stored."""
    order = list(results)
    if all(result.saved for result in results.values()):
        order.sort(key=lambda name: results[name].saved)
    latest: dict[tuple[object, ...], tuple[str, int]] = {}
    for name in order:
        for row, subject in enumerate(results[name].subjects):
            latest[subject.env, _point(subject), thing_of(subject)] = name, row
    kept = set(latest.values())
    rows = {name: [row for row in range(len(one.subjects)) if (name, row) in kept] for name, one in results.items()}
    first = next(subject.env for result in results.values() for subject in result.subjects)
    found = [name for name in rows if rows[name]]
    found.sort(key=lambda name: all(results[name].subjects[row].env != first for row in rows[name]))
    return {name: rows[name] for name in found}  # the env that came first is the baseline


class _Rows:
    """Who is compared with whom."""

    def __init__(
        self,
        whole: Comparison,
        names: Sequence[str],
        homes: Sequence[Home],
        baseline: str | None,
        by: SideBy,
        yardsticks: bool,
    ) -> None:
        self._whole, self._results, self._homes, self._baseline = whole, names, homes, baseline
        self._yardsticks = yardsticks
        self.descriptions = dict.fromkeys(s.description for s in whole.subjects if s.description is not None)
        self._points: dict[tuple[object, ...], list[int]] = {}
        for row, subject in enumerate(whole.subjects):
            self._points.setdefault(_point(subject), []).append(row)
        envs = list(dict.fromkeys(s.env for s in whole.subjects))
        self._env = envs[0] if baseline is None else baseline
        known = {*map(str, envs)} if by == "env" else {*self.descriptions, *names}
        if baseline is not None and baseline not in known:
            what = "env" if by == "env" else "alternative or result"
            raise InputError(f"no {what} is called {baseline!r}; known: {', '.join(sorted(known)) or 'none'}")

    def by_env(self) -> dict[int, Unpaired]:
        """Each row against the same thing in the baseline env."""
        found: dict[int, Unpaired] = {}
        for row, subject in enumerate(self._whole.subjects):
            there = [i for i in self._points[_point(subject)] if self._whole.subjects[i].env == self._env]
            same = [i for i in there if thing_of(self._whole.subjects[i]) == thing_of(subject)]
            found[row] = self._against(row, same[0] if same else None)
        return self._marked(found)

    def by_description(self) -> dict[int, Unpaired]:
        """Paired where they were sampled side by side, else with the baseline of the same point and env."""
        found: dict[int, Unpaired] = {}
        as_result = self._baseline in self._results and self._baseline not in self.descriptions
        for rows in self._whole.groups.values():
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
            if thing_of(self._whole.subjects[i]) == thing_of(mine):
                return i
        return None

    def _in_result(self, row: int) -> int | None:
        """The row of the baseline result that is of the same thing, or that is alone at the point."""
        there = [i for i in self._at(row) if self._results[i] == self._baseline]
        same = [i for i in there if thing_of(self._whole.subjects[i]) == thing_of(self._whole.subjects[row])]
        return same[0] if same else there[0] if len(there) == 1 else None

    def _called(self, row: int) -> int | None:
        return next((i for i in self._at(row) if self._whole.subjects[i].description == self._baseline), None)

    def _against(self, row: int, base: int | None) -> Unpaired:
        if base is None or base == row:
            return Unpaired(base, 1.0, 1.0, 1.0, "baseline") if base == row else Unpaired(None)
        one = None
        if self._yardsticks and self._results[row] != self._results[base]:
            one = through_yardstick(self._homes[base], self._homes[row], base, self._whole.margin)
        this, other = self._single(row), self._single(base)
        one = one or judged_ranges(this, other, base, self._whole.margin)
        near = min(this.median, other.median) < self._whole.subjects[row].near_loop
        return replace(one, verdict=None) if near else one

    def _single(self, row: int) -> Single:
        """The time of a row by itself, and how far it can be trusted to come again."""
        inner = median_interval(self._whole.call_times(row), ALPHA / 2)
        loaded = is_load_known(*self._homes[row])
        known, held_up = self._whole.known_range(row), is_held_up(*self._homes[row])
        return Single(inner.median, max(inner.low, 0.0), inner.high, known, loaded, held_up)

    def _marked(self, found: dict[int, Unpaired]) -> dict[int, Unpaired]:
        """Mark the rows that others are compared with, but for those that are the baseline of their own run."""
        bases = {one.baseline for row, one in found.items() if one.baseline is not None and one.baseline != row}
        alone = {row: Unpaired(None) for row, one in found.items() if one.baseline == row and row not in bases}
        bases -= found.keys()
        for rows in self._whole.groups.values():
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
        groups = [rows for rows in self._whole.groups.values() if len(rows) > 1]
        everywhere = all(any(self._whole.subjects[row].description == name for row in rows) for rows in groups)
        return name if everywhere else None


def _point(subject: Subject) -> tuple[object, ...]:
    return subject.sub_label, _own_axes(subject), subject.num_threads
