"""Several comparisons as one, and results of different occasions side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from torchbench_magic.cell_body import code_title
from torchbench_magic.counting.counts import Counts
from torchbench_magic.errors import InputError
from torchbench_magic.process.contention import Contention, joined_contention, load_differences
from torchbench_magic.process.environment import Environment, common_environment
from torchbench_magic.process.values_between_runs import uncompared, words_for
from torchbench_magic.result_base import Doubt

from .comparison import Comparison
from .counted_rows import key_of_row
from .identity import SourceDiff, environment_differences, given_label, identity_differences, likeness, source_diffs
from .intervals import ALPHA, Interval, median_interval
from .samples import AXIS, Subject
from .verdict import RUNS, SPAN, VERDICTS, Evidence, Range, Single, Unpaired, is_open, judged, judged_ranges
from .warnings import doubts_of, is_co_loaded, is_held_up, is_load_known, was_quiet, with_doubts_of_its_own

# ---- joined_comparisons ----------------------------------------------------------------------------------------------
# Several comparisons as one: the points of a sweep, what was measured before an interrupt, the same in processes.


def join_comparisons(parts: Sequence[Comparison]) -> Comparison:
    """Put comparisons of one request one after the other; ratios stay within the groups that were sampled together.

    Raises:
        InputError: nothing to join, or parts that were asked for with another baseline, margin or clock.
    """
    if not parts:
        raise InputError("nothing to join: give at least one comparison")
    first = parts[0]
    if len(parts) == 1:
        return first
    for name in ("baseline", "margin", "clock"):
        if len({getattr(part, name) for part in parts}) > 1:
            raise InputError(f"results with another {name} cannot be joined: measure them with one, or rebase them")
    subjects: list[Subject] = []
    frames, groups = [], 0
    void: list[tuple[int, int, str]] = []
    several = {"process": 0} if any("process" in part.samples for part in parts) else {}  # 0: this process alone
    for part in parts:
        samples = part.samples if "process" in part.samples else part.samples.assign(**several)
        frames.append(samples.assign(measurement=samples["measurement"] + len(subjects)))
        void += [(row + len(subjects), process, cause) for row, process, cause in part.void_processes]
        subjects += [replace(s, group=s.group + groups) for s in part.subjects]
        groups = 1 + max((s.group for s in subjects), default=-1)
    return replace(
        first,
        subjects=tuple(subjects),
        samples=pd.concat(frames, ignore_index=True),
        warnings=distinct(doubt for part in parts for doubt in part.warnings),
        elapsed=sum(part.elapsed for part in parts),
        partial=any(part.partial for part in parts),
        counts=Counts.joined(part.counts for part in parts),
        family=max(part.family for part in parts),
        unpaired={},
        history={},
        sources={key: text for part in parts for key, text in part.sources.items()},
        void_processes=tuple(void),
        environment=_common_environment(parts),
    )


def _common_environment(parts: Sequence[Comparison]) -> Environment:
    """That of the first; where engines measured parts on machines of their own, with what differs side by side."""
    if not any(subject.place is not None for part in parts for subject in part.subjects):
        return parts[0].environment
    return common_environment([part.environment for part in parts])


def join_processes(parts: Mapping[int, Comparison]) -> Comparison:
    """What several processes measured of the same alternatives at the same point, as one result.

    Args:
        parts: number of the process -> what it measured.

    Raises:
        InputError: none, or processes that did not measure the same.
    """
    if not parts:
        raise InputError("nothing to join: give at least one process")
    first, *_ = parts.values()
    measured = [[(s.description, s.num_threads, s.axes) for s in part.subjects] for part in parts.values()]
    if any(one != measured[0] for one in measured):
        raise InputError("the processes did not measure the same")
    frames, rounds = [], 0
    for process, part in parts.items():
        frames.append(part.samples.assign(round=part.samples["round"] + rounds, process=process))
        rounds = 1 + int(frames[-1]["round"].max())
    void = [(row, process, void.cause) for process, part in parts.items() for row, void in part.voids.items()]
    return replace(
        first,
        subjects=tuple(_over_processes(same) for same in zip(*(part.subjects for part in parts.values()), strict=True)),
        samples=pd.concat(frames, ignore_index=True),
        warnings=distinct(doubt for part in parts.values() for doubt in part.warnings),
        elapsed=sum(part.elapsed for part in parts.values()),
        void_processes=tuple(void),
    )


def _over_processes(same: Sequence[Subject]) -> Subject:
    """One row's facts over the processes that measured it: means, and its load."""
    loads = [s.contention for s in same if s.contention is not None]
    means: dict[str, Any] = {name: statistics.fmean(getattr(s, name) for s in same) for name in _MEANS}
    used_up = tuple(dict.fromkeys(pair for s in same for pair in s.used_up))
    means["compiled_in_samples"] = sum(s.compiled_in_samples for s in same)
    means["recompiled"] = tuple(dict.fromkeys(reason for s in same for reason in s.recompiled))
    state = tuple(dict.fromkeys(words for s in same for words in s.state))
    return replace(same[0], contention=joined_contention(loads), used_up=used_up, state=state, **means)


