"""What several engines measured, as one result.

Alternatives are paired on the engine that measured them, where they were sampled side by side. What two engines
measured is of two machines, or of two times of one: so a statement that stood alone is compared between them unpaired,
and one window of time on either side decides nothing, however far the times lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from torchbench_magic.errors import InputError

from ...doubts import Doubt
from ...machine.engine_place import EnginePlace
from ..comparison import Comparison
from ..intervals import ALPHA, median_interval
from ..joined_comparisons import distinct, join_comparisons
from ..ranges import RUNS, SPAN, Single, Unpaired, judged_ranges
from ..subject import Subject
from ..timing_doubts import doubts_of, is_held_up, is_load_known

__all__ = ["join_engines"]

ONE_WINDOW = "one run on each engine cannot tell a difference between environments from one between machines"
_DECIDES = (
    f"`--min-run-time {SPAN:g}` can decide it; so can `%tcompare FILE --by env` after {RUNS} stored runs (`--save"
    f" FILE`) over at least {SPAN:g} s."
)


def join_engines(
    parts: Sequence[Comparison], missing: Sequence[Subject] = (), doubts: Iterable[Doubt] = ()
) -> Comparison:
    """The points of a sweep that engines shared, or what each of them measured of the same.

    Args:
        parts: of one point and one engine each, which ``Subject.place`` names.
        missing: rows that nothing was measured of; their ``place.why_not`` says why.
        doubts: what is to be said besides, first.

    Raises:
        InputError: nothing was measured.
    """
    if not parts:
        raise InputError("nothing was measured on any engine")
    whole = join_comparisons(parts)
    group = 1 + max(subject.group for subject in whole.subjects)
    added = tuple(replace(subject, group=group + at) for at, subject in enumerate(missing))
    whole = replace(whole, subjects=(*whole.subjects, *added))
    whole = replace(whole, unpaired=_between_envs(whole))
    told = [*doubts, *_unlike_hosts(whole), *_undecided(whole), *whole.warnings, *doubts_of(whole)]
    return replace(whole, warnings=distinct(told))


def _between_envs(whole: Comparison) -> Mapping[int, Unpaired]:
    """Each statement that stood alone on its engine, against the same on the first engine that measured it."""
    found: dict[int, Unpaired] = {}
    first: dict[tuple[object, ...], int] = {}
    if len({subject.env for subject in whole.subjects}) < 2:
        return found
    for row, subject in enumerate(whole.subjects):
        if len(whole.beside(row)) > 1 or not len(whole.call_times(row)):
            continue
        base = first.setdefault((subject.description, subject.sub_label, subject.axes, subject.num_threads), row)
        if base != row:
            found.setdefault(base, Unpaired(base, 1.0, 1.0, 1.0, "baseline"))
            found[row] = _against(whole, row, base)
    return found


def _against(whole: Comparison, row: int, base: int) -> Unpaired:
    this, other = _single(whole, row), _single(whole, base)
    one = judged_ranges(this, other, base, whole.margin)
    if one.verdict is not None and (this.known is None or other.known is None):
        one = Unpaired(base, one.ratio, 0.0, math.inf, "undecided", ONE_WINDOW)
    near = min(this.median, other.median) < whole.subjects[row].near_loop
    return replace(one, verdict=None) if near else one


def _single(whole: Comparison, row: int) -> Single:
    inner = median_interval(whole.call_times(row), ALPHA / 2)
    known, is_loaded = whole.known_range(row), is_load_known(whole, row)
    return Single(inner.median, max(inner.low, 0.0), inner.high, known, is_loaded, is_held_up(whole, row))


def _undecided(whole: Comparison) -> Iterator[Doubt]:
    """Why rows of several engines have no verdict."""
    reasons = dict.fromkeys(one.reason for one in whole.unpaired.values() if one.verdict == "undecided" and one.reason)
    for reason in reasons:
        action = _DECIDES if reason == ONE_WINDOW else ""
        yield Doubt("unpaired", f"No verdict between engines: {reason}.", action, {"name": reason})


def _unlike_hosts(whole: Comparison) -> Iterator[Doubt]:
    """That points of one sweep come from machines or versions that differ: their times make no curve."""
    places = [s.place for s in whole.subjects if s.place is not None and not s.place.why_not]
    if len({subject.env for subject in whole.subjects}) > 1 or not whole.axes + tuple(filter(None, _inputs(whole))):
        return
    kinds: dict[tuple[str, ...], list[str]] = {}
    for place in places:
        if place.environment is not None:
            kinds.setdefault(_kind(place), []).append(place.host)
    hosts = {place.host for place in places}
    if len(kinds) < 2:
        if len(hosts) > 1:
            text = (
                f"The points were measured on {len(hosts)} hosts of the same kind: ratios are within one host; absolute"
                f" times"
                " of different points are of different machines."
            )
            yield Doubt("several-hosts", text, "", {"hosts": sorted(hosts)})
        return
    names = "; ".join(f"{_listed(of_kind)}: {', '.join(kind)}" for kind, of_kind in kinds.items())
    text = f"The points were measured on hosts that differ ({names}): do not compare times of different points."
    action = "Ratios at a point are within one host and still valid."
    yield Doubt("unlike-hosts", text, action, {"hosts": sorted(hosts)})


def _inputs(whole: Comparison) -> tuple[str, ...]:
    """Names of inputs without an axis, as a fuzzer's points have."""
    names = dict.fromkeys(subject.sub_label or "" for subject in whole.subjects)
    return tuple(names) if len(names) > 1 else ()


def _kind(place: EnginePlace) -> tuple[str, ...]:
    """What makes times of two hosts no curve: processor, cores, accelerator, torch and Python."""
    e = place.environment
    assert e is not None
    shown = (e.cpu, f"{e.usable_cores} cores", e.accelerator, f"torch {e.torch}", f"Python {e.python}")
    return tuple(part for part in shown if part)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted({*names}))