_MEANS = ("first_call", "compile_time", "loop_overhead", "page_faults", "waited", "span")


def take(whole: Comparison, rows: Sequence[int]) -> Comparison:
    """Some rows of a comparison, in the order given, with their samples and the doubts that concern them.

    Rows of one group stay comparable side by side; how rows compared with those of another time is dropped.
    """
    place = {row: at for at, row in enumerate(rows)}
    counted = [key_of_row(whole.counts, whole.subjects[row]) for row in rows]
    kept = whole.samples[whole.samples["measurement"].isin(place)]
    made = replace(
        whole,
        subjects=tuple(whole.subjects[row] for row in rows),
        samples=kept.assign(measurement=kept["measurement"].map(place)),
        warnings=[doubt for doubt in whole.warnings if "rows" not in doubt.facts],
        counts=whole.counts.only(counted),
        unpaired={},
        history={place[row]: known for row, known in whole.history.items() if row in place},
        void_processes=tuple((place[row], one, why) for row, one, why in whole.void_processes if row in place),
    )
    return replace(made, warnings=distinct([*made.warnings, *doubts_of(made)])) if rows else made


def distinct(doubts: Iterable[Doubt]) -> list[Doubt]:
    """One doubt of each kind about each thing; the points of a sweep would say the same many times."""
    kept: dict[tuple[object, ...], Doubt] = {}
    for doubt in doubts:
        about = doubt.facts.get("name") or tuple(sorted(doubt.facts.get("changes", ())))  # type: ignore[call-overload]
        kept.setdefault((doubt.kind, about, doubt.facts.get("function")), doubt)
    return list(kept.values())


# ---- unchanged_alternative -------------------------------------------------------------------------------------------
# Comparing two runs through an alternative that did not change between them.
#
# Two runs see two machines: a time of one and a time of the other differ by the drift as well. But each run measured
# its alternatives in adjacent blocks, so ``manual / sdpa`` then and ``manual / sdpa`` now are both free of it, and
# where sdpa is the same work on the same machine, their ratio is that of manual now to manual then:
#
#     log(manual now / manual then) = log(manual / sdpa, now) - log(manual / sdpa, then)
#
# Either term has an interval at half the error rate (Bonferroni), and the difference of the two intervals holds the
# difference with the whole one. What moves a ratio from process to process (where buffers, code and libraries lie) is
# no part of these intervals, and neither is what a neighbour does to one alternative and not to the other (caches,
# memory). So the difference is widened by `LAYOUT`, or by `LOADED` where the machine is not known to have been quiet
# both times.

Home = tuple[Comparison, int]
"""A result and a row of it."""

LAYOUT = 1.15
"""Factor by which a ratio of adjacent blocks may differ from process to process on a quiet machine: that of short
bodies by up to 6.5 % with where code and libraries lie, that of longer ones by up to 11 % with other buffers."""
LOADED = 1.6
"""The same beside other processes: of 21 processes on a busy 2-core guest, five pairs of bodies at one thread, every
two compared, the ratios differed by 2.6 % in the median, 18 % at the 90th percentile, 40 % at the 99th, 58 % at most.
"""


def is_unchanged(then: Home, now: Home) -> bool:
    """Whether two rows are the same work on the same inputs, versions and machine, as far as both recorded it."""
    recorded = all(result.subjects[row].inputs is not None for result, row in (then, now))
    if not recorded or likeness(*then) != likeness(*now):
        return False
    before, here = (replace(result.environment, commit=None) for result, _ in (then, now))
    return not environment_differences(before, here)


def yardstick_of(then: Home, now: Home) -> tuple[int, int] | None:
    """(row then, row now) of the alternative through which the others of a run are compared; None: all changed.

    The baseline of this run where it will do, else the first.
    """
    before = {likeness(then[0], row): row for row in then[0].beside(then[1])}
    pairs = [(before[key], row) for row in now[0].beside(now[1]) if (key := likeness(now[0], row)) in before]
    pairs = [pair for pair in pairs if is_unchanged((then[0], pair[0]), (now[0], pair[1]))]
    named = [pair for pair in pairs if now[0].subjects[pair[1]].description == now[0].baseline]
    return next(iter(named or pairs), None)


def through_yardstick(then: Home, now: Home, baseline: int, margin: float) -> Unpaired | None:
    """How ``now`` compares with ``then``, row ``baseline`` of the whole; None without a yardstick, or for it itself."""
    found = yardstick_of(then, now)
    if found is None or now[1] == found[1] or then[1] == found[0]:
        return None
    before, here = then[0].log_ratio(then[1], found[0], 2), now[0].log_ratio(now[1], found[1], 2)
    factor = LAYOUT if was_quiet(*then) and was_quiet(*now) else LOADED
    wide = math.log(factor)
    change = Interval(here.median - before.median, here.low - before.high - wide, here.high - before.low + wide)
    name = now[0].subjects[found[1]].description or "the other"
    because = (
        f"relative to `{name}`, which did not change: {math.exp(before.median):.3g} times its time then,"
        f" {math.exp(here.median):.3g} times now"
    )
    if_open = f"; such ratios differ by up to {100 * (factor - 1):.0f} % from run to run"
    loaded = any(is_co_loaded(made.subjects[row]) for made, row in (then, now))
    ruling = judged(Evidence(change, margin, is_loaded=loaded, because=because, if_open=if_open))
    shown = change.exp() if math.isfinite(change.width) else Interval(math.exp(change.median), 0.0, math.inf)
    return Unpaired(baseline, shown.median, shown.low, shown.high, ruling.word, ruling.reason)


# ---- load_between ----------------------------------------------------------------------------------------------------
# What else the machine did during runs that are compared: a fact beside the ratio, and no part of any identity.


def unlike_load(made: Comparison, names: Sequence[str], homes: Sequence[Home]) -> Iterator[Doubt]:
    """For each two results whose rows are compared: that the load was not alike, and how.

    Args:
        made: the rows side by side.
        names: of the result of each row.
        homes: the whole result that each row was measured in, and its row there.
    """
    pairs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row, one in made.unpaired.items():
        if one.baseline is not None and names[one.baseline] != names[row]:
            pairs.setdefault((names[one.baseline], names[row]), []).append((one.baseline, row))
    for (before, now), rows in pairs.items():
        loads = [_of_rows([homes[at] for at in side]) for side in zip(*rows, strict=True)]
        if found := load_differences(*loads):
            text = f"From {before} to {now} the load of the machine changed: {'; '.join(found)}."
            yield Doubt("other-load", text, "", {"changes": found, "name": f"{before} {now}"})


def _of_rows(homes: Sequence[Home]) -> Contention | None:
    seen = (result.subjects[row].contention for result, row in homes)
    return joined_contention([one for one in seen if one is not None])


# ---- unpaired_doubts -------------------------------------------------------------------------------------------------
# What is to be said of results side by side: why a verdict, what differs between them, what stands alone.

_MOST_NAMED = 3


def thing_of(subject: Subject) -> str:
    """What the row is called, whatever the result: description, else label if given, else its code."""
    return subject.description or given_label(subject.label) or subject.stmt.strip()


def reasons(made: Comparison) -> Iterator[Doubt]:
    """Why rows of different occasions have the verdict they have; what would decide those that are undecided."""
    reasons: dict[tuple[bool, str], list[int]] = {}
    for row in made.unpaired:
        word, _, reason = made.rulings[row]
        if word in VERDICTS and word != "same" and reason:
            reasons.setdefault((is_open(word), reason), []).append(row)
    for (nothing_decided, reason), rows in reasons.items():
        if not nothing_decided:
            names = [f"{name_in_doubt(made.subjects[row])} is {made.rulings[row].word}" for row in rows]
            yield Doubt("unpaired-verdict", f"{listed(names)}: {reason}.", "", {"reason": reason, "name": str(rows)})
            continue
        which = "The unpaired row is" if len(rows) == 1 else f"{len(rows)} unpaired rows are"
        action = "Compare them in one %%timer cell."
        if reason.startswith("one run on"):
            windows = f"{SPAN:g} s of samples (`--min-run-time {SPAN:g}`)"
            action += f" Otherwise give each side {windows} or {RUNS} stored runs."
        facts = {"reason": reason, "name": reason}
        yield Doubt("unpaired", f"{which} undecided: {reason}.", action, facts)


def apart(made: Comparison, names: Sequence[str], homes: Sequence[Home]) -> Iterator[Doubt]:
    """What else differs between results whose rows are compared."""
    diffs: dict[str, SourceDiff] = {}
    told: dict[tuple[str, str], dict[str, None]] = {}
    unknown: dict[str, str] = {}
    for row, one in made.unpaired.items():
        if one.baseline is None or one.baseline == row:
            continue
        before, now = names[one.baseline], names[row]
        same = thing_of(made.subjects[row]) == thing_of(made.subjects[one.baseline])
        for change in identity_differences(*homes[one.baseline], *homes[row]):
            if same or not change.startswith(("source", "setup")):
                told.setdefault((before, now), {})[change] = None
        if same:
            diffs |= source_diffs(*homes[one.baseline], *homes[row])
            unknown |= uncompared(*(result.subjects[at].values for result, at in (homes[one.baseline], homes[row])))
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # results that differ by the same are said together
    for (before, now), changes in told.items():
        start = f"From {before} to " if before != now else "Within "
        alike.setdefault((start, tuple(changes)), []).append(now)
    for (start, found), ends in alike.items():
        text = f"{start}{listed(ends)}: {'; '.join(found)}."
        yield Doubt("differs", text, "", {"changes": found, "name": f"{start}{' '.join(ends)}", "diffs": diffs})
    if unknown:
        yield Doubt("not-compared", f"{words_for(unknown)}.", "", {"uncompared": unknown})


def alone(made: Comparison) -> Iterator[Doubt]:
    """Rows that have nothing to be compared with."""
    frame = made.frame
    # A body near the loop's own cost has a ratio and no verdict.
    lonely = [name_in_doubt(s) for s, ratio in zip(made.subjects, frame["ratio"], strict=True) if math.isnan(ratio)]
    if lonely and len(frame) > 1:
        several = frame["env"].nunique(dropna=False) > 1
        action = "`--by env` compares environments." if several else ""
        yield Doubt("no-counterpart", f"Nothing to compare with at the same point and env: {listed(lonely)}.", action)


def name_in_doubt(subject: Subject) -> str:
    name = subject.description or given_label(subject.label) or code_title(subject.stmt) or "statement"
    threads = f", {subject.num_threads} threads" if subject.num_threads > 1 else ""
    return f"`{name}`" + (f" ({subject.sub_label}{threads})" if subject.sub_label else threads)


def listed(names: Sequence[str]) -> str:
    different = list(dict.fromkeys(names))
    more = len(different) - _MOST_NAMED
    return ", ".join(different[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# ---- side_by_side ----------------------------------------------------------------------------------------------------
# Results of different occasions side by side, and what changed since the last time.
#
# Rows of one run that were sampled side by side keep their paired ratios. Rows of different runs, environments or
# occasions are unpaired: see `timing.verdict` for what can be said of them. Nothing is merged: a repeated run is a row
# of its own, marked by the axis ``result``.

SideBy = Literal["description", "env"]

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
    return _compared(results, baseline, by)


def _compared(
    results: Mapping[str, Comparison], baseline: str | None, by: SideBy, *, yardsticks: bool = True
) -> Comparison:
    if by != "env" or not results:
        homes = [(result, row) for result in results.values() for row in range(len(result.subjects))]
        return _side_by_side(results, homes, baseline, by, yardsticks=yardsticks)
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
) -> Comparison:
    """Each row of ``current`` beside the last stored run of its identity, and what is not as it was then.

    Args:
        current: the result of now; its ``history`` is used where a store gave it one.
        last: row of ``current`` -> (stored result, row there), as `Store.last` finds them; their ``history`` too.

    Raises:
        InputError: nothing of it was stored before.
    """
    if not last:
        raise InputError("no stored run matches this result: measure it once more, with --save each time")
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
        text = f"No stored run of {listed(missing)}: left out here."
        doubts.append(Doubt("not-stored-before", text, _RELABEL))
    told = {"differs", *(["not-compared"] if any(doubt.kind == "unchanged" for doubt in doubts) else [])}
    return replace(made, warnings=[*doubts, *(d for d in made.warnings if d.kind not in told)])


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
        subjects = tuple(replace(s, axes=((AXIS, name), *_own_axes(s))) for s in result.subjects)
        parts.append(replace(result, subjects=subjects, baseline=None, margin=margin, counts=counts))
    whole = join_comparisons(parts)
    options = parts[0].options if all(part.options == parts[0].options for part in parts) else {}
    environment = common_environment([part.environment for part in parts])
    whole = replace(whole, environment=environment, options=options, seed=None, elapsed=math.nan, saved="")
    return replace(whole, unpaired={}, history=history, warnings=[]), names


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
            latest[subject.env, _point_key(subject), thing_of(subject)] = name, row
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
            self._points.setdefault(_point_key(subject), []).append(row)
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
            there = [i for i in self._points[_point_key(subject)] if self._whole.subjects[i].env == self._env]
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
        return (i for i in self._points[_point_key(mine)] if self._whole.subjects[i].env == mine.env)

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
        return one or judged_ranges(self._single(row), self._single(base), base, self._whole.margin)

    def _single(self, row: int) -> Single:
        """The time of a row by itself, and how far it can be trusted to come again."""
        inner = median_interval(self._whole.call_times(row), ALPHA / 2)
        load_known = is_load_known(*self._homes[row])
        known, held_up = self._whole.known_range(row), is_held_up(*self._homes[row])
        return Single(inner.median, max(inner.low, 0.0), inner.high, known, load_known, held_up)

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


def _point_key(subject: Subject) -> tuple[object, ...]:
    return subject.sub_label, _own_axes(subject), subject.num_threads
